"""One project's records: records.db, the objects and the job logs beside it. All that SQL may read is in that file."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from .artifacts import Artifacts
from .cells import Cells
from .errors import NotFound
from .folders import make_private_folder
from .frames import Frames
from .ids import EXEC_ID, now_ms
from .jobs import Jobs
from .lineage import Lineages
from .objects import Objects
from .sqlite import Database
from .tables import RECORDS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from .rows import Job


class Records:
    """What one project holds; its folder and file are made by the first use of anything in it."""

    def __init__(
        self,
        folder: Path,
        project_id: str,
        *,
        lock: threading.RLock,
        busy_timeout_s: float,
        on_open: Callable[[], None],
        claim_frame: Callable[[str], None],
        read_only: bool = False,
    ) -> None:
        self.project_id = project_id
        self.folder = folder
        self.database = Database(
            folder / "records.db",
            name=f"projects/{project_id}/records.db",
            schema=RECORDS,
            synchronous="NORMAL",
            lock=lock,
            busy_timeout_s=busy_timeout_s,
            on_open=on_open,
            read_only=read_only,
        )
        self.objects = Objects(folder / "objects")
        self.cells = Cells(self.database)
        self.jobs = Jobs(self.database, self.cells)
        self.frames = Frames(self.database, self.cells, claim_frame)
        self.artifacts = Artifacts(self.database, self.objects)
        self.lineage = Lineages(self.database, self.artifacts, self.cells)

    def path(self) -> Path:
        """records.db, there and migrated: what a query worker opens read-only."""
        self.database.open()
        return self.database.path

    def job_folder(self, exec_id: str) -> Path:
        """Where the job's logs are; made if it is missing. Raises `StorageError`."""
        folder = self.log_folder(exec_id)
        make_private_folder(folder)
        return folder

    def mark_lost(self, server_id: str) -> int:
        """Ends the jobs of a server that is no more as `lost`, with all the output it left; how many."""
        lost = 0
        for job in self.jobs.live(server_id):
            lost += self.jobs.update(
                job.exec_id,
                status="lost",
                ended_at=now_ms(),
                ended_by="server",
                stdout_bytes=_size(self.log_folder(job.exec_id) / "stdout.log"),
                stderr_bytes=_size(self.log_folder(job.exec_id) / "stderr.log"),
            )
        return lost

    def remove_job(self, job: Job) -> None:
        """Takes away an ended job: its logs first, so that whoever is killed in between goes on there later."""
        shutil.rmtree(self.log_folder(job.exec_id), ignore_errors=True)
        self.jobs.remove(job)

    def close(self) -> None:
        self.database.close()

    def log_folder(self, exec_id: str) -> Path:
        """Where the job's logs are, if it has any. Raises `NotFound` for what is no job's id."""
        # The id names a folder: nothing else may be in it.
        if not EXEC_ID.fullmatch(exec_id):
            raise NotFound("no such job", hint="exec_list lists this project's jobs")
        return self.folder / "jobs" / exec_id


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
