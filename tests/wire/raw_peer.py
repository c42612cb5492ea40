"""The other end of a server's pipes, byte by byte."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

WITHIN_S = 30.0
CELLHOST = (sys.executable, "-P", "-m", "cellhost")
ODD = (sys.executable, str(Path(__file__).with_name("odd_server.py")))
"""`cellhost` with methods that go wrong."""


class RawPeer:
    """Reads when it is told to, and writes without reading if that is asked for."""

    def __init__(self, process: subprocess.Popen[bytes], write_fd: int, read_fd: int) -> None:
        self.process = process
        self.write_fd = write_fd
        self.read_fd = read_fd
        self.received = bytearray()
        os.set_blocking(write_fd, False)
        os.set_blocking(read_fd, False)

    def write(self, data: bytes) -> None:
        """Write all of it, reading meanwhile what comes."""
        view = memoryview(data)
        deadline = time.monotonic() + WITHIN_S
        while view:
            readable, writable, _ = select.select([self.read_fd], [self.write_fd], [], WITHIN_S)
            if readable:
                self._read()
            if writable:
                view = view[self._write(view) :]
            assert time.monotonic() < deadline, "the server does not read"

    def write_without_reading(self, data: bytes, quiet_s: float = 1.0) -> int:
        """Write as much of it as the server takes before it has taken nothing for `quiet_s`; how many bytes."""
        view = memoryview(data)
        while view and select.select([], [self.write_fd], [], quiet_s)[1]:
            view = view[self._write(view) :]
        return len(data) - len(view)

    def send(self, method: str, params: Any = None, **members: Any) -> None:
        """Write a message as one line; without `id` it is a notification."""
        self.write(line_of(method, params, **members))

    def message(self) -> Any:
        """The next message."""
        deadline = time.monotonic() + WITHIN_S
        while (end := self.received.find(b"\n")) < 0:
            assert self._wait_and_read(deadline), "the server has closed its output"
        line = bytes(self.received[:end])
        del self.received[: end + 1]
        return json.loads(line)

    def has_message(self, within_s: float) -> bool:
        """Whether a whole message is there, or comes soon."""
        deadline = time.monotonic() + within_s
        while b"\n" not in self.received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read_fd], [], [], left)[0]:
                return False
            assert self._read(), "the server has closed its output"
        return True

    def answer(self, id_: Any) -> Any:
        """The response to a request; other messages before it are dropped."""
        while (message := self.message()).get("id") != id_ or "method" in message:
            pass
        return message

    def call(self, method: str, params: Any = None, id_: Any = "call") -> Any:
        """Send a request and return the response to it."""
        self.send(method, params, id=id_)
        return self.answer(id_)

    def rest(self) -> bytes:
        """Everything that still comes, until the server closes its output."""
        deadline = time.monotonic() + WITHIN_S
        while self._wait_and_read(deadline):
            pass
        return bytes(self.received)

    def end(self) -> int:
        """Close the server's input, read to the end and return the exit code."""
        self.close_input()
        self.rest()
        return self.process.wait(WITHIN_S)

    def close_input(self) -> None:
        """Close our writing end."""
        if self.write_fd != self.read_fd and self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def close_output(self) -> None:
        """Close our reading end."""
        if self.read_fd >= 0:
            os.close(self.read_fd)
            self.read_fd = -1

    def peak_memory(self) -> int:
        """The most bytes that the server has ever had resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def _write(self, view: memoryview) -> int:
        try:
            return os.write(self.write_fd, view[: 1 << 20])
        except BlockingIOError:
            return 0

    def _wait_and_read(self, deadline: float) -> bool:
        left = deadline - time.monotonic()
        assert left > 0, "nothing came in time"
        select.select([self.read_fd], [], [], left)
        return self._read()

    def _read(self) -> bool:
        """Read what there is; False at the end."""
        try:
            data = os.read(self.read_fd, 1 << 20)
        except BlockingIOError:
            return True
        self.received += data
        return bool(data)


def line_of(method: str, params: Any = None, **members: Any) -> bytes:
    """A message as one line."""
    message = {"jsonrpc": "2.0", "method": method} | members
    return json.dumps(message if params is None else message | {"params": params}).encode() + b"\n"


@contextmanager
def raw_server(
    folder: Path, *arguments: str, command: Sequence[str] = CELLHOST, stderr: int | None = None
) -> Generator[RawPeer]:
    """A server whose data and workspace are in `folder`; killed at the end if it still runs."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    with subprocess.Popen(
        [*command, "serve", "--data-dir", str(folder / "data"), "--workspace", str(workspace), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        peer = RawPeer(process, os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno()))
        process.stdin.close()
        process.stdout.close()
        try:
            yield peer
        finally:
            peer.close_input()
            peer.close_output()
            process.kill()
