"""The jobs engine: launches, queues, lists, looks at, waits for and stops jobs, each in a kernel of its own.

    async with Jobs(workspace=…, run_dir=…, log_dir=…, records=…, tokens=…, door=…, keep_output=…) as jobs:
        launched = await jobs.launch("print(1)", owner=owner)
        answer = await jobs.wait(owner, launched["exec_id"])

Leaving the block kills what runs and records it. Importing this module loads neither zmq nor jupyter_client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
import msgspec

from ...store.errors import Closed, InvalidParams, Issue
from .ending import ending_before_run
from .feed import Feed, Subscription
from .job import Job, now_ms
from .job_maker import JobMaker
from .journal import Journal
from .kernels import KernelSource
from .ladder import stop, stop_now
from .limits import JobLimits
from .log import DEFAULT_MAX_CHARS, Stream, parse_position
from .reaper_process import reaper_held
from .records import FINAL, JobOwner, JobRecord, JobRecords, KeepOutput
from .sessions import KernelSessions, SessionKey
from .slots import Slots
from .supervisor import PROGRESS, Supervisor
from .table import JobTable
from .text_view import TextViewer
from .views import LogReader, answer_of, recorded_ends, usage_now, usage_of
from .waiting import wait_for_any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup

    from .kernel import Kernel
    from .spec import KernelFactory, Place
    from .tokens import Tokens

Until: TypeAlias = Literal["done", "news"]
_ASK_STORE_EVERY_S = 0.25
_PROGRESS_TEXT = 500
_NOTE_PROGRESS_EVERY_MS = 1_000  # in the store; memory has the newest


class Jobs:
    """An engine; every method answers for one owner, and another project's jobs are not there for it."""

    def __init__(
        self,
        *,
        workspace: Path,
        run_dir: Path,
        log_dir: Callable[[str], Path],
        records: JobRecords,
        tokens: Tokens,
        door: Callable[[], Path | None],
        keep_output: KeepOutput,
        limits: JobLimits | None = None,
        python: str | None = None,
        team_mode: bool = False,
        kernel_factory: KernelFactory | None = None,
        server_id: str | None = None,
    ) -> None:
        self._limits = limits or JobLimits()
        self.kernels = KernelSource(
            workspace=workspace,
            run_dir=run_dir,
            tokens=tokens,
            door=door,
            limits=self._limits,
            python=python,
            team_mode=team_mode,
            factory=kernel_factory,
            quiet=self._nothing_starts,
        )
        self._table = JobTable(records, log_dir, self._limits.kept_finished)
        self._slots = Slots(self._limits)
        self._journal = Journal(records)
        self._feed = Feed(self._table.live)
        self._maker = JobMaker(
            records=records,
            table=self._table,
            journal=self._journal,
            feed=self._feed,
            tokens=tokens,
            keep_output=keep_output,
            limits=self._limits,
            server_id=server_id,
            on_status=self._look_after_pool,
        )
        self._reader = LogReader()
        self._supervisor = Supervisor(self.kernels.make_for, self._journal, self._limits)
        self._sessions = KernelSessions(self.kernels, self._supervisor, records, self._limits, self._table.retire)
        self._keys = anyio.Lock()
        self._waits_over = anyio.Event()
        self._reaper: AbstractAsyncContextManager[None]
        self._tasks: TaskGroup
        self._open = False

    async def __aenter__(self) -> Self:
        self._reaper = reaper_held(start=self.kernels.allowed)
        await self._reaper.__aenter__()
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._journal.run)
        self._tasks.start_soon(self._feed.run)
        self._tasks.start_soon(self.kernels.pool.run)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.shutdown()
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(kind, error, traceback)
        finally:
            await self._reaper.__aexit__(None, None, None)

    async def shutdown(self) -> None:
        """Kill every job at once and record it as `killed`; returns within `limits.shutdown_s`. Safe to repeat."""
        self._open = False
        self.end_waits()
        self.kernels.pool.close()
        with anyio.move_on_after(self._limits.shutdown_s):
            live = self._table.live()
            for job in live:
                await stop_now(job)
            for job in self._slots.drain() + self._sessions.drain():
                self._tasks.start_soon(self._supervisor.finish, job, ending_before_run(job))
            self._sessions.kill_now()
            for job in live:
                await job.finished.wait()
            await self._journal.settle()

    def kill_all(self) -> None:
        """SIGKILL to every group now, for a process that is about to end; nothing is recorded."""
        self.kernels.pool.close()
        for job in self._table.live():
            if job.kernel is not None:
                job.kernel.kill_now()
        self._sessions.kill_now()

    def end_waits(self) -> None:
        """Have every `wait`, from now on too, answer at once with what there is."""
        self._waits_over.set()

    # Launching

    async def launch(
        self,
        code: str,
        *,
        owner: JobOwner,
        origin: str = "agent",
        label: str | None = None,
        timeout_s: float | None = None,
        memory_mb: int | None = None,
        kernel: str | Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Launch a job, or find the one launched with the same `key`: `{exec_id, status}`.

        Raises `Busy` when the queue is full, `Closed` when the engine is not open or team mode forbids it,
        `InvalidParams` for an `env` or `kernel` that cannot be, `StorageError` when the job cannot be recorded.
        """
        self._require_open()
        self.kernels.require_allowed(owner.root_frame_id)
        place = await self.kernels.place(kernel, env)
        record = msgspec.structs.replace(
            self._maker.describe(code, owner, place, origin),
            label=label,
            timeout_s=_positive("timeout_s", timeout_s),
            memory_mb=_positive("memory_mb", memory_mb),
            key=key,
        )
        if key is None:
            return await self._admit(record, place)
        async with self._keys:
            known = await self._table.by_key(owner.project_id, key)
            if known is not None:
                return {"exec_id": known.exec_id, "status": known.status}
            return await self._admit(record, place)

    async def _admit(self, record: JobRecord, place: Place) -> dict[str, Any]:
        self._slots.reserve()
        try:
            job = await self._maker.make(record, place)
        except BaseException:
            self._slots.give_up()
            raise
        self._slots.enter(job)
        await self._refuse_when_closed(job)
        self._fill_slots()
        return {"exec_id": job.exec_id, "status": job.record.status}

    async def _refuse_when_closed(self, job: Job) -> None:
        """Give a job its end that was written down while the engine closed."""
        if not self._open:
            with anyio.CancelScope(shield=True):  # nobody else would give it its end
                await stop_now(job)
                await self._supervisor.finish(job, ending_before_run(job))

    def _fill_slots(self) -> None:
        while self._open and (job := self._slots.next()) is not None:
            fields = {"status": "starting"}
            self._journal.note(job.record, fields)
            job.change(fields)
            self._tasks.start_soon(self._occupy_slot, job)
            self._tasks.start_soon(job.outputs.run)

    async def _occupy_slot(self, job: Job) -> None:
        try:
            await self._supervisor.run(job)
        finally:
            self._slots.free()
        self._table.retire(job)
        self._fill_slots()

    def _look_after_pool(self, job: Job) -> None:
        if job.record.status == "running":
            self.kernels.expect_another(job)
        else:
            self.kernels.pool.look()

    def _nothing_starts(self) -> bool:
        return all(job.record.status != "starting" for job in self._table.live())

    async def new_kernel(self, root_frame_id: str | None = None) -> Kernel:
        """An unstarted kernel of no job, from the same source; `Closed` where team mode forbids it."""
        self.kernels.require_allowed(root_frame_id)
        self._require_open()
        return await self.kernels.make(root_frame_id)

    # Foreground

    async def execute(
        self, code: str, *, owner: JobOwner, session: str, origin: str = "agent", caller: str | None = None
    ) -> dict[str, Any]:
        """Run a job as the next cell of a session's kernel, which keeps its state: `{exec_id, status}`.

        `caller` is the job that asks: a cell of the same session gets `InvalidParams`. Raises `Busy` when too many
        cells wait in the session, or too many sessions are at work; else as `launch`.
        """
        self._require_open()
        key = SessionKey(owner.project_id, owner.root_frame_id, session)
        place = await self.kernels.place()
        record = msgspec.structs.replace(self._maker.describe(code, owner, place, origin), session=session)
        async with self._sessions.place(key, self._tasks, caller) as queue:
            job = await self._maker.make(record, place)
            await self._refuse_when_closed(job)
            if not job.done:
                self._tasks.start_soon(job.outputs.run)
                queue.enter(job)
        return {"exec_id": job.exec_id, "status": job.record.status}

    async def restart(self, owner: JobOwner, session: str) -> dict[str, Any]:
        """End a session's kernel with all its cells, so that the next one begins in a fresh kernel.

        `{session, restarted, ended}`: whether there was a kernel, and the ids of the cells that were ended.
        """
        self._require_open()
        ended = await self._sessions.restart(SessionKey(owner.project_id, owner.root_frame_id, session))
        return {"session": session, "restarted": ended is not None, "ended": ended or []}

    # Looking

    async def list(
        self, owner: JobOwner, *, status: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> list[dict[str, Any]]:
        """Rows of the project's jobs, newest first, after the job `cursor`."""
        return await self._table.rows(owner, status=status, limit=limit, cursor=cursor)

    async def peek(
        self,
        owner: JobOwner,
        exec_id: str,
        *,
        since: str | None = None,
        max_chars: int | None = None,
        stream: Stream = "both",
    ) -> dict[str, Any]:
        """A job's state and output: all of it as a readable view, or with `since` the raw text from there on."""
        job = self._table.own(owner, exec_id)
        limit = DEFAULT_MAX_CHARS if max_chars is None else min(max_chars, DEFAULT_MAX_CHARS)
        if job is not None:
            # Status first, then size: what a job wrote before it was done is then in the answer that says so.
            record, ends = job.record, job.current_ends()
            usage, interrupted, log, viewer = usage_now(job, now_ms()), job.interrupted, job.log, job.viewer
        else:
            record = await self._table.record(owner, exec_id)
            log = self._table.log(record)
            ends, viewer = recorded_ends(record, log), TextViewer(log)
            usage, interrupted = usage_of(record), record.status == "interrupted"
        final = record.status in FINAL
        page = await self._reader.read(log, ends, viewer, since=since, max_chars=limit, stream=stream, final=final)
        return answer_of(record, page, interrupted=interrupted, usage=usage)

    async def wait(
        self,
        owner: JobOwner,
        exec_id: str,
        *,
        timeout_s: float = 30,
        since: str | None = None,
        until: Until = "done",
        max_chars: int | None = None,
        caller: str | None = None,
    ) -> dict[str, Any]:
        """As `peek`, once the job is done (`until="news"`: or has anything new), or after `timeout_s` seconds.

        News is output beyond `since` (without it: beyond what there is now), another status, progress or figure.
        `caller` is the job that asks: one that would wait for itself gets `InvalidParams`.
        """
        if exec_id == caller:
            raise InvalidParams(
                "a job cannot wait for itself", [Issue("$.exec_id", "is the job that asks")], hint="wait for another"
            )
        job = self._table.own(owner, exec_id)
        with anyio.move_on_after(timeout_s):
            if job is None:
                await self._wait_elsewhere(owner, exec_id)
            elif until == "done":
                await wait_for_any(job.finished, self._waits_over)
            else:
                await self._wait_for_news(job, since)
        return await self.peek(owner, exec_id, since=since, max_chars=max_chars)

    async def _wait_for_news(self, job: Job, since: str | None) -> None:
        seen = job.current_ends() if since is None else parse_position(since)
        version, over = job.version, self._waits_over
        with self._feed.watching(job):
            while not (job.done or over.is_set() or job.version != version):
                ends = job.current_ends()
                if ends.stdout > seen.stdout or ends.stderr > seen.stderr or ends.outputs > seen.outputs:
                    return
                await wait_for_any(job.changed, over)

    async def _wait_elsewhere(self, owner: JobOwner, exec_id: str) -> None:
        """Wait for a job of another server that shares the store."""
        over = self._waits_over
        while (await self._table.record(owner, exec_id)).status not in FINAL and not over.is_set():
            with anyio.move_on_after(_ASK_STORE_EVERY_S):
                await over.wait()

    # Changing

    async def interrupt(self, owner: JobOwner, exec_id: str) -> dict[str, Any]:
        """Stop a job; answers as `peek` does, once the first signal is sent."""
        job = self._table.own(owner, exec_id)
        if job is None:
            record = await self._table.record(owner, exec_id)
            if record.status not in FINAL:
                raise Closed("this job runs in another server", hint="interrupt it there")
        elif self._slots.withdraw(job) or self._sessions.withdraw(job):
            with anyio.CancelScope(shield=True):  # nobody else would give it its end
                await self._supervisor.interrupt_before_run(job)
                self._table.retire(job)
        else:
            await stop(job, "interrupt", self._limits, self._tasks)
        return await self.peek(owner, exec_id)

    def set_progress(self, exec_id: str, done: float, total: float | None = None, message: str | None = None) -> None:
        """Note how far a running job says it is; ignored for any other."""
        job = self._table.get(exec_id)
        if job is None or job.done:
            return
        text = None if message is None else message[:_PROGRESS_TEXT]
        fields = {"progress_done": done, "progress_total": total, "progress_message": text}
        job.change(fields, "progress")
        if not job.progress_waits:
            job.progress_waits = True
            self._tasks.start_soon(self._note_progress, job)

    async def _note_progress(self, job: Job) -> None:
        """Have the newest progress in the store, for whoever looks from outside."""
        await anyio.sleep(max(0, job.progress_noted_at + _NOTE_PROGRESS_EVERY_MS - now_ms()) / 1000)
        job.progress_noted_at = now_ms()
        job.progress_waits = False
        if not job.done:
            self._journal.note(job.record, {name: getattr(job.record, name) for name in PROGRESS})

    def forget(self, exec_ids: Iterable[str]) -> None:
        """Hold finished jobs no longer: somebody has removed them from the store."""
        self._table.forget(exec_ids)

    def subscribe(self, project_id: str | None = None, *, output: bool = False) -> Subscription:
        """News of a project's jobs as `JobNews`, in an `async with` block; with `output` of their logs too."""
        return self._feed.subscribe(project_id, output=output)

    def _require_open(self) -> None:
        if not self._open:
            raise Closed("the jobs engine is not open", hint="use it inside its async with block")


def _positive(name: str, value: Any) -> Any:
    if value is not None and value <= 0:
        raise InvalidParams(f"{name} must be above 0", [Issue(f"$.{name}", "must be above 0")])
    return value
