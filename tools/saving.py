"""Saving files as artifacts, and handing saved versions back to jobs."""

from __future__ import annotations

import mimetypes
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..store.artifacts import NewVersion
from .file_content import storage_errors

if TYPE_CHECKING:
    from pathlib import Path

    from ..store.records import Records
    from ..store.rows import Version
    from .artifacts import SaveArtifactParams, SavedVersion
    from .call import Caller
    from .host import Host

COPIES_FOLDER = ".cellhost"
"""Folder of the workspace for read-only copies of saved versions."""

DEFAULT_TYPE = "application/octet-stream"


class Artifacts:
    """The artifacts of one host's callers."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._read_by: dict[str, set[str]] = {}

    async def save(self, params: SaveArtifactParams, caller: Caller) -> SavedVersion:
        """Copy the file into the store and write its version and edges, all or nothing.

        Raises:
            NotFound: the file, or an input version.
            Denied, InvalidParams, StorageError: the path, the name or the disk is not fit for it.
        """
        host = self._host
        source = host.workspace.resolve(params.path)
        filename = params.filename or PurePosixPath(params.path).name
        records = await host.store.project(caller.project_id)
        await host.session.ensure_written(caller)
        read = sorted(self._read_by.get(caller.exec_id or "", ()))
        new = NewVersion(
            frame_id=caller.frame_id,
            filename=filename,
            content_type=params.content_type or mimetypes.guess_type(filename)[0] or DEFAULT_TYPE,
            producing_cell_id=caller.cell_id,
            input_version_ids=tuple(dict.fromkeys([*(params.input_version_ids or ()), *read])),
            priority=params.priority,
        )
        version = await host.in_file_thread(_save, records, source, new)
        return {
            "artifact_id": version.artifact_id,
            "version_id": version.version_id,
            "filename": version.filename,
            "path": host.workspace.relative(params.path),
            "content_type": version.content_type,
            "size_bytes": version.size_bytes,
            "checksum": version.checksum,
            "created_at": version.created_at,
        }

    async def read_only_copy(self, version_id: str, caller: Caller) -> str:
        """Put a version's bytes into the workspace and return the path; the job's later saves have it as an input."""
        records = await self._host.store.project(caller.project_id)
        version = await self._host.store.run(records.artifacts.version, version_id)
        if caller.exec_id is not None:
            self._read_by.setdefault(caller.exec_id, set()).add(version_id)
        target = self._host.workspace.make() / COPIES_FOLDER / version_id / version.filename
        await self._host.in_file_thread(_copy_out, records, version, target)
        return str(target)

    def forget(self, exec_id: str) -> None:
        """Drop what is known of a job that has ended."""
        self._read_by.pop(exec_id, None)


def _save(records: Records, source: Path, new: NewVersion) -> Version:
    with records.objects.stage(source) as staged:
        return records.artifacts.save(staged, new)


def _copy_out(records: Records, version: Version, target: Path) -> None:
    """A copy, not a link: whoever changes it does not change what is stored."""
    if target.exists():
        return
    with storage_errors("copy"):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + ".tmp")
        with records.objects.open(version.checksum, version.size_bytes) as source, temporary.open("wb") as copy:
            while chunk := source.read(1 << 20):
                copy.write(chunk)
        temporary.chmod(0o444)
        temporary.replace(target)
