"""Listing the workspace: a bounded walk that leaves out what nobody asked for."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import msgspec

from .workspace import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .workspace import Workspace

CHARS_PER_FILE = 160
"""What a listed file takes of an answer, roughly: a path of ordinary length and two numbers."""

MAX_ENTRIES = 100_000
_CACHES = frozenset({"__pycache__", "node_modules"})


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
    """Files whose path matches a glob; `**` crosses folders. Links are not followed, secret files not shown."""
    wanted = re.compile(_glob(pattern))
    found: list[Found] = []
    for seen, (path, entry) in enumerate(_walk(str(workspace.root), "", pattern)):
        if seen >= MAX_ENTRIES:
            return Listing(found, truncated=True)
        if not wanted.fullmatch(path):
            continue
        if len(found) == limit:
            return Listing(found, truncated=True)
        status = entry.stat(follow_symlinks=False)
        found.append(Found(path, status.st_size, status.st_mtime_ns // 1_000_000))
    return Listing(found, truncated=False)


def _walk(folder: str, prefix: str, pattern: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:  # no right to look inside, or gone meanwhile
        return
    for entry in entries:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if not _left_out(path, entry.name, pattern):
                yield from _walk(entry.path, path + "/", pattern)
        elif entry.is_file(follow_symlinks=False) and not is_secret(entry.name):
            yield path, entry


def _left_out(path: str, name: str, pattern: str) -> bool:
    """Hidden folders and caches, unless the pattern names them."""
    hidden = name.startswith(".") or name in _CACHES
    return is_secret(name) or (hidden and not pattern.startswith(path + "/"))


def _glob(pattern: str) -> str:
    """The regex of a path glob: `**/` any folders or none, `**` anything, `*` and `?` within one name."""
    regex = ""
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            regex, at = regex + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            regex, at = regex + ".*", at + 2
        else:
            one = {"*": "[^/]*", "?": "[^/]"}
            regex, at = regex + one.get(pattern[at], re.escape(pattern[at])), at + 1
    return "(?s:" + regex + ")"
