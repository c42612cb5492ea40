"""What a person is shown of a change to a file: a unified diff."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ..store.errors import HostError
from .file_content import open_regular

if TYPE_CHECKING:
    from pathlib import Path

MAX_SHOWN = 1_000_000
"""Bytes of a file that are compared; a larger one is shown by its size."""


def diff_of_write(path: Path, name: str, content: str, *, append: bool) -> str:
    """The diff between a file as it is and as a write would leave it; blocking."""
    before = _text(path)
    return _diff(before, before + content if append else content, name)


def diff_of_edit(path: Path, name: str, old: str, new: str, *, replace_all: bool) -> str:
    """The diff between a file as it is and as an edit would leave it; blocking."""
    before = _text(path)
    return _diff(before, before.replace(old, new, -1 if replace_all else 1), name)


def _diff(before: str, after: str, name: str) -> str:
    if len(before) + len(after) > MAX_SHOWN:
        return f"{name}: {len(before)} characters become {len(after)}"
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="")
    return "\n".join(lines) or f"{name} stays as it is"


def _text(path: Path) -> str:
    """A file's text; what is not there or not text counts as empty."""
    try:
        with open_regular(path) as file:
            return file.read(MAX_SHOWN + 1).decode("utf-8", "replace")
    except HostError:
        return ""
