"""Background jobs of one host: its run folder, its engine, and the executor that the tools talk to."""

from __future__ import annotations

import inspect
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio

from ..store import runfolder
from ..store.errors import Closed, HostError
from .kernel.background import BackgroundExecutor
from .kernel.records import JobOwner
from .kernel.tokens import Tokens
from .retention import removing_expired

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from .call import Caller, ReportProgress
    from .host import Host
    from .kernel.jobs import Jobs
    from .kernel.kernel import Kernel
    from .kernel.spec import KernelFactory

POLL_S = 0.05
"""How often a replaced executor without `wait` is looked at."""


class Background:
    """Opens the engine with the first call that has to do with jobs; until then nothing of it is even imported."""

    def __init__(self, host: Host, kernel_factory: KernelFactory | None) -> None:
        self.tokens = Tokens()
        self._host = host
        self._factory = kernel_factory
        self._replacement: Executor | None = None
        self._engine: Jobs | None = None
        self._run_folder: runfolder.RunFolder | None = None
        self._door: Path | None = None
        self._opening = anyio.Lock()
        self._ready = False

    async def engine(self) -> Jobs:
        """The engine; the first call opens it, and ends what dead servers left.

        Raises:
            Closed: the host is not open.
            StorageError: no run folder can be made, or the store cannot be used.
        """
        if self._engine is not None:
            return self._engine
        async with self._opening:
            if self._run_folder is None:
                self._run_folder = await self._host.keeper.enter(_run_folder())
            if self._engine is None:
                await self._host.store.run(self._sweep)
                self._engine = await self._host.keeper.enter(self._make_engine(self._run_folder))
                removing = removing_expired(self._host.store, self._host.config.kept, self._engine.forget)
                await self._host.keeper.enter(removing)
                if self._host.ending.is_set():
                    self._engine.end_waits()
        return self._engine

    def _make_engine(self, folder: runfolder.RunFolder) -> Jobs:
        from .job_records import StoredJobs
        from .kernel.jobs import Jobs
        from .kernel.limits import JobLimits

        config = self._host.config
        return Jobs(
            workspace=self._host.workspace.root,
            run_dir=folder.path,
            log_dir=self._log_folder,
            records=StoredJobs(self._host.store, self._host.changes),
            tokens=self.tokens,
            door=lambda: self._door,
            keep_output=self._host.artifacts.keep_output,
            limits=JobLimits(
                max_running=config.limits.jobs_running,
                max_queued=config.limits.jobs_queued,
                max_sessions=config.limits.session_kernels,
                file_bytes=config.limits.job_disk_bytes,
                outputs=config.limits.job_outputs,
                output_bytes=config.limits.output_bytes,
                outputs_bytes=config.limits.job_output_bytes,
                warm_kernels=config.warm_kernels,
            ),
            python=config.python,
            team_mode=config.team_mode,
            kernel_factory=self._factory,
            server_id=folder.server_id,
        )

    def run_folder(self) -> runfolder.RunFolder:
        """The server's private folder for sockets; there once the engine is."""
        assert self._run_folder is not None
        return self._run_folder

    async def executor(self, caller: Caller) -> Executor:
        """What the caller's job tools work on.

        Raises:
            Closed: the host is not open, unless the executor was replaced.
        """
        if self._replacement is not None:
            return self._replacement
        owner = JobOwner(caller.project_id, caller.root_frame_id, caller.frame_id)
        engine = self._engine or await self.engine()
        return Executor(
            BackgroundExecutor(engine, owner), lambda: self._prepare_launch(caller), lambda: self._prepare(caller)
        )

    @staticmethod
    def owner_of(project_id: str) -> JobOwner:
        """Somebody who may look at a project's jobs, and launches none."""
        return JobOwner(project_id, "", "")

    async def follow(self, caller: Caller, exec_id: str, report: ReportProgress) -> None:
        """Report a job's progress until cancelled."""
        engine = await self.engine()
        owner = self.owner_of(caller.project_id)
        async with engine.subscribe(caller.project_id) as news:
            while True:
                progress = (await engine.peek(owner, exec_id, max_chars=1))["progress"]
                if progress is not None:
                    report(progress["done"], progress["total"], progress["message"])
                while exec_id not in {item.exec_id for item in await news.take()}:
                    pass

    def current(self) -> Any:
        """The executor of the current frame, or the one it was replaced with; its calls may be awaited."""
        if self._replacement is not None:
            return self._replacement.target
        return CurrentExecutor(self._host)

    def replace(self, executor: Any) -> None:
        """Use another executor for all callers; its results pass unchanged."""
        self._replacement = Executor(executor, _nothing, _nothing)

    def set_progress(self, exec_id: str, done: float, total: float | None, message: str | None) -> None:
        """Note what a running job reports of itself."""
        if self._engine is not None:
            self._engine.set_progress(exec_id, done, total, message)

    async def new_kernel(self) -> Kernel:
        """A kernel for a background cell, from the factory if there is one.

        Raises:
            Closed: outside `async with`, or in team mode without a session-scoped kernel factory.
        """
        if self._engine is None:
            self._refuse_in_team_mode()
        root_frame_id = (await self._host.caller("in_process")).root_frame_id
        return await (await self.engine()).new_kernel(root_frame_id)

    async def prewarm(self) -> None:
        """Have kernels ready before the first job; whatever stands in the way is told by that job."""
        with suppress(HostError):
            await (await self.engine()).kernels.prewarm()

    def _refuse_in_team_mode(self) -> None:
        if self._host.config.team_mode and self._factory is None:
            raise Closed(
                "team mode takes background kernels only from a session-scoped kernel factory",
                hint="pass kernel_factory to build_dispatcher, or call exec first",
            )

    def end_waits(self) -> None:
        """Let every call that waits for a job answer with what there is."""
        if self._engine is not None:
            self._engine.end_waits()

    def kill_all(self) -> None:
        """End every kernel's process group at once, without waiting."""
        if self._engine is not None:
            self._engine.kill_all()

    def _log_folder(self, project_id: str) -> Path:
        return self._host.store.store.project_folder(project_id) / "jobs"

    async def _prepare_launch(self, caller: Caller) -> None:
        if self._engine is not None:
            self._engine.kernels.require_allowed(caller.root_frame_id)
        await self._prepare(caller)

    async def _prepare(self, caller: Caller) -> None:
        """What must be there before a job: its frame, this server's registration, the workspace, the door."""
        await self._host.session.ensure_written(caller)
        if self._ready:
            return
        async with self._opening:
            if self._ready:
                return
            self._host.workspace.make()
            if self._host.open_door is not None:
                self._door = await self._host.open_door()
            folder = self.run_folder()
            servers = self._host.store.store.control.servers
            await self._host.store.run(servers.register, folder.server_id, os.getpid(), str(folder.path))
            self._ready = True

    def _sweep(self) -> None:
        runfolder.sweep()
        if self._host.store.exists():
            self._host.store.store.mark_dead_servers()

    async def aclose(self) -> None:
        """Sign off, once the engine has ended all jobs."""
        if self._ready:
            self._ready = False
            unregister = self._host.store.store.control.servers.unregister
            with suppress(HostError):  # a later server marks it dead
                await self._host.store.run(unregister, self.run_folder().server_id)


