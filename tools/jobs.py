"""Background jobs of one host: its run folder, its engine, and the executor that the tools talk to."""

from __future__ import annotations

import inspect
import os
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import anyio

from ..store import runfolder
from ..store.errors import Closed, HostError
from .job_records import StoredJobs
from .kernel.background import BackgroundExecutor
from .kernel.jobs import Jobs
from .kernel.limits import JobLimits
from .kernel.records import JobOwner
from .kernel.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from .call import Caller
    from .host import Host
    from .kernel.kernel import Kernel
    from .kernel.spec import KernelFactory

POLL_S = 0.05
"""How often a replaced executor without `wait` is looked at."""


class Background:
    """Owns the run folder and the engine inside `async with`; outside it only a replaced executor works."""

    def __init__(self, host: Host, kernel_factory: KernelFactory | None) -> None:
        self.tokens = Tokens()
        self.open_door: Callable[[], Awaitable[Path]] | None = None
        self._host = host
        self._factory = kernel_factory
        self._replacement: Executor | None = None
        self._engine: Jobs | None = None
        self._run_folder: runfolder.RunFolder | None = None
        self._door: Path | None = None
        self._exit: AsyncExitStack | None = None
        self._preparing = anyio.Lock()
        self._swept = False
        self._registered = False

    async def __aenter__(self) -> Self:
        config = self._host.config
        async with AsyncExitStack() as stack:
            self._run_folder = stack.enter_context(runfolder.RunFolder())
            engine = Jobs(
                workspace=self._host.workspace.root,
                run_dir=self._run_folder.path,
                log_dir=self._log_folder,
                records=StoredJobs(self._host.store),
                tokens=self.tokens,
                door=lambda: self._door,
                limits=JobLimits(
                    max_running=config.limits.jobs_running,
                    max_queued=config.limits.jobs_queued,
                    file_bytes=config.limits.job_disk_bytes,
                ),
                python=config.python,
                team_mode=config.team_mode,
                kernel_factory=self._factory,
                server_id=self._run_folder.server_id,
            )
            self._engine = await stack.enter_async_context(engine)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._exit is not None
        try:
            await self._exit.__aexit__(kind, error, trace)
        finally:
            self._engine = None
            if self._registered:
                with anyio.CancelScope(shield=True):
                    await self._unregister()

    def run_folder(self) -> runfolder.RunFolder:
        """The server's private folder for sockets.

        Raises:
            Closed: outside `async with`.
        """
        if self._run_folder is None:
            raise _not_open()
        return self._run_folder

    def executor(self, caller: Caller) -> Executor:
        """What the caller's job tools work on.

        Raises:
            Closed: outside `async with`, unless the executor was replaced.
        """
        if self._replacement is not None:
            return self._replacement
        if self._engine is None:
            raise _not_open()
        owner = JobOwner(caller.project_id, caller.root_frame_id, caller.frame_id)
        return Executor(BackgroundExecutor(self._engine, owner), lambda: self._prepare(caller), self._sweep)

    def current(self) -> Any:
        """The executor of the current frame, or the one it was replaced with."""
        if self._replacement is not None:
            return self._replacement.target
        if self._engine is None:
            raise _not_open()
        current = self._host.session.open_now()
        return BackgroundExecutor(self._engine, JobOwner(current.project_id, current.root_frame_id, current.frame_id))

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
            raise _not_open()
        return await self._engine.new_kernel()

    def _refuse_in_team_mode(self) -> None:
        if self._host.config.team_mode and self._factory is None:
            raise Closed(
                "team mode takes background kernels only from a session-scoped kernel factory",
                hint="pass kernel_factory to build_dispatcher",
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
        return self._host.store.store.project(project_id).folder / "jobs"

    async def _prepare(self, caller: Caller) -> None:
        """What must be there before a job: its frame, this server's registration, the workspace, the door."""
        self._refuse_in_team_mode()
        await self._host.session.ensure_written(caller)
        await self._sweep()
        async with self._preparing:
            if not self._registered:
                folder = self.run_folder()
                register = self._host.store.store.control.servers.register
                await self._host.store.run(register, folder.server_id, os.getpid(), str(folder.path))
                self._registered = True
        self._host.workspace.make()
        if self._door is None and self.open_door is not None:
            self._door = await self.open_door()

    async def _sweep(self) -> None:
        """Once, before jobs are first looked at: what dead servers left is removed and marked lost."""
        async with self._preparing:
            if not self._swept:
                await self._host.store.run(self._sweep_now)
                self._swept = True

    def _sweep_now(self) -> None:
        runfolder.sweep()
        if self._host.store.store.exists():
            self._host.store.store.mark_dead_servers()

    async def _unregister(self) -> None:
        assert self._run_folder is not None
        unregister = self._host.store.store.control.servers.unregister
        with suppress(HostError):  # a later server marks it dead
            await self._host.store.run(unregister, self._run_folder.server_id)


class Executor:
    """The five calls of an executor, whether it is ours or not, synchronous or not."""

    def __init__(
        self, target: Any, before_launch: Callable[[], Awaitable[None]], before_look: Callable[[], Awaitable[None]]
    ) -> None:
        self.target = target
        self._before_launch = before_launch
        self._before_look = before_look

    async def launch(self, code: str, **given: Any) -> Any:
        """Start a job."""
        await self._before_launch()
        return await _settled(self.target.launch(code, **given))

    async def list_jobs(self, **given: Any) -> Any:
        """Jobs without their output."""
        await self._before_look()
        return await _settled(self.target.list_jobs(**given))

    async def peek(self, exec_id: str, **given: Any) -> Any:
        """A job as it is."""
        await self._before_look()
        return await _settled(self.target.peek(exec_id, **given))

    async def wait(self, exec_id: str, *, timeout_s: float = 30.0, **given: Any) -> Any:
        """A job once it is done, or has news, or the time is up; one of another kind is looked at until it is done."""
        await self._before_look()
        if hasattr(self.target, "wait"):
            return await _settled(self.target.wait(exec_id, timeout_s=timeout_s, **given))
        given.pop("until", None)
        with anyio.move_on_after(timeout_s):
            while not (await self.peek(exec_id, **given)).get("done"):
                await anyio.sleep(POLL_S)  # noqa: ASYNC110 (nothing of a foreign executor can be awaited)
        return await self.peek(exec_id, **given)

    async def interrupt(self, exec_id: str) -> Any:
        """Stop a job."""
        await self._before_look()
        return await _settled(self.target.interrupt(exec_id))


async def _settled(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def _nothing() -> None:
    """A replaced executor needs none of our preparations."""


def _not_open() -> Closed:
    return Closed("not open: jobs need a running host", hint="use `async with build_dispatcher(...) as dispatcher`")
