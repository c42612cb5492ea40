"""Foreground kernels: one for each session's name, which keeps its state from cell to cell.

    async with sessions.place(key) as session:
        session.enter(job)

The cells of a session run one after the other in the order in which they came. A kernel that died, was restarted or
had to make room is followed by a fresh one with the next cell, and that cell's `note` says that the state is gone.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import msgspec

from ...store.counting import counted
from ...store.errors import Busy, InvalidParams, Issue
from .ending import exit_reason
from .waiting import wait_for_any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from anyio.abc import TaskGroup

    from .job import Job
    from .kernel import Kernel
    from .kernels import KernelSource
    from .limits import JobLimits
    from .records import JobRecords
    from .supervisor import Supervisor

_MOST_LOSSES = 1_000


class SessionKey(msgspec.Struct, frozen=True):
    """What a foreground kernel is found by."""

    project_id: str
    root_frame_id: str
    name: str


class KernelSession:
    """The cells that wait for one kernel, and that kernel; `run` is its task."""

    def __init__(
        self,
        root_frame_id: str,
        source: KernelSource,
        supervisor: Supervisor,
        on_done: Callable[[Job], None],
        loss: str | None,
    ) -> None:
        self.loss = loss  # why the state of earlier cells is gone, until a cell has said so
        self.idle_since = time.monotonic()
        self.running: Job | None = None
        self.cells: deque[Job] = deque()
        self.reserved = 0
        self._root_frame_id = root_frame_id
        self._source = source
        self._supervisor = supervisor
        self._on_done = on_done
        self._kernel: Kernel | None = None
        self._ended: str | None = None  # why the kernel is to go
        self._changed = anyio.Event()
        self._without_kernel = anyio.Event()
        self._without_kernel.set()

    @property
    def idle(self) -> bool:
        """Whether no cell runs, waits or is about to."""
        return not (self.running or self.cells or self.reserved)

    def enter(self, job: Job) -> None:
        """Have a job run after those that came before it."""
        self.cells.append(job)
        self.tell()

    def withdraw(self, job: Job) -> bool:
        """Take a waiting job out; false if it does not wait here."""
        if job not in self.cells or job.over.is_set():
            return False
        self.cells.remove(job)
        return True

    def tell(self) -> None:
        """Have the task look what there is to do."""
        self._changed.set()

    async def run(self) -> None:
        """Run cells, in one kernel as long as it lives; returns once there is neither a kernel nor a cell to come."""
        while self.cells or self.reserved:
            if self.cells:
                await self._run_kernel(self.cells[0])
            else:
                await self._change()

    async def _run_kernel(self, first: Job) -> None:
        """A kernel from its start to its end; `first` answers for it if it cannot start."""
        self._ended = None
        self._without_kernel = anyio.Event()
        try:
            async with self._supervisor.answering_for(first), await self._source.make_foreground() as self._kernel:
                self._source.note_foreground(self._root_frame_id)
                await self._serve(self._kernel)
        finally:  # the engine may close meanwhile
            self._kernel = None
            self._without_kernel.set()
        if first in self.cells:
            self.cells.remove(first)
            self._on_done(first)

    async def _serve(self, kernel: Kernel) -> None:
        last = None
        while (job := await self._next_for(kernel)) is not None:
            self.running = job
            await self._supervisor.run_cell(job, kernel, self._source.cell, self.loss and _note(self.loss))
            if job.record.started_at is not None:
                last, self.loss = job, None
            self.running = None
            self.idle_since = time.monotonic()
            self._on_done(job)
            if not kernel.ready.is_set():
                break
        if last is not None:
            self.loss = self._reason(kernel, last)

    async def _next_for(self, kernel: Kernel) -> Job | None:
        """The next cell, once there is one; `None` once the kernel can run none."""
        while not (kernel.busy or self._ended):
            dead = kernel.dead.is_set()
            if self.cells and not (dead and kernel.ready.is_set()):  # what never was ready has a cell to tell it
                return self.cells.popleft()
            if dead:
                return None
            await self._change(kernel.dead)
        return None

    async def _change(self, *others: anyio.Event) -> None:
        self._changed = anyio.Event()
        await wait_for_any(self._changed, *others)

    def _reason(self, kernel: Kernel, last: Job) -> str:
        if self._ended is not None:
            return self._ended
        if kernel.exit is None:
            return "it could not be interrupted" if last.interrupted else "it did not answer any more"
        return exit_reason(kernel.exit.code, kernel.exit.signal, last.record.ended_by)

    async def end_kernel(self, reason: str) -> None:
        """End the kernel with what runs in it; returns once it is gone."""
        self._ended = reason
        job = self.running
        if job is not None and not job.over.is_set():
            job.stop_reason = job.stop_reason or "interrupt"
            job.stop_step = "sigkill"
            job.stop_requested.set()
        if self._kernel is not None:
            await self._kernel.kill()
        self.tell()
        await self._without_kernel.wait()

    def kill_now(self) -> None:
        """SIGKILL to the kernel's group, for an engine that is about to end."""
        if self._kernel is not None:
            self._kernel.kill_now()


