"""How long ended jobs are kept: rows and logs that are over it are removed, oldest first, a few at a time.

    removed = remove_expired(store, Retention(age_s=30 * 86_400, log_bytes=10 << 30))

Jobs that have not ended are never touched, whichever server runs them, nor those that ended within the last hour.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from .errors import StorageError
from .ids import now_ms

if TYPE_CHECKING:
    from .records import Records
    from .store import Store

AT_ONCE = 20
"""Jobs removed in one call, which holds the store's lock for some milliseconds."""
_SPARED_MS = 3_600_000  # whoever launched it may be about to look at it
_log = logging.getLogger(__name__)


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds since a job's end, and bytes of all logs of a project's ended jobs."""

    age_s: float
    log_bytes: int


def remove_expired(store: Store, kept: Retention) -> list[str]:
    """Removes up to `AT_ONCE` jobs that are over, and returns their ids; none when there is no more.

    A project that cannot be used stops no other's. Raises `StorageError` when control.db cannot be used.
    """
    removed: list[str] = []
    for project in store.control.projects.list():
        try:
            with store.borrow(project.project_id) as records:
                if records is not None:
                    removed += _remove_in(records, kept, AT_ONCE - len(removed))
        except StorageError as error:
            _log.warning("old jobs of project %s cannot be removed: %s", project.project_id, error)
        if len(removed) >= AT_ONCE:
            break
    return removed


def _remove_in(records: Records, kept: Retention, most: int) -> list[str]:
    now = now_ms()
    jobs = records.jobs.over(
        ended_before=now - round(kept.age_s * 1000),
        most_bytes=kept.log_bytes,
        spared_after=now - _SPARED_MS,
        limit=most,
    )
    for job in jobs:
        records.remove_job(job)
        size = job.stdout_bytes + job.stderr_bytes
        _log.info("removed %s of project %s with %d bytes of logs", job.exec_id, records.project_id, size)
    return [job.exec_id for job in jobs]
