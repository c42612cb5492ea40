"""Listing the workspace: a bounded walk that leaves out what nobody asked for."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from ..store.errors import InvalidParams, Issue, StorageError
from .globs import compile_glob
from .workspace import COPIES_FOLDER, is_secret, is_temporary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .workspace import Workspace

CHARS_PER_FILE = 160
"""What a listed file takes of an answer, roughly: a path of ordinary length and two numbers."""

MAX_ENTRIES = 100_000
_CACHES = frozenset({"__pycache__", "node_modules"})
_FOLDERS = "**"

Places = frozenset[int]
"""Where in the pattern a folder stands: the parts that a name inside it may match."""


class Found(msgspec.Struct, frozen=True):
    """A file: path relative to the workspace, size in bytes, time of change in epoch milliseconds."""

    path: str
    bytes: int
    modified_at: int


class Listing(msgspec.Struct, frozen=True):
    """Files in order of their paths; `truncated` when there are more, or the walk was cut."""

    files: list[Found]
    truncated: bool


def list_files(workspace: Workspace, pattern: str, limit: int) -> Listing:
    """Files whose path matches a glob; links are not followed, secret files not shown.

    Raises:
        InvalidParams: the pattern leads out of the workspace.
        StorageError: the workspace is not a folder, or may not be looked into.
    """
    found: list[Found] = []
    for seen, file in enumerate(_walk(str(workspace.root), PathGlob(pattern))):
        if seen >= MAX_ENTRIES or (file is not None and len(found) == limit):
            return Listing(found, truncated=True)
        if file is not None:
            found.append(file)
    return Listing(found, truncated=False)


class PathGlob:
    """A glob over paths, matched name by name on the way down, so that folders it cannot match are not entered.

    `*`, `?` and `[…]` stay within one name; `**` as a whole part stands for any folders or none, and at the end for
    everything below. A trailing `/` means the same.
    """

    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if pattern.startswith("/") or ".." in parts:
            raise InvalidParams(
                "invalid pattern", [Issue("$.pattern", "must be relative to the workspace and stay in it")]
            )
        if not parts or pattern.endswith("/"):
            parts.append(_FOLDERS)
        self._parts = [part for at, part in enumerate(parts) if part != _FOLDERS or parts[at - 1 : at] != [part]]
        self._last = len(self._parts) - 1
        self._names = [None if part == _FOLDERS else compile_glob(part) for part in self._parts]
        self.start = self._with_no_folders({0})

    def matches(self, places: Places, name: str) -> bool:
        """Whether a file of that name, in a folder at `places`, is one of those looked for."""
        return self._last in places and self._fits(self._last, name)

    def inside(self, places: Places, name: str) -> Places:
        """The places of a folder of that name; none if nothing in it can match.

        Hidden folders and caches are entered only where the pattern names them.
        """
        if name.startswith(".") or name in _CACHES:
            places = Places(at for at in places if self._parts[at] == name or self._parts[at].startswith("."))
        reached = {at if self._parts[at] == _FOLDERS else at + 1 for at in places if self._fits(at, name)}
        return self._with_no_folders(reached)

    def _fits(self, at: int, name: str) -> bool:
        wanted = self._names[at]
        return wanted is None or wanted.fullmatch(name) is not None

    def _with_no_folders(self, places: set[int]) -> Places:
        skipped = {at + 1 for at in places if at <= self._last and self._parts[at] == _FOLDERS}
        return Places(at for at in places | skipped if at <= self._last)


def _walk(root: str, glob: PathGlob) -> Iterator[Found | None]:
    """Matching files in order of their paths, and None for everything else that was looked at."""
    pending = [(entry, "", glob.start) for entry in _entries_of_root(root)]
    while pending:
        entry, prefix, places = pending.pop()
        file = None
        if not (is_secret(entry.name) or is_temporary(entry.name) or entry.name == COPIES_FOLDER):
            if _is_folder(entry):
                inside = glob.inside(places, entry.name)
                below = _entries(entry.path) if inside else []
                pending += [(each, f"{prefix}{entry.name}/", inside) for each in below]
            elif glob.matches(places, entry.name):
                file = _found(entry, prefix)
        yield file


def _entries_of_root(root: str) -> list[os.DirEntry[str]]:
    try:
        return _scan(root)
    except FileNotFoundError:  # it is made with the first file
        return []
    except OSError:
        raise StorageError(
            "the workspace cannot be listed", hint="check that --workspace is a folder this user may look into"
        ) from None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return _scan(folder)
    except OSError:  # no right to look inside, or gone meanwhile
        return []


def _scan(folder: str) -> list[os.DirEntry[str]]:
    """Entries, the last first, ordered as their paths are: a folder's goes on with a slash."""
    with os.scandir(folder) as scan:
        entries = list(islice(scan, MAX_ENTRIES))
    return sorted(entries, key=lambda entry: entry.name + "/" * _is_folder(entry), reverse=True)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # gone meanwhile
        return False


def _found(entry: os.DirEntry[str], prefix: str) -> Found | None:
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        status = entry.stat(follow_symlinks=False)
    except OSError:  # gone meanwhile
        return None
    # A name that is not UTF-8 cannot be written in JSON, nor be asked for: it is shown all the same.
    path = os.fsencode(prefix + entry.name).decode("utf-8", "replace")
    return Found(path, status.st_size, status.st_mtime_ns // 1_000_000)
