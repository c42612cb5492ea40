"""What a person is shown of a change to a file: a unified diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..store.counting import counted
from ..store.errors import HostError
from .file_content import open_regular
from .text_diff import MAX_CHARS, unified_diff

if TYPE_CHECKING:
    from pathlib import Path


def diff_of_write(path: Path, name: str, content: str, *, append: bool) -> str:
    """The diff between a file as it is and as a write would leave it; blocking."""
    before = text_of(path)
    return diff_of(before, before + content if append else content, name)


def diff_of_edit(path: Path, name: str, old: str, new: str, *, replace_all: bool) -> str:
    """The diff between a file as it is and as an edit would leave it; blocking."""
    before = text_of(path)
    count = before.count(old) if replace_all else min(1, before.count(old))
    grown = len(before) + count * (len(new) - len(old))
    if grown > MAX_CHARS:  # before it is made: it may be more than memory holds
        return _sizes(name, len(before), grown)
    return diff_of(before, before.replace(old, new, count), name)


def diff_of(before: str, after: str, name: str) -> str:
    """The diff between two texts of one file, or their sizes where that would take too much."""
    if before == after:
        return f"{name} stays as it is"
    diff = unified_diff(before, after, name, name)
    if diff is None:
        return _sizes(name, len(before), len(after))
    return diff or f"{name}: only the ends of lines change"


def _sizes(name: str, before: int, after: int) -> str:
    return f"{name}: {counted(before, 'character')} become {after}"


def text_of(path: Path) -> str:
    """A file's text; what is not there or not text counts as empty."""
    try:
        with open_regular(path) as file:
            return file.read(MAX_CHARS + 1).decode("utf-8", "replace")
    except HostError:
        return ""
