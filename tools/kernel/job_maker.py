"""Makes jobs: each with its ids, its row in the store, its logs and the list of what it displays."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING

import anyio

from .job import Job, now_ms
from .outputs import JobOutputs
from .records import JobOutput, JobOwner, JobRecord, JobRecords, KeepOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    from .feed import Feed
    from .job import NewsKind
    from .journal import Journal
    from .limits import JobLimits
    from .spec import Place
    from .table import JobTable
    from .tokens import Tokens


class JobMaker:
    """Makes jobs and sees to it that their news are told."""

    def __init__(
        self,
        *,
        records: JobRecords,
        table: JobTable,
        journal: Journal,
        feed: Feed,
        tokens: Tokens,
        keep_output: KeepOutput,
        limits: JobLimits,
        server_id: str | None,
        on_status: Callable[[Job], None],
    ) -> None:
        self._records = records
        self._table = table
        self._journal = journal
        self._feed = feed
        self._tokens = tokens
        self._keep_output = keep_output
        self._limits = limits
        self._server_id = server_id
        self._on_status = on_status
        self._last_moment = 0

    def describe(self, code: str, owner: JobOwner, place: Place, origin: str) -> JobRecord:
        """The record of a new job, not written down yet."""
        return JobRecord(
            exec_id=f"exec-{secrets.token_hex(6)}",
            cell_id=f"c-{secrets.token_hex(6)}",
            project_id=owner.project_id,
            root_frame_id=owner.root_frame_id,
            frame_id=owner.frame_id,
            code=code,
            status="queued",
            created_at=self._next_moment(),
            origin=origin,
            kernel=place.program.name,
            language=place.program.language,
            server_id=self._server_id,
        )

    def _next_moment(self) -> int:
        """Now, but later than the last time it was asked: the order of launches must show in it."""
        self._last_moment = max(now_ms(), self._last_moment + 1)
        return self._last_moment

    async def make(self, record: JobRecord, place: Place) -> Job:
        """Write a record down and make the job of it; `StorageError` if the store does not take it."""
        with anyio.CancelScope(shield=True):  # a row without its job would stay queued
            await self._records.created(record)
        log = self._table.log(record)
        outputs = JobOutputs(
            keep=partial(self._keep_output, record),
            sizes=log.sizes,
            on_change=partial(self._take_outputs, record),
            limits=self._limits,
        )
        job = Job(record, log, place, outputs, self._take_news)
        self._table.add(job)
        self._feed.publish(job, "status")
        return job

    def _take_news(self, job: Job, kind: NewsKind) -> None:
        if job.done and job.token is not None:
            self._tokens.revoke(job.token)
            job.token = None
        if kind == "status":
            self._on_status(job)
        self._feed.publish(job, kind)

    def _take_outputs(self, record: JobRecord, outputs: tuple[JobOutput, ...]) -> None:
        fields = {"outputs": outputs}
        self._journal.note(record, fields)
        if (job := self._table.get(record.exec_id)) is not None:
            job.change(fields, "outputs")
