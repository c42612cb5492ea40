"""Jobs as somebody outside their server sees them: what is recorded, with what the logs and the run folders tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..store.jobs import FINAL
from ..store.runfolder import is_live
from ..tools.kernel.log import Ends, JobLog

if TYPE_CHECKING:
    from ..store.rows import Job
    from .looking import Place


class SeenJob(NamedTuple):
    """A job, its true status, and where its logs end now; `code` may be only its beginning."""

    job: Job
    code: str
    status: str
    ends: Ends

    @property
    def ended(self) -> bool:
        return self.status in FINAL


class SeenJobs:
    """The jobs of a project."""

    def __init__(self, place: Place) -> None:
        self._store, self._records = place

    def list(self, *, status: str | None, limit: int) -> list[SeenJob]:
        """The newest, newest first."""
        living = self._living()
        found = self._records.jobs.list(status=status, limit=limit)
        return [self._seen(each.job, each.code_preview, living) for each in found]

    def get(self, exec_id: str) -> SeenJob:
        """Raises `NotFound`."""
        job = self._records.jobs.get(exec_id)
        return self._seen(job, self._records.cells.get(job.cell_id).code, self._living())

    def log(self, exec_id: str) -> JobLog:
        """Its logs, which may have been swept. Raises `NotFound` for what is no job's id."""
        return JobLog(self._records.log_folder(exec_id))

    def _seen(self, job: Job, code: str, living: frozenset[str]) -> SeenJob:
        if job.status in FINAL:
            return SeenJob(job, code, job.status, Ends(job.stdout_bytes, job.stderr_bytes))
        # The next server to start will record it so.
        status = job.status if job.server_id in living else "lost"
        return SeenJob(job, code, status, self.log(job.exec_id).sizes())

    def _living(self) -> frozenset[str]:
        servers = self._store.control.servers.list()
        return frozenset(server.server_id for server in servers if is_live(Path(server.run_folder)))
