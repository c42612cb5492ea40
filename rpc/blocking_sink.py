"""Writing where only a thread can: a pipe that may not be opened anew and that would block the event loop."""

from __future__ import annotations

import os
import queue
import threading

import anyio


class BlockingSink:
    """One thread that writes to `fd` what it is given; it may stay in a write for good, so it is a daemon."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._given: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._error: OSError | None = None
        threading.Thread(target=self._run, name="stdout", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write all of it; raises what the write raised."""
        self._given.put(data)
        await anyio.wait_readable(self._done)
        os.eventfd_read(self._done)
        if self._error:
            raise self._error

    def close(self) -> None:
        """Let the thread end when its write does."""
        self._given.put(None)

    def _run(self) -> None:
        while (data := self._given.get()) is not None:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError as error:
                self._error = error
            os.eventfd_write(self._done, 1)
        os.close(self._done)
