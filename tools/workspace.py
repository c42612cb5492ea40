"""The workspace: the one folder whose files tools may touch, minus the secret ones.

A guard-rail for tools, not a boundary for code in a job.
"""

from __future__ import annotations

import secrets
from fnmatch import fnmatchcase
from pathlib import Path

from ..store.errors import Denied, InvalidParams, Issue, StorageError

_SECRET = (".env", "*.env", ".env.*", "*.pem", "*.key", "id_rsa", "id_ed25519", ".netrc", ".pgpass")
_NOT_SECRET = (".env.example",)
_TEMPORARY = (".cellhost-", ".tmp")

COPIES_FOLDER = ".cellhost"
"""Folder of the workspace for the read-only copies of saved versions that jobs open."""


def is_secret(name: str) -> bool:
    """True for file names that hold secrets by convention, in any case."""
    lowered = name.lower()
    return lowered not in _NOT_SECRET and any(fnmatchcase(lowered, pattern) for pattern in _SECRET)


def temporary_name(mark: str | None = None) -> str:
    """A name for a file that is still being written: a fresh one, or the one that `mark` stands for."""
    return (mark or secrets.token_hex(8)).join(_TEMPORARY)


def is_temporary(name: str) -> bool:
    """True for such a name."""
    return name.startswith(_TEMPORARY[0]) and name.endswith(_TEMPORARY[1])


class Workspace:
    """A folder, resolved once; it is made on first use if it is missing."""

    def __init__(self, folder: Path) -> None:
        self.root = folder.resolve()

    def make(self) -> Path:
        """The folder, existing.

        Raises:
            StorageError: it cannot be made.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError:
            raise StorageError(
                "the workspace folder cannot be made", hint="check that --workspace names a folder, or a place for one"
            ) from None
        return self.root

    def resolve(self, path: str, *, changed: bool = False) -> Path:
        """The real file that `path` names, symlinks followed; it need not exist.

        Raises:
            InvalidParams: empty, or with a NUL character.
            Denied: outside the workspace, a secret file, or, of a file to be `changed`, a copy of the host's own; by
                the name given or by what it resolves to.
        """
        if not path or "\0" in path:
            raise InvalidParams("invalid path", [Issue("$.path", "must be a non-empty path without NUL")])
        if path.endswith("/"):
            raise InvalidParams("not a file", [Issue("$.path", "names a folder")])
        try:
            target = (self.root / path).resolve()
        except (OSError, RuntimeError):  # too long, or links in a circle
            raise InvalidParams("invalid path", [Issue("$.path", "cannot be resolved")]) from None
        if not target.is_relative_to(self.root):
            raise Denied(
                "the path is outside the workspace",
                hint="use a path below the workspace folder" + ("" if changed else "; copy the file there first"),
            )
        parts = (*Path(path).parts, *target.relative_to(self.root).parts)
        if any(is_secret(part) for part in parts):
            raise Denied(
                "files that hold secrets are never read or written by tools",
                hint="keep secrets out of what an agent handles; code in a job can read the file itself",
            )
        if changed and COPIES_FOLDER in parts:
            raise Denied(
                f"{COPIES_FOLDER} is for the copies of saved versions that jobs open: tools write nothing there",
                hint="write to another folder of the workspace",
            )
        return target

    def relative(self, path: str, *, changed: bool = False) -> str:
        """The canonical name of `path`: relative to the workspace, symlinks followed, `/` between parts."""
        return self.resolve(path, changed=changed).relative_to(self.root).as_posix()
