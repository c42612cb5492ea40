"""The thread that carries what anybody writes to descriptors 1 and 2 to the original stderr.

It always reads and never waits for whoever should read our stderr: what does not fit into the backlog is dropped and
counted, and the count is reported as soon as there is room again. Standard library only.
"""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING

from .descriptor import Sink, open_sink

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_BACKLOG = 256 * 1024
_READ_SIZE = 64 * 1024


class Forwarder:
    """Owns `source`, the read end of the pipe; `target` is the original stderr and stays its owner's."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._sink: Sink | None = open_sink(target) or _careful_sink(target)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._backlog = bytearray()
        self._dropped = 0
        self._drained = threading.Event()

    def start(self) -> None:
        """Forward from now on, until the process ends."""
        threading.Thread(target=self._run, name="stderr", daemon=True).start()

    def drain(self, seconds: float) -> None:
        """Wait until all that was written so far is out, at most `seconds`."""
        self._drained.clear()
        os.eventfd_write(self._wake, 1)
        self._drained.wait(seconds)

    def _run(self) -> None:
        asked = False
        while True:
            ready = self._ready(block=True)
            if self._source in ready and not self._read():
                return
            if self._sink and self._sink.fd in ready:
                self._write(self._sink.write)
            if self._wake in ready:
                asked = bool(os.eventfd_read(self._wake))
            if asked and not self._backlog and self._source not in self._ready(block=False):
                asked = False
                self._drained.set()

    def _ready(self, *, block: bool) -> set[int]:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        if self._sink and self._backlog:
            poll.register(self._sink.fd, select.POLLOUT)
        return {fd for fd, _ in poll.poll(None if block else 0)}

    def _read(self) -> bool:
        data = os.read(self._source, _READ_SIZE)
        if self._sink:
            room = 0 if self._dropped else _MAX_BACKLOG - len(self._backlog)
            self._backlog += data[:room]
            self._dropped += len(data[room:])
        return bool(data)

    def _write(self, write: Callable[[bytes], int]) -> None:
        try:
            taken = write(bytes(self._backlog[:_READ_SIZE]))
        except BlockingIOError:
            return
        except OSError:
            # Nobody will ever read it: from now on all is read and forgotten.
            self._sink = None
            self._backlog.clear()
            return
        del self._backlog[:taken]
        if self._dropped and not self._backlog:
            self._backlog += b"\n[cellhost: %d bytes of log dropped, nobody read them]\n" % self._dropped
            self._dropped = 0


def _careful_sink(fd: int) -> Sink:
    """A pipe that reports room takes this much at once, unless another process is quicker to fill it."""

    def write(data: bytes | bytearray | memoryview) -> int:
        return os.write(fd, data[: select.PIPE_BUF])

    return Sink(fd, write, lambda: None)
