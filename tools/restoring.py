"""Saved versions put back into the workspace: verified, whole or not at all, blocking, for a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..store.errors import HostError
from ..store.ids import new_id
from .file_change import making, replacing
from .preview import diff_of, text_of
from .temporary import is_abandoned
from .text_diff import MAX_CHARS
from .workspace import temporary_name

if TYPE_CHECKING:
    from pathlib import Path

    from ..store.artifacts import NewVersion
    from ..store.records import Records
    from ..store.rows import Version
    from .file_change import NewFile


def restore(records: Records, version: Version, target: Path, new: NewVersion) -> Version:
    """Make the version's bytes a new version and the file's content.

    What a server leaves that is killed in between, `settle` takes back.

    Raises:
        StorageError: the bytes are not those that were saved, or one of the two could not be written; neither is.
        InvalidParams: the path is not a regular file.
        NotFound: the version is gone.
    """
    restored, marked = None, msgspec.structs.replace(new, version_id=new_id("v"))
    try:
        with replacing(target, marked.version_id) as file:
            _fill(file, records, version)
            restored = records.artifacts.save_again(version.version_id, marked)
    except HostError:
        if restored is not None:
            records.artifacts.take_back(restored)
        raise
    return restored


def settle(records: Records, workspace: Path) -> None:
    """Take back versions whose server was killed before the file that they restore had its place.

    The file is still there then, under the name that the version gave it, and nobody holds it. What it was to replace
    may be on no record, so the restoring is undone and not completed.
    """
    for version in records.artifacts.lately_restored():
        waiting = (workspace / (version.path or version.filename)).with_name(temporary_name(version.version_id))
        if is_abandoned(waiting, after_s=0):
            records.artifacts.take_back(version)
            waiting.unlink(missing_ok=True)


def materialise(records: Records, version: Version, target: Path) -> None:
    """Make a new file of the version's bytes.

    Raises:
        StorageError: the bytes are not those that were saved, or the file could not be written.
        InvalidParams: there is something of that name.
    """
    with making(target) as file:
        _fill(file, records, version)


def preview_restore(records: Records, version: Version, target: Path, name: str) -> str:
    """The diff between a file as it is and as restoring the version would leave it."""
    if version.size_bytes > MAX_CHARS:
        return f"{name} becomes version {version.ordinal} of {version.filename}, {version.size_bytes} bytes"
    data = records.objects.read(version.checksum, version.size_bytes)
    return diff_of(text_of(target), data.decode("utf-8", "replace"), name)


def _fill(file: NewFile, records: Records, version: Version) -> None:
    records.objects.copy(version.checksum, version.size_bytes, file.write)
    file.sync()  # what is left to do after this hardly fails
