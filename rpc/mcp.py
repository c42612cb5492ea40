"""The Model Context Protocol's methods, handshake era (revisions 2024-11-05 to 2025-11-25)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec

from ..store.errors import HostError, InvalidParams, Issue
from ..store.version import VERSION
from ..tools.budget import fit
from ..tools.call import Call
from ..tools.registry import REGISTRY
from . import strictjson
from .connection import answer
from .instructions import INSTRUCTIONS
from .resources import Resources
from .signature import takes_anything

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ..tools.host import Host
    from ..tools.tool import Tool
    from .dialect import Handler
    from .incoming import Incoming
    from .jsonrpc import Result

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

S = TypeVar("S", bound=msgspec.Struct)
Answer: TypeAlias = "dict[str, Any]"
Params: TypeAlias = "Mapping[str, Any]"


class _Initialize(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion")


class _ToolCall(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | None = None


class _Uri(msgspec.Struct):
    uri: str


class _Page(msgspec.Struct):
    cursor: str | None = None


class _Level(msgspec.Struct):
    level: str


class McpMethods:
    """The methods of one server, as a table of handlers."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._resources = Resources(host)

    def table(self) -> Mapping[str, Handler]:
        """Handlers by method name."""
        methods = {
            "initialize": self._initialize,
            "ping": self._ping,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "logging/setLevel": self._set_level,
        }
        return {name: _handler(method) for name, method in methods.items()}

    async def _initialize(self, incoming: Incoming, params: Params) -> Answer:
        asked = _read(params, _Initialize).protocol_version
        chosen = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        incoming.connection.mcp_version = chosen
        return {
            "protocolVersion": chosen,
            "capabilities": {"tools": {"listChanged": False}, "resources": {"listChanged": False}, "logging": {}},
            "serverInfo": {"name": "cellhost", "title": "cellhost", "version": VERSION},
            "instructions": INSTRUCTIONS,
        }

    async def _ping(self, _incoming: Incoming, _params: Params) -> Answer:
        return {}

    async def _list_tools(self, _incoming: Incoming, params: Params) -> Answer:
        if _read(params, _Page).cursor is not None:
            raise _invalid("$.cursor", "tools/list has one page")
        return {"tools": tool_list()}

    async def _call_tool(self, incoming: Incoming, params: Params) -> Answer:
        asked = _read(params, _ToolCall)
        tool = REGISTRY.get(asked.name)
        if tool is None:
            raise _invalid("$.name", f"unknown tool {asked.name[:64]!r}")
        return await _tool_result(self._host, tool, asked.arguments, incoming)

    async def _list_resources(self, _incoming: Incoming, params: Params) -> Answer:
        return await self._resources.list(await self._host.caller("mcp"), _read(params, _Page).cursor)

    async def _list_templates(self, _incoming: Incoming, _params: Params) -> Answer:
        return self._resources.templates()

    async def _read_resource(self, _incoming: Incoming, params: Params) -> Answer:
        return await self._resources.read(await self._host.caller("mcp"), _read(params, _Uri).uri)

    async def _set_level(self, _incoming: Incoming, params: Params) -> Answer:
        if _read(params, _Level).level not in LOG_LEVELS:
            raise _invalid("$.level", f"must be one of {', '.join(LOG_LEVELS)}")
        return {}


def _handler(method: Callable[[Incoming, Params], Awaitable[Answer]]) -> Handler:
    async def call(incoming: Incoming, args: tuple[Any, ...], params: Params) -> Answer:
        if args:
            raise _invalid("$", "MCP params are an object")
        return await method(incoming, params)

    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        return await answer(call(incoming, args, kwargs))

    return handle


async def _tool_result(
    host: Host, tool: Tool[Any, Any], arguments: dict[str, Any] | None, incoming: Incoming
) -> Answer:
    """Call a tool for a model: what goes wrong with the call is a result that the model can read and act on."""
    budget = host.config.limits.mcp_chars
    call = Call(host, "mcp", budget=budget, encoded=True, waiting=incoming.connection.workers.waiting)
    try:
        result = await host.call(tool.name, arguments, call)
    except HostError as error:
        return _failure(error)
    structured = cast("dict[str, Any]", result) if isinstance(result, dict) else {"result": result}
    text = strictjson.encode(fit(structured, budget, tool.go_on))
    return {"content": [{"type": "text", "text": text.decode()}], "structuredContent": msgspec.Raw(text)}


def _failure(error: HostError) -> Answer:
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


def _read(params: Mapping[str, Any], struct: type[S]) -> S:
    try:
        return msgspec.convert(params, struct)
    except msgspec.ValidationError as error:
        message, _, path = str(error).replace("`", "").partition(" - at ")
        raise _invalid(path or "$", message) from None


def _invalid(path: str, message: str) -> InvalidParams:
    return InvalidParams(f"invalid params: {path}: {message}", [Issue(path, message)])
