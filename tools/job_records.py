"""The jobs engine's records, kept in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..store.errors import Busy
from ..store.jobs import JobChanges, NewJob
from ..store.rows import Cell
from .changes import Change
from .kernel.records import FINAL, JobOutput, JobRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..store.jobs import RecordedJob
    from .changes import Changes
    from .store_thread import StoreThread

_NEW = NewJob.__struct_fields__
_OF_CELL = frozenset(Cell.__struct_fields__)


class StoredJobs:
    """`JobRecords` over the store's thread, which tell of the jobs and of the frames that they change."""

    def __init__(self, store: StoreThread, changes: Changes) -> None:
        self._store = store
        self._changes = changes
        self._frame_of: dict[str, str] = {}

    async def created(self, record: JobRecord) -> None:
        """Write a queued job and its cell."""
        known = msgspec.structs.asdict(record)
        records = await self._store.project(record.project_id)
        _job, created = await self._store.run(records.jobs.add, NewJob(**{name: known[name] for name in _NEW}))
        if not created:
            raise Busy("another server launches a job with this key just now", hint="make the same call again")
        self._frame_of[record.exec_id] = record.frame_id
        self._changes.publish(Change(record.project_id, "job", record.exec_id))
        self._changes.publish(Change(record.project_id, "cells", record.frame_id))

    async def updated(self, project_id: str, exec_id: str, fields: Mapping[str, Any]) -> None:
        """Change columns of a job and its cell."""
        records = await self._store.project(project_id)
        changes = dict(fields)
        if "outputs" in changes:
            changes["outputs"] = msgspec.json.encode(changes["outputs"]).decode()
        await self._store.run(records.jobs.update, exec_id, **cast("JobChanges", changes))
        frame_id = self._frame_of.get(exec_id)
        if frame_id is not None and not _OF_CELL.isdisjoint(changes):
            self._changes.publish(Change(project_id, "cells", frame_id))
        if changes.get("status") in FINAL:
            self._frame_of.pop(exec_id, None)

    async def find(self, project_id: str, exec_id: str) -> JobRecord | None:
        """One job of the project, whichever server ran it."""
        records = await self._store.project(project_id)
        return _record(project_id, await self._store.run(records.jobs.recorded, exec_id))

    async def list(self, project_id: str, *, status: str | None, limit: int, cursor: str | None) -> Sequence[JobRecord]:
        """The newest jobs of the project."""
        records = await self._store.project(project_id)
        found = await self._store.run(records.jobs.list, status=status, limit=limit, cursor=cursor)
        return [
            _from_columns(project_id, msgspec.structs.asdict(each.job) | {"code": each.code_preview}) for each in found
        ]

    async def by_key(self, project_id: str, key: str) -> JobRecord | None:
        """The job that was launched with that idempotency key."""
        records = await self._store.project(project_id)
        job = await self._store.run(records.jobs.find_key, key)
        return None if job is None else await self.find(project_id, job.exec_id)

    async def ran_in_session(self, project_id: str, root_frame_id: str, session: str) -> bool:
        """Whether a cell has run in a kernel of that name."""
        records = await self._store.project(project_id)
        return await self._store.run(records.jobs.ran_in_session, root_frame_id, session)


def _record(project_id: str, recorded: RecordedJob | None) -> JobRecord | None:
    if recorded is None:
        return None
    return _from_columns(project_id, msgspec.structs.asdict(recorded.cell) | msgspec.structs.asdict(recorded.job))


def _from_columns(project_id: str, columns: dict[str, Any]) -> JobRecord:
    known = {name: columns[name] for name in JobRecord.__struct_fields__ if name in columns}
    known["outputs"] = msgspec.json.decode(columns.get("outputs") or "[]", type=tuple[JobOutput, ...])
    return JobRecord(project_id=project_id, **known)
