"""Reading one file of the workspace: bounded, blocking, for a thread."""

from __future__ import annotations

import base64
import codecs
import errno
import hashlib
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec

from ..store.errors import HostError, InvalidParams, Issue, NotFound, StorageError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

DEFAULT_LINES = 2000
_CHUNK = 1 << 20
# Neither waits for the other end of a FIFO nor makes a terminal ours.
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_NOT_A_FILE = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
_SPECIAL = (errno.ENXIO, errno.ENODEV)
_NO_PATH = {errno.ENAMETOOLONG: "has a name that is too long", errno.ELOOP: "goes round in a circle of links"}
_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ReadContent(msgspec.Struct, frozen=True):
    """A piece of a file, and the size, line count and SHA-256 of the whole."""

    content: str
    bytes: int
    lines: int | None
    checksum: str
    truncated: bool


class Measured(msgspec.Struct, frozen=True):
    """A whole file: size in bytes, lines (the last may lack its end), SHA-256 in hex."""

    bytes: int
    lines: int
    checksum: str


@contextmanager
def storage_errors(verb: str) -> Generator[None]:
    """Turn the operating system's errors into ours, without its paths."""
    try:
        yield
    except HostError:  # some of ours are OSErrors too
        raise
    except OSError as error:
        raise _fault(verb, error.errno or 0) from None


def _fault(verb: str, code: int) -> HostError:
    if code == errno.ENOENT:
        return NotFound("no such file in the workspace", hint="list_files shows what there is")
    if code in _NOT_A_FILE:
        return InvalidParams("not a file", [Issue("$.path", "names a folder, or goes through a file")])
    if code in _SPECIAL:
        return not_regular()
    if code in _NO_PATH:
        return InvalidParams("invalid path", [Issue("$.path", _NO_PATH[code])])
    if code in _NO_RIGHT:
        return StorageError(f"no right to {verb} this file", hint="check the workspace's permissions")
    if code in _FULL:
        return StorageError(
            "the disk of the workspace is full", hint="free some space, then repeat the call; nothing of it was kept"
        )
    return StorageError(f"could not {verb} the file ({errno.errorcode.get(code, 'unknown')})", hint="check the disk")


def not_regular() -> InvalidParams:
    """The error for a folder, FIFO, device or socket where a file is wanted."""
    return InvalidParams("not a file", [Issue("$.path", "names something that is not a regular file")])


@contextmanager
def open_regular(path: Path) -> Generator[BinaryIO]:
    """Open a regular file for reading; a FIFO, device or socket is refused without waiting for it."""
    with storage_errors("read"):
        descriptor = os.open(path, _READING)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise not_regular()
        with os.fdopen(descriptor, "rb") as file:
            yield file


def read_file(
    path: Path, offset: int, limit: int | None, encoding: Literal["utf-8", "base64"], max_bytes: int
) -> ReadContent:
    """Read lines (or, for base64, bytes) from `offset`, counted from 1, up to `max_bytes` of content.

    Raises:
        NotFound, StorageError: the file cannot be opened or read.
        InvalidParams: not a regular file, or not UTF-8.
    """
    with open_regular(path) as file:
        whole = measure(file)
        if encoding == "base64":
            return read_bytes(file, whole, offset, limit, max_bytes)
        return read_lines(file, whole, offset, limit or DEFAULT_LINES, max_bytes)


def measure(file: BinaryIO) -> Measured:
    """Read a file from here to its end, without holding it."""
    digest = hashlib.sha256()
    size = lines = 0
    last = b"\n"
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
        lines += chunk.count(b"\n")
        last = chunk[-1:]
    return Measured(size, lines + (last != b"\n"), digest.hexdigest())


def read_bytes(file: BinaryIO, whole: Measured, offset: int, limit: int | None, max_bytes: int) -> ReadContent:
    """Bytes as base64, from the `offset`th, counted from 1."""
    fits = max_bytes // 4 * 3  # base64 writes 4 characters for 3 bytes
    file.seek(offset - 1)
    piece = file.read(min(limit or fits, fits))
    content = base64.b64encode(piece).decode("ascii")
    return ReadContent(content, whole.bytes, None, whole.checksum, offset - 1 + len(piece) < whole.bytes)


def read_lines(file: BinaryIO, whole: Measured, offset: int, limit: int, max_bytes: int) -> ReadContent:
    """Lines of text, from the `offset`th, counted from 1. Raises `InvalidParams` unless they are UTF-8."""
    file.seek(0)
    _skip_lines(file, min(offset - 1, whole.lines))
    data, cut = _take_lines(file, limit, max_bytes)
    return ReadContent(_decoded(data, max_bytes), whole.bytes, whole.lines, whole.checksum, cut)


def _skip_lines(file: BinaryIO, count: int) -> None:
    while count > 0 and (piece := file.readline(_CHUNK)):
        count -= piece.endswith(b"\n")


def _take_lines(file: BinaryIO, limit: int, max_bytes: int) -> tuple[bytes, bool]:
    """Whole lines that fit, and whether more follow; a first line over the budget is taken as far as it goes."""
    kept: list[bytes] = []
    size = 0
    while len(kept) < limit and size <= max_bytes:
        line = file.readline(max_bytes + 1)
        if not line:
            return b"".join(kept), False
        if kept and size + len(line) > max_bytes:
            return b"".join(kept), True
        kept.append(line)
        size += len(line)
    return b"".join(kept), size > max_bytes or bool(file.read(1))


def _decoded(data: bytes, max_bytes: int) -> str:
    """The text, less a character that the budget cuts in two."""
    return decode_text(data[:max_bytes], final=len(data) <= max_bytes)


def decode_text(data: bytes, *, final: bool = True) -> str:
    """UTF-8 as text; unless `final`, without a character that is broken off at the end.

    Raises:
        InvalidParams: it is not UTF-8.
    """
    try:
        return codecs.utf_8_decode(data, "strict", final)[0]
    except UnicodeDecodeError:
        raise InvalidParams(
            "the file is not UTF-8 text",
            [Issue("$.path", "names a file with bytes that are not UTF-8")],
            hint='read it with read_file and encoding: "base64", or in a job',
        ) from None
