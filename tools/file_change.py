"""Changing one file of the workspace: whole or not at all, blocking, for a thread."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import msgspec

from ..store.errors import InvalidParams, Issue, NotFound, TooLarge
from .file_content import decode_text, measure, not_regular, open_regular, storage_errors
from .temporary import temporary_beside

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_CHUNK = 1 << 20


class NewFile:
    """A file being written; its bytes are counted and hashed on their way."""

    def __init__(self, file: BinaryIO, *, replaces: bool) -> None:
        self.replaces = replaces
        self.bytes = 0
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Add to its end."""
        self._file.write(data)
        self._digest.update(data)
        self.bytes += len(data)

    def sync(self) -> None:
        """Have what is written so far on the disk, so that little can go wrong after it."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def copy(self, path: Path) -> None:
        """Add what another file holds."""
        with open_regular(path) as source:
            while chunk := source.read(_CHUNK):
                self.write(chunk)

    def written(self, replacements: int = 0) -> Written:
        """What there is now."""
        return Written(self.bytes, self._digest.hexdigest(), replacements)


class Written(msgspec.Struct, frozen=True):
    """A file after a change; `replacements` counts an edit's."""

    bytes: int
    checksum: str
    replacements: int = 0


def write_file(path: Path, content: str, *, append: bool, expect_checksum: str | None) -> Written:
    """Replace or extend a file atomically; missing folders are made.

    Raises:
        InvalidParams: the checksum differs, or `path` is not a regular file.
        StorageError: full disk or missing rights; the file is as it was.
    """
    if expect_checksum is not None and _checksum(path) != expect_checksum:
        raise InvalidParams(
            "the file has changed",
            [Issue("$.expect_checksum", "is not the checksum of the file as it is now")],
            hint="read_file again, and write with the checksum it gives",
        )
    with replacing(path) as file:
        if append and file.replaces:
            file.copy(path)
        file.write(content.encode("utf-8"))
    return file.written()


def edit_file(path: Path, old: str, new: str, *, replace_all: bool, max_bytes: int) -> Written:
    """Replace the one place where `old` stands, or all of them.

    Raises:
        InvalidParams: `old` stands nowhere, or more than once without `replace_all`.
        NotFound, StorageError, TooLarge: the file cannot be read or written, or is or would be over `max_bytes`.
    """
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise TooLarge("the file is too large to edit", hint="change it in a job")
    text = decode_text(data)
    first = text.find(old)
    if first < 0:
        _refuse_absent(text, old)
    if not replace_all and text.find(old, first + 1) >= 0:
        raise InvalidParams(
            "more than one place to replace",
            [Issue("$.old", "stands more than once in the file")],
            hint="give more of the lines around it, or set replace_all",
        )
    count = text.count(old)
    # Before it is made: many short pieces and one long replacement are more than any memory holds.
    if len(data) + count * (len(new.encode()) - len(old.encode())) > max_bytes:
        raise TooLarge("the file would be too large", hint="change it in a job")
    with replacing(path) as target:
        target.write(text.replace(old, new).encode("utf-8"))
    return target.written(count)


def _refuse_absent(text: str, old: str) -> NoReturn:
    hint = "read_file first, and copy the text exactly, blanks and line ends included"
    if old.replace("\n", "\r\n") in text:
        hint = "the file's lines end with \\r\\n: write them so in `old` and `new`"
    raise InvalidParams("nothing to replace", [Issue("$.old", "does not stand in the file")], hint=hint)


def _checksum(path: Path) -> str | None:
    """SHA-256 of a file, or None if there is none."""
    try:
        with open_regular(path) as file:
            return measure(file).checksum
    except NotFound:
        return None


@contextmanager
def replacing(path: Path, mark: str | None = None) -> Generator[NewFile]:
    """A file beside `path`, of the temporary name of that `mark`, that takes its place when the block ends well.

    Whoever reads meanwhile sees the old bytes or the new ones.
    """
    with storage_errors("write"):
        mode = _mode(path)
        with beside(path, mode, mark) as (file, temporary):
            yield file
            file.sync()
            temporary.replace(path)


@contextmanager
def making(path: Path) -> Generator[NewFile]:
    """A file that gets its name when the block ends well.

    Raises:
        InvalidParams: there is something of that name, now or by then.
    """
    with storage_errors("write"):
        if path.exists():
            raise _taken()
        with beside(path) as (file, temporary):
            yield file
            file.sync()
            try:
                path.hardlink_to(temporary)  # unlike a rename it never takes the place of another file
            except FileExistsError:
                raise _taken() from None


def _taken() -> InvalidParams:
    return InvalidParams(
        "the file is there already",
        [Issue("$.filename", "names a file that is there")],
        hint="give another filename",
    )


@contextmanager
def beside(path: Path, mode: int | None = None, mark: str | None = None) -> Generator[tuple[NewFile, Path]]:
    """A file of a temporary name in the folder of `path`, which is made if it is missing; it is gone at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_beside(path, mark) as (file, temporary):
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        yield NewFile(file, replaces=mode is not None), temporary


def _mode(path: Path) -> int | None:
    """The rights of the regular file at `path`; None if there is nothing."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise not_regular()
    if not os.access(path, os.W_OK):  # a rename would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return stat.S_IMODE(status.st_mode)
