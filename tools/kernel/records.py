"""What the engine tells of its jobs, and what it asks about those of earlier servers.

The engine knows its own jobs from memory; everything else comes through `JobRecords`, which the store implements.
Fields are named as the columns of `cells` and `jobs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .representation import Representation

Status = Literal["queued", "starting", "running", "done", "failed", "interrupted", "timeout", "killed", "died", "lost"]
FINAL: frozenset[str] = frozenset({"done", "failed", "interrupted", "timeout", "killed", "died", "lost"})
PREVIEW_CHARS = 200


class JobOwner(msgspec.Struct, frozen=True):
    """Who launches, lists and looks: a project, and the frame in whose name."""

    project_id: str
    root_frame_id: str
    frame_id: str


class JobOutput(msgspec.Struct, frozen=True):
    """Something displayed: `text` stands for it in plain text; `at` is a position as `since` takes it.

    Without a version it is text only, or could not be kept, which `text` then says.
    """

    mime: str
    artifact_version_id: str | None
    text: str
    at: str


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its row and its cell's row tell it; times are epoch milliseconds.

    `code` may be cut to its first `PREVIEW_CHARS` characters in answers of `JobRecords.list`.
    """

    exec_id: str
    cell_id: str
    project_id: str
    root_frame_id: str
    frame_id: str
    code: str
    status: str
    created_at: int
    origin: str = "agent"
    language: str = "python"
    label: str | None = None
    kernel: str | None = None
    session: str | None = None
    server_id: str | None = None
    timeout_s: float | None = None
    memory_mb: int | None = None
    key: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    exit_code: int | None = None
    exit_signal: int | None = None
    ended_by: str | None = None
    note: str | None = None
    progress_done: float | None = None
    progress_total: float | None = None
    progress_message: str | None = None
    error_name: str | None = None
    error_value: str | None = None
    error_traceback: str | None = None
    result_text: str | None = None
    outputs: tuple[JobOutput, ...] = ()
    wall_s: float | None = None
    cpu_s: float | None = None
    peak_rss_kb: int | None = None


class KeepOutput(Protocol):
    """Stores a job's output under a name as a version of its own; the version's id. Raises `HostError`."""

    async def __call__(self, record: JobRecord, filename: str, representation: Representation) -> str: ...


class JobRecords(Protocol):
    """The store, as the engine sees it; raises `StorageError` where the store cannot be used."""

    async def created(self, record: JobRecord) -> None:
        """Write the cell and the job; when this returns they are durable."""
        ...

    async def updated(self, project_id: str, exec_id: str, fields: Mapping[str, Any]) -> None:
        """Set columns of a job and its cell (`status` is a column of both) in one transaction.

        Two more fields than `JobRecord` has come with the end: `stdout_tail` and `stderr_tail`.
        """
        ...

    async def find(self, project_id: str, exec_id: str) -> JobRecord | None:
        """One job of a project, whichever server ran it."""
        ...

    async def list(self, project_id: str, *, status: str | None, limit: int, cursor: str | None) -> Sequence[JobRecord]:
        """The newest jobs of a project, newest first (by `created_at`, then last written), after `cursor`.

        `cursor` is an `exec_id`; an unknown one gives nothing.
        """
        ...

    async def by_key(self, project_id: str, key: str) -> JobRecord | None:
        """The job that was launched with an idempotency key."""
        ...

    async def ran_in_session(self, project_id: str, root_frame_id: str, session: str) -> bool:
        """Whether a cell has run in a kernel of that name, whichever server it was."""
        ...
