"""Jobs: cells that run in a kernel of their own. A job is one row here and one cell, always changed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from .checks import check_one_of, check_text, invalid
from .errors import NotFound
from .ids import new_id, now_ms
from .rows import Cell, Job

if TYPE_CHECKING:
    from typing import Unpack

    from .cells import Cells
    from .sqlite import Database

LIVE = ("queued", "starting", "running")
FINAL = ("done", "failed", "interrupted", "timeout", "killed", "died", "lost")
_MOST_KEY = 256
_PREVIEW = 200


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job when it is asked for; `key` makes a second asking answer with the first."""

    frame_id: str
    code: str
    server_id: str
    origin: str = "agent"
    language: str = "python"
    label: str | None = None
    kernel: str | None = None
    session: str | None = None
    timeout_s: float | None = None
    memory_mb: int | None = None
    key: str | None = None
    exec_id: str | None = None
    cell_id: str | None = None
    created_at: int | None = None


class RecordedJob(msgspec.Struct, frozen=True):
    """A job and its cell."""

    job: Job
    cell: Cell


class ListedJob(msgspec.Struct, frozen=True):
    """A job in a list: everything of it but its output, and how its code begins."""

    job: Job
    code_preview: str


class JobChanges(TypedDict, total=False):
    """Columns of a job and of its cell; `status`, `started_at`, `ended_at` go to both."""

    status: str
    started_at: int
    ended_at: int
    kernel: str
    stdout_bytes: int
    stderr_bytes: int
    exit_code: int
    exit_signal: int
    exit_reason: str
    ended_by: str
    note: str
    progress_done: float
    progress_total: float | None
    progress_message: str | None
    error_name: str
    error_value: str
    error_traceback: str
    result_text: str
    outputs: str
    stdout_tail: str
    stderr_tail: str
    wall_s: float
    cpu_s: float
    peak_rss_kb: int


