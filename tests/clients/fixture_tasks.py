"""Fixtures that become tasks: jobs of the product's own, as `exec_background` is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellhost.rpc.mcp_stateless import TASKS_EXTENSION, MissingCapability
from cellhost.rpc.mcp_tools import find_tool

from .fixture_asking import asked, elicitation
from .fixture_call import Answer, required, said, tool

if TYPE_CHECKING:
    from .fixture_call import FixtureCall

SECONDS: Answer = {
    "type": "object",
    "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}},
    "required": ["seconds"],
}


@tool("greet", "Greets somebody, at once.", required("name"))
async def greet(call: FixtureCall) -> Answer:
    return said(f"Hello, {call.arguments['name']}!")


@tool("slow_compute", "Takes some seconds: a task where the client can handle one.", SECONDS)
async def slow_compute(call: FixtureCall) -> Answer:
    seconds = float(call.arguments["seconds"])
    if not _declares_tasks(call):
        return said("Computed.")
    return await _begin(call, f"import threading; threading.Event().wait({seconds}); print('Computed.')")


@tool("failing_job", "Always fails, as a task only.")
async def failing_job(call: FixtureCall) -> Answer:
    if not _declares_tasks(call):
        needed: Answer = {"extensions": {TASKS_EXTENSION: {}}}
        raise MissingCapability("this tool is a task only", data={"requiredCapabilities": needed})
    return await _begin(call, "raise RuntimeError('This job always fails.')")


@tool("test_tool_with_task", "Asks for a name, then is a task.")
async def tool_with_task(call: FixtureCall) -> Answer:
    response = call.given("user_name")
    if response is None:
        return asked(user_name=elicitation("What is your name?", "name"))
    return await _begin(call, f"print({response['content']['name']!r})")


def _declares_tasks(call: FixtureCall) -> bool:
    return TASKS_EXTENSION in (call.capabilities.get("extensions") or {})


async def _begin(call: FixtureCall, code: str) -> Answer:
    assert call.tasks is not None
    return await call.tasks.begin(find_tool("exec_background"), {"code": code}, call.incoming)
