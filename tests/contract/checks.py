"""What tests of the contract look for in files and errors."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from cellhost.store.errors import InvalidParams

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTE = 1 << 20


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def only_issue(error: Exception) -> tuple[str, str]:
    """The path and the message of the one issue of refused parameters."""
    assert isinstance(error, InvalidParams)
    (issue,) = error.issues
    return issue.path, issue.message
