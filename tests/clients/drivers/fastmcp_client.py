"""FastMCP's client."""

from __future__ import annotations

import importlib
from typing import Any

import anyio
from steps import TITLES, WITHIN_S, Orders, Person, Report, answered

fastmcp: Any = importlib.import_module("fastmcp")
transports: Any = importlib.import_module("fastmcp.client.transports")
elicitation: Any = importlib.import_module("fastmcp.client.elicitation")


class Form(Person):
    """Fills in the forms that the server sends."""

    async def answer(self, message: str, _form: Any, _params: Any, _context: Any) -> Any:
        remember = self.decide(message)
        if remember is None:
            return elicitation.ElicitResult(action="decline")
        return elicitation.ElicitResult(action="accept", content={"decision": TITLES[remember]})


async def call(client: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that works."""
    content: dict[str, Any] = (await client.call_tool(tool, arguments)).structured_content
    return content


async def outcome(client: Any, exec_id: str) -> dict[str, Any]:
    """What a job came to."""
    return answered(await call(client, "exec_wait", exec_id=exec_id))


async def job(client: Any, code: str, report: Report) -> None:
    """A job whose progress is reported while it is waited for."""
    seen: list[float] = []

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    exec_id = (await call(client, "exec_background", code=code))["exec_id"]
    waited = await client.call_tool("exec_wait", {"exec_id": exec_id}, progress_handler=progressed)
    report.saw(outcome=answered(waited.structured_content), progress=seen)


async def cancel(client: Any, code: str, report: Report) -> None:
    """Give up waiting for a job, and see that the server has, too."""
    exec_id = (await call(client, "exec_background", code=code))["exec_id"]
    await call(client, "exec_wait", exec_id=exec_id, timeout_s=2)
    with anyio.move_on_after(0.5) as scope:
        await call(client, "exec_wait", exec_id=exec_id, timeout_s=60)
    report.saw(cancelled=scope.cancelled_caught)
    await call(client, "exec_interrupt", exec_id=exec_id)
    report.saw(outcome=await outcome(client, exec_id))


async def main() -> None:
    orders, report = Orders(), Report()
    person = Form(orders)
    server = transports.StdioTransport(orders.command[0], orders.command[1:], keep_alive=False)
    with report.step("shutdown"):
        async with fastmcp.Client(server, elicitation_handler=person.answer, timeout=WITHIN_S) as client:
            with report.step("list"):
                tools = await client.list_tools()
                report.saw(version=client.protocol_version, tools=[tool.name for tool in tools])
            with report.step("query"):
                report.saw(rows=(await call(client, "query", sql=orders.sql))["rows"])
            with report.step("job"):
                await job(client, orders.job, report)
            with report.step("cancel"):
                await cancel(client, orders.endless, report)
            with report.step("approval"):
                launched = await call(client, "exec_background", code=orders.asked)
                report.saw(outcome=await outcome(client, launched["exec_id"]))
                refused = await client.call_tool("exec_background", {"code": orders.refused}, raise_on_error=False)
                report.saw(refused=refused.is_error, asked=person.asked)
            with report.step("remember"):
                for each in orders.twice:
                    await call(client, "exec_background", code=each)
                report.saw(asks=person.asks())
            with report.step("error"):
                failed = await client.call_tool("query", {"sql": orders.wrong_sql}, raise_on_error=False)
                report.saw(failed=failed.is_error, text=failed.content[0].text)
                try:
                    await client.call_tool("no_such_tool", {})
                except Exception as error:  # noqa: BLE001 (what it raises is its own affair; the code counts)
                    report.saw(code=getattr(error, "code", None), raised=repr(error))


anyio.run(main)
