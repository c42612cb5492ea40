"""All jobs there are: this server's from memory, the others' from the store; one project's only."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

from ...store.errors import InvalidParams, Issue, NotFound
from .history import History, merge
from .log import JobLog
from .views import recorded_ends, row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from .job import Job
    from .records import JobOwner, JobRecord, JobRecords

_EXEC_ID = re.compile(r"exec-[0-9a-f]{12}")


class JobTable:
    """Finds and lists jobs; keeps the newest finished ones in memory."""

    def __init__(self, records: JobRecords, log_dir: Callable[[str], Path], kept_finished: int) -> None:
        self._records = records
        self._log_dir = log_dir
        self._kept_finished = kept_finished
        self._history = History(records)
        self._jobs: dict[str, Job] = {}  # oldest first
        self._finished: deque[str] = deque()

    def add(self, job: Job) -> None:
        """Hold a new job."""
        self._jobs[job.exec_id] = job

    def retire(self, job: Job) -> None:
        """Hold a finished job until enough newer ones have finished."""
        self._finished.append(job.exec_id)
        while len(self._finished) > self._kept_finished:
            del self._jobs[self._finished.popleft()]
            self._history.forget()

    def forget(self, exec_ids: Iterable[str]) -> None:
        """Hold finished jobs no longer: they are not in the store any more."""
        for exec_id in exec_ids:
            if exec_id in self._finished:
                self._finished.remove(exec_id)
                del self._jobs[exec_id]
        self._history.forget()

    def get(self, exec_id: str) -> Job | None:
        """A job in memory, whoever owns it."""
        return self._jobs.get(exec_id)

    def own(self, owner: JobOwner, exec_id: str) -> Job | None:
        """A job in memory, if the owner may see it."""
        job = self._jobs.get(exec_id)
        return job if job is not None and job.record.project_id == owner.project_id else None

    def live(self) -> list[Job]:
        """The jobs that are not done."""
        return [job for job in self._jobs.values() if not job.done]

    def log(self, record: JobRecord) -> JobLog:
        """Where a job's output lies."""
        return JobLog(self._log_dir(record.project_id) / record.exec_id)

    async def record(self, owner: JobOwner, exec_id: str) -> JobRecord:
        """What is known of a job; `NotFound` if it is absent, malformed or another project's."""
        job = self.own(owner, exec_id)
        if job is not None:
            return job.record
        record = None
        if _EXEC_ID.fullmatch(exec_id):
            record = await self._records.find(owner.project_id, exec_id)
        if record is None:
            raise NotFound("there is no such job", hint="exec_list shows the jobs there are")
        return record

    async def by_key(self, project_id: str, key: str) -> JobRecord | None:
        """The job that was launched with an idempotency key."""
        for job in self._jobs.values():
            if job.record.project_id == project_id and job.record.key == key:
                return job.record
        return await self._records.by_key(project_id, key)

    async def rows(
        self, owner: JobOwner, *, status: str | None, limit: int, cursor: str | None
    ) -> list[dict[str, Any]]:
        """Rows of the project's jobs, newest first, after the job `cursor`."""
        own = await self._own_after(owner, cursor) if self._jobs or cursor is not None else []
        if status is not None:
            own = [record for record in own if record.status == status]
        # Jobs of ours are in the store too, perhaps with an older status: ask for enough to do without them.
        wanted = limit + len(self._jobs)
        stored = await self._history.page(owner.project_id, status=status, limit=wanted, cursor=cursor)
        others = (record for record in stored if record.exec_id not in self._jobs)
        return [self._row(record) for record in merge(own, others, limit)]

    async def _own_after(self, owner: JobOwner, cursor: str | None) -> list[JobRecord]:
        own = [job.record for job in reversed(self._jobs.values()) if job.record.project_id == owner.project_id]
        if cursor is None:
            return own
        try:
            before = await self.record(owner, cursor)
        except NotFound:
            issue = Issue("$.cursor", "must be the exec_id of the last row of the page before")
            raise InvalidParams("invalid cursor", [issue]) from None
        if cursor in self._jobs:
            return own[own.index(before) + 1 :]
        return [record for record in own if record.created_at < before.created_at]

    def _row(self, record: JobRecord) -> dict[str, Any]:
        job = self._jobs.get(record.exec_id)
        return row_of(record, job.current_ends() if job is not None else recorded_ends(record, self.log(record)))
