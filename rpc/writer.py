"""The wire's output: one writer, whole frames, in the order in which they were sent.

    async with Writer(fd) as writer, anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        writer.send(b'{"jsonrpc":"2.0","id":1,"result":{}}')

`send` never blocks and never waits. With nothing unsent the frame goes out at once; else it joins the others, which
`run` writes together.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

import anyio
import anyio.lowlevel

from .blocking_sink import BlockingSink
from .descriptor import open_sink, widen
from .framing import Style, encode

if TYPE_CHECKING:
    from types import TracebackType

_TOGETHER = 256 * 1024


class Writer:
    """Owns what it opens, not `fd` itself; `send` belongs to the event loop's thread.

    `style` is how frames are written and may change between frames. `closed` is set once nobody reads any more, and
    `fault` says why.
    """

    def __init__(self, fd: int, style: Style = "lines") -> None:
        self.style: Style = style
        self.closed = anyio.Event()
        self.fault: OSError | None = None
        widen(fd, _TOGETHER)  # fewer wake-ups for a big frame
        self._sink = open_sink(fd)
        self._thread = None if self._sink else BlockingSink(fd)
        self._queue: deque[bytes] = deque()
        self._unsent = memoryview(b"")  # what is being written, of the frames whose lengths are these
        self._lengths: list[int] = []
        self._backlog = 0
        self._ending = False
        self._wake = anyio.Event()
        self._progress = anyio.Event()

    @property
    def backlog(self) -> int:
        """Bytes sent but not yet taken by the operating system."""
        return self._backlog

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending = True
        owner = self._sink or self._thread
        if owner:
            owner.close()
        self._sink = self._thread = None

    def send(self, payload: bytes, *, more: bool = False) -> None:
        """Send one JSON text as a frame; `more` says that others will follow soon, so that they may go together.

        After `finish` and once `closed` is set, nothing is sent.
        """
        if self._ending:
            return
        frame = encode(payload, self.style)
        if self._backlog or more or not self._sink:
            self._queue.append(frame)
            self._backlog += len(frame)
        else:
            self._begin([frame])
            self._backlog = len(frame)
            self._write_some()
        if self._backlog:
            self._wake.set()

    async def run(self) -> None:
        """Write what `send` left unsent, until cancelled or nobody reads."""
        while not self.closed.is_set():
            if not self._backlog:
                self._wake = anyio.Event()
                await self._wake.wait()
            await self._flush()

    async def drained(self, seconds: float) -> bool:
        """Wait until all is written, at most `seconds`; whether it is."""
        return await self.below(1, seconds)

    async def below(self, limit: int, seconds: float | None = None) -> bool:
        """Wait until fewer than `limit` bytes are unsent (or nobody reads), at most `seconds`; whether it is so."""
        if self._backlog < limit:  # most often; a scope costs as much as a small call
            return True
        with anyio.move_on_after(seconds):
            while self._backlog >= limit and not self.closed.is_set():
                if self._progress.is_set():
                    self._progress = anyio.Event()
                await self._progress.wait()
        return self._backlog < limit

    async def finish(self, seconds: float) -> bool:
        """Send nothing new and write what is queued; near the end only the frame that has begun. Whether all went."""
        self._ending = True
        if await self.drained(seconds * 0.8):
            return True
        self._drop_unbegun()
        await self.drained(seconds * 0.2)
        return False

    def _begin(self, frames: list[bytes]) -> None:
        self._unsent = memoryview(frames[0] if len(frames) == 1 else b"".join(frames))
        self._lengths = [len(frame) for frame in frames]

    def _begin_next(self) -> None:
        """Take as many queued frames as one write should carry."""
        frames = [self._queue.popleft()]
        size = len(frames[0])
        while self._queue and size + len(self._queue[0]) <= _TOGETHER:
            frames.append(self._queue.popleft())
            size += len(frames[-1])
        self._begin(frames)

    async def _flush(self) -> None:
        while self._backlog and not self.closed.is_set():
            if not self._unsent:
                self._begin_next()
            if self._thread:
                await self._write_in_thread(self._thread)
            elif self._sink and not self._write_some():
                await anyio.wait_writable(self._sink.fd)
            elif self._backlog:
                await anyio.lowlevel.checkpoint()

    def _write_some(self) -> bool:
        """One write; False when the peer has to read first."""
        assert self._sink
        try:
            taken = self._sink.write(self._unsent)
        except BlockingIOError:
            return False
        except OSError as error:
            self._break(error)
            return True
        self._advance(taken)
        return True

    async def _write_in_thread(self, thread: BlockingSink) -> None:
        try:
            await thread.write(bytes(self._unsent))
        except OSError as error:
            self._break(error)
        else:
            self._advance(len(self._unsent))

    def _advance(self, taken: int) -> None:
        self._unsent = self._unsent[taken:]
        self._backlog -= taken
        self._progress.set()

    def _drop_unbegun(self) -> None:
        begun = sum(self._lengths) - len(self._unsent)
        end = 0
        for length in self._lengths:
            if end >= begun:
                break
            end += length
        self._queue.clear()
        self._unsent = self._unsent[: end - begun]
        self._lengths = [end]
        self._backlog = len(self._unsent)

    def _break(self, error: OSError) -> None:
        """Nobody reads any more, or nothing can be written: forget all that is unsent."""
        self.fault = error
        self._ending = True
        self._queue.clear()
        self._unsent = memoryview(b"")
        self._backlog = 0
        self.closed.set()
        self._wake.set()
        self._progress.set()
