"""python-lsp-jsonrpc's endpoint: the editor dialect with headers, on threads."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import threading
from typing import Any

from steps import TITLES, WITHIN_S, Orders, Person, Report, answered

streams: Any = importlib.import_module("pylsp_jsonrpc.streams")
endpoints: Any = importlib.import_module("pylsp_jsonrpc.endpoint")
exceptions: Any = importlib.import_module("pylsp_jsonrpc.exceptions")


class Editor:
    """A server process with an endpoint on its pipes."""

    def __init__(self, command: list[str], person: Person) -> None:
        self.progress: list[dict[str, Any]] = []
        self._person = person
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._writer = streams.JsonRpcStreamWriter(self.process.stdin)
        handlers = {"window/showMessageRequest": self._decide, "$/progress": self._progressed}
        self.numbers = itertools.count(1)
        self.endpoint = endpoints.Endpoint(handlers, self._writer.write, lambda: next(self.numbers))
        reader = streams.JsonRpcStreamReader(self.process.stdout)
        self._reading = threading.Thread(target=reader.listen, args=(self.endpoint.consume,), daemon=True)
        self._reading.start()

    def call(self, method: str, **params: Any) -> Any:
        """The result of a call that works."""
        return self.endpoint.request(method, params or None).result(WITHIN_S)

    def fail(self, method: str, **params: Any) -> tuple[int, str]:
        """The error of a call that fails."""
        try:
            self.call(method, **params)
        except exceptions.JsonRpcException as error:
            return error.code, error.message
        raise AssertionError(f"{method} worked")

    def outcome(self, exec_id: str) -> dict[str, Any]:
        """What a job came to."""
        return answered(self.call("exec_wait", exec_id=exec_id))

    def end(self) -> int:
        """`shutdown`, `exit`, and the server's exit code."""
        self.call("shutdown")
        self.endpoint.notify("exit")
        code = self.process.wait(WITHIN_S)
        self._reading.join(WITHIN_S)
        self._writer.close()
        self.endpoint.shutdown()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def _decide(self, params: dict[str, Any]) -> dict[str, Any]:
        remember = self._person.decide(params["message"])
        wanted = TITLES[remember] if remember else "Deny"
        return next(action for action in params["actions"] if action["title"] == wanted)

    def _progressed(self, params: dict[str, Any]) -> None:
        self.progress.append(params["value"])


def cancel(editor: Editor, code: str, report: Report) -> None:
    """Give up waiting for a job. A future cancelled by `cancel` would end this client's reader at the reply."""
    exec_id = editor.call("exec_background", code=code)["exec_id"]
    editor.call("exec_wait", exec_id=exec_id, timeout_s=2)
    waiting = editor.endpoint.request("exec_wait", {"exec_id": exec_id, "timeout_s": 60})
    probe = editor.endpoint.request("ping")
    editor.endpoint.notify("$/cancelRequest", {"id": next(editor.numbers) - 2})
    try:
        waiting.result(WITHIN_S)
    except exceptions.JsonRpcException as error:
        report.saw(cancelled=error.code == -32800)
    probe.result(WITHIN_S)
    editor.call("exec_interrupt", exec_id=exec_id)
    report.saw(outcome=editor.outcome(exec_id))


def converse(editor: Editor, orders: Orders, person: Person, report: Report) -> None:
    """All steps but the last."""
    with report.step("list"):
        initialized = editor.call("initialize", processId=os.getpid(), rootUri=None, capabilities={})
        editor.endpoint.notify("initialized", {})
        methods = editor.call("rpc.discover")["methods"]
        report.saw(version=initialized["serverInfo"]["name"], tools=[method["name"] for method in methods])
    with report.step("query"):
        report.saw(rows=editor.call("query", sql=orders.sql, format="table")["rows"])
    with report.step("job"):
        exec_id = editor.call("exec_background", code=orders.job)["exec_id"]
        waited = editor.call("exec_wait", exec_id=exec_id, workDoneToken="job-1")
        report.saw(outcome=answered(waited), kinds=[value["kind"] for value in editor.progress])
        report.saw(progress=[value for value in editor.progress if value["kind"] == "report"])
    with report.step("cancel"):
        cancel(editor, orders.endless, report)
    with report.step("approval"):
        launched = editor.call("exec_background", code=orders.asked)
        report.saw(outcome=editor.outcome(launched["exec_id"]))
        code, _ = editor.fail("exec_background", code=orders.refused)
        report.saw(refused=code == -31401, asked=person.asked)
    with report.step("remember"):
        for each in orders.twice:
            editor.call("exec_background", code=each)
        report.saw(asks=person.asks())
    with report.step("error"):
        _, text = editor.fail("query", sql=orders.wrong_sql)
        code, _ = editor.fail("no_such_tool")
        report.saw(failed=True, text=text, code=code)


def main() -> None:
    orders, report = Orders(), Report()
    person = Person(orders)
    with report.step("shutdown"):
        editor = Editor(orders.command, person)
        converse(editor, orders, person, report)
        report.saw(code=editor.end())


main()
