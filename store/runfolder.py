"""The run folder: where a server's sockets and connection files are while it lives, and how others tell that it does.

    with RunFolder() as run:
        socket_path = run.path / "host.sock"

The lock of the file in it is held by the living; a folder whose lock nobody holds belonged to a server that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import StorageError
from .ids import SERVER_ID, new_id

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import TracebackType
    from typing import Self

LOCK_NAME = "lock"
# A socket's path has at most 107 bytes; this leaves 47 for the names in the folder.
_MOST_PATH_BYTES = 60
_PREFIX = "cellhost-"
_UNFINISHED = ".cellhost-"
_UNFINISHED_S = 600


class RunFolder:
    """A fresh 0700 folder, named for a new `server_id`, with its lock held until `close`. Raises `StorageError`."""

    def __init__(self) -> None:
        self.server_id = new_id("s")
        self.path, self._lock = _make(self.server_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Removes the folder and all in it, then lets the lock go; a second time does nothing."""
        if self._lock >= 0:
            _remove(self.path)
            os.close(self._lock)
            self._lock = -1


def is_live(folder: Path) -> bool:
    """Whether a server holds that run folder now."""
    with contextlib.suppress(OSError), _opened_lock(folder) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def sweep() -> list[str]:
    """Removes the run folders of servers that are no more and returns their ids.

    Leaves alone what is held, what belongs to another user, and what is no folder of that kind.
    """
    return [server_id for base in _bases() for server_id in _sweep_base(base)]


def _make(server_id: str) -> tuple[Path, int]:
    path = _base() / f"{_PREFIX}{server_id.removeprefix('s-')}"
    unfinished = path.with_name(f"{_UNFINISHED}{os.urandom(8).hex()}")
    try:
        unfinished.mkdir(mode=0o700)
        descriptor = os.open(unfinished / LOCK_NAME, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # It gets its name when it is locked, so no sweep ever sees it free.
        unfinished.rename(path)
    except OSError as error:
        _remove(unfinished)
        raise _unusable() from error
    return path, descriptor


def _base() -> Path:
    for base in _bases():
        if _is_short(base) and os.access(base, os.W_OK | os.X_OK, effective_ids=True):
            return base
    raise _unusable()


def _is_short(base: Path) -> bool:
    return len(os.fsencode(base)) <= _MOST_PATH_BYTES - len(f"/{_PREFIX}") - 12


def _bases() -> list[Path]:
    """Where run folders may be, the preferred first."""
    import tempfile  # with shutil, 4 ms that a server without a job does not pay

    bases: list[Path] = []
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_absolute() and _is_own_folder(Path(runtime)):
        bases.append(Path(runtime))
    bases.append(Path(tempfile.gettempdir()).absolute())
    if not any(_is_short(base) for base in bases):
        bases.append(Path("/tmp"))  # noqa: S108  a private folder of random name is made in it
    return bases


def _sweep_base(base: Path) -> Iterator[str]:
    for folder in base.glob(f"*{_PREFIX}*"):
        with contextlib.suppress(OSError):
            server_id = f"s-{folder.name.removeprefix(_PREFIX)}"
            if SERVER_ID.fullmatch(server_id):
                if _remove_if_free(folder):
                    yield server_id
            elif folder.name.startswith(_UNFINISHED):
                _remove_if_old(folder)


def _remove_if_free(folder: Path) -> bool:
    with _opened_lock(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another sweep may have removed it before the lock came to us.
        if not os.fstat(descriptor).st_nlink:
            return False
        _remove(folder)
        return True


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _remove_if_old(folder: Path) -> None:
    """What a server left that was killed between two lines of `_make`."""
    if _is_own_folder(folder) and folder.stat().st_mtime < time.time() - _UNFINISHED_S:
        _remove(folder)


@contextlib.contextmanager
def _opened_lock(folder: Path) -> Generator[int]:
    """The lock file of a folder of this user's; a link in place of either is not followed."""
    if not _is_own_folder(folder):
        raise PermissionError
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        descriptor = os.open(LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_own_folder(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        found = folder.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False


def _unusable() -> StorageError:
    return StorageError(
        "no folder for this server's sockets could be made",
        hint="set XDG_RUNTIME_DIR to a folder of your own, writable and with a path under 40 bytes",
    )
