"""The workers of one file: at most so many, calls served in order of arrival, a killed one replaced at once.

A worker has one query at a time, but for quick ones: a few of them are sent ahead, for to sleep and be woken takes both
sides longer than they do. If the first turns out not to be quick, those behind it go to whoever is free.
A worker is started from the event loop's own thread, because it dies with the thread that started it.
"""

from __future__ import annotations

import contextlib
import errno
import signal
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
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_MEMORY = ("SQLITE_NOMEM", "SQLITE_IOERR_NOMEM")


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
        self._dying: list[WorkerProcess] = []
        self._calls = 0
        self.engine = ""

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise Closed("the reader is open already")
        self._tasks = await anyio.create_task_group().__aenter__()
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
            for process in (*(line.process for line in self._lines), *self._dying):
                await process.end()
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
        self._staff(self._tasks)
        line = None if self._queue else self._line_for(asked)
        try:
            if line is None:
                self._queue.append(asked)
            else:
                line.add(asked)
                await line.flush()
            await asked.done.wait()
        except anyio.get_cancelled_exc_class():
            await self._take_back(asked)
            raise
        if asked.error is not None:
            raise asked.error
        assert asked.answer is not None
        return asked.answer

    def _staff(self, tasks: TaskGroup) -> None:
        """Have a worker for the first call, and a spare one from the second on."""
        self._calls += 1
        for line in [line for line in self._lines if line.idle and not line.process.alive()]:
            self._lines.remove(line)  # killed by somebody else while nobody used it
            self._dying.append(line.process)
        if not self._lines:
            self._start(tasks)
        elif self._calls > 1 and len(self._lines) < self._size:
            with contextlib.suppress(HostError):  # the one there is goes on
                self._start(tasks)

    def _line_for(self, asked: Asked) -> Line | None:
        lines = [line for line in self._lines if line.takes(asked)]
        return min(lines, key=len) if lines else None

    def _start(self, tasks: TaskGroup) -> None:
        try:
            process = WorkerProcess(self._python, self._config)
        except OSError as error:
            message = f"no process could be started for the query: {error.strerror}"
            if error.errno in _PASSING:
                raise Busy(message, hint="try again when the machine is less busy") from error
            raise InternalError(message, hint="check the interpreter that query workers are to run in") from error
        line = Line(process)
        self._lines.append(line)
        tasks.start_soon(self._look_after, line)

    async def _look_after(self, line: Line) -> None:
        """Deliver a worker's answers and keep its line filled, until it is lost or must go."""
        error: HostError | None = None
        try:
            with anyio.move_on_after(START_S) as starting:
                await line.open()
            if starting.cancelled_caught:
                error = Busy("the query worker did not start in time", hint="try again when the machine is less busy")
            else:
                self.engine = line.process.engine
                error = await self._serve(line)
        except WorkerLost:
            await line.process.end()
            error = _lost(line)
        if line in self._lines:
            await self._replace(line, error)

    async def _serve(self, line: Line) -> HostError | None:
        """Serve until the worker must go; the error for the query that it has begun, if that is not answered."""
        while True:
            while self._queue and line.takes(self._queue[0]):
                line.add(self._queue.popleft())
                await line.flush()
            with anyio.CancelScope(deadline=line.deadline()) as line.patience:
                answer: tuple[Head, bytes] | None = await line.process.receive()
                while answer is not None:
                    line.answered(answer)
                    if answer[0].name in _MEMORY:  # what it holds on to would be missing for the next query
                        return None
                    answer = line.process.arrived()
            if line.patience.cancelled_caught and not self._take_from(line):
                head = line.head
                return None if head is None else timed_out(head.timeout_s)

    def _take_from(self, line: Line) -> bool:
        """Let others have what was sent behind a query that is not quick; False if nothing was."""
        behind = line.withdraw()
        self._queue.extendleft(reversed(behind))
        self._share()
        return bool(behind)

    def _share(self) -> None:
        """Give what waits to the workers that take it."""
        for line in self._lines:
            while self._queue and self._queue[0].light and line.takes(self._queue[0]):
                line.add(self._queue.popleft())

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
        self._dying.append(line.process)
        await line.process.end()
        self._dying = [dying for dying in self._dying if not dying.gone()]
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
        self._share()


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
