"""The store: one data folder, its control.db and its projects.

    with Store(data_dir) as store:
        frame_id = store.new_frame(kind="turn", project_id="demo")
        store.project("demo").frames.browse()

Nothing on the disk is touched before the first use. Every method is synchronous and may be called from any thread; one
lock orders them. Every use of a file may raise `StorageError`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from .control import Control
from .errors import Closed, StorageError
from .ids import check_project_id
from .records import Records
from .runfolder import is_live

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Self

    from .rows import Rule

DEFAULT_PROJECT = "default"
_log = logging.getLogger(__name__)


class Store:
    """One data folder; several servers may have the same one open.

    `read_only`: nothing is made and nothing can be changed; what is not there yet is a `StorageError`.
    """

    def __init__(self, data_dir: Path | str, *, busy_timeout_s: float = 5.0, read_only: bool = False) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._lock = threading.RLock()
        self._busy_timeout_s = busy_timeout_s
        self._read_only = read_only
        self._closed = False
        self._projects: dict[str, Records] = {}
        self.control = Control(self.data_dir, lock=self._lock, busy_timeout_s=busy_timeout_s, read_only=read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes every file; a later call raises `Closed`."""
        with self._lock:
            self._closed = True
            for records in self._projects.values():
                records.close()
            self.control.close()

    def project(self, project_id: str) -> Records:
        """The project's records, begun by their first use. Raises `InvalidParams` for a name no folder may have."""
        with self._lock:
            if self._closed:
                raise Closed("the store is closed", hint="open the data folder again")
            if project_id not in self._projects:
                self._projects[project_id] = self._records(check_project_id(project_id))
            return self._projects[project_id]

    def project_folder(self, project_id: str) -> Path:
        """Where a project's files are; known without waiting for the lock."""
        return self.data_dir / "projects" / project_id

    def has_project(self, project_id: str) -> bool:
        """Whether the project has records; asking begins none."""
        return self.control.projects.exists(project_id)

    def new_frame(
        self,
        *,
        kind: str,
        project_id: str = DEFAULT_PROJECT,
        status: str = "ready",
        name: str | None = None,
        parent_id: str | None = None,
        workspace: str | None = None,
        frame_id: str | None = None,
    ) -> str:
        """Writes a frame at once and returns its id; `frame_id` is one that `new_id("f")` made before.

        Raises `InvalidParams`, and `NotFound` when the parent is not of the project.
        """
        frame = self.project(project_id).frames.add(
            kind=kind, status=status, name=name, parent_id=parent_id, workspace=workspace, frame_id=frame_id
        )
        return frame.frame_id

    def find_frame_project(self, frame_id: str) -> str | None:
        """The project a frame is in, from control.db alone; `None` when there is no such frame."""
        return self.control.projects.of_frame(frame_id)

    def set_permission_rule(self, *, scope: str, scope_id: str = "", tool: str, pattern: str, decision: str) -> str:
        """Sets a rule and returns its id; the same first four again replace the decision. Raises `InvalidParams`."""
        return self.control.rules.set(scope=scope, scope_id=scope_id, tool=tool, pattern=pattern, decision=decision)

    def permission_rules(self, *, scope: str | None = None, tool: str | None = None) -> list[Rule]:
        """The rules, oldest first, of one scope or one tool where given."""
        return self.control.rules.list(scope=scope, tool=tool)

    def remove_permission_rule(self, rule_id: str) -> bool:
        """Whether there was such a rule to remove."""
        return self.control.rules.remove(rule_id)

    def mark_lost(self, server_id: str) -> int:
        """Ends the jobs that a dead server left running, in every project, as `lost`; how many.

        A project that cannot be used stops no other's; its `StorageError` is raised when all were tried.
        """
        lost, fault = 0, None
        for project in self.control.projects.list():
            try:
                lost += self._mark_lost_in(project.project_id, server_id)
            except StorageError as error:
                fault = error
        if fault:
            raise fault
        return lost

    def mark_dead_servers(self) -> int:
        """Marks the jobs of every registered server whose run folder nobody holds; how many were lost.

        A live server's are left alone. One whose jobs cannot be marked now stays registered for the next attempt.
        """
        lost = 0
        for server in self.control.servers.list():
            if is_live(Path(server.run_folder)):
                continue
            try:
                lost += self.mark_lost(server.server_id)
            except StorageError as error:
                _log.warning("jobs of server %s could not be marked lost: %s", server.server_id, error)
            else:
                self.control.servers.unregister(server.server_id)
        return lost

    def _records(self, project_id: str) -> Records:
        return Records(
            self.project_folder(project_id),
            project_id,
            lock=self._lock,
            busy_timeout_s=self._busy_timeout_s,
            on_open=lambda: self.control.projects.add(project_id),
            claim_frame=lambda frame_id: self.control.projects.claim_frame(frame_id, project_id),
            read_only=self._read_only,
        )

    def _mark_lost_in(self, project_id: str, server_id: str) -> int:
        with self.borrow(project_id) as records:
            return records.mark_lost(server_id) if records else 0

    @contextlib.contextmanager
    def borrow(self, project_id: str) -> Generator[Records | None]:
        """A project's records for a moment: no file stays open of a project nobody asked for; `None` without any."""
        if project_id in self._projects:
            yield self._projects[project_id]
        elif not (self.project_folder(project_id) / "records.db").exists():
            yield None
        else:
            with contextlib.closing(self._records(project_id)) as records:
                yield records
