"""The Model Context Protocol's methods, stateless era (revision 2026-07-28): every request carries all about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from ..store.errors import HostError, InvalidParams, NotFound, PermissionNeeded, UnknownMethod
from ..tools.approval import question_of_request
from ..tools.host import shortened
from .asking import elicitation, elicited
from .dialect import STATELESS_VERSION_KEY
from .instructions import INSTRUCTIONS
from .listening import listen
from .mcp import (
    SERVER,
    Answer,
    Params,
    ToolCall,
    Uri,
    absent_as,
    can_elicit,
    handler,
    invalid,
    list_resources,
    one_page,
    read,
    read_resource,
    resource_templates,
)
from .mcp_tools import call_tool, failure, find_tool, tool_list
from .progress import reporting
from .request_state import RequestState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..tools.approval import Question
    from ..tools.host import Host
    from ..tools.tool import Tool
    from .dialect import Handler
    from .incoming import Incoming
    from .mcp import Method
    from .tasks import Tasks

VERSIONS = ("2026-07-28",)
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"

HOUR_MS = 3_600_000
APPROVAL = "approval"
"""Key of our one input request."""


class UnsupportedVersion(HostError):
    """The request is of a revision that is not served statelessly."""

    kind: ClassVar[str] = "request"
    code: ClassVar[int] = -32022


class Absent(HostError):
    """No such resource or task in the project: an invalid param in this era (Resources, Error Handling)."""

    kind: ClassVar[str] = "not_found"
    code: ClassVar[int] = -32602


class MissingCapability(HostError):
    """The request asks for what its own capabilities do not declare."""

    kind: ClassVar[str] = "request"
    code: ClassVar[int] = -32021


class _ToolCall(ToolCall):
    input_responses: dict[str, Any] | None = msgspec.field(default=None, name="inputResponses")
    request_state: str | None = msgspec.field(default=None, name="requestState")


class _Listen(msgspec.Struct):
    notifications: dict[str, Any]


class _TaskId(msgspec.Struct):
    task_id: str = msgspec.field(name="taskId")


class _Table(dict[str, "Handler"]):
    """Handlers by name; one that is not there says so, as errors of ours do."""

    def __missing__(self, name: str) -> Handler:
        async def unknown(_incoming: Incoming, _params: Params) -> Answer:
            raise UnknownMethod(f"unknown method {shortened(name)}", hint="server/discover tells what there is")

        return handler(unknown)


class StatelessMethods:
    """The methods of one server, as a table of handlers."""

    def __init__(self, host: Host, tasks: Tasks) -> None:
        self._host = host
        self._tasks = tasks
        self._state = RequestState(host)

    def table(self) -> Mapping[str, Handler]:
        """Handlers by method name."""
        return _Table({name: handler(_stateless(method)) for name, method in self.methods().items()})

    def capabilities(self) -> Answer:
        """What `server/discover` declares."""
        return {
            "tools": {"listChanged": False},
            "resources": {"subscribe": True, "listChanged": True},
            "extensions": {TASKS_EXTENSION: {}},
        }

    def methods(self) -> dict[str, Method]:
        """The methods, without what every request and result of this era carries."""
        return {
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "subscriptions/listen": self._listen,
            "tasks/get": self._get_task,
            "tasks/update": self._update_task,
            "tasks/cancel": self._cancel_task,
        }

    async def _discover(self, _incoming: Incoming, _params: Params) -> Answer:
        about: Answer = {
            "supportedVersions": list(VERSIONS),
            "capabilities": self.capabilities(),
            "instructions": INSTRUCTIONS,
        }
        return about | _cacheable(HOUR_MS, "public")

    async def _list_tools(self, _incoming: Incoming, params: Params) -> Answer:
        one_page(params)
        return {"tools": tool_list()} | _cacheable(HOUR_MS, "public")

    async def _list_resources(self, _incoming: Incoming, params: Params) -> Answer:
        return await list_resources(self._host, params) | _cacheable(0, "private")

    async def _list_templates(self, _incoming: Incoming, params: Params) -> Answer:
        one_page(params)
        return resource_templates() | _cacheable(HOUR_MS, "public")

    async def _read_resource(self, _incoming: Incoming, params: Params) -> Answer:
        uri = read(params, Uri).uri
        with absent_as(Absent, uri):
            contents = await read_resource(self._host, params)
        return contents | _cacheable(HOUR_MS if uri.startswith("artifact://") else 0, "private")

    async def _call_tool(self, incoming: Incoming, params: Params) -> Answer:
        asked = read(params, _ToolCall)
        tool = find_tool(asked.name)
        declared = _capabilities(params)
        try:
            if asked.request_state is not None:
                await self._take_answer(tool, asked)
            if TASKS_EXTENSION in _extensions(declared) and self._tasks.takes(tool.name):
                return await self._tasks.begin(tool, asked.arguments, incoming)
            with reporting(incoming, params) as progress:
                return await call_tool(
                    self._host, tool, asked.arguments, incoming, progress=progress, raises=PermissionNeeded
                )
        except PermissionNeeded as error:
            return await self._refused(error, tool, asked, declared)

    async def _refused(
        self, error: PermissionNeeded, tool: Tool[Any, Any], asked: _ToolCall, declared: Params
    ) -> Answer:
        """A call that nobody has decided: the question, if the client can put it, else the refusal as a result."""
        request_id = error.data.get("request_id")
        if request_id is None or error.data.get("allow_with") is None or not can_elicit(declared):
            return failure(error)
        question = await self._question(request_id)
        return {
            "resultType": "input_required",
            "inputRequests": {APPROVAL: {"method": "elicitation/create", "params": elicitation(question)}},
            "requestState": await self._state.sign(request_id, tool.name, asked.arguments),
        }

    async def _question(self, request_id: str) -> Question:
        request = await self._host.store.run(self._host.store.store.control.requests.get, request_id)
        return question_of_request(request, (await self._host.caller("mcp")).project_id)

    async def _take_answer(self, tool: Tool[Any, Any], asked: _ToolCall) -> None:
        """Decide the request that the state stands for, as the person answered; an approval is then spent by the call.

        A missing answer, or one that decides nothing, leaves the question open: the call asks it again.
        """
        assert asked.request_state is not None
        request_id = await self._state.verify(asked.request_state, tool.name, asked.arguments)
        given = (asked.input_responses or {}).get(APPROVAL)
        answer = elicited(cast("dict[str, Any]", given)) if isinstance(given, dict) else None
        if answer is None:
            return
        try:
            await self._host.gate.resolve(request_id, answer.decision, answer.remember, await self._host.caller("mcp"))
        except InvalidParams:
            return  # decided before, elsewhere or by a replay: what was decided counts, once
        if answer.decision == "deny":
            raise PermissionNeeded(
                f"Permission denied: {tool.name} needs approval, and a person refused it",
                hint="do something else, or ask the person what to do",
                data={"tool": tool.name, "request_id": request_id, "allow_with": None},
            )

    async def _listen(self, incoming: Incoming, params: Params) -> Answer:
        wanted = read(params, _Listen).notifications
        if wanted.get("taskIds") and TASKS_EXTENSION not in _extensions(_capabilities(params)):
            raise _missing_tasks()
        return await listen(self._host, self._tasks, incoming, wanted)

    async def _get_task(self, _incoming: Incoming, params: Params) -> Answer:
        return await self._task(params)

    async def _update_task(self, _incoming: Incoming, params: Params) -> Answer:
        await self._task(params)
        return {}

    async def _cancel_task(self, _incoming: Incoming, params: Params) -> Answer:
        task = await self._task(params)
        await self._tasks.cancel(task["taskId"])
        return {}

    async def _task(self, params: Params) -> Answer:
        if TASKS_EXTENSION not in _extensions(_capabilities(params)):
            raise _missing_tasks()
        task_id = read(params, _TaskId).task_id
        try:
            return await self._tasks.get(task_id)
        except NotFound as error:
            raise Absent(error.message, hint=error.hint) from None


def _stateless(method: Method) -> Method:
    """Check what every request must carry, and put on every result what it must have."""

    async def call(incoming: Incoming, params: Params) -> Answer:
        meta = params.get("_meta")
        version = cast("Params", meta).get(STATELESS_VERSION_KEY) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            raise invalid(f"$._meta[{STATELESS_VERSION_KEY!r}]", "required")
        if version not in VERSIONS:
            raise UnsupportedVersion(
                "Unsupported protocol version", data={"supported": list(VERSIONS), "requested": version}
            )
        _capabilities(params)
        result = await method(incoming, params)
        own = cast("dict[str, Any]", result.get("_meta", {}))
        return {"resultType": "complete"} | result | {"_meta": own | {"io.modelcontextprotocol/serverInfo": SERVER}}

    return call


def _capabilities(params: Params) -> Params:
    declared = cast("Params", params["_meta"]).get(CAPABILITIES_KEY)
    if not isinstance(declared, dict):
        raise invalid(f"$._meta[{CAPABILITIES_KEY!r}]", "required, an object")
    return cast("Params", declared)


def _extensions(declared: Params) -> Params:
    extensions = declared.get("extensions")
    return cast("Params", extensions) if isinstance(extensions, dict) else {}


def _cacheable(ttl_ms: int, scope: str) -> Answer:
    return {"ttlMs": ttl_ms, "cacheScope": scope}


def _missing_tasks() -> MissingCapability:
    required: Answer = {"extensions": {TASKS_EXTENSION: {}}}
    return MissingCapability("Missing required client capability", data={"requiredCapabilities": required})
