"""The official Python client, release 1, which knows the handshake era only."""

from __future__ import annotations

import importlib
from typing import Any

import anyio
from steps import TITLES, WITHIN_S, Orders, Person, Report, answered

mcp: Any = importlib.import_module("mcp")
stdio: Any = importlib.import_module("mcp.client.stdio")
types: Any = importlib.import_module("mcp.types")


class Form(Person):
    """Fills in the forms that the server sends."""

    async def answer(self, _context: Any, params: Any) -> Any:
        remember = self.decide(params.message)
        if remember is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"decision": TITLES[remember]})


def fields(result: Any) -> dict[str, Any]:
    """The structured content of a call that worked."""
    assert not result.isError, result.content
    content: dict[str, Any] = result.structuredContent
    return content


async def launch(session: Any, code: str) -> str:
    """Start a job and return its id."""
    exec_id: str = fields(await session.call_tool("exec_background", {"code": code}))["exec_id"]
    return exec_id


async def outcome(session: Any, exec_id: str) -> dict[str, Any]:
    """What a job came to."""
    return answered(fields(await session.call_tool("exec_wait", {"exec_id": exec_id})))


async def job(session: Any, code: str, report: Report) -> None:
    """A job whose progress is reported while it is waited for."""
    seen: list[float] = []

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    exec_id = await launch(session, code)
    waited = await session.call_tool("exec_wait", {"exec_id": exec_id}, progress_callback=progressed)
    report.saw(outcome=answered(fields(waited)), progress=seen)


async def cancel(session: Any, code: str, report: Report) -> None:
    """Give up waiting for a job; this client leaves it to its user to tell the server."""
    exec_id = await launch(session, code)
    await session.call_tool("exec_wait", {"exec_id": exec_id, "timeout_s": 2})
    number: int = getattr(session, "_request_id")  # noqa: B009 (private, and there is no other way)
    with anyio.move_on_after(0.5) as scope:
        await session.call_tool("exec_wait", {"exec_id": exec_id, "timeout_s": 60})
    cancelled = types.CancelledNotification(
        method="notifications/cancelled", params=types.CancelledNotificationParams(requestId=number)
    )
    await session.send_notification(types.ClientNotification(cancelled))
    report.saw(cancelled=scope.cancelled_caught)
    await session.call_tool("exec_interrupt", {"exec_id": exec_id})
    report.saw(outcome=await outcome(session, exec_id))


async def converse(session: Any, orders: Orders, person: Person, report: Report) -> None:
    """All steps but the last."""
    with report.step("list"):
        initialized = await session.initialize()
        tools = (await session.list_tools()).tools
        report.saw(version=initialized.protocolVersion, tools=[tool.name for tool in tools])
    with report.step("query"):
        report.saw(rows=fields(await session.call_tool("query", {"sql": orders.sql}))["rows"])
    with report.step("job"):
        await job(session, orders.job, report)
    with report.step("cancel"):
        await cancel(session, orders.endless, report)
    with report.step("approval"):
        report.saw(outcome=await outcome(session, await launch(session, orders.asked)))
        refused = await session.call_tool("exec_background", {"code": orders.refused})
        report.saw(refused=refused.isError, asked=person.asked)
    with report.step("remember"):
        for each in orders.twice:
            await launch(session, each)
        report.saw(asks=person.asks())
    with report.step("error"):
        failed = await session.call_tool("query", {"sql": orders.wrong_sql})
        report.saw(failed=failed.isError, text=failed.content[0].text)
        try:
            await session.call_tool("no_such_tool", {})
        except mcp.McpError as error:
            report.saw(code=error.error.code)


async def main() -> None:
    orders, report = Orders(), Report()
    person = Form(orders)
    server = mcp.StdioServerParameters(command=orders.command[0], args=orders.command[1:])
    with report.step("shutdown"):
        async with stdio.stdio_client(server) as streams:
            with anyio.fail_after(4 * WITHIN_S):
                async with mcp.ClientSession(*streams, elicitation_callback=person.answer) as session:
                    await converse(session, orders, person, report)


anyio.run(main)
