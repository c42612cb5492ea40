"""The queries that one worker has, the first of which it has begun, and until when that may last."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

import anyio

from .guard_process import WorkerLost, frame
from .watch import Wakeup, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .errors import HostError
    from .guard_process import Head, WorkerProcess

KILL_AFTER_S = 0.5  # beyond the query's own time, which the worker keeps itself where it can
CANCEL_GRACE_S = 0.1
AHEAD = 8
LIGHT_BYTES = 4096  # a line of those fits into the socket, whatever the worker does
QUICK_S = 0.02  # those behind wait no longer for one that was to be quick
_MEMORY = ("SQLITE_NOMEM", "SQLITE_IOERR_NOMEM")


class Asked:
    """A query on its way; `done` is set once it has its answer or its error."""

    __slots__ = ("answer", "done", "error", "light", "number", "request", "taken_back", "timeout_s")

    def __init__(self, request: bytes, timeout_s: float, *, quick: bool) -> None:
        self.request = request
        self.timeout_s = timeout_s
        self.light = quick and len(request) <= LIGHT_BYTES
        self.number = 0
        self.taken_back = False
        self.answer: tuple[Head, bytes] | None = None
        self.error: HostError | None = None
        self.done = Wakeup()

    def fail(self, error: HostError) -> None:
        """End it without an answer, unless it has ended."""
        if not self.done.is_set():
            self.error = error
            self.done.set()


class Line:
    """A worker and its queries in the order in which it answers them; None stands for one that went elsewhere.

    `free` is called when the worker may be given more. `patience` is cancelled when the first query is overdue.
    """

    def __init__(self, process: WorkerProcess, free: Callable[[Line], None]) -> None:
        self.process = process
        self.opened = False
        self.patience = anyio.CancelScope()
        self._free = free
        self._queries: deque[Asked | None] = deque()
        self._watch = Watch(process.fd, self._take)
        self._must_go = False
        self._number = 0
        self._begun_at = 0.0

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, asked: Asked) -> bool:
        return asked in self._queries

    @property
    def head(self) -> Asked | None:
        """The query it has begun."""
        return self._queries[0] if self._queries else None

    def queries(self) -> list[Asked]:
        """All that nobody else has."""
        return [asked for asked in self._queries if asked is not None]

    async def open(self) -> None:
        """Wait until the worker is ready. Raises `WorkerLost`."""
        while not self.opened:
            await self._watch.arrival()
            self.process.check()

    async def serve(self) -> None:
        """Deliver the worker's answers until it should not go on. Raises `WorkerLost`."""
        while not self._must_go:
            await self._watch.arrival()
            self.process.check()

    async def end(self) -> bool:
        """End the worker; False if it is still to be reaped."""
        self._watch.close()
        return await self.process.end()

    def takes(self, asked: Asked, after: Sequence[Asked] = ()) -> bool:
        """Whether the worker may be given another query: it is idle, or all it has are quick, and so is this one."""
        if not self.opened or self._must_go:
            return False
        before = len(self._queries) + len(after)
        if not before:
            return True
        return asked.light and before < AHEAD and all(each and each.light for each in (*self._queries, *after))

    @property
    def low(self) -> bool:
        """Whether it will soon be idle: more is sent then, for several at once cost little more than one."""
        return len(self._queries) <= AHEAD // 2

    def add(self, given: Sequence[Asked]) -> None:
        """Send it queries; a large one may have to be flushed. Raises `WorkerLost`: it ended while nobody used it."""
        for number, asked in enumerate(given, start=self._number + 1):
            asked.number = self._number = number
        try:
            self.process.send(*(frame(asked.number, asked.request) for asked in given))
        except WorkerLost:
            self._must_go = True
            raise
        if not self._queries:
            self._begun_at = time.monotonic()
        self._queries.extend(given)

    async def flush(self) -> None:
        """Send what a large query has left; a worker that is lost meanwhile shows it in its next answer."""
        if self.process.sending:
            with suppress(WorkerLost):
                await self.process.flush()

    def _take(self) -> bool:
        """Deliver what has arrived; whether somebody has to look after the worker."""
        self.process.fill()
        answered = False
        while (answer := self.process.arrived()) is not None:
            if self.opened:
                self._answer(answer)
                answered = True
            else:
                self.process.engine = answer[0].engine
                self.opened = True
                return True
        if answered and self.low:
            self._free(self)
        return self._must_go or self.process.lost

    def _answer(self, answer: tuple[Head, bytes]) -> None:
        asked = self._queries.popleft()
        if asked is not None:
            asked.answer = answer
            asked.done.set()
        self._begun_at = time.monotonic()
        self._must_go = answer[0].name in _MEMORY  # what it holds on to would be missing for the next query

    def deadline(self) -> float:
        """Until when the first answer must be there, or something be done about it; seconds of `time.monotonic`."""
        if not self._queries:
            return inf
        head = self._queries[0]
        if head is None or head.taken_back:
            return self._begun_at + CANCEL_GRACE_S
        if any(asked is not head for asked in self.queries()):
            return self._begun_at + QUICK_S
        return self._begun_at + head.timeout_s + KILL_AFTER_S

    def withdraw(self) -> list[Asked]:
        """Take back the queries behind the first, for others; the worker will pass them over."""
        head, *behind = self._queries
        taken = [asked for asked in behind if asked is not None]
        with suppress(WorkerLost):
            self.process.send(*(frame(asked.number) for asked in taken))
        self._queries = deque([head, *(None for _ in behind)])
        return taken

    def take_back(self, asked: Asked) -> None:
        """Have the worker interrupt a query, or pass it over; if it takes no notice its time is up soon."""
        if self.process.sending:
            self.process.kill()
            return
        with suppress(WorkerLost):
            self.process.send(frame(asked.number))
        if asked is self.head:
            asked.taken_back = True
            self._begun_at = time.monotonic()
        else:
            self._queries[self._queries.index(asked)] = None
            asked.done.set()
