"""MCP's tasks extension (`io.modelcontextprotocol/tasks`): a job is a task, its `exec_id` the task's id.

A task ends with its server, as its job does; its record and output stay.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..store.errors import HostError, PermissionNeeded
from ..tools.call import Call
from .mcp_tools import failure, find_tool, success

if TYPE_CHECKING:
    from ..tools.host import Host
    from ..tools.outputs import Image
    from ..tools.tool import Tool
    from .incoming import Incoming

POLL_MS = 500
_TOOLS = frozenset({"exec_background", "exec_wait"})
_STATES = {"queued": "working", "starting": "working", "running": "working", "interrupted": "cancelled"}
"""Every other state of a job is the end of a task that has a result, good or bad."""


class Tasks:
    """Begins, shows and cancels tasks for a session's caller."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def takes(self, tool: str) -> bool:
        """Whether a call of this tool becomes a task for a client that can handle one."""
        return tool in _TOOLS

    async def begin(self, tool: Tool[Any, Any], arguments: dict[str, Any] | None, incoming: Incoming) -> dict[str, Any]:
        """Call the tool and return a `CreateTaskResult`, or what went wrong as a result.

        Raises:
            PermissionNeeded: nobody has decided the call.
        """
        call = Call(self._host, "mcp", encoded=True, aside=incoming.aside, waiting=incoming.waiting)
        if tool.name == "exec_wait":  # a task waits by itself: only look
            arguments = {**(arguments or {}), "timeout_s": 0}
        try:
            outcome = await self._host.call(tool.name, arguments, call)
        except PermissionNeeded:
            raise
        except HostError as error:
            return failure(error)
        return {"resultType": "task", **await self._shown(outcome["exec_id"])}

    async def get(self, task_id: str) -> dict[str, Any]:
        """The task as it is, with its result once it has one.

        Raises:
            NotFound: no such job in the project.
        """
        images: list[Image] = []
        outcome = await self._peek(task_id, images)
        shown = _shown(outcome)
        if shown["status"] == "completed":
            shown["result"] = self._result(outcome, images)
        return shown

    async def cancel(self, task_id: str) -> None:
        """Interrupt the job."""
        await self._host.call("exec_interrupt", [task_id], Call(self._host, "mcp"))

    async def _shown(self, task_id: str) -> dict[str, Any]:
        return _shown(await self._peek(task_id))

    async def _peek(self, task_id: str, images: list[Image] | None = None) -> dict[str, Any]:
        budget = self._host.config.limits.mcp_chars
        call = Call(self._host, "mcp", budget=budget, images=images)
        outcome: dict[str, Any] = await self._host.call("exec_peek", {"exec_id": task_id}, call)
        records = await self._host.store.project(call.caller.project_id)
        job = await self._host.store.run(records.jobs.find, task_id)
        return outcome if job is None else outcome | {"created_at": job.created_at}

    def _result(self, outcome: dict[str, Any], images: list[Image]) -> dict[str, Any]:
        answer = {name: value for name, value in outcome.items() if name != "created_at"}
        try:
            result = success(answer, find_tool("exec_wait"), self._host.config.limits.mcp_chars, images)
        except HostError as error:
            return {"resultType": "complete", **failure(error)}
        return {"resultType": "complete", "isError": outcome["status"] != "done", **result}


def _shown(outcome: dict[str, Any]) -> dict[str, Any]:
    created = outcome.get("created_at") or outcome.get("started_at") or 0
    return {
        "taskId": outcome["exec_id"],
        "status": _STATES.get(outcome["status"], "completed"),
        "statusMessage": _message(outcome),
        "createdAt": _iso(created),
        "lastUpdatedAt": _iso(outcome.get("ended_at") or outcome.get("started_at") or created),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def _message(outcome: dict[str, Any]) -> str:
    progress = outcome.get("progress")
    if outcome["done"] or not progress:
        return str(outcome["status"])
    total = f" of {progress['total']:g}" if progress["total"] else ""
    return f"{progress['done']:g}{total} {progress['message'] or ''}".strip()


def _iso(epoch_ms: int) -> str:
    moment = datetime.fromtimestamp(epoch_ms / 1000, UTC) if epoch_ms else datetime.now(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
