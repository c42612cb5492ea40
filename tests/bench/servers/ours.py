"""`cellhost serve` with the bench's own tool: `echo` answers with its arguments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cellhost.rpc.claim import claim

descriptors = claim()

import msgspec  # noqa: E402 (the wire's descriptors are claimed first)

from cellhost.tools import registry  # noqa: E402
from cellhost.tools.tool import Tool  # noqa: E402

if TYPE_CHECKING:
    from cellhost.tools.call import Call


class EchoParams(msgspec.Struct, frozen=True):
    text: Annotated[str, msgspec.Meta(description="What comes back.")]


class EchoTool(Tool[EchoParams, dict[str, str]]):
    name = "echo"
    title = "Echo"
    description = "Answer with the arguments."

    async def run(self, params: EchoParams, call: Call) -> dict[str, str]:
        return {"text": params.text}


registry.REGISTRY = registry.Registry((*registry.REGISTRY.tools.values(), EchoTool()), checked=True)

from cellhost.rpc.serve_command import run  # noqa: E402 (the host takes its tools from the registry when imported)

raise SystemExit(run(sys.argv[1:], descriptors))
