"""A JSON-RPC server over pipes and the client's side of the clock, lean enough not to be what is measured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

ENDS_WITHIN_S = 10.0

_LENGTH = re.compile(rb"Content-Length: *(\d+)", re.IGNORECASE)

Message = dict[str, Any]


class Speech(msgspec.Struct, frozen=True):
    """How a server is talked to: its framing, how a conversation begins, and how a tool is called.

    `hello` is the first request, whose reply is the first reply; `then` are notifications that follow it.
    """

    headers: bool = False
    hello: tuple[str, Any] = ("ping", {})
    then: tuple[str, ...] = ()
    tools_call: bool = False

    def request(self, name: str, arguments: Any) -> tuple[str, Any]:
        """Method and params of a call of the tool `name`."""
        if self.tools_call and name != "ping":
            return "tools/call", {"name": name, "arguments": arguments}
        return name, arguments

    def frame(self, message: Message) -> bytes:
        """The message as it goes over the pipe."""
        text = json.dumps(message).encode()
        return b"Content-Length: %d\r\n\r\n%b" % (len(text), text) if self.headers else text + b"\n"

    def bodies(self, data: bytes) -> list[bytes]:
        """The messages that came over the pipe."""
        return _bodies(data)[0] if self.headers else data.splitlines()


PLAIN = Speech()
HEADERS = Speech(headers=True)
MCP = Speech(
    hello=(
        "initialize",
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
    ),
    then=("notifications/initialized",),
    tools_call=True,
)
EDITOR = Speech(
    headers=True,
    hello=("initialize", {"processId": None, "rootUri": None, "capabilities": {}}),
    then=("initialized",),
)


class Peer:
    """A running server; seconds everywhere."""

    def __init__(self, command: Sequence[str], speech: Speech = PLAIN) -> None:
        started = time.perf_counter()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin
        assert self._process.stdout
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._speech = speech
        self._number = 0
        self._ask(self._frame(*speech.hello))
        self.first_reply = time.perf_counter() - started
        for method in speech.then:
            self._write(speech.frame({"jsonrpc": "2.0", "method": method, "params": {}}))

    @property
    def pid(self) -> int:
        return self._process.pid

    def memory_mb(self) -> float:
        """Resident memory now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def ask(self, name: str, arguments: Any) -> Any:
        """One request and its reply."""
        return json.loads(self._ask(self.request(name, arguments)))

    def request(self, name: str, arguments: Any) -> bytes:
        """A framed call of a tool."""
        return self._frame(*self._speech.request(name, arguments))

    def round_trip(self, name: str, arguments: Any, times: int = 500) -> float:
        """The time of one request and its reply, one after the other."""
        requests = [self.request(name, arguments) for _ in range(times)]
        started = time.perf_counter()
        for request in requests:
            self._write(request)
            self._receive(1)
        return (time.perf_counter() - started) / times

    def pipelined(self, name: str, arguments: Any, times: int = 1000) -> float:
        """The time of `times` requests written at once until the last reply is read."""
        return self._burst(name, arguments, times)[0]

    def works(self, name: str, arguments: Any, times: int) -> bool:
        """Whether each of that many calls, pipelined, is answered with a result."""
        replies = [json.loads(body) for body in self._speech.bodies(self._burst(name, arguments, times)[1])]
        return all("result" in reply and not _failed(reply["result"]) for reply in replies)

    def _burst(self, name: str, arguments: Any, times: int) -> tuple[float, bytes]:
        burst = b"".join(self.request(name, arguments) for _ in range(times))
        writing = threading.Thread(target=self._write, args=(burst,))  # neither side waits for the other to read
        started = time.perf_counter()
        writing.start()
        replies = self._receive(times)
        elapsed = time.perf_counter() - started
        writing.join()
        return elapsed, replies

    def close(self) -> None:
        """End of input; a server that does not end by itself is killed."""
        self._in.close()
        self._out.close()
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _frame(self, method: str, params: Any) -> bytes:
        self._number += 1
        return self._speech.frame({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})

    def _ask(self, request: bytes) -> bytes:
        self._write(request)
        return self._speech.bodies(self._receive(1))[0]

    def _write(self, data: bytes) -> None:
        self._in.write(data)
        self._in.flush()

    def _receive(self, count: int) -> bytes:
        """Exactly `count` replies as they came; nothing else is under way then."""
        data = bytearray()
        at = 0
        while count > 0:
            chunk = os.read(self._out.fileno(), 2**20)
            if not chunk:
                raise EOFError("the server has ended")
            data += chunk
            if self._speech.headers:
                whole, at = _bodies(data, at)
                count -= len(whole)
            else:
                count -= chunk.count(b"\n")
        return bytes(data)


def _bodies(data: bytes | bytearray, at: int = 0) -> tuple[list[bytes], int]:
    """The bodies of the frames that are whole, and where the next one begins."""
    bodies: list[bytes] = []
    while (blank := data.find(b"\r\n\r\n", at)) >= 0:
        length = _LENGTH.search(data, at, blank)
        assert length
        end = blank + 4 + int(length[1])
        if end > len(data):
            break
        bodies.append(bytes(data[blank + 4 : end]))
        at = end
    return bodies, at


def _failed(result: Any) -> bool:
    return isinstance(result, dict) and bool(cast("Message", result).get("isError"))
