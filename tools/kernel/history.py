"""Jobs that this server does not hold in memory: read from the store, briefly remembered, merged with its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .records import JobRecord, JobRecords

FRESH_S = 0.25
_MAX_PAGES = 64


class History:
    """Pages of the store's jobs, each read at most every 250 ms."""

    def __init__(self, records: JobRecords) -> None:
        self._records = records
        self._pages: dict[tuple[str, str | None, int, str | None], tuple[float, Sequence[JobRecord]]] = {}
        self._asked: dict[tuple[str, str | None, int, str | None], anyio.Event] = {}

    async def page(self, project_id: str, *, status: str | None, limit: int, cursor: str | None) -> Sequence[JobRecord]:
        """As `JobRecords.list`."""
        key = (project_id, status, limit, cursor)
        known = self._pages.get(key)
        if known is not None and time.monotonic() - known[0] < FRESH_S:
            return known[1]
        if key in self._asked:  # many callers at once are one question
            await self._asked[key].wait()
            return await self.page(project_id, status=status, limit=limit, cursor=cursor)
        answered = self._asked[key] = anyio.Event()
        try:
            page = await self._records.list(project_id, status=status, limit=limit, cursor=cursor)
        finally:
            del self._asked[key]
            answered.set()
        if len(self._pages) >= _MAX_PAGES:
            self._pages.clear()
        self._pages[key] = (time.monotonic(), page)
        return page

    def forget(self) -> None:
        """Read anew next time: something that only memory knew is now in the store alone."""
        self._pages.clear()


def merge(own: Iterable[JobRecord], stored: Iterable[JobRecord], limit: int) -> list[JobRecord]:
    """Two lists, newest first, as one; of a job in both, ours is the newer knowledge."""
    ours = list(own)
    if not ours:
        return list(stored)[:limit]
    known = {record.exec_id for record in ours}
    both = ours + [record for record in stored if record.exec_id not in known]
    both.sort(key=lambda record: record.created_at, reverse=True)
    return both[:limit]
