"""Tools as MCP shows and calls them: a model stands behind the call, so answers are cut to its budget."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..store.errors import HostError, InvalidParams, Issue
from ..tools.budget import fit
from ..tools.call import Call
from ..tools.registry import REGISTRY
from . import strictjson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tools.approval import Ask
    from ..tools.call import ReportProgress
    from ..tools.host import Host
    from ..tools.outputs import Image
    from ..tools.tool import Tool
    from .incoming import Incoming


def find_tool(name: str) -> Tool[Any, Any]:
    """The tool of that name.

    Raises:
        InvalidParams: there is none, which MCP has as a protocol error.
    """
    tool = REGISTRY.get(name)
    if tool is None:
        issue = Issue("$.name", f"unknown tool {name[:64]!r}")
        raise InvalidParams(f"invalid params: {issue.path}: {issue.message}", [issue], hint="tools/list names them")
    return tool


async def call_tool(
    host: Host,
    tool: Tool[Any, Any],
    arguments: dict[str, Any] | None,
    incoming: Incoming,
    *,
    progress: ReportProgress | None = None,
    ask: Ask | None = None,
    raises: type[HostError] | tuple[type[HostError], ...] = (),
) -> dict[str, Any]:
    """Call a tool for a model: what goes wrong with the call is a result that the model can read and act on.

    Raises:
        HostError: of the kinds in `raises` only.
    """
    budget = host.config.limits.mcp_chars
    images: list[Image] = []
    call = Call(
        host,
        "mcp",
        budget=budget,
        encoded=True,
        aside=incoming.aside,
        waiting=incoming.waiting,
        progress=progress,
        ask=ask,
        images=images,
    )
    try:
        return success(await host.call(tool.name, arguments, call), tool, budget, images)
    except raises:
        raise
    except HostError as error:
        return failure(error)


def success(result: Any, tool: Tool[Any, Any], budget: int, images: Sequence[Image] = ()) -> dict[str, Any]:
    """A `CallToolResult`: the structured content, the same JSON as text, and the images that belong to it."""
    structured = cast("dict[str, Any]", result) if isinstance(result, dict) else {"result": result}
    text = strictjson.encode(fit(structured, budget, tool.go_on, keyed=tool.keyed))
    content = [{"type": "text", "text": text.decode()}, *(_shown(image) for image in images)]
    return {"content": content, "structuredContent": msgspec.Raw(text)}


def _shown(image: Image) -> dict[str, Any]:
    if image.data is None:
        return {"type": "text", "text": f"An image too large for this answer: read artifact://{image.version_id}"}
    return {"type": "image", "data": image.data, "mimeType": image.mime}


def failure(error: HostError) -> dict[str, Any]:
    """A `CallToolResult` with `isError`: kind, message, every issue, and the hint."""
    lines = [f"{error.kind}: {error.message}"]
    if isinstance(error, InvalidParams):
        lines += [f"{issue.path}: {issue.message}" for issue in error.issues]
    if error.hint:
        lines.append(f"Hint: {error.hint}")
    return {
        "content": [{"type": "text", "text": "\n".join(lines)}],
        "isError": True,
        "_meta": {"cellhost/error": {"code": error.code, **error.as_data()}},
    }


@cache
def tool_list() -> msgspec.Raw:
    """All tools as `tools/list` shows them, encoded once."""
    return msgspec.Raw(msgspec.json.encode([_described(tool) for tool in REGISTRY.tools.values()]))


def _described(tool: Tool[Any, Any]) -> dict[str, Any]:
    output = tool.output_schema()
    if output.get("type") != "object":
        definitions = output.pop("$defs", None)
        output = {"type": "object", "properties": {"result": output}, "required": ["result"]}
        if definitions:
            output["$defs"] = definitions
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema(),
        "outputSchema": output,
        "annotations": {
            "title": tool.title,
            "readOnlyHint": tool.read_only,
            "destructiveHint": tool.destructive,
            "idempotentHint": tool.read_only or tool.idempotent,
            "openWorldHint": False,
        },
    }
