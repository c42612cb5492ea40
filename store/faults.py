"""What a disk can do to us, as errors that say what to do: nothing of the system's own wording, no path."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from .errors import StorageError

if TYPE_CHECKING:
    import sqlite3

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CHOOSE = "Give this user write access to the data folder, or choose another one with --data-dir"
_FREE_SPACE = "Free some space on the disk of the data folder and repeat the call; nothing of it was kept"


def sqlite_fault(error: sqlite3.Error, name: str) -> StorageError | None:
    """The `StorageError` for a fault of the file `name`; `None` when it is about the statement instead."""
    code = getattr(error, "sqlite_errorname", "")
    for prefixes, message, hint in _SQLITE:
        if code.startswith(prefixes):
            # Another process's lock passes; nothing else here does by itself.
            data = {"retryable": True} if code.startswith(_LOCKED) else None
            return StorageError(f"{name} {message}", hint=hint, data=data)
    return None


def write_fault(error: OSError) -> StorageError:
    """The `StorageError` for a file or folder of ours that could not be made or written."""
    if error.errno in _FULL:
        return StorageError("the disk of the data folder is full", hint=_FREE_SPACE)
    if error.errno == errno.ENOTDIR or isinstance(error, FileExistsError):
        return StorageError(
            "the data folder's path leads through a file",
            hint="choose a folder with --data-dir, or move that file away",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError("the data folder cannot be written", hint=_CHOOSE)
    reason = errno.errorcode.get(error.errno or 0, "unknown")
    return StorageError(f"the data folder cannot be used ({reason})", hint=_CHOOSE)


_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_DAMAGED_HINT = "Move the file away to begin anew, or put a copy of it back; then start cellhost again"
_SQLITE = (
    (_LOCKED, "is locked by another process", "Repeat the call; if it stays so, end the process that holds it"),
    (("SQLITE_FULL",), "cannot grow: the disk of the data folder is full", _FREE_SPACE),
    (("SQLITE_NOTADB",), "is not a SQLite database", _DAMAGED_HINT),
    (("SQLITE_CORRUPT",), "is damaged", _DAMAGED_HINT),
    (("SQLITE_READONLY",), "cannot be written: the data folder is read-only", _CHOOSE),
    (("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"), "cannot be opened", _CHOOSE),
    (("SQLITE_IOERR",), "cannot be read or written: the disk answered with an error", _FREE_SPACE),
    (("SQLITE_NOMEM",), "cannot be used: no memory is left", "End other programs and repeat the call"),
)
