"""The queries that one worker has, the first of which it has begun, and until when that may last."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

import anyio

from .guard_process import WorkerLost

if TYPE_CHECKING:
    from .errors import HostError
    from .guard_process import Head, WorkerProcess

KILL_AFTER_S = 0.5  # beyond the query's own time, which the worker keeps itself where it can
CANCEL_GRACE_S = 0.1
AHEAD = 8
LIGHT_BYTES = 4096  # a line of those fits into the socket, whatever the worker does
QUICK_S = 0.02  # those behind wait no longer for one that was to be quick


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
        self.done = anyio.Event()

    def fail(self, error: HostError) -> None:
        """End it without an answer, unless it has ended."""
        if not self.done.is_set():
            self.error = error
            self.done.set()


class Line:
    """A worker and its queries in the order in which it answers them; None stands for one that went elsewhere.

    Whoever looks after the worker waits for it inside `patience`, which ends with `deadline()`.
    """

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.opened = False
        self.patience = anyio.CancelScope()
        self._queries: deque[Asked | None] = deque()
        self._number = 0
        self._begun_at = 0.0

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, asked: Asked) -> bool:
        return asked in self._queries

    @property
    def idle(self) -> bool:
        """Whether it could begin a query at once."""
        return self.opened and not self._queries

    @property
    def head(self) -> Asked | None:
        """The query it has begun."""
        return self._queries[0] if self._queries else None

    def queries(self) -> list[Asked]:
        """All that nobody else has."""
        return [asked for asked in self._queries if asked is not None]

    async def open(self) -> None:
        """Wait until the worker is ready. Raises `WorkerLost`."""
        await self.process.ready()
        self.opened = True

    def takes(self, asked: Asked) -> bool:
        """Whether the worker may be given another query: it is idle, or all it has are quick, and so is this one."""
        if not self._queries:
            return self.opened
        return asked.light and len(self._queries) < AHEAD and all(each and each.light for each in self._queries)

    def add(self, asked: Asked) -> None:
        """Send it a query; a large one may have to be flushed."""
        self._number += 1
        asked.number = self._number
        self._queries.append(asked)
        self.process.send(asked.number, asked.request)
        if len(self._queries) == 1:
            self._begun_at = anyio.current_time()
        self.patience.deadline = self.deadline()

    async def flush(self) -> None:
        """Send what a large query has left; a worker that is lost meanwhile shows it in its next answer."""
        if self.process.sending:
            with suppress(WorkerLost):
                await self.process.flush()

    def answered(self, answer: tuple[Head, bytes]) -> None:
        """Give the first query its answer; the next one begins."""
        asked = self._queries.popleft()
        if asked is not None:
            asked.answer = answer
            asked.done.set()
        self._begun_at = anyio.current_time()

    def deadline(self) -> float:
        """Until when the first answer must be there, or something be done about it."""
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
        for asked in taken:
            self.process.send(asked.number)
        self._queries = deque([head, *(None for _ in behind)])
        return taken

    def take_back(self, asked: Asked) -> None:
        """Have the worker interrupt a query, or pass it over; if it takes no notice its time is up soon."""
        if self.process.sending:
            self.process.kill()
            return
        self.process.send(asked.number)
        if asked is self.head:
            asked.taken_back = True
            self._begun_at = anyio.current_time()
            self.patience.deadline = self.deadline()
        else:
            self._queries[self._queries.index(asked)] = None
            asked.done.set()
