"""Saving files as artifacts, and handing saved versions back to jobs."""

from __future__ import annotations

import mimetypes
import os
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..store.artifacts import NewVersion
from ..store.errors import InvalidParams, Issue
from . import restoring
from .changes import Change
from .file_change import beside
from .file_content import storage_errors
from .workspace import COPIES_FOLDER

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from ..store.records import Records
    from ..store.rows import Version
    from .artifact_restoring import MaterialisedArtifact, RestoreArtifactVersionParams
    from .artifacts import SaveArtifactParams, SavedVersion
    from .call import Caller
    from .host import Host
    from .kernel.records import JobRecord
    from .kernel.representation import Representation

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
            path=host.workspace.relative(params.path),
            priority=params.priority,
        )
        version = await host.in_file_thread(_save, records, source, new)
        return self._saved(version, caller)

    async def home_of(self, artifact_id: str, version_id: str, project_id: str) -> str:
        """The workspace file that a version of the artifact goes back to.

        Raises:
            NotFound: no such artifact, or no such version of it.
        """
        records = await self._host.store.project(project_id)
        version = await self._host.store.run(records.artifacts.version_of, artifact_id, version_id)
        return version.path or version.filename

    async def preview_restore(self, params: RestoreArtifactVersionParams, caller: Caller) -> str:
        """What restoring a version would do to the workspace file."""
        records, version = await self._own_version(params, caller)
        path = version.path or version.filename
        target, name = self._host.workspace.resolve(path), self._host.workspace.relative(path)
        return await self._host.in_file_thread(restoring.preview_restore, records, version, target, name)

    async def restore(self, params: RestoreArtifactVersionParams, caller: Caller) -> SavedVersion:
        """Make a version's bytes the artifact's newest version and the content of the file it came from.

        Raises:
            NotFound: no such artifact, or no such version of it.
            InvalidParams: the artifact is another session's, or the path names no regular file.
            Denied, StorageError: the path, the bytes or the disk are not fit for it.
        """
        host = self._host
        records, version = await self._own_version(params, caller)
        path = version.path or version.filename
        new = NewVersion(
            frame_id=caller.frame_id,
            filename=version.filename,
            content_type=version.content_type,
            source="restore",
            producing_cell_id=caller.cell_id,
            input_version_ids=(version.version_id,),
            path=path,
        )
        target = host.workspace.resolve(path)
        return self._saved(await host.in_file_thread(restoring.restore, records, version, target, new), caller)

    async def materialise(self, version_id: str, path: str, caller: Caller) -> MaterialisedArtifact:
        """Copy a version of the project into the workspace as a new file.

        Raises:
            NotFound: no such version.
            InvalidParams: there is something of that name.
            Denied, StorageError: the path, the bytes or the disk are not fit for it.
        """
        host = self._host
        records = await host.store.project(caller.project_id)
        version = await host.store.run(records.artifacts.version, version_id)
        await host.in_file_thread(restoring.materialise, records, version, host.workspace.resolve(path))
        return {
            "version_id": version.version_id,
            "path": host.workspace.relative(path),
            "bytes": version.size_bytes,
            "checksum": version.checksum,
        }

    async def _own_version(self, params: RestoreArtifactVersionParams, caller: Caller) -> tuple[Records, Version]:
        records = await self._host.store.project(caller.project_id)
        artifact = await self._host.store.run(records.artifacts.get, params.artifact_id)
        version = await self._host.store.run(records.artifacts.version_of, params.artifact_id, params.version_id)
        if artifact.root_frame_id != caller.root_frame_id:
            raise InvalidParams(
                "the artifact is another session's",
                [Issue("$.artifact_id", "names an artifact of another session")],
                hint="materialise_artifact copies its version into this workspace; save_artifact keeps it here",
            )
        return records, version

    def _saved(self, version: Version, caller: Caller) -> SavedVersion:
        """The answer about a new version, told to whoever subscribes too."""
        self._host.changes.publish(Change(caller.project_id, "artifact", version.version_id))
        return {
            "artifact_id": version.artifact_id,
            "version_id": version.version_id,
            "filename": version.filename,
            "path": version.path or version.filename,
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
        with beside(target) as (file, temporary):
            records.objects.copy(version.checksum, version.size_bytes, file.write)
            file.sync()
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
