"""Saving files as artifacts, and handing saved versions back to jobs."""

from __future__ import annotations

import mimetypes
import os
import shutil
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..store.artifacts import NewVersion
from .changes import Change
from .file_content import storage_errors
from .temporary import temporary_beside

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from ..store.records import Records
    from ..store.rows import Version
    from .artifacts import SaveArtifactParams, SavedVersion
    from .call import Caller
    from .host import Host
    from .kernel.records import JobRecord
    from .kernel.representation import Representation

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
        new = NewVersion(
            frame_id=caller.frame_id,
            filename=filename,
            content_type=params.content_type or guessed_type(filename),
            producing_cell_id=caller.cell_id,
            input_version_ids=tuple(
                dict.fromkeys([*(params.input_version_ids or ()), *self._inputs_of(caller.exec_id)])
            ),
            priority=params.priority,
        )
        version = await host.in_file_thread(_save, records, source, new)
        host.changes.publish(Change(caller.project_id, "artifact", version.version_id))
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

    async def keep_output(self, record: JobRecord, filename: str, representation: Representation) -> str:
        """Keep what a job displayed as the next version of `<exec_id>-<filename>`; the version's id.

        Raises:
            HostError: it cannot be stored.
        """
        records = await self._host.store.project(record.project_id)
        new = NewVersion(
            frame_id=record.frame_id,
            filename=f"{record.exec_id}-{filename}",
            content_type=representation.mime,
            source="output",
            producing_cell_id=record.cell_id,
            input_version_ids=self._inputs_of(record.exec_id),
        )
        version = await self._host.in_file_thread(_save, records, BytesIO(representation.body or b""), new)
        self._host.changes.publish(Change(record.project_id, "artifact", version.version_id))
        return version.version_id

    def _inputs_of(self, exec_id: str | None) -> tuple[str, ...]:
        """The versions that a job has read so far."""
        return tuple(sorted(self._read_by.get(exec_id or "", ())))

    async def read_only_copy(self, version_id: str, caller: Caller) -> str:
        """Put a version's bytes into the workspace and return the path; the job's later saves have it as an input."""
        records = await self._host.store.project(caller.project_id)
        version = await self._host.store.run(records.artifacts.version, version_id)
        if caller.exec_id is not None:
            self._read_by.setdefault(caller.exec_id, set()).add(version_id)
        target = self._host.workspace.make() / COPIES_FOLDER / version.version_id / version.filename
        await self._host.in_file_thread(_copy_out, records, version, target)
        return str(target)

    def forget(self, exec_id: str) -> None:
        """Drop what is known of a job that has ended."""
        self._read_by.pop(exec_id, None)


def guessed_type(filename: str) -> str:
    """The MIME type that a file's name stands for; of a compressed file, the compression's."""
    kind, compression = mimetypes.guess_type(f"./{filename}")  # a name such as data:… is no URL
    if compression is not None:
        return f"application/{compression if compression == 'gzip' else f'x-{compression}'}"
    return kind or DEFAULT_TYPE


def _save(records: Records, source: Path | BinaryIO, new: NewVersion) -> Version:
    with records.objects.stage(source) as staged:
        return records.artifacts.save(staged, new)


def _copy_out(records: Records, version: Version, target: Path) -> None:
    """A copy, not a link: whoever changes it does not change what is stored."""
    written_at = version.created_at * 1_000_000
    with storage_errors("copy"):
        if _is_untouched(target, version.size_bytes, written_at):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            records.objects.open(version.checksum, version.size_bytes) as source,
            temporary_beside(target) as (copy, temporary),
        ):
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            temporary.chmod(0o444)
            os.utime(temporary, ns=(written_at, written_at))
            temporary.replace(target)


def _is_untouched(copy: Path, size: int, written_at: int) -> bool:
    """Whether there is a copy that nobody has written to since it was made: its time says so."""
    try:
        status = copy.stat()
    except FileNotFoundError:
        return False
    return status.st_size == size and status.st_mtime_ns == written_at
