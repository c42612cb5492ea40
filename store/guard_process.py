"""One worker process: started, asked, killed and reaped here, and reached only through its socket.

It inherits nothing: an empty environment, the root as its folder, its own session, and no descriptor but the
socket. It must be started from a thread that lives as long as the server, for the worker dies with that thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path

import anyio
import msgspec

PROGRAM = Path(__file__).with_name("guard_worker.py")
REAP_S = 0.4  # freeing a gigabyte takes the kernel a while
_CHUNK = 1 << 16
_HEADER = 8


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


def frame(head: bytes) -> bytes:
    """A frame without a body."""
    return len(head).to_bytes(4, "little") + bytes(4) + head


def _spawned(python: str, theirs: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [python, "-I", "-S", "-W", "ignore", str(PROGRAM)],
        stdin=theirs.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )


class WorkerProcess:
    """A started worker; `engine` is its SQLite's version once it is ready. Raises `OSError` when none starts."""

    def __init__(self, python: str, config: bytes) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            self._process = _spawned(python, theirs)
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._pidfd = os.pidfd_open(self._process.pid)
        self._inbox = bytearray(_CHUNK)
        self._filled = 0
        self._ended = False
        self.asked = False
        self.engine = ""
        with contextlib.suppress(OSError):  # it has ended already, as its first answer will show
            self._socket.send(frame(config))
        self._socket.setblocking(False)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it has not ended; one that has is reaped by asking."""
        return self._process.poll() is None

    async def ready(self) -> None:
        """Wait until it has opened its file. Raises `WorkerLost`."""
        if not self.engine:
            self.engine = (await self.receive())[0].engine

    async def ask(self, request: bytes) -> tuple[Head, bytes]:
        """Send a request and await its answer. Raises `WorkerLost`."""
        await self._send(frame(request))
        self.asked = True
        return await self.receive()

    def take_back(self, query: int) -> None:
        """Tell it that nobody awaits this query any more; it still answers."""
        try:
            self._socket.send(frame(b'{"cancel":%d}' % query))
        except OSError:
            return  # it has ended, or will be killed for not answering

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise WorkerLost from error

    async def receive(self) -> tuple[Head, bytes]:
        """The next answer; may be called again when it was cancelled. Raises `WorkerLost`."""
        while True:
            await anyio.wait_readable(self._socket)
            if (answer := self._take()) is not None:
                self.asked = False
                return answer

    def _take(self) -> tuple[Head, bytes] | None:
        with memoryview(self._inbox) as view:
            try:
                count = self._socket.recv_into(view[self._filled :])
            except BlockingIOError:
                return None
            except OSError as error:
                raise WorkerLost from error
        if not count:
            raise WorkerLost
        self._filled += count
        if self._filled < _HEADER:
            return None
        body = _HEADER + int.from_bytes(self._inbox[:4], "little")
        end = body + int.from_bytes(self._inbox[4:_HEADER], "little")
        if self._filled < end:
            if end > len(self._inbox):
                self._inbox.extend(bytes(end - len(self._inbox)))
            return None
        return self._split(body, end)

    def _split(self, body: int, end: int) -> tuple[Head, bytes]:
        with memoryview(self._inbox) as view:
            answer = _decode_head(view[_HEADER:body]), bytes(view[body:end])
        self._filled = 0
        if end > _CHUNK:
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
