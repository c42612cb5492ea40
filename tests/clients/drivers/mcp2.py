"""The official Python client, release 2: `mode` is "legacy", "auto" or "2026-07-28"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult
from steps import TITLES, WITHIN_S, Orders, Person, Report, answered

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext
    from mcp_types import CallToolResult


class Form(Person):
    """Fills in the forms that the server sends."""

    async def answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        remember = self.decide(params.message)
        if remember is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"decision": TITLES[remember]})


def fields(result: CallToolResult) -> dict[str, Any]:
    """The structured content of a call that worked."""
    assert not result.is_error, result.content
    content: dict[str, Any] | None = result.structured_content
    assert content is not None
    return content


async def outcome(client: Client, exec_id: str) -> dict[str, Any]:
    """What a job came to."""
    return answered(fields(await client.call_tool("exec_wait", {"exec_id": exec_id})))


async def launch(client: Client, code: str) -> str:
    """Start a job and return its id."""
    exec_id: str = fields(await client.call_tool("exec_background", {"code": code}))["exec_id"]
    return exec_id


async def job(client: Client, code: str, report: Report) -> None:
    """A job whose progress is reported while it is waited for."""
    seen: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    exec_id = await launch(client, code)
    waited = await client.call_tool("exec_wait", {"exec_id": exec_id}, progress_callback=progressed)
    report.saw(outcome=answered(fields(waited)), progress=seen)


async def cancel(client: Client, code: str, report: Report) -> None:
    """Give up waiting for a job, and see that the server has, too."""
    exec_id = await launch(client, code)
    await client.call_tool("exec_wait", {"exec_id": exec_id, "timeout_s": 2})
    with anyio.move_on_after(0.5) as scope:
        await client.call_tool("exec_wait", {"exec_id": exec_id, "timeout_s": 60})
    report.saw(cancelled=scope.cancelled_caught)
    await client.call_tool("exec_interrupt", {"exec_id": exec_id})
    report.saw(outcome=await outcome(client, exec_id))


async def main() -> None:
    orders, report = Orders(), Report()
    person = Form(orders)
    server = StdioServerParameters(command=orders.command[0], args=orders.command[1:])
    assert orders.mode is not None
    with report.step("shutdown"):
        async with Client(
            server, mode=orders.mode, elicitation_callback=person.answer, read_timeout_seconds=WITHIN_S
        ) as client:
            with report.step("list"):
                tools = (await client.list_tools()).tools
                report.saw(version=client.protocol_version, tools=[tool.name for tool in tools])
            with report.step("query"):
                report.saw(rows=fields(await client.call_tool("query", {"sql": orders.sql}))["rows"])
            with report.step("job"):
                await job(client, orders.job, report)
            with report.step("cancel"):
                await cancel(client, orders.endless, report)
            with report.step("approval"):
                report.saw(outcome=await outcome(client, await launch(client, orders.asked)))
                refused = await client.call_tool("exec_background", {"code": orders.refused})
                report.saw(refused=refused.is_error, asked=person.asked)
            with report.step("remember"):
                for each in orders.twice:
                    await launch(client, each)
                report.saw(asks=person.asks())
            with report.step("error"):
                failed = await client.call_tool("query", {"sql": orders.wrong_sql})
                report.saw(failed=failed.is_error, text=failed.content[0].model_dump()["text"])
                try:
                    await client.call_tool("no_such_tool", {})
                except MCPError as error:
                    report.saw(code=error.code)


anyio.run(main)
