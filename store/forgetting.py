"""Forgetting a frame: its rows, its logs, and the bytes that nobody else needs, with the frames below it.

The audit keeps that calls were made, not what with. A kill in between leaves nothing that is needed without what it
needs; the same call again, or `cellhost gc`, removes what is left.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec

from .counting import counted
from .errors import Busy, NotFound
from .jobs import LIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .records import Records
    from .store import Store


class Forgotten(msgspec.Struct, frozen=True):
    """How many rows of each kind went, the ids of the versions, and the bytes of files."""

    frames: int
    cells: int
    jobs: int
    versions: list[str]
    bytes: int


class _Gone(msgspec.Struct, frozen=True):
    """Ids of what was in the frames; `checksums` are of the versions saved in them."""

    frames: list[str]
    cells: list[str]
    jobs: list[str]
    versions: list[str]
    artifacts: list[str]
    checksums: list[str]


def forget(store: Store, frame_id: str) -> Forgotten:
    """Removes a frame and those below it, with everything that was recorded in them.

    Versions that others made of its versions stay, without the edge.

    Raises:
        NotFound: no such frame.
        Busy: a job in it has not ended.
        StorageError: a file of ours cannot be used.
    """
    store.mark_dead_servers()
    project_id = store.find_frame_project(frame_id)
    if project_id is None:
        raise NotFound("no such frame", hint="`cellhost frames` lists them")
    records = store.project(project_id)
    records.database.execute("PRAGMA secure_delete = ON")
    with records.database.transaction():
        gone = _found(records, frame_id)
        _refuse_live(records, gone)
        _delete_rows(records, gone)
    freed = _delete_files(records, gone)
    _delete_decisions(store, gone.frames, gone.jobs)
    records.database.give_back_space()
    return Forgotten(len(gone.frames), len(gone.cells), len(gone.jobs), gone.versions, freed)


_BELOW = """
    WITH RECURSIVE below(frame_id) AS (
        VALUES (?) UNION SELECT frames.frame_id FROM below JOIN frames ON parent_id = below.frame_id
    )
    SELECT frame_id FROM below
"""
_LISTED = "(SELECT value FROM json_each(?))"


def _found(records: Records, frame_id: str) -> _Gone:
    frames = _column(records, _BELOW, frame_id)
    of_frames = _json(frames)

    def inside(column: str, table: str) -> list[str]:
        return _column(records, f"SELECT DISTINCT {column} FROM {table} WHERE frame_id IN {_LISTED}", of_frames)

    return _Gone(
        frames=frames,
        cells=inside("cell_id", "cells"),
        jobs=inside("exec_id", "jobs"),
        versions=inside("version_id", "artifact_versions"),
        artifacts=inside("artifact_id", "artifact_versions"),
        checksums=inside("checksum", "artifact_versions"),
    )


def _refuse_live(records: Records, gone: _Gone) -> None:
    states = ", ".join(f"'{state}'" for state in LIVE)
    sql = f"SELECT exec_id FROM jobs WHERE exec_id IN {_LISTED} AND status IN ({states})"
    live = _column(records, sql, _json(gone.jobs))
    if live:
        raise Busy(
            f"{counted(len(live), 'of its jobs has', 'of its jobs have')} not ended",
            hint=f"interrupt {live[0]}, or wait for it",
        )


def _delete_rows(records: Records, gone: _Gone) -> None:
    """Everything in the frames, from the leaves on; what others keep loses its reference."""
    frames, cells, versions = _json(gone.frames), _json(gone.cells), _json(gone.versions)
    execute = records.database.execute
    for end in ("input_version_id", "output_version_id"):
        execute(f"DELETE FROM lineage_edges WHERE {end} IN {_LISTED}", [versions])
    execute(f"DELETE FROM artifact_versions WHERE version_id IN {_LISTED}", [versions])
    for table in ("lineage_edges", "artifact_versions"):
        execute(f"UPDATE {table} SET producing_cell_id = NULL WHERE producing_cell_id IN {_LISTED}", [cells])
    for artifact_id in gone.artifacts:
        records.artifacts.settle(artifact_id)
    for table in ("jobs", "cells", "frames"):
        execute(f"DELETE FROM {table} WHERE frame_id IN {_LISTED}", [frames])


def _delete_files(records: Records, gone: _Gone) -> int:
    freed = sum(records.artifacts.drop_unused(checksum) for checksum in gone.checksums)
    for exec_id in gone.jobs:
        folder = records.folder / "jobs" / exec_id
        freed += sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
        shutil.rmtree(folder, ignore_errors=True)
    return freed


def _delete_decisions(store: Store, frames: Sequence[str], jobs: Sequence[str]) -> None:
    """What control.db has of them; where the frames were comes last, for without it they are not found again."""
    database = store.control.database
    with database.transaction():
        for table in ("sessions", "permission_requests"):
            database.execute(f"DELETE FROM {table} WHERE root_frame_id IN {_LISTED}", [_json(frames)])
        rules = f"DELETE FROM permission_rules WHERE scope = 'conversation' AND scope_id IN {_LISTED}"
        database.execute(rules, [_json(frames)])
        for column, ids in (("root_frame_id", frames), ("exec_id", jobs)):
            blank = f"UPDATE host_calls SET args_preview = '', resource_keys = '[]' WHERE {column} IN {_LISTED}"
            database.execute(blank, [_json(ids)])
        database.execute(f"DELETE FROM frame_homes WHERE frame_id IN {_LISTED}", [_json(frames)])


def _column(records: Records, sql: str, value: str) -> list[str]:
    return [found for (found,) in records.database.rows(sql, [value])]


def _json(ids: Sequence[str]) -> str:
    return msgspec.json.encode(ids).decode()
