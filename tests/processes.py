"""Processes, by proc(5); one may end between two looks at it, and then it is simply not there."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process is there; one that has ended and is only waited for is not."""
    return _stat(pid)[0] not in {"Z", "X"}


def running(pids: set[int]) -> set[int]:
    """Those that are there."""
    return {pid for pid in pids if is_running(pid)}


def parent_of(pid: int) -> int:
    """A process's parent; 0 for one that is not there."""
    return int(_stat(pid)[1])


def command_of(pid: int) -> bytes:
    """A process's command line; nothing for one that is not there."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> set[int]:
    """Every process below another one."""
    parents = {int(process.name): parent_of(int(process.name)) for process in Path("/proc").glob("[0-9]*")}
    below: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in below | {pid}} - below:
        below |= more
    return below


def _stat(pid: int) -> list[str]:
    # Without a process there is no such file, or its reading fails: which of the two is a matter of the moment.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", "0"]
