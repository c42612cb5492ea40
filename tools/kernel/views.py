"""The shapes in which callers see jobs: a row of `exec_list`, an answer of `exec_peek` (contract.md §2, §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec

from .ending import exit_reason
from .log import Ends, JobLog, Page, Stream, parse_position, read_page
from .records import FINAL, PREVIEW_CHARS, JobRecord

if TYPE_CHECKING:
    from .job import Job
    from .provisioner import Usage
    from .text_view import TextViewer

# Reading that much takes a fraction of a millisecond; more goes to a thread.
_INLINE_BYTES = 128 * 1024
_READERS = 4


class LogReader:
    """Reads pages and views without holding up the loop; owns the limiter of its threads."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(_READERS)

    async def read(
        self,
        log: JobLog,
        ends: Ends,
        viewer: TextViewer,
        *,
        since: str | None,
        max_chars: int,
        stream: Stream,
        final: bool,
    ) -> Page:
        """The text view, or with `since` the raw text from there on."""
        position = None if since is None else parse_position(since)

        def page() -> Page:
            if position is None:
                return viewer.view(ends, max_chars=max_chars, stream=stream, final=final)
            return read_page(log, position, ends, max_chars=max_chars, stream=stream, final=final)

        first = position or Ends(0, 0)
        new = (ends.stdout - first.stdout) + (ends.stderr - first.stderr)
        if min(new, max_chars if position else new) <= _INLINE_BYTES:
            return page()
        return await anyio.to_thread.run_sync(page, limiter=self._limiter)


def progress_of(record: JobRecord) -> dict[str, Any] | None:
    """`{done, total, message}` once the job has reported any."""
    if record.progress_done is None:
        return None
    return {"done": record.progress_done, "total": record.progress_total, "message": record.progress_message}


def row_of(record: JobRecord, ends: Ends) -> dict[str, Any]:
    """A row of `exec_list`: no output text, times in epoch milliseconds."""
    return {
        "exec_id": record.exec_id,
        "label": record.label,
        "status": record.status,
        "done": record.status in FINAL,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "stdout_bytes": ends.stdout,
        "stderr_bytes": ends.stderr,
        "progress": progress_of(record),
        "code_preview": record.code[:PREVIEW_CHARS],
        **_of_session(record),
    }


def _of_session(record: JobRecord) -> dict[str, Any]:
    """What only a foreground cell has."""
    return {name: value for name in ("session", "note") if (value := getattr(record, name)) is not None}


def answer_of(record: JobRecord, page: Page, *, interrupted: bool, usage: dict[str, Any]) -> dict[str, Any]:
    """An answer of `exec_peek`."""
    return {
        "exec_id": record.exec_id,
        "status": record.status,
        "done": record.status in FINAL,
        "stdout": page.stdout,
        "stderr": page.stderr,
        "interrupted": interrupted,
        "error": _error_of(record),
        "result": record.result_text,
        "outputs": [msgspec.structs.asdict(output) for output in record.outputs],
        "progress": progress_of(record),
        "exit": _exit_of(record),
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "label": record.label,
        "next": page.next,
        "truncated": page.truncated,
        "dropped_chars": page.dropped_chars,
        "usage": usage,
        **_of_session(record),
    }


def _error_of(record: JobRecord) -> dict[str, Any] | None:
    if record.error_name is None:
        return None
    return {"name": record.error_name, "value": record.error_value, "traceback": record.error_traceback}


def _exit_of(record: JobRecord) -> dict[str, Any] | None:
    if record.exit_code is None and record.exit_signal is None:
        return None
    reason = exit_reason(record.exit_code, record.exit_signal, record.ended_by, record.memory_mb)
    return {"code": record.exit_code, "signal": record.exit_signal, "reason": reason}


def usage_of(record: JobRecord) -> dict[str, Any]:
    """`{wall_s, cpu_s, peak_rss_kb}` as recorded; `None` where it is not known."""
    return {"wall_s": record.wall_s, "cpu_s": record.cpu_s, "peak_rss_kb": record.peak_rss_kb}


def usage_now(job: Job, now: int) -> dict[str, Any]:
    """The same of a job of ours, as far as it has come at the epoch millisecond `now`."""
    if job.done or job.record.started_at is None:
        return usage_of(job.record)
    used: Usage | None = job.usage()
    return {
        "wall_s": (now - job.record.started_at) / 1000,
        "cpu_s": used and used.cpu_s,
        "peak_rss_kb": used and used.peak_rss_kb,
    }


def recorded_ends(record: JobRecord, log: JobLog) -> Ends:
    """Where the logs of another server's job end: as recorded, if that server got to record it."""
    sizes = log.sizes()
    revision = max((parse_position(output.at).outputs for output in record.outputs), default=0)
    if record.status not in FINAL or record.status == "lost":
        return Ends(sizes.stdout, sizes.stderr, revision)
    return Ends(min(sizes.stdout, record.stdout_bytes), min(sizes.stderr, record.stderr_bytes), revision)
