"""Saved versions put back into the workspace: verified, whole or not at all, blocking, for a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..store.errors import HostError
from .file_change import making, replacing
from .preview import diff_of, text_of
from .text_diff import MAX_CHARS

if TYPE_CHECKING:
    from pathlib import Path

    from ..store.artifacts import NewVersion
    from ..store.records import Records
    from ..store.rows import Version
    from .file_change import NewFile


def restore(records: Records, version: Version, target: Path, new: NewVersion) -> Version:
    """Make the version's bytes a new version and the file's content.

    A server that is killed in between leaves the file as it was: the bytes it held may be on no record.

    Raises:
        StorageError: the bytes are not those that were saved, or one of the two could not be written; neither is.
        InvalidParams: the path is not a regular file.
        NotFound: the version is gone.
    """
    restored = None
    try:
        with replacing(target) as file:
            _fill(file, records, version)
            restored = records.artifacts.save_again(version.version_id, new)
    except HostError:
        if restored is not None:
            records.artifacts.take_back(restored)
        raise
    return restored


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
