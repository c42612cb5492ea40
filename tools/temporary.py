"""Files that take another's place whole, and what is left of those whose server was killed while it wrote.

with replacing(path) as file:
    file.write(data)           # whoever reads `path` meanwhile sees the old bytes, and then the new ones
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .workspace import is_temporary, temporary_name

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_ABANDONED_S = 60.0  # between a file's making and its locking there is a moment
_LOOKED_AT = 10_000
_NEVER_WRITTEN_TO = frozenset({".git", "node_modules", "__pycache__"})


@contextmanager
def temporary_beside(path: Path, mark: str | None = None) -> Generator[tuple[BinaryIO, Path]]:
    """A new file of a temporary name, told by its `mark`, in the folder of `path`; it is gone at the end.

    What killed servers left in the folder is removed first. Raises `OSError`.
    """
    remove_abandoned(path.parent)
    temporary = path.with_name(temporary_name(mark))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with suppress(OSError):  # some file systems have no locks; nothing is removed there
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file, temporary
    finally:
        temporary.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove what killed servers left in a folder.

    Of a folder with very many entries only the first ten thousand are looked at.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _LOOKED_AT):
            if is_temporary(entry.name) and is_abandoned(Path(entry)):
                with suppress(OSError):  # another's, or another sweep was here
                    Path(entry).unlink()


def half_written(workspace: Path) -> Iterator[Path]:
    """What killed servers left in a workspace, however deep."""
    for folder, below, names in os.walk(workspace):
        below[:] = [name for name in below if name not in _NEVER_WRITTEN_TO]
        yield from (path for name in names if is_temporary(name) and is_abandoned(path := Path(folder, name)))


def is_abandoned(path: Path, *, after_s: float = _ABANDONED_S) -> bool:
    """Whether a file of a temporary name is this user's, that old and locked by nobody."""
    with suppress(OSError):  # locked, another's, or gone meanwhile
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if ours and found.st_mtime <= time.time() - after_s:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        finally:
            os.close(descriptor)
    return False
