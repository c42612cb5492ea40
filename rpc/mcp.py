"""The Model Context Protocol's methods, handshake era (revisions 2024-11-05 to 2025-11-25)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import msgspec

from ..store.errors import HostError, InvalidParams, Issue, NotFound
from ..store.version import VERSION
from ..tools.call import Call
from ..tools.resources import TEMPLATES, check_resource
from .asking import asker
from .instructions import INSTRUCTIONS
from .mcp_tools import call_tool, find_tool, tool_list
from .progress import reporting
from .responses import answer
from .signature import takes_anything

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from ..tools.host import Host
    from .dialect import Handler
    from .incoming import Incoming
    from .jsonrpc import Result
    from .mcp_log import McpLog
    from .subscriptions import Subscriptions

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
SERVER = {"name": "cellhost", "title": "cellhost", "version": VERSION}

S = TypeVar("S", bound=msgspec.Struct)
Answer: TypeAlias = "dict[str, Any]"
Params: TypeAlias = "Mapping[str, Any]"
Method: TypeAlias = "Callable[[Incoming, Params], Awaitable[Answer]]"


class _Initialize(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion")
    capabilities: dict[str, Any] = {}


class ToolCall(msgspec.Struct):
    """Params of `tools/call`."""

    name: str
    arguments: dict[str, Any] | None = None


class Uri(msgspec.Struct):
    """Params that name a resource."""

    uri: str


class Page(msgspec.Struct):
    """Params of a paged list."""

    cursor: str | None = None


class _Level(msgspec.Struct):
    level: str


class ResourceNotFound(HostError):
    """No such resource in the project (Resources, Error Handling, up to 2025-11-25)."""

    kind: ClassVar[str] = "not_found"
    code: ClassVar[int] = -32002


class McpMethods:
    """The methods of one server, as a table of handlers."""

    def __init__(self, host: Host, subscriptions: Subscriptions, log: McpLog) -> None:
        self._host = host
        self._subscriptions = subscriptions
        self._log = log

    def table(self) -> Mapping[str, Handler]:
        """Handlers by method name."""
        return {name: handler(method) for name, method in self.methods().items()}

    def capabilities(self) -> Answer:
        """What `initialize` declares."""
        return {
            "tools": {"listChanged": False},
            "resources": {"subscribe": True, "listChanged": True},
            "logging": {},
        }

    def methods(self) -> dict[str, Method]:
        """The methods, as they are called once their params are known to be an object."""
        return {
            "initialize": self._initialize,
            "ping": self._ping,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
        }

    async def _initialize(self, incoming: Incoming, params: Params) -> Answer:
        given = read(params, _Initialize)
        asked = given.protocol_version
        chosen = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        peer = incoming.connection.peer
        peer.mcp_version = chosen
        peer.can_elicit = can_elicit(given.capabilities)
        return {
            "protocolVersion": chosen,
            "capabilities": self.capabilities(),
            "serverInfo": SERVER,
            "instructions": INSTRUCTIONS,
        }

    async def _ping(self, _incoming: Incoming, _params: Params) -> Answer:
        return {}

    async def _list_tools(self, _incoming: Incoming, params: Params) -> Answer:
        one_page(params)
        return {"tools": tool_list()}

    async def _call_tool(self, incoming: Incoming, params: Params) -> Answer:
        asked = read(params, ToolCall)
        tool = find_tool(asked.name)
        with reporting(incoming, params) as progress:
            return await call_tool(
                self._host, tool, asked.arguments, incoming, progress=progress, ask=asker(incoming.connection)
            )

    async def _list_resources(self, _incoming: Incoming, params: Params) -> Answer:
        self._subscriptions.follow_resources()
        return await list_resources(self._host, params)

    async def _list_templates(self, _incoming: Incoming, params: Params) -> Answer:
        one_page(params)
        return resource_templates()

    async def _read_resource(self, _incoming: Incoming, params: Params) -> Answer:
        with absent_as(ResourceNotFound, read(params, Uri).uri):
            return await read_resource(self._host, params)

    async def _subscribe(self, _incoming: Incoming, params: Params) -> Answer:
        uri = read(params, Uri).uri
        with absent_as(ResourceNotFound, uri):
            check_resource(uri)
        self._subscriptions.subscribe(uri)
        return {}

    async def _unsubscribe(self, _incoming: Incoming, params: Params) -> Answer:
        self._subscriptions.unsubscribe(read(params, Uri).uri)
        return {}

    async def _set_level(self, _incoming: Incoming, params: Params) -> Answer:
        self._log.set_level(read(params, _Level).level)
        return {}


async def list_resources(host: Host, params: Params) -> Answer:
    """A page of the project's saved files."""
    page: Answer = await host.call("resources/list", {"cursor": read(params, Page).cursor}, Call(host, "mcp"))
    return page


async def read_resource(host: Host, params: Params) -> Answer:
    """The contents behind a URI. Raises `NotFound`, and what reading it may raise."""
    contents: Answer = await host.call("resources/read", {"uri": read(params, Uri).uri}, Call(host, "mcp"))
    return contents


@contextmanager
def absent_as(error: type[HostError], uri: str) -> Generator[None]:
    """Have a resource that is not there told as the peer's revision has it."""
    try:
        yield
    except NotFound as absent:
        raise error(absent.message, hint=absent.hint, data={"uri": uri}) from None


def resource_templates() -> Answer:
    """The forms of URI there are."""
    templates = [{"uriTemplate": uri, "name": name, "description": text} for uri, name, text in TEMPLATES]
    return {"resourceTemplates": templates}


def handler(method: Method) -> Handler:
    """The handler of an MCP method, whose params are always an object."""

    async def call(incoming: Incoming, args: tuple[Any, ...], params: Params) -> Answer:
        if args:
            raise invalid("$", "MCP params are an object")
        return await method(incoming, params)

    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        return await answer(call(incoming, args, kwargs))

    return handle


def can_elicit(capabilities: Mapping[str, Any]) -> bool:
    """Whether declared capabilities include forms; before 2025-11-25 an empty declaration meant just that."""
    declared = capabilities.get("elicitation")
    return isinstance(declared, dict) and (not declared or "form" in declared)


def read(params: Params, struct: type[S]) -> S:
    """The params a method needs; others, such as `_meta`, are left alone.

    Raises:
        InvalidParams: they are not there or of another type.
    """
    try:
        return msgspec.convert(params, struct)
    except msgspec.ValidationError as error:
        message, _, path = str(error).replace("`", "").partition(" - at ")
        raise invalid(path or "$", message) from None


def one_page(params: Params) -> None:
    """Refuse a cursor where the list has one page."""
    if read(params, Page).cursor is not None:
        raise invalid("$.cursor", "is not one of ours: this list has one page")


def invalid(path: str, message: str) -> InvalidParams:
    """The error for one bad param."""
    return InvalidParams(f"invalid params: {path}: {message}", [Issue(path, message)])
