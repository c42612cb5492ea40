"""The workers of one file: at most so many, calls served in order of arrival, a killed one replaced at once.

A worker has one query at a time, but for quick ones: a few of them are sent ahead, for to sleep and be woken takes both
sides longer than they do. If the first turns out not to be quick, those behind it go to whoever is free.
A worker is started from the event loop's own thread, because it dies with the thread that started it.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Self

import anyio

from .errors import Busy, Closed, HostError, InternalError, TimedOut, TooLarge
from .guard_line import Asked, Line
from .guard_process import WorkerLost, WorkerProcess

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskGroup

    from .guard_process import Head

START_S = 20.0  # for a worker to open its file
CLOSE_S = 3.0
WATCH_S = 0.02
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


def timed_out(timeout_s: float) -> TimedOut:
    """The error of a query that did not end in its time."""
    hint = "narrow it with WHERE or LIMIT, or look at its plan with explain"
    return TimedOut(f"the query did not end within {timeout_s:g} s", hint=hint)


class WorkerPool:
    """Owns the workers between `async with` and its end, at which they are killed, whatever they do."""

    def __init__(self, python: str, config: bytes, size: int) -> None:
        self._python, self._config, self._size = python, config, size
        self._tasks: TaskGroup | None = None
        self._queue: deque[Asked] = deque()
        self._lines: list[Line] = []
        self._dying: list[Line] = []
        self._busy = anyio.Event()
        self._calls = 0
        self.engine = ""

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise Closed("the reader is open already")
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._watch)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        for asked in (*self._queue, *(asked for line in self._lines for asked in line.queries())):
            asked.fail(closed())
        self._queue.clear()
        for line in self._lines:
            line.process.kill()
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)
        with anyio.move_on_after(CLOSE_S, shield=True):
            for line in (*self._lines, *self._dying):
                await line.end()
        self._lines.clear()
        self._dying.clear()

    def prewarm(self) -> None:
        """Start a worker now if there is none; it opens its file while others go on."""
        if self._tasks is None:
            raise closed()
        if not self._lines:
            self._start(self._tasks)

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [line.process.pid for line in self._lines]

    async def ask(self, request: bytes, timeout_s: float, *, quick: bool = False) -> tuple[Head, bytes]:
        """The answer of the next free worker; `quick` says that the last query of its kind was.

        Raises `TimedOut`, `TooLarge`, `Busy`, `Closed`, `InternalError`.
        """
        if self._tasks is None:
            raise closed()
        asked = Asked(request, timeout_s, quick=quick)
        self._queue.append(asked)
        self._calls += 1
        self._busy.set()
        self._hand_out()
        self._staff(self._tasks)
        try:
            await asked.done.wait()
        except anyio.get_cancelled_exc_class():
            await self._take_back(asked)
            raise
        if asked.error is not None:
            raise asked.error
        assert asked.answer is not None
        return asked.answer

    def _hand_out(self) -> None:
        """Give what waits to the workers that take it."""
        while self._queue and (lines := [line for line in self._lines if line.takes(self._queue[0])]):
            self._give(min(lines, key=len), [self._queue.popleft()])

    def _feed(self, line: Line) -> None:
        """Give a worker that has answered what it takes."""
        given: list[Asked] = []
        while self._queue and line.takes(self._queue[0], after=given):
            given.append(self._queue.popleft())
        if given:
            self._give(line, given)

    def _give(self, line: Line, given: list[Asked]) -> None:
        try:
            line.add(given)
        except WorkerLost:
            self._queue.extendleft(reversed(given))
            if not line:  # killed by somebody else while nobody used it
                self._lines.remove(line)
                self._dying.append(line)
        if line.process.sending and self._tasks is not None:
            self._tasks.start_soon(line.flush)

    def _staff(self, tasks: TaskGroup) -> None:
        """Have a worker for the first call, and a spare one from the second on."""
        if not self._lines:
            try:
                self._start(tasks)
            except HostError:
                self._queue.pop()
                raise
        elif self._calls > 1 and len(self._lines) < self._size:
            with contextlib.suppress(HostError):  # the one there is goes on
                self._start(tasks)

    def _start(self, tasks: TaskGroup) -> None:
        try:
            process = WorkerProcess(self._python, self._config)
        except OSError as error:
            message = f"no process could be started for the query: {error.strerror}"
            if error.errno in _PASSING:
                raise Busy(message, hint="try again when the machine is less busy") from error
            raise InternalError(message, hint="check the interpreter that query workers are to run in") from error
        line = Line(process, self._feed)
        self._lines.append(line)
        tasks.start_soon(self._look_after, line)

    async def _look_after(self, line: Line) -> None:
        """Have a worker's answers delivered, until it is lost or must go."""
        error: HostError | None = None
        try:
            with anyio.move_on_after(START_S) as starting:
                await line.open()
            if starting.cancelled_caught:
                error = Busy("the query worker did not start in time", hint="try again when the machine is less busy")
            else:
                self.engine = line.process.engine
                self._feed(line)
                self._busy.set()
                error = await self._serve(line)
        except WorkerLost:
            await line.end()
            error = _lost(line)
        if line in self._lines:
            await self._replace(line, error)

    async def _serve(self, line: Line) -> HostError | None:
        """Serve until the worker must go; the error for the query that it has begun, if that is not answered."""
        while True:
            with anyio.CancelScope() as line.patience:
                await line.serve()
                return None
            if line.deadline() <= time.monotonic() and not self._take_from(line):
                head = line.head
                return None if head is None else timed_out(head.timeout_s)

    async def _watch(self) -> None:
        """Have somebody look after a worker whose time is up; a deadline of its own for each query would cost more."""
        while True:
            await self._busy.wait()
            self._busy = anyio.Event()
            while any(self._lines):
                await anyio.sleep(WATCH_S)
                for line in self._lines:
                    if line.deadline() <= time.monotonic():
                        line.patience.cancel()

    def _take_from(self, line: Line) -> bool:
        """Let others have what was sent behind a query that is not quick; False if nothing was."""
        behind = line.withdraw()
        self._queue.extendleft(reversed(behind))
        self._hand_out()
        return bool(behind)

    async def _take_back(self, asked: Asked) -> None:
        """Have a cancelled query interrupted; one that takes no notice is ended with its worker."""
        if asked in self._queue:
            self._queue.remove(asked)
            return
        for line in self._lines:
            if asked in line:
                line.take_back(asked)
        with anyio.CancelScope(shield=True):  # whoever looks after its worker ends this
            await asked.done.wait()

    async def _replace(self, line: Line, error: HostError | None) -> None:
        """End a worker; the query that it has begun, or the next one if it never was ready, gets the error."""
        begun = None
        if error is not None:
            begun = line.head if line.opened else self._queue.popleft() if self._queue else None
        self._queue.extendleft(reversed([asked for asked in line.queries() if asked is not begun]))
        self._lines.remove(line)
        self._dying.append(line)
        await line.end()
        self._dying = [dying for dying in self._dying if not dying.process.gone()]
        if line.opened or self._queue:
            self._fill_up()
        if begun is not None and error is not None:
            begun.fail(error)

    def _fill_up(self) -> None:
        """Start a worker in the place of one that has ended; what waits fails if none can be."""
        if self._tasks is None or len(self._lines) >= self._size:
            return
        try:
            self._start(self._tasks)
        except HostError as failure:
            while self._queue and not self._lines:
                self._queue.popleft().fail(failure)
        self._hand_out()


def _lost(line: Line) -> HostError:
    ended_by = line.process.ended_by
    if ended_by == signal.SIGXCPU and line.head is not None:
        return timed_out(line.head.timeout_s)
    if ended_by:
        name = signal.Signals(ended_by).name
        return TooLarge(f"the query's worker was ended by {name}, most likely for memory", hint="narrow the query")
    return InternalError("the query worker did not start")


def closed() -> Closed:
    """The error of a call outside `async with`."""
    return Closed("the reader is not open", hint="use it inside `async with GuardedReader(path) as reader:`")
