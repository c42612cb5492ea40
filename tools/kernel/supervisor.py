"""Takes one job to its end: wait for the kernel, run the cell, say how it ended; a kernel of its own is taken down.

The end is announced before the teardown, and written to the store before it is announced.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from ...store.errors import HostError, StorageError
from .ending import Ending, ending_before_run, ending_of, ending_of_start
from .execution import CellError
from .job import now_ms
from .ladder import stop
from .log import Ends, read_bytes
from .waiting import wait_for_any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from .execution import Execution
    from .job import Job
    from .journal import Journal
    from .kernel import Kernel
    from .limits import JobLimits

_LOG = logging.getLogger(__name__)
_LAST_MESSAGES_S = 0.02  # what a dead process had sent is on its way
_TAIL_BYTES = 4_000
PROGRESS = ("progress_done", "progress_total", "progress_message")


class Supervisor:
    """Runs jobs; `make_kernel` gives each a kernel of its own, started by `async with` if not before."""

    def __init__(
        self,
        make_kernel: Callable[[Job], Awaitable[AbstractAsyncContextManager[Kernel]]],
        journal: Journal,
        limits: JobLimits,
    ) -> None:
        self._make_kernel = make_kernel
        self._journal = journal
        self._limits = limits

    async def run(self, job: Job) -> None:
        """Run a job in a kernel of its own, to its end."""
        async with self.answering_for(job):
            async with await self._make_kernel(job) as kernel:
                await self._run_in(kernel, job)
            _cut_log(job)

    async def run_cell(
        self, job: Job, kernel: Kernel, describe: Callable[[Job], Mapping[str, Any]], note: str | None
    ) -> None:
        """Run a job in a kernel that goes on afterwards; `describe` tells what it has of its own there."""
        async with self.answering_for(job):
            self._change(job, {"status": "starting"} if note is None else {"status": "starting", "note": note})
            await self._run_in(kernel, job, describe(job))
            _cut_log(job)

    @asynccontextmanager
    async def answering_for(self, job: Job) -> AsyncGenerator[None]:
        """Whatever happens in the block, the job has an end after it."""
        try:
            yield
        except HostError as error:
            hint = f" ({error.hint})" if error.hint else ""
            await self._finish_early(job, CellError("KernelStartError", f"{error}{hint}", ""))
        except Exception:  # noqa: BLE001
            fault = secrets.token_hex(4)
            _LOG.exception("job %s: fault %s", job.exec_id, fault)
            await self._finish_early(job, CellError("InternalError", f"a fault of cellhost, in its log as {fault}", ""))

    async def _finish_early(self, job: Job, error: CellError) -> None:
        if not job.done:
            await self.finish(job, Ending("died", "start", error=error))

    async def _run_in(self, kernel: Kernel, job: Job, cell: Mapping[str, Any] | None = None) -> None:
        job.kernel = kernel
        ending = await self._start(job, kernel) or await self._run_code(job, kernel, cell)
        await self.finish(job, ending)

    async def _start(self, job: Job, kernel: Kernel) -> Ending | None:
        """Wait for the kernel; the job's end if there will be no running."""
        with anyio.move_on_after(self._limits.start_timeout_s):
            await wait_for_any(kernel.ready, kernel.dead, job.stop_requested)
        if job.stop_requested.is_set():
            return ending_before_run(job)
        if kernel.dead.is_set() or not kernel.ready.is_set():
            return ending_of_start(kernel.startup_text, kernel.exit)
        return None

    async def _run_code(self, job: Job, kernel: Kernel, cell: Mapping[str, Any] | None) -> Ending:
        execution = job.execution = kernel.execute(job.record.code, job.outputs.take, cell)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._announce_run, job, execution)
            await self._wait_within_limit(job, kernel, execution, tasks)
            job.over.set()
            tasks.cancel_scope.cancel()
        await self._settle_outputs(job)
        return ending_of(job, execution, kernel.exit)

    async def _settle_outputs(self, job: Job) -> None:
        """Have what the job displayed last kept before its end is told; a server that ends has less time for it."""
        in_haste = job.stop_reason == "shutdown"
        with anyio.move_on_after(self._limits.shutdown_s / 4 if in_haste else self._limits.outputs_s):
            await job.outputs.settle()

    async def _announce_run(self, job: Job, execution: Execution) -> None:
        await execution.started.wait()
        self._change(job, {"status": "running", "started_at": execution.started_at})

    async def _wait_within_limit(
        self, job: Job, kernel: Kernel, execution: Execution, tasks: anyio.abc.TaskGroup
    ) -> None:
        limit_s = job.record.timeout_s
        if limit_s is not None:
            with anyio.move_on_after(limit_s):
                await self._wait_for_end(job, kernel, execution)
                return
            await stop(job, "timeout", self._limits, tasks)
        await self._wait_for_end(job, kernel, execution)

    async def _wait_for_end(self, job: Job, kernel: Kernel, execution: Execution) -> None:
        await wait_for_any(execution.ending, kernel.dead, job.given_up)
        heard = -1
        while heard < execution.heard and not execution.over.is_set():  # what it published may still be on its way
            heard = execution.heard
            with anyio.move_on_after(_LAST_MESSAGES_S if kernel.dead.is_set() else self._limits.settle_s):
                await wait_for_any(execution.over, *(() if kernel.dead.is_set() else (kernel.dead,)))
        if execution.exit_requested:
            with anyio.move_on_after(self._limits.settle_s):
                await kernel.dead.wait()

    def _change(self, job: Job, fields: dict[str, Any]) -> None:
        self._journal.note(job.record, fields)
        job.change(fields)

    async def interrupt_before_run(self, job: Job) -> None:
        """Give a job its end that waited and was taken out."""
        job.stop_reason = "interrupt"
        await self.finish(job, ending_before_run(job))

    async def finish(self, job: Job, ending: Ending) -> None:
        """Give a job its end: in the store first, if that takes it in time, then for all to see.

        A job has one end. Its kernel may fail in the moment in which it is interrupted: who comes second waits.
        """
        if job.ends is not None:
            await job.finished.wait()
            return
        job.over.set()
        job.outputs.close()
        job.ends = job.current_ends()
        fields = _final_fields(job, ending)
        tails = {"stdout_tail": _tail(job.log.stdout, job.ends.stdout)}
        tails["stderr_tail"] = _tail(job.log.stderr, job.ends.stderr)
        self._journal.note(job.record, fields | tails)
        with anyio.move_on_after(self._limits.record_s):
            await self._journal.settle(job.record)
        job.change(fields)


