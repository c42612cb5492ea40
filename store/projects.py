"""Which projects there are, and which of them a frame is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .checks import invalid
from .ids import now_ms
from .rows import FrameHome, Project

if TYPE_CHECKING:
    from .sqlite import Database


class Projects:
    """The `projects` and `frame_homes` tables of control.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, project_id: str) -> None:
        """Notes that the project has records; once is enough, twice does nothing."""
        if self.exists(project_id):
            return
        self._database.insert(Project(project_id=project_id, created_at=now_ms()), "ON CONFLICT DO NOTHING")

    def exists(self, project_id: str) -> bool:
        return bool(self._database.rows("SELECT 1 FROM projects WHERE project_id = ?", [project_id]))

    def list(self) -> list[Project]:
        """All projects, oldest first."""
        return self._database.select(Project, "ORDER BY created_at, project_id")

    def claim_frame(self, frame_id: str, project_id: str) -> None:
        """Says where the frame is going to be. It is written before the frame, so no frame is ever without it.

        Raises `InvalidParams` when another project has a frame of that id.
        """
        home = FrameHome(frame_id=frame_id, project_id=project_id)
        self._database.insert(home, "ON CONFLICT DO NOTHING")
        if self.of_frame(frame_id) != project_id:
            raise invalid("$.frame_id", "is taken")

    def of_frame(self, frame_id: str) -> str | None:
        """The project whose records hold the frame; opens no project's file."""
        home = self._database.first(FrameHome, "WHERE frame_id = ?", [frame_id])
        return home.project_id if home else None
