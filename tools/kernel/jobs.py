"""The jobs engine: launches, queues, lists, looks at, waits for and stops jobs, each in a kernel of its own.

    async with Jobs(workspace=…, run_dir=…, log_dir=…, records=…, tokens=…, door=…, keep_output=…) as jobs:
        launched = await jobs.launch("print(1)", owner=owner)
        answer = await jobs.wait(owner, launched["exec_id"])

Leaving the block kills what runs and records it. Importing this module loads neither zmq nor jupyter_client.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from ...store.errors import Closed, InvalidParams, Issue
from .ending import ending_before_run
from .feed import Feed, Subscription
from .job import Job, NewsKind, now_ms
from .journal import Journal
from .kernels import KernelSource
from .ladder import stop, stop_now
from .limits import JobLimits
from .log import DEFAULT_MAX_CHARS, Stream, parse_position
from .outputs import JobOutputs
from .records import FINAL, JobOutput, JobOwner, JobRecord, JobRecords, KeepOutput
from .slots import Slots
from .supervisor import Supervisor
from .table import JobTable
from .text_view import TextViewer
from .views import LogReader, answer_of, recorded_ends, usage_now, usage_of
from .waiting import wait_for_any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup

    from .kernel import Kernel
    from .spec import KernelFactory
    from .tokens import Tokens

Until: TypeAlias = Literal["done", "news"]
_ASK_STORE_EVERY_S = 0.25
_PROGRESS_TEXT = 500
_NOTE_PROGRESS_EVERY_MS = 1_000  # in the store; the newest is in memory, and in the store at the end


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
        self._records = records
        self._tokens = tokens
        self._keep_output = keep_output
        self._server_id = server_id
        self.kernels = KernelSource(
            workspace=workspace,
            run_dir=run_dir,
            tokens=tokens,
            door=door,
            limits=self._limits,
            python=python,
            team_mode=team_mode,
            factory=kernel_factory,
        )
        self._table = JobTable(records, log_dir, self._limits.kept_finished)
        self._slots = Slots(self._limits)
        self._journal = Journal(records)
        self._feed = Feed(self._table.live)
        self._reader = LogReader()
        self._supervisor = Supervisor(self.kernels.make_for, self._journal, self._limits)
        self._keys = anyio.Lock()
        self._waits_over = anyio.Event()
        self._tasks: TaskGroup
        self._open = False
        self._last_moment = 0

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._journal.run)
        self._tasks.start_soon(self._feed.run)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.shutdown()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(kind, error, traceback)

    async def shutdown(self) -> None:
        """Kill every job at once and record it as `killed`; returns within `limits.shutdown_s`. Safe to repeat."""
        self._open = False
        self.end_waits()
        with anyio.move_on_after(self._limits.shutdown_s):
            live = self._table.live()
            for job in live:
                await stop_now(job)
            for job in self._slots.drain():
                self._tasks.start_soon(self._supervisor.finish, job, ending_before_run(job))
            for job in live:
                await job.finished.wait()
            await self._journal.settle()

    def kill_all(self) -> None:
        """SIGKILL to every group now, for a process that is about to end; nothing is recorded."""
        for job in self._table.live():
            if job.kernel is not None:
                job.kernel.kill_now()

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
        self.kernels.require_allowed()
        interpreter = self.kernels.choose(kernel)
        environment = self.kernels.environment(interpreter, env)
        record = JobRecord(
            exec_id=f"exec-{secrets.token_hex(6)}",
            cell_id=f"c-{secrets.token_hex(6)}",
            project_id=owner.project_id,
            root_frame_id=owner.root_frame_id,
            frame_id=owner.frame_id,
            code=code,
            status="queued",
            created_at=self._next_moment(),
            origin=origin,
            label=label,
            kernel=interpreter.executable,
            server_id=self._server_id,
            timeout_s=_positive("timeout_s", timeout_s),
            memory_mb=_positive("memory_mb", memory_mb),
            key=key,
        )
        if key is None:
            return await self._admit(record, interpreter.executable, environment)
        async with self._keys:
            known = await self._table.by_key(owner.project_id, key)
            if known is not None:
                return {"exec_id": known.exec_id, "status": known.status}
            return await self._admit(record, interpreter.executable, environment)

    def _next_moment(self) -> int:
        """Now, but later than the last time it was asked: the order of launches must show in it."""
        self._last_moment = max(now_ms(), self._last_moment + 1)
        return self._last_moment

    async def _admit(self, record: JobRecord, interpreter: str, environment: dict[str, str]) -> dict[str, Any]:
        self._slots.reserve()
        try:
            with anyio.CancelScope(shield=True):  # a row without its job would stay queued
                await self._records.created(record)
        except BaseException:
            self._slots.give_up()
            raise
        log = self._table.log(record)
        outputs = JobOutputs(
            keep=partial(self._keep_output, record),
            sizes=log.sizes,
            on_change=partial(self._take_outputs, record),
            limits=self._limits,
        )
        job = Job(record, log, interpreter, environment, outputs, self._take_news)
        self._table.add(job)
        self._slots.enter(job)
        self._feed.publish(job, "status")
        if not self._open:  # it has closed meanwhile
            await stop_now(job)
            await self._supervisor.finish(job, ending_before_run(job))
        self._fill_slots()
        return {"exec_id": job.exec_id, "status": job.record.status}

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
            job.outputs.close()
            self._slots.free()
        self._table.retire(job)
        self._fill_slots()

    def _take_news(self, job: Job, kind: NewsKind) -> None:
        if job.done and job.token is not None:
            self._tokens.revoke(job.token)
            job.token = None
        self._feed.publish(job, kind)

    def _take_outputs(self, record: JobRecord, outputs: tuple[JobOutput, ...]) -> None:
        fields = {"outputs": outputs}
        self._journal.note(record, fields)
        if (job := self._table.get(record.exec_id)) is not None:
            job.change(fields, "outputs")

    async def new_kernel(self) -> Kernel:
        """An unstarted kernel of no job, from the same source; `Closed` where team mode forbids it."""
        self.kernels.require_allowed()
        self._require_open()
        return await self.kernels.make()

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
        elif self._slots.withdraw(job):
            job.stop_reason = "interrupt"
            with anyio.CancelScope(shield=True):  # nobody else would give it its end
                await self._supervisor.finish(job, ending_before_run(job))
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
        if now_ms() - job.progress_noted_at >= _NOTE_PROGRESS_EVERY_MS:
            self._journal.note(job.record, fields)
            job.progress_noted_at = now_ms()
        job.change(fields, "progress")

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
