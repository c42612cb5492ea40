"""How a running job is stopped: SIGINT, SIGINT again, SIGTERM, SIGKILL, each to the whole group and with its time."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import anyio

from .waiting import wait_for_any

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from .job import Job, StopReason
    from .limits import JobLimits

_BEGUN_WITHIN_S = 0.5


async def stop(job: Job, reason: StopReason, limits: JobLimits, tasks: TaskGroup) -> None:
    """Have a job stopped; returns once the first signal is sent, the rest goes on in `tasks`.

    A job whose code does not run yet needs no signal (one would kill its kernel): it ends at its start barrier.
    """
    if job.stop_reason is not None or job.over.is_set():
        return
    job.stop_reason = reason
    job.stop_requested.set()
    if job.execution is not None:
        signalled = anyio.Event()
        tasks.start_soon(_climb, job, limits, signalled)
        await signalled.wait()


async def stop_now(job: Job) -> None:
    """Kill a job's kernel, whatever it is doing: its server ends."""
    job.stop_reason = "shutdown"
    job.stop_requested.set()
    if job.kernel is not None:
        await job.kernel.kill()


async def _climb(job: Job, limits: JobLimits, signalled: anyio.Event) -> None:
    kernel, execution = job.kernel, job.execution
    assert kernel is not None
    assert execution is not None
    # Between the request and its first message the kernel ignores SIGINT.
    with anyio.move_on_after(_BEGUN_WITHIN_S):
        await wait_for_any(execution.started, job.over)
    steps = (
        (signal.SIGINT, limits.interrupt_s),
        (signal.SIGINT, limits.second_interrupt_s),
        (signal.SIGTERM, limits.terminate_s),
        (signal.SIGKILL, limits.settle_s),
    )
    for signum, patience_s in steps:
        if job.over.is_set():
            break
        job.stop_step = signum.name.lower()
        await (kernel.interrupt() if signum == signal.SIGINT else kernel.signal(signum))
        signalled.set()
        with anyio.move_on_after(patience_s):
            await job.over.wait()
    signalled.set()
    job.given_up.set()
