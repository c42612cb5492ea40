"""Servers that use the data folder; their run folders' locks say which of them live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ids import now_ms
from .rows import Server

if TYPE_CHECKING:
    from .sqlite import Database


class Servers:
    """The `servers` table of control.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, server_id: str, pid: int, run_folder: str) -> None:
        """Notes a server before its first job, so that a later one can tell whose jobs are lost."""
        self._database.insert(Server(server_id=server_id, pid=pid, run_folder=run_folder, started_at=now_ms()))

    def unregister(self, server_id: str) -> None:
        """Forgets a server; its jobs must have ended or been marked lost."""
        self._database.execute("DELETE FROM servers WHERE server_id = ?", [server_id])

    def list(self) -> list[Server]:
        """All servers that did not unregister, the oldest first; some may be dead."""
        return self._database.select(Server, "ORDER BY started_at, server_id")
