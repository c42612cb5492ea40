"""Files we are asked to keep: opened with care, copied and hashed in one pass."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .checks import invalid
from .errors import Busy, HostError, NotFound, StorageError
from .faults import write_fault

if TYPE_CHECKING:
    from collections.abc import Generator

_CHUNK = 1 << 20
# Neither waits for the other end of a FIFO nor makes a terminal ours.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@contextlib.contextmanager
def open_source(source: Path | BinaryIO) -> Generator[BinaryIO]:
    """The regular file at a path, opened for reading, or a file that is open already and stays so.

    Raises `NotFound`, or `InvalidParams` for what is no regular file or may not be read.
    """
    if not isinstance(source, Path):
        yield source
        return
    try:
        descriptor = os.open(source, _FLAGS)
    except (OSError, ValueError) as error:
        raise _unopened(error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular()
    with os.fdopen(descriptor, "rb", buffering=0) as opened:
        yield opened


def copy_hashed(reading: BinaryIO, writing: int) -> tuple[str, int]:
    """Copies to an open descriptor and fsyncs it; returns SHA-256 (hex) and size of what was copied.

    Raises `Busy` when the file changed meanwhile: the copy would be of no state it ever had. `StorageError`.
    """
    before = _stamp(reading)
    digest, size = hashlib.sha256(), 0
    while chunk := _read(reading):
        digest.update(chunk)
        _write(writing, chunk)
        size += len(chunk)
        # At every chunk: the end of a file that grows as fast as it is read never comes.
        if _stamp(reading) != before:
            raise Busy("the file changed while it was read", hint="save it again when nothing writes to it")
    try:
        os.fsync(writing)
    except OSError as error:
        raise write_fault(error) from error
    return digest.hexdigest(), size


def _read(reading: BinaryIO) -> bytes:
    try:
        return reading.read(_CHUNK)
    except OSError as error:
        raise StorageError(
            "the file could not be read to its end", hint="check the disk it is on, then save it again"
        ) from error


def _write(descriptor: int, chunk: bytes) -> None:
    left = memoryview(chunk)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError as error:
        raise write_fault(error) from error


def _stamp(reading: BinaryIO) -> tuple[int, int] | None:
    try:
        found = os.fstat(reading.fileno())
    except io.UnsupportedOperation:
        return None  # bytes in memory do not change
    return found.st_size, found.st_mtime_ns


def _unopened(error: OSError | ValueError) -> HostError:
    code = error.errno if isinstance(error, OSError) else errno.EINVAL
    if code in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return NotFound("no such file", hint="list_files shows what is there")
    if code in (errno.EACCES, errno.EPERM):
        return invalid("$.path", "may not be read by this user")
    if code == errno.ENXIO:
        return _not_regular()
    return invalid("$.path", "cannot be opened")


def _not_regular() -> HostError:
    return invalid("$.path", "is not a regular file")
