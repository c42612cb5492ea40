"""Artifacts and their versions: which file, saved when, from which bytes, by which cell."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from .checks import invalid
from .cursors import decode_cursor, encode_cursor
from .errors import NotFound, StorageError
from .filenames import clean_filename
from .ids import new_id, now_ms
from .rows import Artifact, Edge, Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .objects import Objects, Staged
    from .sqlite import Database

MOST_INPUTS = 500
LATELY = 1_000
"""Versions that other servers may save before somebody looks after one that was killed."""


class NewVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What is saved, where and from what; `priority` stays as it was when it is not given, `version_id` is made."""

    frame_id: str
    filename: str
    content_type: str
    source: str = "save"
    producing_cell_id: str | None = None
    input_version_ids: tuple[str, ...] = ()
    path: str | None = None
    priority: int | None = None
    version_id: str | None = None


class ArtifactListing(TypedDict):
    """A page of artifacts, newest first, each with its latest version's size, checksum and ordinal."""

    count: int
    artifacts: list[dict[str, Any]]
    next_cursor: str | None


class VersionListing(TypedDict):
    """A page of an artifact's versions, newest first; `next_cursor` is null on the last."""

    count: int
    versions: list[dict[str, Any]]
    next_cursor: str | None


class Artifacts:
    """The `artifacts`, `artifact_versions` and `lineage_edges` tables of a project, and the bytes behind them."""

    def __init__(self, database: Database, objects: Objects) -> None:
        self._database = database
        self._objects = objects

    def save(self, staged: Staged, new: NewVersion) -> Version:
        """Makes the staged bytes the next version of the session's artifact of that name, with its edges.

        All of it or nothing. Raises `NotFound` when the frame, the cell or an input is not of this project.
        """
        placing = False
        try:
            with self._database.transaction():
                version = self._add(new, staged.checksum, staged.size)
                placing = True
                self._objects.place(staged)
        except BaseException:
            if placing:
                with contextlib.suppress(StorageError):
                    self.drop_unused(staged.checksum)
            raise
        return version

    def save_again(self, version_id: str, new: NewVersion) -> Version:
        """Makes the bytes of an earlier version a new one, as `save` does. Raises `NotFound`."""
        with self._database.transaction():
            earlier = self.version(version_id)
            return self._add(new, earlier.checksum, earlier.size_bytes)

    def take_back(self, version: Version) -> None:
        """Undoes the saving of an artifact's latest version, unless something was made from it meanwhile."""
        with self._database.transaction():
            of_version = [version.version_id]
            if self._database.rows("SELECT 1 FROM lineage_edges WHERE input_version_id = ?", of_version):
                return
            self._database.execute("DELETE FROM lineage_edges WHERE output_version_id = ?", of_version)
            self._database.execute("DELETE FROM artifact_versions WHERE version_id = ?", of_version)
            self.settle(version.artifact_id)

    def settle(self, artifact_id: str) -> None:
        """Has an artifact show the latest of the versions it has left; one without any goes too."""
        left = self._database.first(Version, "WHERE artifact_id = ? ORDER BY ordinal DESC LIMIT 1", [artifact_id])
        if left is None:
            self._database.execute("DELETE FROM artifacts WHERE artifact_id = ?", [artifact_id])
            return
        self._database.execute(
            "UPDATE artifacts SET latest_version_id = ?, content_type = ?, updated_at = ? WHERE artifact_id = ?",
            [left.version_id, left.content_type, left.created_at, artifact_id],
        )

    def find(self, root_frame_id: str, filename: str) -> Artifact | None:
        where = "WHERE root_frame_id = ? AND filename = ?"
        return self._database.first(Artifact, where, [root_frame_id, filename])

    def get(self, artifact_id: str) -> Artifact:
        """Raises `NotFound`."""
        artifact = self._database.first(Artifact, "WHERE artifact_id = ?", [artifact_id])
        if artifact is None:
            raise NotFound("no such artifact", hint="list_artifacts shows what is saved")
        return artifact

    def version(self, version_id: str) -> Version:
        """Raises `NotFound`."""
        version = self._database.first(Version, "WHERE version_id = ?", [version_id])
        if version is None:
            raise _no_such_version()
        return version

    def version_of(self, artifact_id: str, version_id: str | None = None) -> Version:
        """A version of that artifact, its latest unless one is named. Raises `NotFound`."""
        artifact = self.get(artifact_id)
        version = self.version(version_id or artifact.latest_version_id)
        if version.artifact_id != artifact_id:
            raise _no_such_version()
        return version

    def version_page(self, artifact_id: str, *, limit: int = 50, cursor: str | None = None) -> VersionListing:
        """An artifact's versions, newest first. Raises `NotFound`, `InvalidParams` for a cursor of something else."""
        self.get(artifact_id)
        found = self._database.select(
            Version,
            "WHERE artifact_id = ? AND ordinal < ? ORDER BY ordinal DESC LIMIT ?",
            [artifact_id, decode_cursor("versions", cursor), limit + 1],
        )
        versions = [msgspec.structs.asdict(version) for version in found[:limit]]
        following = encode_cursor("versions", found[limit - 1].ordinal) if len(found) > limit else None
        return {"count": len(versions), "versions": versions, "next_cursor": following}

    def version_count(self, artifact_id: str) -> int:
        return int(self._database.value("SELECT count(*) FROM artifact_versions WHERE artifact_id = ?", [artifact_id]))

    def versions(self, artifact_id: str) -> list[Version]:
        """All versions of an artifact, the oldest first."""
        return self._database.select(Version, "WHERE artifact_id = ? ORDER BY ordinal", [artifact_id])

    def versions_of(self, version_ids: Sequence[str]) -> list[Version]:
        """The versions of these ids that there are, in no particular order."""
        return self._database.select(
            Version, "WHERE version_id IN (SELECT value FROM json_each(?))", [msgspec.json.encode(version_ids).decode()]
        )

    def incomplete(self) -> Sequence[str]:
        """Ids of the versions whose bytes are missing or cut."""
        rows = self._database.rows("SELECT version_id, checksum, size_bytes FROM artifact_versions")
        return [version_id for version_id, *saved in rows if not self._objects.is_complete(*saved)]

    def lately_restored(self) -> list[Version]:
        """Those of the newest versions that bring an earlier one back."""
        return self._database.select(
            Version,
            "WHERE rowid > (SELECT max(rowid) FROM artifact_versions) - ? AND source = 'restore'",
            [LATELY],
        )

    def made_by(self, cell_id: str) -> list[Version]:
        """The versions that a cell saved, the oldest first."""
        return self._database.select(Version, "WHERE producing_cell_id = ? ORDER BY rowid", [cell_id])

    def list(
        self,
        *,
        search: str | None = None,
        filename: str | None = None,
        content_type: str | None = None,
        root_frame_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> ArtifactListing:
        """The project's artifacts, newest first; `search` is a part of the name, in any case.

        Raises `InvalidParams` for a cursor of something else.
        """
        conditions = ["artifacts.rowid < ?"]
        values: list[Any] = [decode_cursor("artifacts", cursor)]
        for condition, value in (
            ("artifacts.filename = ?", filename),
            ("artifacts.content_type = ?", content_type),
            ("root_frame_id = ?", root_frame_id),
            (r"artifacts.filename LIKE ? ESCAPE '\'", None if search is None else _containing(search)),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        sql = f"{_LISTED} WHERE {' AND '.join(conditions)} ORDER BY artifacts.rowid DESC LIMIT ?"
        found = self._database.rows(sql, [*values, limit + 1])
        artifacts = [dict(zip(_LISTED_COLUMNS, row[1:], strict=True)) for row in found[:limit]]
        following = encode_cursor("artifacts", found[limit - 1][0]) if len(found) > limit else None
        return {"count": len(artifacts), "artifacts": artifacts, "next_cursor": following}

    def _add(self, new: NewVersion, checksum: str, size: int) -> Version:
        """Writes the rows of a version whose bytes are kept already, or will be by the end of the transaction."""
        filename = clean_filename(new.filename)
        inputs = tuple(dict.fromkeys(new.input_version_ids))
        if len(inputs) > MOST_INPUTS:
            raise invalid("$.input_version_ids", f"must have at most {MOST_INPUTS} ids")
        root = self._check_origin(new, inputs)
        version = self._write(new, filename, root, checksum, size)
        self._connect(version, inputs)
        return version

    def _check_origin(self, new: NewVersion, inputs: Sequence[str]) -> str:
        root = self._database.value("SELECT root_frame_id FROM frames WHERE frame_id = ?", [new.frame_id])
        if root is None:
            raise NotFound("no such frame", hint="frame_new makes one")
        cell = new.producing_cell_id
        if cell is not None and not self._database.rows("SELECT 1 FROM cells WHERE cell_id = ?", [cell]):
            raise NotFound("no such cell", hint="frames with a frame_id lists its cells")
        for version_id in inputs:
            self.version(version_id)
        return str(root)

    def _write(self, new: NewVersion, filename: str, root: str, checksum: str, size: int) -> Version:
        now, version_id = now_ms(), new.version_id or new_id("v")
        artifact = self.find(root, filename)
        if artifact is None:
            artifact = Artifact(
                artifact_id=new_id("a"),
                root_frame_id=root,
                filename=filename,
                content_type=new.content_type,
                priority=new.priority or 0,
                latest_version_id=version_id,
                created_at=now,
                updated_at=now,
            )
            self._database.insert(artifact)
        else:
            self._database.execute(
                "UPDATE artifacts SET content_type = ?, priority = ifnull(?, priority),"
                " latest_version_id = ?, updated_at = ? WHERE artifact_id = ?",
                [new.content_type, new.priority, version_id, now, artifact.artifact_id],
            )
        latest = "SELECT max(ordinal) FROM artifact_versions WHERE artifact_id = ?"
        version = Version(
            version_id=version_id,
            artifact_id=artifact.artifact_id,
            ordinal=(self._database.value(latest, [artifact.artifact_id]) or 0) + 1,
            filename=filename,
            content_type=new.content_type,
            size_bytes=size,
            checksum=checksum,
            producing_cell_id=new.producing_cell_id,
            frame_id=new.frame_id,
            source=new.source,
            created_at=now,
            path=new.path,
        )
        self._database.insert(version)
        return version

    def _connect(self, version: Version, inputs: Sequence[str]) -> None:
        for version_id in inputs:
            self._database.insert(
                Edge(
                    input_version_id=version_id,
                    output_version_id=version.version_id,
                    producing_cell_id=version.producing_cell_id,
                    created_at=version.created_at,
                )
            )

    def drop_unused(self, checksum: str) -> int:
        """Takes bytes away unless a version needs them; how many were freed. Raises `StorageError`."""
        # Placing and this both hold the write lock: no other server counts on bytes that are about to go.
        with self._database.transaction():
            if self._database.rows("SELECT 1 FROM artifact_versions WHERE checksum = ?", [checksum]):
                return 0
            return self._objects.remove(checksum)


_OF_VERSION = ("ordinal", "size_bytes", "checksum")
_LISTED_COLUMNS = (*Artifact.__struct_fields__, *_OF_VERSION)
_LISTED = (
    f"SELECT artifacts.rowid, {', '.join(f'artifacts.{name}' for name in Artifact.__struct_fields__)},"
    f" {', '.join(f'artifact_versions.{name}' for name in _OF_VERSION)}"
    " FROM artifacts JOIN artifact_versions ON version_id = latest_version_id"
)


def _no_such_version() -> NotFound:
    return NotFound("no such version", hint="list_artifacts shows what is saved, with its latest versions")


def _containing(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"
