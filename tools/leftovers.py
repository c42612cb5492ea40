"""What servers that were killed while they wrote a file left beside it in the workspace."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .workspace import is_temporary

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPARED_S = 60.0
"""A file this young may be one whose writer has not locked it yet."""
_NEVER_WRITTEN_TO = frozenset({".git", "node_modules", "__pycache__"})


def half_written(workspace: Path) -> Iterator[Path]:
    """Files of ours that nobody is writing any more."""
    for folder, below, names in os.walk(workspace):
        below[:] = [name for name in below if name not in _NEVER_WRITTEN_TO]
        for name in filter(is_temporary, names):
            path = Path(folder, name)
            with suppress(OSError):  # gone meanwhile, or another user's
                if _is_abandoned(path):
                    yield path


def _is_abandoned(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_mtime > time.time() - _SPARED_S:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
