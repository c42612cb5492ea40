"""Long-lived workers on one queue: a task per call would cost more than most calls do.

Calls start in order of arrival. Urgent ones go ahead of the queue and never wait for a free worker. A call that only
waits (for a job, a turn, an approval) gives its place back for that time.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from anyio.abc import TaskGroup

T = TypeVar("T")

ACTIVE = 64
BREATH = 64
"""Calls a worker serves before it lets the reader look at its descriptor."""


class Workers(Generic[T]):
    """Serves items with at most `ACTIVE` workers at work, beside those that are aside; tasks live in `tasks`."""

    def __init__(self, tasks: TaskGroup, serve: Callable[[T], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._serve = serve
        self._queue: deque[T] = deque()
        self._urgent: deque[T] = deque()
        self._idle: list[anyio.Event] = []
        self._active = 0
        self._coming = False
        self._held = False

    def put(self, item: T, *, urgent: bool = False) -> None:
        """Queue an item; an idle or new worker takes it."""
        (self._urgent if urgent else self._queue).append(item)
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
        if self._coming or self._held or not (self._urgent or (self._queue and self._active < ACTIVE)):
            return
        self._coming = True
        self._active += 1
        if self._idle:
            self._idle.pop().set()
        else:
            self._tasks.start_soon(self._work)

    async def _work(self) -> None:
        served = 0
        while True:
            self._coming = False
            while not self._held and (self._urgent or (self._queue and self._active <= ACTIVE)):
                item = (self._urgent or self._queue).popleft()
                self._call_worker()
                await self._serve(item)
                served += 1
                if served % BREATH == 0:
                    await anyio.lowlevel.checkpoint()
            self._active -= 1
            if len(self._idle) >= ACTIVE:
                return
            called = anyio.Event()
            self._idle.append(called)
            await called.wait()
