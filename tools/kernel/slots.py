"""Who runs and who waits: so many slots, and a queue of so many in order of arrival."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...store.counting import counted
from ...store.errors import Busy

if TYPE_CHECKING:
    from .job import Job
    from .limits import JobLimits


class Slots:
    """Counts running jobs and keeps the queue."""

    def __init__(self, limits: JobLimits) -> None:
        self._limits = limits
        self._running = 0
        self._reserved = 0
        self._queue: deque[Job] = deque()

    def reserve(self) -> None:
        """Hold a place for a job that is being written down; raises `Busy` when there is none."""
        waiting = self._running + len(self._queue) + self._reserved
        if waiting >= self._limits.max_running + self._limits.max_queued:
            raise Busy(
                f"the queue is full: it has {counted(len(self._queue), 'job')}",
                hint="wait for some to end, or interrupt them",
            )
        self._reserved += 1

    def give_up(self) -> None:
        """Free a reserved place."""
        self._reserved -= 1

    def enter(self, job: Job) -> None:
        """Turn a reserved place into one in the queue."""
        self._reserved -= 1
        self._queue.append(job)

    def next(self) -> Job | None:
        """The first in the queue, if a slot is free for it; the slot is then taken."""
        if not self._queue or self._running >= self._limits.max_running:
            return None
        self._running += 1
        return self._queue.popleft()

    def free(self) -> None:
        """Give a slot back."""
        self._running -= 1

    def withdraw(self, job: Job) -> bool:
        """Take a job out of the queue; false if it is not in it."""
        if job not in self._queue:
            return False
        self._queue.remove(job)
        return True

    def drain(self) -> list[Job]:
        """Empty the queue."""
        jobs = list(self._queue)
        self._queue.clear()
        return jobs
