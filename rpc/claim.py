"""The wire's descriptors, taken before anything else can write to them.

Afterwards descriptor 0 is the null device and 1 and 2 are a pipe of ours, so that a `print`, a C library or a child
process reaches the log and never the wire. Standard library only and imported first: what is imported later may print.
"""

from __future__ import annotations

import atexit
import fcntl
import io
import os
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from .descriptor import widen
from .forwarder import Forwarder

if TYPE_CHECKING:
    from collections.abc import Callable

# Room for what a C library prints while it holds the interpreter's lock and the forwarder cannot run.
_PIPE_SIZE = 1024 * 1024
_EXIT_WAIT = 0.5


class Descriptors(NamedTuple):
    """Private copies, closed on exec and never below 3; `flush(seconds)` brings what was logged to stderr."""

    read_fd: int
    write_fd: int
    stderr_fd: int
    flush: Callable[[float], None]


def claim() -> Descriptors:
    """Take over the standard descriptors; once per process, first thing.

    A descriptor that is closed counts as the null device: no input, answers to nobody.
    """
    _fill_gaps()
    if _is_wire_too(2):
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 2)
    read_fd, write_fd, stderr_fd = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1, 2))
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    log_read, log_write = os.pipe()
    widen(log_write, _PIPE_SIZE)
    for old, new in ((null, 0), (log_write, 1), (log_write, 2)):
        os.dup2(old, new)
    os.close(null)
    os.close(log_write)
    _renew_streams()
    forwarder = Forwarder(log_read, stderr_fd)
    forwarder.start()
    atexit.register(_leave, forwarder)
    return Descriptors(read_fd, write_fd, stderr_fd, forwarder.drain)


def _fill_gaps() -> None:
    """Open the null device where a standard descriptor is closed, so that no file of ours lands there."""
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        pass
    os.close(fd)


def _is_wire_too(fd: int) -> bool:
    """Whether stderr was joined to stdout (`2>&1`) where a program reads: there a log line would be no frame."""
    return os.path.sameopenfile(1, fd) and not stat.S_ISCHR(os.fstat(fd).st_mode)


def _renew_streams() -> None:
    """Make `sys.stdin` and its like fit the new descriptors: they may be absent, or take them for a terminal."""
    stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    stdout, stderr = _log_stream(1), _log_stream(2)
    sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr
    for name, stream in (("__stdin__", stdin), ("__stdout__", stdout), ("__stderr__", stderr)):
        setattr(sys, name, stream)


def _log_stream(fd: int) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _leave(forwarder: Forwarder) -> None:
    """Bring the last lines out, and make sure that nothing written later can block the exit."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # replaced or closed by somebody else
            stream.flush()
    forwarder.drain(_EXIT_WAIT)
    with suppress(OSError):
        os.set_blocking(2, False)
