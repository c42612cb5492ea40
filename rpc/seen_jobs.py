"""Jobs as somebody outside their server sees them: what is recorded, with what the logs and the run folders tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..store.jobs import FINAL, LIVE
from ..store.runfolder import is_live
from ..tools.kernel.log import Ends, JobLog

if TYPE_CHECKING:
    from ..store.rows import Job
    from .looking import Place

LOST = "lost"


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
        """The newest in that state, newest first."""
        living = self._living()
        recorded = (*LIVE, LOST) if status == LOST else (status,)
        found = [each for state in recorded for each in self._records.jobs.list(status=state, limit=limit)]
        found.sort(key=lambda each: each.job.created_at, reverse=True)
        seen = [self._seen(each.job, each.code_preview, living) for each in found]
        return [each for each in seen if status in {None, each.status}][:limit]

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
        status = job.status if job.server_id in living else LOST
        return SeenJob(job, code, status, self.log(job.exec_id).sizes())

    def _living(self) -> frozenset[str]:
        servers = self._store.control.servers.list()
        return frozenset(server.server_id for server in servers if is_live(Path(server.run_folder)))
