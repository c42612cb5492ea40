"""Long-lived workers on one queue: a task per call would cost more than most calls do.

Calls start in order of arrival. Urgent ones go ahead of the queue and never wait for a free worker. A call that only
waits (for a job, a turn, an approval) gives its place back for that time. Calls that are served elsewhere, one after
the other (SQL), are apart: however many there are, no other call waits for them, and few of them have a worker.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import anyio
import anyio.lowlevel

from ..store.watch import Wakeup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from anyio.abc import TaskGroup

T = TypeVar("T")

Queue = Literal["main", "urgent", "apart"]

ACTIVE = 64
APART = 32
"""Calls apart that are at work: enough to keep whoever serves them busy."""
BREATH = 64
"""Calls the workers serve before they let the reader look at its descriptor."""


class Workers(Generic[T]):
    """Serves items with at most `ACTIVE` workers at work, beside those that are apart or aside; tasks live in `tasks`.

    `serve` is given the scope that gives the item up when it is cancelled, and must let that cancellation pass.
    """

    def __init__(self, tasks: TaskGroup, serve: Callable[[T, anyio.CancelScope], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._serve = serve
        self._urgent: deque[T] = deque()
        self._queue: deque[tuple[T, bool]] = deque()  # all others in order of arrival, and whether they are apart
        self._apart: deque[T] = deque()  # those apart whose turn in the queue has come
        self._idle: list[Wakeup] = []
        self._active = 0
        self._active_apart = 0
        self._coming = False
        self._held = False
        self._served = 0

    def put(self, item: T, queue: Queue = "main") -> None:
        """Queue an item; an idle or new worker takes it."""
        if queue == "urgent":
            self._urgent.append(item)
        else:
            self._queue.append((item, queue == "apart"))
        self._call_worker()

    def hold(self) -> None:
        """Begin nothing until `release`."""
        self._held = True

    def release(self) -> None:
        """Go on with what is queued."""
        self._held = False
        self._call_worker()

    @contextmanager
    def aside(self) -> Generator[None]:
        """Entered by a worker's call while it uses nothing: its place is another's for that time."""
        self._active -= 1
        self._call_worker()
        try:
            yield
        finally:
            self._active += 1

    def _call_worker(self) -> None:
        """Have one more worker on its way if there is work; it calls the next one before it begins.

        So a thousand quick items cost two wake-ups, and one that lasts holds nobody up.
        """
        if self._coming or not self._has_work(self._active + 1):
            return
        self._coming = True
        self._active += 1
        if self._idle:
            self._idle.pop().set()
        else:
            self._tasks.start_soon(self._work)

    def _has_work(self, active: int) -> bool:
        """Whether there is an item that one of `active` workers may begin."""
        while self._queue and self._queue[0][1]:
            self._apart.append(self._queue.popleft()[0])
        if self._held:
            return False
        return bool(self._urgent or self._may_serve_apart() or (self._queue and active <= ACTIVE))

    def _may_serve_apart(self) -> bool:
        return bool(self._apart) and self._active_apart < APART

    async def _work(self) -> None:
        self._coming = False
        while True:
            with anyio.CancelScope() as scope:  # for all calls until one of them is cancelled: it costs as much as some
                while not scope.cancel_called:
                    if self._has_work(self._active):
                        await self._serve_next(scope)
                    elif not await self._called():
                        return

    async def _serve_next(self, scope: anyio.CancelScope) -> None:
        if not self._urgent and self._may_serve_apart():
            await self._serve_apart(self._apart.popleft(), scope)
        else:
            item = self._urgent.popleft() if self._urgent else self._queue.popleft()[0]
            self._call_worker()
            await self._serve(item, scope)
        self._served += 1
        if self._served % BREATH == 0:
            await anyio.lowlevel.checkpoint()

    async def _serve_apart(self, item: T, scope: anyio.CancelScope) -> None:
        self._active_apart += 1
        try:
            with self.aside():
                await self._serve(item, scope)
        finally:
            self._active_apart -= 1

    async def _called(self) -> bool:
        """Wait for work; False when enough others do."""
        self._active -= 1
        if len(self._idle) >= ACTIVE:
            return False
        called = Wakeup()
        self._idle.append(called)
        await called.wait()
        self._coming = False
        return True
