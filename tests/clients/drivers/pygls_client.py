"""pygls' language client: the editor dialect with headers."""

from __future__ import annotations

import asyncio
import importlib
import os
from typing import Any, cast

from steps import TITLES, WITHIN_S, Orders, Person, Report, answered

lsp: Any = importlib.import_module("lsprotocol.types")
clients: Any = importlib.import_module("pygls.lsp.client")
exceptions: Any = importlib.import_module("pygls.exceptions")


def plain(value: Any) -> Any:
    """What pygls makes of a result without a type of its own, as JSON again."""
    fields = getattr(value, "_asdict", None)
    if fields is not None:
        return {name: plain(member) for name, member in fields().items()}
    return [plain(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


class Editor:
    """A language client that answers questions."""

    def __init__(self, person: Person) -> None:
        self.client = clients.LanguageClient("test", "1")
        self._person = person

        def decide(params: Any) -> Any:  # a method has no room for what pygls puts on its handlers
            return self._decide(params)

        self.client.feature(lsp.WINDOW_SHOW_MESSAGE_REQUEST)(decide)

    async def call(self, method: str, **params: Any) -> Any:
        """The result of a call that works."""
        async with asyncio.timeout(WITHIN_S):
            return plain(await self.client.protocol.send_request_async(method, params))

    async def fail(self, method: str, **params: Any) -> tuple[int, str]:
        """The error of a call that fails."""
        try:
            await self.call(method, **params)
        except exceptions.JsonRpcException as error:
            return error.code, error.message
        raise AssertionError(f"{method} worked")

    async def outcome(self, exec_id: str) -> dict[str, Any]:
        """What a job came to."""
        return answered(await self.call("exec_wait", exec_id=exec_id))

    def _decide(self, params: Any) -> Any:
        remember = self._person.decide(params.message)
        wanted = TITLES[remember] if remember else "Deny"
        return next(action for action in params.actions if action.title == wanted)


async def job(editor: Editor, code: str, report: Report) -> None:
    """A job whose progress is reported while it is waited for."""
    seen: list[Any] = []

    def progressed(params: Any) -> None:
        seen.append(plain(params.value))

    editor.client.feature(lsp.PROGRESS)(progressed)
    exec_id = (await editor.call("exec_background", code=code))["exec_id"]
    waited = await editor.call("exec_wait", exec_id=exec_id, workDoneToken="job-1")
    report.saw(outcome=answered(waited), progress=[value for value in seen if value.get("kind") == "report"])
    report.saw(kinds=[value.get("kind") for value in seen])


async def cancel(editor: Editor, code: str, report: Report) -> None:
    """Give up waiting for a job."""
    exec_id = (await editor.call("exec_background", code=code))["exec_id"]
    await editor.call("exec_wait", exec_id=exec_id, timeout_s=2)
    params = {"exec_id": exec_id, "timeout_s": 60}
    waiting = editor.client.protocol.send_request("exec_wait", params, msg_id="waiting")
    editor.client.protocol.notify(lsp.CANCEL_REQUEST, lsp.CancelParams(id="waiting"))
    try:
        async with asyncio.timeout(WITHIN_S):
            await asyncio.wrap_future(waiting)
    except exceptions.JsonRpcException as error:
        report.saw(cancelled=error.code == -32800)
    await editor.call("exec_interrupt", exec_id=exec_id)
    report.saw(outcome=await editor.outcome(exec_id))


async def converse(editor: Editor, orders: Orders, person: Person, report: Report) -> None:
    """All steps but the last."""
    with report.step("list"):
        params = lsp.InitializeParams(capabilities=lsp.ClientCapabilities(), process_id=os.getpid())
        async with asyncio.timeout(WITHIN_S):
            initialized = await editor.client.initialize_async(params)
        editor.client.initialized(lsp.InitializedParams())
        discovered = await editor.call("rpc.discover")
        report.saw(version=initialized.server_info.name, tools=[method["name"] for method in discovered["methods"]])
    with report.step("query"):
        report.saw(rows=(await editor.call("query", sql=orders.sql, format="table"))["rows"])
    with report.step("job"):
        await job(editor, orders.job, report)
    with report.step("cancel"):
        await cancel(editor, orders.endless, report)
    with report.step("approval"):
        launched = await editor.call("exec_background", code=orders.asked)
        report.saw(outcome=await editor.outcome(launched["exec_id"]))
        code, _ = await editor.fail("exec_background", code=orders.refused)
        report.saw(refused=code == -31401, asked=person.asked)
    with report.step("remember"):
        for each in orders.twice:
            await editor.call("exec_background", code=each)
        report.saw(asks=person.asks())
    with report.step("error"):
        _, text = await editor.fail("query", sql=orders.wrong_sql)
        code, _ = await editor.fail("no_such_tool")
        report.saw(failed=True, text=text, code=code)


async def main() -> None:
    orders, report = Orders(), Report()
    person = Person(orders)
    editor = Editor(person)
    with report.step("shutdown"):
        await editor.client.start_io(*orders.command)
        await converse(editor, orders, person, report)
        async with asyncio.timeout(WITHIN_S):
            await editor.client.shutdown_async(None)
            editor.client.exit(None)
            await editor.client.stop()


asyncio.run(main())
