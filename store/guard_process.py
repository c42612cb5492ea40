"""One worker process: started, asked, killed and reaped here, and reached only through its socket.

It inherits nothing but the socket (`bare_process.py`). It must be started from a thread that lives as long as the
server, for the worker dies with that thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

import anyio
import msgspec

from .bare_process import start_bare

PROGRAM = Path(__file__).with_name("guard_worker.py")
REAP_S = 0.4  # freeing a gigabyte takes the kernel a while
_CHUNK = 1 << 16
_HEADER = 8
_NUMBERS = 1 << 32


class WorkerLost(Exception):
    """The worker's end of the socket is closed: it has ended, or is about to."""


class Head(msgspec.Struct, frozen=True):
    """What the worker says of an outcome; `name` is SQLite's name of the error or one of the worker's own."""

    name: str | None = None
    message: str = ""
    denial: tuple[str, str, str] | None = None
    names: tuple[str, ...] = ()
    limit: int = 0
    first_bytes: str = ""
    columns: list[str] = []
    types: list[str] = []
    row_count: int = 0
    truncated: bool = False
    elapsed_ms: float = 0.0
    engine: str = ""


_decode_head = msgspec.json.Decoder(Head).decode


def frame(number: int, request: bytes = b"") -> bytes:
    """A request under its number, or without one the cancel of that number."""
    return len(request).to_bytes(4, "little") + (number % _NUMBERS).to_bytes(4, "little") + request


class WorkerProcess:
    """A started worker; `engine` is its SQLite's version once it is ready. Raises `OSError` when none starts."""

    def __init__(self, python: str, config: bytes) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            self._process = start_bare(python, PROGRAM, theirs, "-W", "ignore")
        except OSError:
            self._socket.close()
            raise
        self._pidfd = os.pidfd_open(self._process.pid)
        self._inbox = bytearray(_CHUNK)
        self._taken = 0
        self._filled: int = 0
        self._unsent = memoryview(b"")
        self._ended = False
        self.lost = False
        self.engine = ""
        with contextlib.suppress(OSError):  # it has ended already, as its first answer will show
            self._socket.send(frame(0, config))
        self._socket.setblocking(False)

    @property
    def fd(self) -> int:
        """The descriptor on which answers arrive."""
        return self._socket.fileno()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it has not ended; one that has is reaped by asking."""
        return self._process.poll() is None

    def gone(self) -> bool:
        """Whether nothing is left of it: neither a process to be reaped nor a descriptor."""
        return self._ended and not self.alive()

    @property
    def sending(self) -> bool:
        """Whether a part of a request is still to be flushed; nothing else may be sent before."""
        return bool(self._unsent)

    def send(self, *frames: bytes) -> None:
        """Send requests; one that is taken back is answered all the same. Raises `WorkerLost`."""
        data = b"".join(frames)
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise WorkerLost from error
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]

    async def flush(self) -> None:
        """Send what a large request has left. Raises `WorkerLost`."""
        while self._unsent:
            await anyio.wait_writable(self._socket)
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise WorkerLost from error

    def fill(self) -> None:
        """Read what there is; at its end the worker is lost."""
        if self._filled == len(self._inbox):
            self._make_room()
        count = 0
        with memoryview(self._inbox) as view:
            try:
                count = self._socket.recv_into(view[self._filled :])
            except BlockingIOError:
                return
            except OSError:
                pass  # reset by a worker that was killed
        self.lost = not count
        self._filled += count

    def check(self) -> None:
        """Raises `WorkerLost` once its end of the socket is closed."""
        if self.lost:
            raise WorkerLost

    def _make_room(self) -> None:
        """Move what is left of the answers to the front, and make room for one that is larger than that."""
        rest = self._inbox[self._taken : self._filled]
        _, end = self._bounds(rest)
        self._inbox = rest + bytes(max(_CHUNK, end) - len(rest))
        self._taken, self._filled = 0, len(rest)

    def _bounds(self, answer: bytearray) -> tuple[int, int]:
        """Where the body of an answer begins and ends."""
        body = _HEADER + int.from_bytes(answer[:4], "little")
        return body, body + int.from_bytes(answer[4:_HEADER], "little")

    def arrived(self) -> tuple[Head, bytes] | None:
        """The next answer if it is here already."""
        start, have = self._taken, self._filled - self._taken
        if have < _HEADER:
            return None
        body, end = self._bounds(self._inbox[start : start + _HEADER])
        if have < end:
            return None
        with memoryview(self._inbox) as view:
            answer = _decode_head(view[start + _HEADER : start + body]), bytes(view[start + body : start + end])
        self._taken += end
        if self._taken == self._filled:
            self._taken = self._filled = 0
            if len(self._inbox) > _CHUNK:
                self._inbox = bytearray(_CHUNK)
        return answer

    @property
    def ended_by(self) -> int:
        """The signal that ended it, once it has been reaped; 0 if none did."""
        return max(0, -(self._process.returncode or 0))

    def kill(self) -> None:
        """End it at once; safe for a reader of a WAL file."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    async def end(self) -> bool:
        """Kill it and give back its descriptors; False if after `REAP_S` it is still to be reaped. Not cancelled."""
        self.kill()
        if not self._ended:
            with anyio.move_on_after(REAP_S, shield=True):
                if self.alive():
                    await anyio.wait_readable(self._pidfd)
            self.release()
        return not self.alive()

    def release(self) -> None:
        """Give back its descriptors, once nobody waits on them."""
        if not self._ended:
            self._ended = True
            os.close(self._pidfd)
            self._socket.close()
