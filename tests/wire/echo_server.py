"""A server made of the wire's parts only, for tests of the recorder and the player.

    python echo_server.py [--record FILE] [--status N] [--greet TEXT]

`echo` gives its params back, `new` fresh ids and times, `later` answers after the next request, `tell` sends
notifications first, `ask` asks the client, `print` sends a text as a job's output in pieces, `where` tells the working
folder and its files, `die` ends the process.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cellhost.rpc import strictjson
from cellhost.rpc.claim import Descriptors, claim

if TYPE_CHECKING:
    from cellhost.rpc.framing import Item, Style
    from cellhost.rpc.record import Recorder
    from cellhost.rpc.writer import Writer


class Echo:
    """State of one conversation; every method takes params and may send on its own."""

    def __init__(self, writer: Writer, recorder: Recorder | None, greeting: str) -> None:
        self.writer = writer
        self.recorder = recorder
        self.greeting = greeting
        self.late: list[tuple[Any, Any]] = []
        self.asked: dict[Any, Any] = {}
        self.exec_id = f"exec-{secrets.token_hex(6)}"

    def take(self, items: list[Item], style: Style) -> None:
        self.writer.style = style
        if self.recorder:
            self.recorder.style = style
        for item in items:
            if isinstance(item, bytes):
                self.receive(item)
            else:
                self.send({"jsonrpc": "2.0", "id": getattr(item, "id", None), "error": {"code": -32600}})

    def send(self, message: Any) -> None:
        payload = strictjson.encode(message)
        if self.recorder:
            self.recorder.sent(payload)
        self.writer.send(payload)

    def receive(self, frame: bytes) -> None:
        if self.recorder:
            self.recorder.received(frame)
        try:
            message = strictjson.decode(frame)
        except strictjson.ParseFault as fault:
            self.send({"jsonrpc": "2.0", "id": None, "error": {"code": fault.code, "message": fault.reason}})
            return
        if isinstance(message, list):
            batch = cast("list[Any]", message)
            self.send([{"jsonrpc": "2.0", "id": item["id"], "result": item["params"]} for item in reversed(batch)])
        else:
            self.receive_one(message)

    def receive_one(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            asker = self.asked.pop(message["id"])
            self.reply(asker, {"answer": message["result"]})
            return
        method, id_, params = message["method"], message.get("id"), message.get("params")
        if id_ is None:
            return
        handler = getattr(self, f"do_{method}", None)
        if handler is None:
            self.send({"jsonrpc": "2.0", "id": id_, "error": {"code": -32601, "message": f"no method {method}"}})
        else:
            handler(id_, params)

    def reply(self, id_: Any, result: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": id_, "result": result})
        late, self.late = self.late, []
        for other, answer in late:
            self.reply(other, answer)

    def notify(self, method: str, params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def do_echo(self, id_: Any, params: Any) -> None:
        self.reply(id_, params)

    def do_greet(self, id_: Any, _params: Any) -> None:
        self.reply(id_, self.greeting)

    def do_new(self, id_: Any, _params: Any) -> None:
        version_id = f"v-{secrets.token_hex(6)}"
        row = [version_id, time.time_ns() // 1_000_000, random.random()]
        self.reply(
            id_,
            {
                "exec_id": self.exec_id,
                "version_id": version_id,
                "created_at": row[1],
                "message": f"made {version_id} in {Path.cwd()}",
                "table": {"columns": ["version_id", "at", "wall_s"], "rows": [row]},
                "content": [{"type": "text", "text": f'{{"version_id":"{version_id}","created_at":{row[1]}}}'}],
            },
        )

    def do_later(self, id_: Any, params: Any) -> None:
        self.late.append((id_, params))

    def do_tell(self, id_: Any, params: Any) -> None:
        for number in range(1, params["times"] + 1):
            self.notify(
                "notifications/progress", {"progressToken": params["_meta"]["progressToken"], "progress": number}
            )
        self.notify("exec/update", {"exec_id": self.exec_id, "status": "running"})
        self.reply(id_, None)
        self.notify("exec/update", {"exec_id": self.exec_id, "status": "done"})

    def do_ask(self, id_: Any, _params: Any) -> None:
        number = f"ask-{secrets.token_hex(8)}"
        self.asked[number] = id_
        self.send({"jsonrpc": "2.0", "id": number, "method": "permission/ask", "params": {"tool": "x"}})

    def do_print(self, id_: Any, params: Any) -> None:
        text = params["text"]
        while text:
            size = random.randint(1, len(text))
            params = {"exec_id": self.exec_id, "stream": "stdout", "text": text[:size], "next": secrets.token_hex(4)}
            self.notify("exec/output", params)
            text = text[size:]
        self.reply(id_, {"exec_id": self.exec_id})

    def do_where(self, id_: Any, _params: Any) -> None:
        files = {path.name: path.read_text() for path in sorted(Path.cwd().iterdir())}
        self.reply(id_, {"folder": str(Path.cwd()), "files": files})

    def do_die(self, _id: Any, _params: Any) -> None:
        os._exit(9)


async def serve(descriptors: Descriptors, options: argparse.Namespace) -> None:
    import anyio

    from cellhost.rpc.framing import Deframer
    from cellhost.rpc.reader import Reader
    from cellhost.rpc.record import Recorder
    from cellhost.rpc.writer import Writer

    recorder = Recorder(options.record, options.arguments, {"workspace": Path.cwd()}) if options.record else None
    deframer = Deframer()
    async with (
        Reader(descriptors.read_fd) as reader,
        Writer(descriptors.write_fd) as writer,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(writer.run)
        echo = Echo(writer, recorder, options.greet)
        async for chunk in reader:
            echo.take(deframer.feed(chunk), deframer.style or "lines")
        echo.take(deframer.finish(), deframer.style or "lines")
        await writer.finish(5)
        tasks.cancel_scope.cancel()
    if recorder:
        recorder.close()


def main() -> int:
    descriptors = claim()
    import sys

    import anyio

    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path)
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--greet", default="hello")
    options = parser.parse_args()
    options.arguments = sys.argv[1:]
    anyio.run(serve, descriptors, options)
    return int(options.status)


if __name__ == "__main__":
    raise SystemExit(main())
