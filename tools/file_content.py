"""Reading and writing one file of the workspace: whole or not at all, blocking, for a thread."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec

from ..store.errors import InvalidParams, Issue, NotFound, StorageError, TooLarge

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

DEFAULT_LINES = 2000
_CHUNK = 1 << 20


class ReadContent(msgspec.Struct, frozen=True):
    """A piece of a file, and the size, line count and SHA-256 of the whole."""

    content: str
    bytes: int
    lines: int | None
    checksum: str
    truncated: bool


class Written(msgspec.Struct, frozen=True):
    """A file after a change; `replacements` counts an edit's."""

    bytes: int
    checksum: str
    replacements: int = 0


@contextmanager
def storage_errors(verb: str) -> Generator[None]:
    """Turn the operating system's errors into ours, without its paths."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound("no such file in the workspace", hint="list_files shows what there is") from None
    except (IsADirectoryError, NotADirectoryError):
        raise InvalidParams("not a file", [Issue("$.path", "names a folder, or goes through a file")]) from None
    except PermissionError:
        raise StorageError(f"no right to {verb} this file", hint="check the workspace's permissions") from None
    except OSError as error:
        raise StorageError(
            f"could not {verb} the file: {os.strerror(error.errno or 0)}", hint="free space or check the disk"
        ) from None


@contextmanager
def open_regular(path: Path) -> Generator[BinaryIO]:
    """Open a regular file for reading; a FIFO, device or socket is refused without waiting for it."""
    with storage_errors("read"):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise InvalidParams("not a file", [Issue("$.path", "names something that is not a regular file")])
        with storage_errors("read"):
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
        if encoding == "base64":
            return _read_bytes(file, offset, limit, max_bytes)
        return _read_lines(file, offset, limit or DEFAULT_LINES, max_bytes)


def _read_bytes(file: BinaryIO, offset: int, limit: int | None, max_bytes: int) -> ReadContent:
    size, checksum = _measure(file)
    fits = max_bytes // 4 * 3  # base64 writes 4 characters for 3 bytes
    file.seek(offset - 1)
    piece = file.read(min(limit or fits, fits))
    content = base64.b64encode(piece).decode("ascii")
    return ReadContent(content, size, None, checksum, offset - 1 + len(piece) < size)


def _read_lines(file: BinaryIO, offset: int, limit: int, max_bytes: int) -> ReadContent:
    digest = hashlib.sha256()
    size = number = kept_bytes = 0
    kept: list[bytes] = []
    cut = False
    for number, line in enumerate(file, start=1):
        digest.update(line)
        size += len(line)
        if number < offset or cut:
            continue
        if len(kept) == limit or (kept and kept_bytes + len(line) > max_bytes):
            cut = True
            continue
        kept.append(line)
        kept_bytes += len(line)
    content = _text(b"".join(kept), whole=size)
    if kept_bytes > max_bytes:  # one line alone is over the budget
        content, cut = content.encode()[:max_bytes].decode("utf-8", "ignore"), True
    return ReadContent(content, size, number, digest.hexdigest(), cut)


def _text(data: bytes, whole: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidParams(
            "the file is not UTF-8 text",
            [Issue("$.encoding", f"cannot decode this file of {whole} bytes")],
            hint='pass encoding: "base64"',
        ) from None


def _measure(file: BinaryIO) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def write_file(path: Path, content: str, *, append: bool, expect_checksum: str | None) -> Written:
    """Replace or extend a file atomically; missing folders are made.

    Raises:
        InvalidParams: `content` is not encodable, the checksum differs, or `path` is not a regular file.
        StorageError: full disk or missing rights; the file is as it was.
    """
    data = _encoded(content, "content")
    before = _whole(path) if append or expect_checksum is not None else b""
    if expect_checksum is not None and hashlib.sha256(before).hexdigest() != expect_checksum:
        raise InvalidParams(
            "the file has changed",
            [Issue("$.expect_checksum", "is not the checksum of the file as it is now")],
            hint="read_file again, and write with the checksum it gives",
        )
    return _replace(path, before + data if append else data)


def edit_file(path: Path, old: str, new: str, *, replace_all: bool, max_bytes: int) -> Written:
    """Replace the one place where `old` stands, or all of them.

    Raises:
        InvalidParams: `old` stands nowhere, or more than once without `replace_all`.
        NotFound, StorageError, TooLarge: the file cannot be read or written, or is over `max_bytes`.
    """
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise TooLarge("the file is too large to edit", hint="edit it in a job")
    text = _text(data, len(data))
    count = text.count(old)
    if count == 0:
        raise InvalidParams(
            "nothing to replace", [Issue("$.old", "does not stand in the file")], hint="read_file first"
        )
    if count > 1 and not replace_all:
        raise InvalidParams(
            "more than one place to replace",
            [Issue("$.old", f"stands {count} times in the file")],
            hint="give more of the lines around it, or set replace_all",
        )
    written = _replace(path, _encoded(text.replace(old, new), "new"))
    return Written(written.bytes, written.checksum, count)


def _encoded(text: str, parameter: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParams("invalid text", [Issue(f"$.{parameter}", "has a lone surrogate")]) from None


def _whole(path: Path) -> bytes:
    if not path.exists():
        return b""
    with open_regular(path) as file:
        return file.read()


def _replace(path: Path, data: bytes) -> Written:
    """Write beside the file and rename over it, so that a reader sees the old bytes or the new ones."""
    if path.exists() and not path.is_file():
        raise InvalidParams("not a file", [Issue("$.path", "names something that is not a regular file")])
    with storage_errors("write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".cellhost-{secrets.token_hex(8)}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if path.exists():
                    os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
                os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return Written(len(data), hashlib.sha256(data).hexdigest())
