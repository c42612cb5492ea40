"""How much jobs may take: settings of the engine."""

from __future__ import annotations

import msgspec


class JobLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, seconds and bytes; each wait of the engine ends within one of these."""

    max_running: int = 16
    max_queued: int = 1_000
    max_sessions: int = 8  # foreground kernels; for another one the longest idle is ended
    warm_kernels: int = 0  # started ahead of their jobs, beside those that run
    start_timeout_s: float = 60.0
    file_bytes: int | None = 1 << 30  # RLIMIT_FSIZE: a log or any other file over it ends the job
    outputs: int = 100  # figures, tables and the like that a job keeps
    output_bytes: int = 16 << 20  # one of them
    outputs_bytes: int = 256 << 20  # all versions of all of a job's
    kept_finished: int = 100  # finished jobs answered from memory; older ones come from the store
    interrupt_s: float = 2.0  # after the first SIGINT
    second_interrupt_s: float = 0.5  # after the second
    terminate_s: float = 2.0  # after SIGTERM, before SIGKILL
    settle_s: float = 2.0  # between the two messages that end a cell, and for a process to be gone
    record_s: float = 2.0  # how long a job's end waits for the store before it is announced all the same
    outputs_s: float = 10.0  # how long a job's end waits for its last outputs to be kept
    shutdown_s: float = 1.0  # all of the engine's end
