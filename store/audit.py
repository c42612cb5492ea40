"""The audit: one row for every call that came in, whatever became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .rows import HostCall

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .sqlite import Database

MOST_PREVIEW = 500


class Audit:
    """The `host_calls` table of control.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_calls(self, calls: Iterable[HostCall]) -> None:
        """Keeps the calls in one commit, durable on return: all of them or none."""
        with self._database.transaction():
            self._database.insert_many([_bounded(call) for call in calls])

    def list(
        self, *, methods: Collection[str] = (), since: int | None = None, denied: bool = False, limit: int = 100
    ) -> list[HostCall]:
        """The latest calls, newest first, of these methods if any; `since` in ms; `denied`: by a rule or a guard."""
        conditions = ["at >= ?"]
        values: list[str | int] = [since or 0]
        if methods:
            conditions.append(f"method IN ({', '.join('?' * len(methods))})")
            values.extend(methods)
        if denied:
            conditions.append("error_kind IN ('permission', 'denied')")
        rest = f"WHERE {' AND '.join(conditions)} ORDER BY call_id DESC LIMIT ?"
        return self._database.select(HostCall, rest, [*values, limit])


def _bounded(call: HostCall) -> HostCall:
    if len(call.args_preview) <= MOST_PREVIEW:
        return call
    return msgspec.structs.replace(call, args_preview=call.args_preview[:MOST_PREVIEW])
