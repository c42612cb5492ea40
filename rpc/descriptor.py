"""Reading and writing an inherited descriptor without ever blocking and without touching its flags.

`O_NONBLOCK` belongs to the open file description, which the parent shares: setting it would change the parent's end.
A pipe or terminal is therefore opened anew through `/proc/self/fd`, and a socket is asked call by call. Standard
library only: this is used before anything else is imported.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    Data = bytes | bytearray | memoryview


class Source(NamedTuple):
    """`read(size)` returns bytes, none at the end of input, or raises `BlockingIOError`; wait on `fd`."""

    fd: int
    read: Callable[[int], bytes]
    close: Callable[[], None]


class Sink(NamedTuple):
    """`write(data)` returns how many bytes were taken, or raises `BlockingIOError`; wait on `fd`."""

    fd: int
    write: Callable[[Data], int]
    close: Callable[[], None]


def open_source(fd: int) -> Source | None:
    """A way to read `fd` that never blocks, or None where only a thread can do it."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        return _socket_source(fd)
    own = _open_anew(fd, os.O_RDONLY) if _is_stream(fd, mode) else -1
    return Source(own, partial(os.read, own), partial(os.close, own)) if own >= 0 else None


def open_sink(fd: int) -> Sink | None:
    """A way to write to `fd` that never blocks, or None where only a thread can do it."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        return _socket_sink(fd)
    if not _is_stream(fd, mode):
        return Sink(fd, partial(os.write, fd), _leave_open)  # a file, the null device: nobody to wait for
    own = _open_anew(fd, os.O_WRONLY)
    return Sink(own, partial(os.write, own), partial(os.close, own)) if own >= 0 else None


def widen(fd: int, size: int) -> None:
    """Let a pipe hold at least `size` bytes; anything else, and a user whose share of pipe memory is used up, stays."""
    with suppress(OSError):
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < size:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)


def _is_stream(fd: int, mode: int) -> bool:
    return stat.S_ISFIFO(mode) or os.isatty(fd)


def _open_anew(fd: int, access: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{fd}", access | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1  # no /proc, or a pipe that another user made


def _socket_source(fd: int) -> Source:
    import socket

    connection = socket.socket(fileno=os.dup(fd))

    def read(size: int) -> bytes:
        return connection.recv(size, socket.MSG_DONTWAIT)

    return Source(connection.fileno(), read, connection.close)


def _socket_sink(fd: int) -> Sink:
    import socket

    connection = socket.socket(fileno=os.dup(fd))

    def write(data: Data) -> int:
        return connection.send(data, socket.MSG_DONTWAIT)

    return Sink(connection.fileno(), write, connection.close)


def _leave_open() -> None:
    """The descriptor is its owner's."""
