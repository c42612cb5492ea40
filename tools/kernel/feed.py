"""News of jobs for whoever subscribes, and the eye on their logs that is open only while somebody waits.

    async with feed.subscribe(project_id="default", output=True) as news:
        items = await news.take()

What nobody has taken yet is kept once per job and kind, so a slow reader costs nothing and misses no state.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec

from .job import NewsKind

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from types import TracebackType
    from typing import Self

    from .job import Job
    from .log import Ends

LOOK_EVERY_S = 0.01


class JobNews(msgspec.Struct, frozen=True):
    """Something about a job is new; ask for it."""

    exec_id: str
    project_id: str
    kind: NewsKind


class Feed:
    """Hands news on to its subscribers and watches the logs that somebody waits for; `run` is its task."""

    def __init__(self, live_jobs: Callable[[], Iterable[Job]]) -> None:
        self._live_jobs = live_jobs
        self._subscriptions: set[Subscription] = set()
        self._watched: dict[Job, int] = {}
        self._seen: dict[Job, Ends] = {}
        self._wanted = anyio.Event()

    def publish(self, job: Job, kind: NewsKind) -> None:
        """Tell every subscriber of the job's project."""
        for subscription in self._subscriptions:
            subscription.offer(JobNews(job.exec_id, job.record.project_id, kind))
        if kind == "status":
            self._wanted.set()

    def subscribe(self, project_id: str | None = None, *, output: bool = False) -> Subscription:
        """News of a project's jobs, or of all; with `output` also whenever their logs have grown."""
        return Subscription(self, project_id, output=output)

    def add(self, subscription: Subscription) -> None:
        """Begin to hand news to it."""
        self._subscriptions.add(subscription)
        self._wanted.set()

    def remove(self, subscription: Subscription) -> None:
        """Stop that."""
        self._subscriptions.discard(subscription)

    @contextmanager
    def watching(self, job: Job) -> Generator[None]:
        """Have `job.changed` set within 10 ms of any output, as long as this lasts."""
        self._watched[job] = self._watched.get(job, 0) + 1
        self._seen.setdefault(job, job.current_ends())
        self._wanted.set()
        try:
            yield
        finally:
            self._watched[job] -= 1
            if not self._watched[job]:
                del self._watched[job]

    async def run(self) -> None:
        """Look at the watched logs every 10 ms; sleep while there are none."""
        while True:
            jobs = self._to_watch()
            self._seen = {job: ends for job, ends in self._seen.items() if job in jobs}
            if not jobs:
                self._wanted = anyio.Event()
                await self._wanted.wait()
            for job in jobs:
                self._look(job)
            await anyio.sleep(LOOK_EVERY_S)

    def _to_watch(self) -> set[Job]:
        jobs = set(self._watched)
        for subscription in self._subscriptions:
            if subscription.output:
                jobs.update(job for job in self._live_jobs() if subscription.covers(job.record.project_id))
        return jobs

    def _look(self, job: Job) -> None:
        ends = job.current_ends()
        if self._seen.get(job) != ends:
            self._seen[job] = ends
            job.tell("output")


class Subscription:
    """An `async with` block that collects news until they are taken."""

    def __init__(self, feed: Feed, project_id: str | None, *, output: bool) -> None:
        self._feed = feed
        self._project_id = project_id
        self.output = output
        self._news: dict[JobNews, None] = {}
        self._came = anyio.Event()

    def covers(self, project_id: str) -> bool:
        """Whether it is about that project."""
        return self._project_id in {None, project_id}

    def offer(self, news: JobNews) -> None:
        """Keep it until it is taken, if it is asked for."""
        if self.covers(news.project_id) and (self.output or news.kind != "output"):
            self._news[news] = None
            self._came.set()

    async def __aenter__(self) -> Self:
        self._feed.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._feed.remove(self)

    async def take(self) -> list[JobNews]:
        """All news since the last time, in the order they came; waits until there are some."""
        while not self._news:
            self._came = anyio.Event()
            await self._came.wait()
        news, self._news = self._news, {}
        return list(news)