class Jobs:
    """The `jobs` table of a project, with the cells behind it."""

    def __init__(self, database: Database, cells: Cells) -> None:
        self._database = database
        self._cells = cells

    def add(self, new: NewJob) -> tuple[Job, bool]:
        """Writes a queued job and its cell; false with the earlier job when its `key` was used before.

        Raises `NotFound` when there is no such frame, `InvalidParams` for an empty or over-long key.
        """
        if new.key is not None:
            check_text("$.key", new.key, most=_MOST_KEY)
        with self._database.transaction():
            earlier = self.find_key(new.key) if new.key is not None else None
            if earlier:
                return earlier, False
            cell = self._cells.add(
                frame_id=new.frame_id, code=new.code, origin=new.origin, language=new.language, cell_id=new.cell_id
            )
            job = _queued(new, cell)
            self._database.insert(job)
        return job, True

    def find(self, exec_id: str) -> Job | None:
        return self._database.first(Job, "WHERE exec_id = ?", [exec_id])

    def find_key(self, key: str) -> Job | None:
        """The job that was asked for with this idempotency key."""
        return self._database.first(Job, "WHERE key = ?", [key])

    def get(self, exec_id: str) -> Job:
        """Raises `NotFound`."""
        job = self.find(exec_id)
        if job is None:
            raise NotFound("no such job", hint="exec_list lists this project's jobs")
        return job

    def recorded(self, exec_id: str) -> RecordedJob | None:
        """A job with its cell."""
        job = self.find(exec_id)
        return None if job is None else RecordedJob(job, self._cells.get(job.cell_id))

    def update(self, exec_id: str, **changes: Unpack[JobChanges]) -> bool:
        """Changes a job and its cell in one commit; false, and nothing changes, once the job's status is final.

        So what belongs to the end (bytes, error, usage) goes into the call that sets the final status, or before.
        """
        given: dict[str, Any] = dict(changes)
        if "status" in given:
            check_one_of("$.status", given["status"], LIVE + FINAL)
        with self._database.transaction():
            job = self.get(exec_id)
            if job.status in FINAL:
                return False
            self._set("jobs", "exec_id", exec_id, {k: v for k, v in given.items() if k in _OF_JOB})
            self._set("cells", "cell_id", job.cell_id, {k: v for k, v in given.items() if k in _OF_CELL})
        return True

    def ran_in_session(self, root_frame_id: str, session: str) -> bool:
        """Whether a cell has run in a kernel of that name, whichever server it was."""
        where = "root_frame_id = ? AND session = ? AND started_at IS NOT NULL"
        return bool(self._database.value(f"SELECT 1 FROM jobs WHERE {where} LIMIT 1", [root_frame_id, session]))

    def live(self, server_id: str) -> list[Job]:
        """The jobs of a server that have not ended, oldest first."""
        states = ", ".join(f"'{state}'" for state in LIVE)
        return self._database.select(Job, f"WHERE status IN ({states}) AND server_id = ? ORDER BY rowid", [server_id])

    def over(self, *, ended_before: int, most_bytes: int, spared_after: int, limit: int) -> list[Job]:
        """Ended jobs that are too old, or whose logs have no room beside those of later ones; oldest first.

        Those that ended after `spared_after` have room whatever their size. Times are epoch milliseconds.
        """
        rows = self._database.rows(_OVER, [spared_after, ended_before, most_bytes, limit])
        return [Job(**dict(zip(Job.__struct_fields__, row, strict=True))) for row in rows]

    def remove(self, job: Job) -> None:
        """Takes away a job's row, and its cell's unless something that it made is still there."""
        with self._database.transaction():
            self._database.execute("DELETE FROM jobs WHERE exec_id = ?", [job.exec_id])
            self._database.execute(_REMOVE_CELL, [job.cell_id])

    def _place(self, cursor: str) -> int:
        rowid = self._database.value("SELECT rowid FROM jobs WHERE exec_id = ?", [cursor])
        if rowid is None:
            raise invalid("$.cursor", "must be the exec_id of the last row of the page before")
        return int(rowid)

    def _set(self, table: str, key: str, value: str, changes: dict[str, Any]) -> None:
        if changes:
            assignments = ", ".join(f"{column} = ?" for column in changes)
            self._database.execute(f"UPDATE {table} SET {assignments} WHERE {key} = ?", [*changes.values(), value])

    def list(
        self,
        *,
        status: str | None = None,
        root_frame_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> list[ListedJob]:
        """The jobs, newest first, of one status or session where given; `cursor` is the last row's exec_id.

        Raises `InvalidParams`.
        """
        conditions: list[str] = []
        values: list[Any] = []
        if status is not None:
            check_one_of("$.status", status, LIVE + FINAL)
            conditions.append("jobs.status = ?")
            values.append(status)
        if root_frame_id is not None:
            conditions.append("jobs.root_frame_id = ?")
            values.append(root_frame_id)
        if cursor is not None:
            conditions.append("jobs.rowid < ?")
            values.append(self._place(cursor))
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = self._database.rows(f"{_LISTED} {where} ORDER BY jobs.rowid DESC LIMIT ?", [*values, limit])
        return [ListedJob(Job(**dict(zip(Job.__struct_fields__, row, strict=False))), row[-1]) for row in rows]


_CHANGEABLE = frozenset(JobChanges.__annotations__)
_OF_JOB = _CHANGEABLE & frozenset(Job.__struct_fields__)
_OF_CELL = _CHANGEABLE & frozenset(Cell.__struct_fields__)
_OVER = (
    f"SELECT {', '.join(Job.__struct_fields__)} FROM"
    " (SELECT *, sum(stdout_bytes + stderr_bytes) OVER (ORDER BY ended_at DESC, rowid DESC) AS bytes_since"
    f" FROM jobs WHERE status IN ({', '.join(repr(state) for state in FINAL)}))"
    " WHERE ended_at < ? AND (ended_at < ? OR bytes_since > ?) ORDER BY ended_at, exec_id LIMIT ?"
)
_REMOVE_CELL = (
    "DELETE FROM cells WHERE cell_id = ?"
    " AND NOT EXISTS (SELECT 1 FROM artifact_versions WHERE producing_cell_id = cells.cell_id)"
    " AND NOT EXISTS (SELECT 1 FROM lineage_edges WHERE producing_cell_id = cells.cell_id)"
)
_LISTED = (
    f"SELECT {', '.join(f'jobs.{column}' for column in Job.__struct_fields__)}, substr(code, 1, {_PREVIEW})"
    " FROM jobs JOIN cells USING (cell_id)"
)


def _queued(new: NewJob, cell: Cell) -> Job:
    return Job(
        exec_id=new.exec_id or new_id("exec"),
        cell_id=cell.cell_id,
        frame_id=cell.frame_id,
        root_frame_id=cell.root_frame_id,
        label=new.label,
        status="queued",
        kernel=new.kernel,
        session=new.session,
        server_id=new.server_id,
        timeout_s=new.timeout_s,
        memory_mb=new.memory_mb,
        key=new.key,
        created_at=new.created_at or now_ms(),
    )