class KernelSessions:
    """All sessions; one without a kernel and without cells is not kept, only why its state is gone."""

    def __init__(
        self,
        source: KernelSource,
        supervisor: Supervisor,
        records: JobRecords,
        limits: JobLimits,
        on_done: Callable[[Job], None],
    ) -> None:
        self._source = source
        self._supervisor = supervisor
        self._records = records
        self._limits = limits
        self._on_done = on_done
        self._sessions: dict[SessionKey, KernelSession] = {}
        self._losses: dict[SessionKey, str] = {}

    @asynccontextmanager
    async def place(self, key: SessionKey, tasks: TaskGroup, caller: str | None) -> AsyncGenerator[KernelSession]:
        """A session, made if need be, with a place for one cell held in it during the block.

        Raises `Busy` when too many cells wait there already, or all sessions there may be are at work, and
        `InvalidParams` when `caller`, the job that asks, is the cell that runs there.
        """
        known = self._sessions.get(key)
        if caller is not None and known is not None and known.running is not None and known.running.exec_id == caller:
            raise InvalidParams(
                "a cell cannot wait for its own session",
                [Issue("$.session", "is the session of the cell that asks")],
                hint="name another session, or start a background job",
            )
        session = await self._find(key, tasks)
        session.reserved += 1
        try:
            yield session
        finally:
            session.reserved -= 1
            session.tell()

    async def _find(self, key: SessionKey, tasks: TaskGroup) -> KernelSession:
        if key not in self._sessions:
            loss = self._losses.get(key) or await self._earlier_loss(key)
            while key not in self._sessions and len(self._sessions) >= self._limits.max_sessions:
                await self._make_room()
            if key not in self._sessions:
                self._losses.pop(key, None)
                session = KernelSession(key.root_frame_id, self._source, self._supervisor, self._on_done, loss)
                self._sessions[key] = session
                tasks.start_soon(self._run, key, session)
        session = self._sessions[key]
        if len(session.cells) + session.reserved >= self._limits.max_queued:
            raise Busy(
                f"the session's queue is full: it has {counted(len(session.cells), 'cell')}",
                hint="interrupt some, or exec_restart it",
            )
        return session

    async def _earlier_loss(self, key: SessionKey) -> str | None:
        ran = await self._records.ran_in_session(key.project_id, key.root_frame_id, key.name)
        return "it was another server's" if ran else None

    async def _make_room(self) -> None:
        idle = [session for session in self._sessions.values() if session.idle]
        if not idle:
            raise Busy(
                f"no more than {counted(len(self._sessions), 'session')} may run cells",
                hint="use one of them, wait for a cell to end, or start a background job",
            )
        await min(idle, key=lambda session: session.idle_since).end_kernel("the longest idle one had to make room")
        await anyio.lowlevel.checkpoint()

    async def _run(self, key: SessionKey, session: KernelSession) -> None:
        await session.run()
        del self._sessions[key]
        if session.loss is not None:
            self._losses[key] = session.loss
            if len(self._losses) > _MOST_LOSSES:
                del self._losses[next(iter(self._losses))]

    async def restart(self, key: SessionKey) -> list[str] | None:
        """End a session's kernel with all its cells; the ids of these, or `None` when there was no kernel."""
        session = self._sessions.get(key)
        if session is None:
            return None
        waiting = self.drain(key)
        ended = [job.exec_id for job in (session.running, *waiting) if job is not None]
        with anyio.CancelScope(shield=True):  # nobody else would give the waiting ones their end
            await session.end_kernel("exec_restart ended it")
            for job in waiting:
                await self._supervisor.interrupt_before_run(job)
                self._on_done(job)
        return ended

    def withdraw(self, job: Job) -> bool:
        """Take a waiting job out of its session; false if it waits in none."""
        return any(session.withdraw(job) for session in self._sessions.values())

    def drain(self, key: SessionKey | None = None) -> list[Job]:
        """Take all waiting jobs out, of one session or of all."""
        sessions = [session for known, session in self._sessions.items() if key in {None, known}]
        return [job for session in sessions for job in list(session.cells) if session.withdraw(job)]

    def kill_now(self) -> None:
        """SIGKILL to every kernel's group."""
        for session in self._sessions.values():
            session.kill_now()


def _note(loss: str) -> str:
    return (
        f"the kernel of this session's earlier cells is not there any more ({loss}), nor are their variables and "
        "imports: this cell began in a fresh kernel"
    )
