"""The workers of one file: at most so many, calls served in order of arrival, a killed one replaced at once.

A worker is started from the event loop's own thread, because it dies with the thread that started it.
"""

from __future__ import annotations

import errno
import signal
from typing import TYPE_CHECKING, Self

import anyio

from .errors import Busy, Closed, HostError, InternalError, TimedOut, TooLarge
from .guard_process import WorkerLost, WorkerProcess

if TYPE_CHECKING:
    from types import TracebackType

    from .guard_process import Head

START_S = 20.0  # for a worker to open its file
KILL_AFTER_S = 0.5  # beyond the query's own time, which the worker keeps itself where it can
CANCEL_GRACE_S = 0.1
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
        self._slots: anyio.Semaphore | None = None
        self._idle: list[WorkerProcess] = []
        self._workers: set[WorkerProcess] = set()
        self._dying: list[WorkerProcess] = []
        self._calls = 0
        self.engine = ""

    async def __aenter__(self) -> Self:
        if self._slots is not None:
            raise Closed("the reader is open already")
        self._slots = anyio.Semaphore(self._size, fast_acquire=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        slots, self._slots = self._slots, None
        assert slots is not None
        for worker in self._workers:
            worker.kill()
        with anyio.move_on_after(CLOSE_S, shield=True):
            for worker in (*self._idle, *self._dying):
                await worker.end()
            for _ in range(self._size):  # whoever still holds or awaits a place finds the pool closed
                await slots.acquire()
        self._idle.clear()
        self._dying.clear()
        self._workers.clear()

    def prewarm(self) -> None:
        """Start a worker now if there is none; it opens its file while others go on."""
        if self._slots is None:
            raise closed()
        if not self._workers:
            self._idle.append(self._start())

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [worker.pid for worker in self._workers]

    async def ask(self, query: int, request: bytes, timeout_s: float) -> tuple[Head, bytes]:
        """The answer of the next free worker. Raises `TimedOut`, `TooLarge`, `Busy`, `Closed`, `InternalError`."""
        slots = self._slots
        if slots is None:
            raise closed()
        async with slots:
            if self._slots is not slots:
                raise closed()
            worker = self._take()
            kept = False
            try:
                answer = await self._ask(worker, request, timeout_s)
                kept = answer[0].name not in _MEMORY  # what it holds on to would be missing for the next query
                return answer
            except WorkerLost as error:
                await worker.end()
                raise self._lost(worker, slots, timeout_s) from error
            except anyio.get_cancelled_exc_class():
                kept = await self._take_back(worker, query)
                raise
            finally:
                if kept and self._slots is slots:
                    self._idle.append(worker)
                else:
                    await self._replace(worker, slots)

    async def _ask(self, worker: WorkerProcess, request: bytes, timeout_s: float) -> tuple[Head, bytes]:
        if not worker.engine:
            with anyio.move_on_after(START_S) as starting:
                await worker.ready()
            if starting.cancelled_caught:
                raise Busy("the query worker did not start in time", hint="try again when the machine is less busy")
            self.engine = worker.engine
        with anyio.move_on_after(timeout_s + KILL_AFTER_S):
            return await worker.ask(request)
        raise timed_out(timeout_s)

    def _take(self) -> WorkerProcess:
        self._calls += 1
        worker = None
        while self._idle and worker is None:
            worker = self._idle.pop()
            if not worker.alive():  # killed by somebody else while nobody used it
                worker.release()
                self._workers.discard(worker)
                worker = None
        worker = worker or self._start()
        if self._calls > 1 and len(self._workers) < self._size:
            self._idle.insert(0, self._start())
        return worker

    def _start(self) -> WorkerProcess:
        try:
            worker = WorkerProcess(self._python, self._config)
        except OSError as error:
            message = f"no process could be started for the query: {error.strerror}"
            if error.errno in _PASSING:
                raise Busy(message, hint="try again when the machine is less busy") from error
            raise InternalError(message, hint="check the interpreter that query workers are to run in") from error
        self._workers.add(worker)
        return worker

    async def _take_back(self, worker: WorkerProcess, query: int) -> bool:
        """Have a cancelled query interrupted; False when the worker must be killed for it."""
        if not worker.asked:
            return not worker.engine  # still starting: nothing was sent
        with anyio.move_on_after(CANCEL_GRACE_S, shield=True):
            worker.take_back(query)
            try:
                await worker.receive()
            except WorkerLost:
                return False
            return True
        return False

    async def _replace(self, worker: WorkerProcess, slots: anyio.Semaphore) -> None:
        if not await worker.end():
            self._dying.append(worker)
        self._dying = [dying for dying in self._dying if dying.alive()]
        self._workers.discard(worker)
        if self._slots is slots and len(self._workers) < self._size:
            try:
                self._idle.insert(0, self._start())
            except HostError:
                return  # the next query tries again and says so

    def _lost(self, worker: WorkerProcess, slots: anyio.Semaphore, timeout_s: float) -> Exception:
        if self._slots is not slots:
            return closed()
        if worker.ended_by == signal.SIGXCPU:
            return timed_out(timeout_s)
        if worker.ended_by:
            name = signal.Signals(worker.ended_by).name
            return TooLarge(f"the query's worker was ended by {name}, most likely for memory", hint="narrow the query")
        return InternalError("the query worker did not start")


def closed() -> Closed:
    """The error of a call outside `async with`."""
    return Closed("the reader is not open", hint="use it inside `async with GuardedReader(path) as reader:`")
