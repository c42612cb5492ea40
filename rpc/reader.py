"""The wire's input: chunks of bytes from whatever was inherited as stdin, as fast as they are asked for.

    async with Reader(fd) as reader:
        async for chunk in reader:
            items = deframer.feed(chunk)

Nothing is read ahead: who stops asking stops the peer. The end of input, orderly or not, ends the iteration.
"""

from __future__ import annotations

import logging
import os
import stat
from functools import partial
from typing import TYPE_CHECKING, Self

import anyio
import anyio.lowlevel
import anyio.to_thread

from ..store.watch import Watch
from .descriptor import Source, open_source, widen

if TYPE_CHECKING:
    from types import TracebackType

CHUNK = 256 * 1024

# Room for this much comes from the heap; for a whole chunk it is mapped anew each time, which costs more than the read.
_FIRST = 64 * 1024
# A read that brings this much most likely left something behind, so the next one need not wait first.
_MANY = 4096

log = logging.getLogger(__name__)


class Reader:
    """Owns what it opens, not `fd` itself. `regular` tells a file, whose end is not a peer's going away."""

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        self.regular = stat.S_ISREG(mode)
        self._fd = fd
        # epoll refuses files, folders and the null device.
        self._threaded = not (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) or os.isatty(fd))
        widen(fd, CHUNK)  # fewer wake-ups for a big frame
        self._own = None if self._threaded else open_source(fd)
        self._source = self._own or Source(fd, partial(os.read, fd), lambda: None)
        self._limiter = anyio.CapacityLimiter(1)
        self._size = _FIRST
        self._more = False
        self._chunk: bytes | None = None
        self._watch = Watch(self._source.fd, self._take)
        self._ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._watch.close()
        if self._own:
            self._own.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self.receive()
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def receive(self) -> bytes:
        """The next chunk, at most `CHUNK` bytes; none at the end of input. Cancelling loses nothing."""
        if self._ended:
            return b""
        chunk = await (self._receive_in_thread() if self._threaded else self._receive())
        self._ended = not chunk
        return chunk

    async def _receive(self) -> bytes:
        if self._more and self._own:
            await anyio.lowlevel.checkpoint()
            self._take()
        if self._chunk is None:
            await self._watch.arrival()
        chunk, self._chunk = self._chunk, None
        assert chunk is not None
        self._more = len(chunk) >= _MANY
        self._size = CHUNK if len(chunk) >= _FIRST else _FIRST
        return chunk

    def _take(self) -> bool:
        """Read what there is; whether there was anything, if only the end."""
        try:
            self._chunk = self._source.read(self._size)
        except BlockingIOError:
            return False
        except OSError as error:
            self._chunk = _end(error)
        return True

    async def _receive_in_thread(self) -> bytes:
        try:
            return await anyio.to_thread.run_sync(
                os.read, self._fd, CHUNK, limiter=self._limiter, abandon_on_cancel=True
            )
        except OSError as error:
            return _end(error)


def _end(error: OSError) -> bytes:
    """What reading brings that failed: the end of input."""
    log.info("Reading ends: %s.", error.strerror)
    return b""
