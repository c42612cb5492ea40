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

MAX_LINES = 10_000
"""Lines of both sides that are compared: what comparing takes grows with the square of them."""


def diff_of_write(path: Path, name: str, content: str, *, append: bool) -> str:
    """The diff between a file as it is and as a write would leave it; blocking."""
    before = _text(path)
    return _diff(before, before + content if append else content, name)


def diff_of_edit(path: Path, name: str, old: str, new: str, *, replace_all: bool) -> str:
    """The diff between a file as it is and as an edit would leave it; blocking."""
    before = _text(path)
    count = before.count(old) if replace_all else min(1, before.count(old))
    grown = len(before) + count * (len(new) - len(old))
    if grown > MAX_SHOWN:  # before it is made: it may be more than memory holds
        return _sizes(name, len(before), grown)
    return _diff(before, before.replace(old, new, count), name)


def _diff(before: str, after: str, name: str) -> str:
    if before == after:
        return f"{name} stays as it is"
    lines, changed = before.splitlines(), after.splitlines()
    if len(before) + len(after) > MAX_SHOWN or len(lines) + len(changed) > MAX_LINES:
        return _sizes(name, len(before), len(after))
    diff = difflib.unified_diff(lines, changed, name, name, lineterm="")
    return "\n".join(diff) or f"{name}: only the ends of lines change"


def _sizes(name: str, before: int, after: int) -> str:
    return f"{name}: {before} characters become {after}"


def _text(path: Path) -> str:
    """A file's text; what is not there or not text counts as empty."""
    try:
        with open_regular(path) as file:
            return file.read(MAX_SHOWN + 1).decode("utf-8", "replace")
    except HostError:
        return ""
