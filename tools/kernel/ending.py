"""What a job's end is called, from how its cell and its process ended.

The status of a stopped job comes from who stopped it, not from what the code raised: an interrupted `await` ends as
`CancelledError`, a swallowed interrupt as a normal end. `ended_by` names the step that worked: `code`, `cancel`
(before it ran), `sigint`, `sigterm`, `sigkill`, `exit` (the process ended by itself), `orphaned` (its parent was
killed), `output_limit`, `start`, `shutdown`.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import msgspec

from .execution import CellError, bounded
from .job import STATUS_OF_STOP
from .provisioner import KernelExit

if TYPE_CHECKING:
    from .execution import Execution
    from .job import Job

_MAX_REASON = 2_000
_SILENT = "it ended without a word; check that the interpreter is a Python whose environment has ipykernel"
_DEATHS = {
    signal.SIGKILL: "killed by SIGKILL, which is also how the system ends what takes too much memory; memory_mb "
    "turns that into a MemoryError",
    signal.SIGSEGV: "segmentation fault in native code; where it was in Python stands at the end of stderr",
    signal.SIGBUS: "bus error in native code; where it was in Python stands at the end of stderr",
    signal.SIGABRT: "aborted by native code; what it said stands at the end of stderr",
    signal.SIGXFSZ: "a log or another file grew over the size limit",
}


class Ending(msgspec.Struct, frozen=True):
    """How a job ended."""

    status: str
    ended_by: str
    error: CellError | None = None
    result: str | None = None
    exit: KernelExit | None = None


def ending_of(job: Job, execution: Execution, ended: KernelExit | None) -> Ending:
    """The end of a job whose cell was sent to its kernel; `ended`: how the process ended, if it did."""
    if job.stop_reason == "shutdown":
        return Ending("killed", "shutdown", exit=ended)
    if job.stop_reason is not None:
        return Ending(STATUS_OF_STOP[job.stop_reason], job.stop_step, result=execution.result, exit=ended)
    if ended is not None:
        if ended.signal == signal.SIGXFSZ:
            return Ending("killed", "output_limit", exit=ended)
        if ended.orphaned:
            return Ending("died", "orphaned", exit=ended)
        return Ending("died", "exit", exit=ended)
    if execution.status == "ok" or _left_well(execution.error):
        return Ending("done", "code", result=execution.result)
    unanswered = CellError("KernelError", "the kernel ended the cell without an answer", "")
    return Ending("failed", "code", error=execution.error or unanswered)


def _left_well(error: CellError | None) -> bool:
    """Whether it is how a script says that all went well: `sys.exit()` or `sys.exit(0)`."""
    return error is not None and error.name == "SystemExit" and error.value in {"", "0", "None"}


def ending_before_run(job: Job) -> Ending:
    """The end of a job that was stopped before its code ran."""
    assert job.stop_reason is not None
    return Ending(STATUS_OF_STOP[job.stop_reason], "shutdown" if job.stop_reason == "shutdown" else "cancel")


def ending_of_start(said: str, ended: KernelExit | None) -> Ending:
    """The end of a job whose kernel never became ready; `said`: what it wrote meanwhile."""
    last = said.rpartition("\n")[2].strip()
    value = last or ("it did not answer in time" if ended is None else _SILENT)
    if "No module named" in last and "ipykernel" in last:
        value = f"{last}; install ipykernel in that interpreter's environment"
    error = CellError("KernelStartError", bounded(f"the kernel did not start: {value}", _MAX_REASON), said)
    return Ending("died", "start", error=error, exit=ended)


def exit_reason(code: int | None, signum: int | None, ended_by: str | None, memory_mb: int | None = None) -> str:
    """A sentence for people; `memory_mb` is the job's limit, which native code may not have expected."""
    if ended_by == "start":
        return "the kernel did not start"
    if ended_by == "shutdown":
        return "its server ended"
    if ended_by == "orphaned":
        return "the process that looked after the kernel was killed by somebody else, which ended the kernel too"
    if ended_by in {"sigint", "sigterm", "sigkill"}:
        return f"stopped by {ended_by.upper()}"
    reason = _reason(code, signum)
    if memory_mb is None or signum == signal.SIGXFSZ or code == 0:
        return reason
    return f"{reason}; native code may end so when it gets no more memory, and memory_mb was {memory_mb}"


def _reason(code: int | None, signum: int | None) -> str:
    if signum is None:
        return f"the process exited with code {code}"
    try:
        known = signal.Signals(signum)
    except ValueError:
        return f"killed by signal {signum}"
    return _DEATHS.get(known, f"killed by {known.name}")
