"""jsonrpcclient makes and reads the messages; it has no transport, so lines go through a pipe of our own."""

from __future__ import annotations

import importlib
import json
import queue
import subprocess
import threading
from typing import Any, Self

from steps import WITHIN_S, Orders, Person, Report, answered

rpc: Any = importlib.import_module("jsonrpcclient")


class Line:
    """A server's pipes; what comes in is sorted into answers, and what it tells or asks."""

    def __init__(self, command: list[str], person: Person) -> None:
        self.told: list[dict[str, Any]] = []
        self._person = person
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")

    def receive(self) -> Any:
        """The next answer, as jsonrpcclient reads it."""
        return rpc.parse(self._answers.get(timeout=WITHIN_S))

    def call(self, method: str, **params: Any) -> Any:
        """The result of a call that works."""
        self.send(rpc.request(method, params=params))
        answer = self.receive()
        assert isinstance(answer, rpc.Ok), answer
        return answer.result

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "method" not in message:
                self._answers.put(message)
            elif "id" in message:
                self._decide(message)
            else:
                self.told.append(message)

    def _decide(self, message: dict[str, Any]) -> None:
        remember = self._person.decide(message["params"]["preview"])
        result = {"decision": "allow", "remember": remember} if remember else {"decision": "deny"}
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})


def converse(line: Line, orders: Orders, person: Person, report: Report) -> None:
    """All steps but the last."""
    with report.step("list"):
        report.saw(tools=[method["name"] for method in line.call("rpc.discover")["methods"]])
    with report.step("query"):
        table = line.call("query", sql=orders.sql, format="table")
        report.saw(rows=table["rows"])
    with report.step("job"):
        job(line, orders.job, report)
    with report.step("cancel"):
        cancel(line, orders.endless, report)
    with report.step("approval"):
        line.call("subscribe", events=["permission"])
        report.saw(outcome=outcome(line, line.call("exec_background", code=orders.asked)["exec_id"]))
        line.send(rpc.request("exec_background", params={"code": orders.refused}))
        report.saw(refused=line.receive().code == -31401, asked=person.asked)
    with report.step("remember"):
        for each in orders.twice:
            line.call("exec_background", code=each)
        report.saw(asks=person.asks())
    with report.step("error"):
        line.send(rpc.request("query", params={"sql": orders.wrong_sql}))
        failed = line.receive()
        report.saw(failed=isinstance(failed, rpc.Error), text=failed.message)
        line.send(rpc.request("no_such_tool"))
        report.saw(code=line.receive().code)


def outcome(line: Line, exec_id: str) -> dict[str, Any]:
    """What a job came to."""
    return answered(line.call("exec_wait", exec_id=exec_id))


def job(line: Line, code: str, report: Report) -> None:
    """A job that is followed by what the server tells of it."""
    line.call("subscribe", events=["exec"])
    exec_id = line.call("exec_background", code=code)["exec_id"]
    report.saw(outcome=outcome(line, exec_id))
    listed = [row["progress"] for row in line.call("exec_list") if row["exec_id"] == exec_id]
    output = [told["params"]["text"] for told in line.told if told["method"] == "exec/output"]
    report.saw(progress=[progress["done"] for progress in listed], output="".join(output))


def cancel(line: Line, code: str, report: Report) -> None:
    """Give up waiting for a job."""
    exec_id = line.call("exec_background", code=code)["exec_id"]
    line.call("exec_wait", exec_id=exec_id, timeout_s=2)
    waiting = rpc.request("exec_wait", params={"exec_id": exec_id, "timeout_s": 60})
    line.send(waiting)
    line.send(rpc.notification("$/cancelRequest", params={"id": waiting["id"]}))
    cancelled = line.receive()
    report.saw(cancelled=cancelled.id == waiting["id"] and cancelled.code == -32800)
    line.call("exec_interrupt", exec_id=exec_id)
    report.saw(outcome=outcome(line, exec_id))


def main() -> None:
    orders, report = Orders(), Report()
    person = Person(orders)
    with report.step("shutdown"), Line(orders.command, person) as line:
        converse(line, orders, person, report)
        report.saw(ended=line.call("shutdown"))


main()
