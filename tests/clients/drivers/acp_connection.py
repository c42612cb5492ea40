"""The Agent Client Protocol's Connection: JSON-RPC lines over asyncio streams, ids from 0, `params` always there."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from steps import WITHIN_S, Orders, Person, Report, answered

acp: Any = importlib.import_module("acp")
connections: Any = importlib.import_module("acp.connection")


class Peer(Person):
    """What the server tells, and the answers to what it asks."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders)
        self.told: list[tuple[str, Any]] = []

    async def take(self, method: str, params: Any, is_notification: bool) -> Any:
        """Keep a notification, answer a request."""
        if is_notification:
            self.told.append((method, params))
            return None
        remember = self.decide(params["preview"])
        return {"decision": "allow", "remember": remember} if remember else {"decision": "deny"}


async def call(connection: Any, method: str, **params: Any) -> Any:
    """The result of a call that works."""
    async with asyncio.timeout(WITHIN_S):
        return await connection.send_request(method, params or None)


async def code_of(connection: Any, method: str, **params: Any) -> tuple[int, str]:
    """The error of a call that fails."""
    try:
        await call(connection, method, **params)
    except acp.RequestError as error:
        return error.code, str(error)
    raise AssertionError(f"{method} worked")


async def outcome(connection: Any, exec_id: str) -> dict[str, Any]:
    """What a job came to."""
    return answered(await call(connection, "exec_wait", exec_id=exec_id))


async def job(connection: Any, code: str, peer: Peer, report: Report) -> None:
    """A job that is followed by what the server tells of it."""
    await call(connection, "subscribe", events=["exec"])
    exec_id = (await call(connection, "exec_background", code=code))["exec_id"]
    report.saw(outcome=await outcome(connection, exec_id))
    listed = [row["progress"] for row in await call(connection, "exec_list") if row["exec_id"] == exec_id]
    output = [params["text"] for method, params in peer.told if method == "exec/output"]
    report.saw(progress=[progress["done"] for progress in listed], output="".join(output))


async def cancel(connection: Any, code: str, report: Report) -> None:
    """Give up waiting for a job; this client leaves it to its user to tell the server."""
    exec_id = (await call(connection, "exec_background", code=code))["exec_id"]
    await call(connection, "exec_wait", exec_id=exec_id, timeout_s=2)
    params = {"exec_id": exec_id, "timeout_s": 60}
    waiting = asyncio.create_task(code_of(connection, "exec_wait", **params))
    await call(connection, "ping")  # lets the task send its request
    number: int = getattr(connection, "_next_request_id") - 1  # noqa: B009 (private, and there is no other way)
    await connection.send_notification("$/cancelRequest", {"id": number})
    report.saw(cancelled=(await waiting)[0] == -32800)
    await call(connection, "exec_interrupt", exec_id=exec_id)
    report.saw(outcome=await outcome(connection, exec_id))


async def converse(connection: Any, orders: Orders, peer: Peer, report: Report) -> None:
    """All steps but the last."""
    with report.step("list"):
        discovered = await call(connection, "rpc.discover")
        report.saw(tools=[method["name"] for method in discovered["methods"]])
    with report.step("query"):
        report.saw(rows=(await call(connection, "query", sql=orders.sql, format="table"))["rows"])
    with report.step("job"):
        await job(connection, orders.job, peer, report)
    with report.step("cancel"):
        await cancel(connection, orders.endless, report)
    with report.step("approval"):
        await call(connection, "subscribe", events=["permission"])
        launched = await call(connection, "exec_background", code=orders.asked)
        report.saw(outcome=await outcome(connection, launched["exec_id"]))
        code, _ = await code_of(connection, "exec_background", code=orders.refused)
        report.saw(refused=code == -31401, asked=peer.asked)
    with report.step("remember"):
        for each in orders.twice:
            await call(connection, "exec_background", code=each)
        report.saw(asks=peer.asks())
    with report.step("error"):
        _, text = await code_of(connection, "query", sql=orders.wrong_sql)
        code, _ = await code_of(connection, "no_such_tool")
        report.saw(failed=True, text=text, code=code)


async def main() -> None:
    orders, report = Orders(), Report()
    peer = Peer(orders)
    with report.step("shutdown"):
        async with acp.spawn_stdio_connection(peer.take, orders.command[0], *orders.command[1:]) as (
            connection,
            process,
        ):
            await converse(connection, orders, peer, report)
            report.saw(ended=await call(connection, "shutdown"))
            async with asyncio.timeout(WITHIN_S):
                report.saw(code=await process.wait())


asyncio.run(main())
