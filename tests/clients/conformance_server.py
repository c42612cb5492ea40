"""The server under the conformance suite: cellhost's own wire with the fixtures that the scenarios call.

python -m tests.clients.conformance_server WORKSPACE DATA_DIR
"""

from __future__ import annotations

from cellhost.rpc.claim import claim

if __name__ == "__main__":
    DESCRIPTORS = claim()  # before any import that could print

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec

from cellhost.rpc.mcp import McpMethods
from cellhost.rpc.mcp_log import McpLog
from cellhost.rpc.mcp_stateless import StatelessMethods
from cellhost.rpc.request_state import RequestState
from cellhost.rpc.server import Server, serve
from cellhost.rpc.subscriptions import Subscriptions
from cellhost.rpc.tasks import Tasks
from cellhost.store.errors import InvalidParams, Issue, UnknownMethod
from cellhost.tools.config import Config

from . import fixture_asking, fixture_content, fixture_tasks
from .fixture_call import PROMPTS, TOOLS, Answer, Fixture, FixtureCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellhost.rpc.connection import Methods
    from cellhost.rpc.incoming import Incoming
    from cellhost.rpc.mcp import Method
    from cellhost.tools.host import Host

REGISTERING = (fixture_asking, fixture_content, fixture_tasks)
"""Modules whose import registers their tools and prompts."""

CAPABILITIES: Answer = {"prompts": {"listChanged": False}, "completions": {}}
CACHEABLE: Answer = {"ttlMs": 0, "cacheScope": "private"}


class Fixtures:
    """What the fixtures add to an era's methods; `product` are the methods as the product has them."""

    def __init__(self, product: Mapping[str, Method], state: RequestState, tasks: Tasks | None, hints: Answer) -> None:
        self._product = product
        self._state = state
        self._tasks = tasks
        self._hints = hints

    def methods(self) -> dict[str, Method]:
        """The methods with the fixtures in them."""
        return {
            **self._product,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._subscribe,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }

    async def _list_tools(self, incoming: Incoming, params: Any) -> Answer:
        listed = await self._product["tools/list"](incoming, params)
        shown = [fixture.shown for fixture in TOOLS.values()]
        return listed | {"tools": msgspec.json.decode(msgspec.json.encode(listed["tools"])) + shown}

    async def _call_tool(self, incoming: Incoming, params: Any) -> Answer:
        fixture = TOOLS.get(params.get("name"))
        if fixture is None:
            return await self._product["tools/call"](incoming, params)
        return await self._run(fixture, incoming, params)

    async def _list_resources(self, incoming: Incoming, params: Any) -> Answer:
        listed = await self._product["resources/list"](incoming, params)
        return listed | {"resources": listed["resources"] + fixture_content.listed_resources()}

    async def _list_templates(self, incoming: Incoming, params: Any) -> Answer:
        listed = await self._product["resources/templates/list"](incoming, params)
        return listed | {"resourceTemplates": listed["resourceTemplates"] + fixture_content.TEMPLATES}

    async def _read_resource(self, incoming: Incoming, params: Any) -> Answer:
        contents = fixture_content.read_resource(str(params.get("uri")))
        return await self._product["resources/read"](incoming, params) if contents is None else contents | self._hints

    async def _subscribe(self, incoming: Incoming, params: Any) -> Answer:
        if fixture_content.read_resource(str(params.get("uri"))) is not None:
            return {}  # it never changes
        method = self._product.get(incoming.method)
        if method is None:
            raise UnknownMethod("this era has no such method")
        return await method(incoming, params)

    async def _list_prompts(self, _incoming: Incoming, _params: Any) -> Answer:
        return {"prompts": [fixture.shown for fixture in PROMPTS.values()]} | self._hints

    async def _get_prompt(self, incoming: Incoming, params: Any) -> Answer:
        fixture = PROMPTS.get(params.get("name"))
        if fixture is None:
            raise InvalidParams("no such prompt", [Issue("$.name", "is not in prompts/list")])
        return await self._run(fixture, incoming, params)

    async def _complete(self, _incoming: Incoming, _params: Any) -> Answer:
        return {"completion": {"values": [], "total": 0, "hasMore": False}}

    async def _run(self, fixture: Fixture, incoming: Incoming, params: Any) -> Answer:
        call = FixtureCall(fixture.shown["name"], incoming, params, self._state, self._tasks)
        with incoming.waiting():
            return await fixture.run(call)


class HandshakeMethods(McpMethods):
    """The handshake era with fixtures."""

    def __init__(self, host: Host, subscriptions: Subscriptions, log: McpLog) -> None:
        super().__init__(host, subscriptions, log)
        self._fixtures = Fixtures(super().methods(), RequestState(host), None, {})

    def capabilities(self) -> Answer:
        """The product's, and those of the fixtures."""
        return super().capabilities() | CAPABILITIES

    def methods(self) -> dict[str, Method]:
        """The product's, and the fixtures."""
        return self._fixtures.methods()


class FixtureStatelessMethods(StatelessMethods):
    """The stateless era with fixtures."""

    def __init__(self, host: Host, tasks: Tasks) -> None:
        super().__init__(host, tasks)
        self._fixtures = Fixtures(super().methods(), RequestState(host), tasks, CACHEABLE)

    def capabilities(self) -> Answer:
        """The product's, and those of the fixtures."""
        return super().capabilities() | CAPABILITIES

    def methods(self) -> dict[str, Method]:
        """The product's, and the fixtures."""
        return self._fixtures.methods()


class ConformanceServer(Server):
    """The product's server with the fixtures in both eras."""

    def methods(self) -> Methods:
        """The product's tables, those of MCP made anew."""
        outgoing = self.connection.outgoing
        subscriptions = Subscriptions(self.host, outgoing, self.tasks, anyio.lowlevel.checkpoint)
        return msgspec.structs.replace(
            super().methods(),
            mcp=HandshakeMethods(self.host, subscriptions, McpLog(outgoing)).table(),
            mcp_stateless=FixtureStatelessMethods(self.host, Tasks(self.host)).table(),
        )


def main() -> int:
    """Serve the workspace and data folder that are named."""
    workspace, data = (Path(argument) for argument in sys.argv[1:3])
    config = Config(data_dir=data, rules=(("exec_background", "*", "allow"),))
    return anyio.run(serve, config, workspace, DESCRIPTORS, None, ConformanceServer)


if __name__ == "__main__":
    raise SystemExit(main())
