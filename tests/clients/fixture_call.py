"""A call of a fixture tool or prompt, with what it may do on the way; and how fixtures are registered.

@tool("test_simple_text", "Says something.")
async def simple_text(call: FixtureCall) -> Answer: ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from cellhost.rpc.dialect import MCP
from cellhost.rpc.mcp_stateless import CAPABILITIES_KEY, MissingCapability
from cellhost.rpc.progress import reporting
from cellhost.store.errors import UnknownMethod

if TYPE_CHECKING:
    from cellhost.rpc.incoming import Incoming
    from cellhost.rpc.request_state import RequestState
    from cellhost.rpc.tasks import Tasks

Answer = dict[str, Any]
Run = Callable[["FixtureCall"], Awaitable[Answer]]

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
NO_ARGUMENTS: Answer = {"type": "object", "properties": {}, "additionalProperties": False}


class Fixture(msgspec.Struct, frozen=True):
    """A tool or prompt of the suite's: `shown` is its entry in the list."""

    shown: Answer
    run: Run


TOOLS: dict[str, Fixture] = {}
PROMPTS: dict[str, Fixture] = {}


class FixtureCall:
    """One call; `stateless` says which era it is of."""

    def __init__(self, name: str, incoming: Incoming, params: Any, state: RequestState, tasks: Tasks | None) -> None:
        self.name = name
        self.incoming = incoming
        self.params: Answer = dict(params)
        self.arguments: Answer = self.params.get("arguments") or {}
        self.tasks = tasks
        self._state = state

    @property
    def stateless(self) -> bool:
        """Whether the request is of the stateless era."""
        return self.incoming.dialect.name == "mcp_stateless"

    @property
    def meta(self) -> Answer:
        """The request's `_meta`."""
        return cast("Answer", self.params.get("_meta") or {})

    @property
    def capabilities(self) -> Answer:
        """What a stateless request declares."""
        return cast("Answer", self.meta.get(CAPABILITIES_KEY) or {})

    def given(self, key: str) -> Answer | None:
        """The response to an input request, if it is there and well-formed."""
        responses = self.params.get("inputResponses")
        response = cast("Answer", responses).get(key) if isinstance(responses, dict) else None
        return cast("Answer", response) if isinstance(response, dict) else None

    def need(self, capability: str) -> None:
        """Refuse the call of a client that does not declare a capability.

        Raises:
            MissingCapability: it does not.
        """
        if capability not in self.capabilities:
            required: Answer = {capability: {}}
            raise MissingCapability(
                f"the call needs the capability {capability}", data={"requiredCapabilities": required}
            )

    async def ask(self, method: str, params: Answer) -> Answer:
        """What the client answers to a request of ours (handshake era)."""
        if self.stateless:
            raise UnknownMethod("this tool asks the client, which the stateless era does not have")
        response = await self.incoming.connection.outgoing.request(method, params, MCP)
        return cast("Answer", (response or {}).get("result") or {})

    def log(self, text: str) -> None:
        """A log message about this call, where the client wants to have it."""
        if not self.stateless or LOG_LEVEL_KEY in self.meta:
            params = {"level": "info", "logger": "fixtures", "data": text}
            self.incoming.connection.outgoing.notify("notifications/message", params)

    def progress(self, *done: float) -> None:
        """Progress of a hundred steps, each of these."""
        with reporting(self.incoming, self.params) as report:
            for each in done:
                if report is not None:
                    report(each, 100, f"{each:g} of 100")

    async def sign(self, text: str) -> str:
        """A request state that holds a text for this call."""
        return await self._state.sign(text, self.name, self.arguments)

    async def remembered(self) -> str | None:
        """The text that the call's request state holds, if it has one.

        Raises:
            InvalidParams: it was tampered with.
        """
        state = self.params.get("requestState")
        return None if state is None else await self._state.verify(state, self.name, self.arguments)


def tool(name: str, description: str, schema: Answer | None = None) -> Callable[[Run], Run]:
    """Register a tool of the suite's."""

    def register(run: Run) -> Run:
        shown = {"name": name, "description": description, "inputSchema": schema or NO_ARGUMENTS}
        TOOLS[name] = Fixture(shown, run)
        return run

    return register


def prompt(name: str, description: str, *arguments: str) -> Callable[[Run], Run]:
    """Register a prompt of the suite's."""

    def register(run: Run) -> Run:
        listed = [{"name": each, "description": f"The {each}.", "required": True} for each in arguments]
        PROMPTS[name] = Fixture({"name": name, "description": description, "arguments": listed}, run)
        return run

    return register


def text(words: str) -> Answer:
    """A text block."""
    return {"type": "text", "text": words}


def said(words: str) -> Answer:
    """A tool's result that is one text."""
    return {"content": [text(words)]}


def required(*names: str) -> Answer:
    """The schema of an object of required texts."""
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}
