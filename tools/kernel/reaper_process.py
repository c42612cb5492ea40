"""The reaper as the server sees it: one process for all kernels, there as long as anybody needs it.

    async with reaper_held():
        shim = open_shim([stdout, stderr])      # a socket to the parent of a kernel to be, as reaper.py says

The reaper and its shims end when the server does, because their sockets close.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ...store.bare_process import start_bare

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

PROGRAM = Path(__file__).with_name("reaper.py")
_GONE_WITHIN_S = 1.0


class _Process:
    """A started reaper; raises `OSError` when none starts."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)  # a reaper that was stopped holds up nobody
        try:
            self._process = start_bare(sys.executable, PROGRAM, theirs)
        except OSError:
            self._control.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, descriptors: Sequence[int]) -> None:
        """Have a shim forked. Raises `ConnectionError` if the reaper was killed."""
        socket.send_fds(self._control, [b"+"], descriptors)

    def abandon(self) -> None:
        """Give up one that was killed."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    async def end(self) -> None:
        """Have it go once its kernels have, and see it gone."""
        self._control.close()
        pidfd = os.pidfd_open(self._process.pid)
        try:
            with anyio.move_on_after(_GONE_WITHIN_S, shield=True):
                await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)
        if self._process.poll() is None:  # a kernel's process that nothing can kill: its shim goes on trying
            self.abandon()


class _SharedReaper:
    """The one reaper of this process: started when needed, replaced when it was killed, ended with its last user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._process: _Process | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def enter(self, *, start: bool) -> None:
        with self._lock:
            self._users += 1
            if start:
                with suppress(OSError):  # whoever launches a kernel tries again, and is told why not
                    self._started()

    async def leave(self) -> None:
        with self._lock:
            self._users -= 1
            process = None
            if self._users == 0:
                process, self._process = self._process, None
        if process is not None:
            await process.end()

    def send(self, descriptors: Sequence[int]) -> None:
        with self._lock:
            try:
                self._started().send(descriptors)
            except ConnectionError:
                assert self._process is not None
                self._process.abandon()
                self._process = None
                self._started().send(descriptors)

    def _started(self) -> _Process:
        if self._process is None:
            self._process = _Process()
        return self._process


_shared = _SharedReaper()


@asynccontextmanager
async def reaper_held(*, start: bool = True) -> AsyncGenerator[None]:
    """Have a reaper until the block is left, from now on or, without `start`, from the first kernel on."""
    _shared.enter(start=start)
    try:
        yield
    finally:
        await _shared.leave()


def reaper_pid() -> int | None:
    """The reaper's process id, while there is one."""
    return _shared.pid


def open_shim(descriptors: Sequence[int]) -> socket.socket:
    """A socket, non-blocking, to a new shim that holds copies of the descriptors. Raises `OSError`."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            _shared.send([theirs.fileno(), *descriptors])
        except OSError:
            ours.close()
            raise
    ours.setblocking(False)
    return ours
