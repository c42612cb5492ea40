"""Sessions: one workspace in one project, continued from one server to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ids import now_ms
from .rows import Session

if TYPE_CHECKING:
    from .sqlite import Database


class Sessions:
    """The `sessions` table of control.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def continue_session(self, workspace: str, project_id: str) -> str | None:
        """The root frame that the workspace was last used with in the project."""
        latest = "WHERE workspace = ? AND project_id = ? ORDER BY last_seen_at DESC, rowid DESC LIMIT 1"
        session = self._database.first(Session, latest, [workspace, project_id])
        return session.root_frame_id if session else None

    def start_session(self, root_frame_id: str, project_id: str, workspace: str) -> None:
        """Makes the root frame the one that the workspace continues with; one that exists is moved there."""
        now = now_ms()
        session = Session(
            root_frame_id=root_frame_id,
            project_id=project_id,
            workspace=workspace,
            created_at=now,
            last_seen_at=now,
        )
        self._database.insert(
            session,
            "ON CONFLICT (root_frame_id) DO UPDATE"
            " SET workspace = excluded.workspace, last_seen_at = excluded.last_seen_at",
        )

    def workspaces(self) -> list[str]:
        """Every folder that a session works in."""
        return [workspace for (workspace,) in self._database.rows("SELECT DISTINCT workspace FROM sessions")]

    def touch(self, root_frame_id: str) -> None:
        """Notes that a server uses the session now."""
        now = now_ms()
        self._database.execute("UPDATE sessions SET last_seen_at = ? WHERE root_frame_id = ?", [now, root_frame_id])

    def get(self, root_frame_id: str) -> Session | None:
        return self._database.first(Session, "WHERE root_frame_id = ?", [root_frame_id])
