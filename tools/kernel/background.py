"""The engine as one session sees it: the executor that a dispatcher holds and an embedder may replace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .jobs import Jobs
    from .records import JobOwner


class BackgroundExecutor:
    """Launches and looks after jobs in the name of one owner; keyword arguments are those of `Jobs`."""

    def __init__(self, jobs: Jobs, owner: JobOwner) -> None:
        self._jobs = jobs
        self._owner = owner

    async def launch(self, code: str, origin: str = "agent", **given: Any) -> dict[str, Any]:
        """`{exec_id, status}`."""
        return await self._jobs.launch(code, owner=self._owner, origin=origin, **given)

    async def execute(self, code: str, origin: str = "agent", **given: Any) -> dict[str, Any]:
        """The same, for the next cell of a foreground kernel."""
        return await self._jobs.execute(code, owner=self._owner, origin=origin, **given)

    async def restart(self, session: str) -> dict[str, Any]:
        """End a foreground kernel: `{session, restarted, ended}`."""
        return await self._jobs.restart(self._owner, session)

    async def list_jobs(self, **given: Any) -> list[dict[str, Any]]:
        """Rows, newest first."""
        return await self._jobs.list(self._owner, **given)

    async def peek(self, exec_id: str, **given: Any) -> dict[str, Any]:
        """A job's state and output."""
        return await self._jobs.peek(self._owner, exec_id, **given)

    async def wait(self, exec_id: str, **given: Any) -> dict[str, Any]:
        """The same, later."""
        return await self._jobs.wait(self._owner, exec_id, **given)

    async def interrupt(self, exec_id: str) -> dict[str, Any]:
        """Stop a job."""
        return await self._jobs.interrupt(self._owner, exec_id)

    async def shutdown(self, timeout_per_job: float | None = None) -> None:  # noqa: ARG002 - part of the interface
        """End every job now; the engine's own bound holds, whatever `timeout_per_job` says."""
        await self._jobs.shutdown()