def _final_fields(job: Job, ending: Ending) -> dict[str, Any]:
    usage, execution, ends = job.usage(), job.execution, job.ends or Ends(0, 0)
    started_at = job.record.started_at
    if started_at is None and execution is not None:
        # A sudden death may take along the message that the code had begun.
        started_at = execution.started_at or execution.sent_at
    ended_at = max(now_ms(), started_at or 0)
    fields: dict[str, Any] = {
        "status": ending.status,
        "ended_by": ending.ended_by,
        "started_at": started_at,
        "ended_at": ended_at,
        "wall_s": None if started_at is None else (ended_at - started_at) / 1000,
        "stdout_bytes": ends.stdout,
        "stderr_bytes": ends.stderr,
        "result_text": ending.result,
    }
    if job.record.progress_done is not None:
        fields |= {name: getattr(job.record, name) for name in PROGRESS}
    if usage is not None and started_at is not None:
        fields |= {"cpu_s": usage.cpu_s, "peak_rss_kb": usage.peak_rss_kb}
    if ending.error is not None:
        error = ending.error
        fields |= {"error_name": error.name, "error_value": error.value, "error_traceback": error.traceback}
    if ending.exit is not None:
        fields |= {"exit_code": ending.exit.code, "exit_signal": ending.exit.signal}
    return fields


def _cut_log(job: Job) -> None:
    assert job.ends is not None
    job.log.cut(job.ends)


def _tail(path: Path, end: int) -> str:
    start = max(0, end - _TAIL_BYTES)
    try:
        return read_bytes(path, start, end - start).decode(errors="ignore")
    except StorageError as error:  # a job has its end all the same
        _LOG.warning("%s", error)
        return ""