class Executor:
    """The calls of an executor, whether it is ours or not, synchronous or not."""

    def __init__(
        self, target: Any, before_launch: Callable[[], Awaitable[None]], before_cell: Callable[[], Awaitable[None]]
    ) -> None:
        self.target = target
        self._before_launch = before_launch
        self._before_cell = before_cell

    async def launch(self, code: str, **given: Any) -> Any:
        """Start a job."""
        await self._before_launch()
        return await _settled(self.target.launch(code, **given))

    async def execute(self, code: str, **given: Any) -> Any:
        """Run the next cell of a foreground kernel.

        Raises:
            Closed: a replaced executor has no such kernels.
        """
        self._require_foreground()
        await self._before_cell()
        return await _settled(self.target.execute(code, **given))

    async def restart(self, session: str) -> Any:
        """End a foreground kernel; raises as `execute`."""
        self._require_foreground()
        return await _settled(self.target.restart(session))

    def _require_foreground(self) -> None:
        if not hasattr(self.target, "execute"):
            raise Closed("this host's executor runs no foreground cells", hint="use exec_background")

    async def list_jobs(self, **given: Any) -> Any:
        """Jobs without their output."""
        return await _settled(self.target.list_jobs(**given))

    async def peek(self, exec_id: str, **given: Any) -> Any:
        """A job as it is."""
        return await _settled(self.target.peek(exec_id, **given))

    async def wait(self, exec_id: str, *, timeout_s: float = 30.0, **given: Any) -> Any:
        """A job once it is done, or has news, or the time is up; one of another kind is looked at until it is done."""
        if hasattr(self.target, "wait"):
            return await _settled(self.target.wait(exec_id, timeout_s=timeout_s, **given))
        given.pop("until", None)
        with anyio.move_on_after(timeout_s):
            while not (await self.peek(exec_id, **given)).get("done"):  # noqa: ASYNC110 (nothing of a foreign executor can be awaited)
                await anyio.sleep(POLL_S)
        return await self.peek(exec_id, **given)

    async def interrupt(self, exec_id: str) -> Any:
        """Stop a job."""
        return await _settled(self.target.interrupt(exec_id))


class CurrentExecutor:
    """The executor of whatever frame is current when it is called."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def launch(self, code: str, origin: str = "agent", **given: Any) -> Any:
        """Start a job."""
        return await (await self._executor()).launch(code, origin=origin, **given)

    async def list_jobs(self, **given: Any) -> Any:
        """Jobs without their output."""
        return await (await self._executor()).list_jobs(**given)

    async def peek(self, exec_id: str, **given: Any) -> Any:
        """A job as it is."""
        return await (await self._executor()).peek(exec_id, **given)

    async def wait(self, exec_id: str, **given: Any) -> Any:
        """A job once it is done, or has news, or the time is up."""
        return await (await self._executor()).wait(exec_id, **given)

    async def interrupt(self, exec_id: str) -> Any:
        """Stop a job."""
        return await (await self._executor()).interrupt(exec_id)

    async def shutdown(self, timeout_per_job: float = 1.0) -> None:
        """End all jobs of this host."""
        with anyio.move_on_after(timeout_per_job):
            await (await self._host.background.engine()).shutdown()

    async def _executor(self) -> Executor:
        return await self._host.executor(await self._host.caller("in_process"))


@asynccontextmanager
async def _run_folder() -> AsyncGenerator[runfolder.RunFolder]:
    with runfolder.RunFolder() as folder:
        yield folder


async def _settled(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def _nothing() -> None:
    """A replaced executor needs none of our preparations."""
