"""The declarations against what SQLite makes of them."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellhost.store.rows import Artifact, Cell, Edge, Job, Version
from cellhost.store.store import Store
from cellhost.store.tables import CONTROL, RECORDS, Schema, query_schema, session_views

NAMES = {str: "TEXT", int: "INTEGER", float: "REAL"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "data") as opened:
        opened.project("demo").path()
        yield opened


def declared(schema: Schema) -> dict[str, list[tuple[str, str, bool]]]:
    return {
        table.name: [(column.name, NAMES[column.type], not column.nullable) for column in table.columns]
        for table in schema.tables
    }


def made(path: Path, schema: Schema) -> dict[str, list[tuple[str, str, bool]]]:
    connection = sqlite3.connect(path)
    try:
        return {
            table.name: [
                (name, kind, bool(required))
                for _, name, kind, required, *_ in connection.execute(f"PRAGMA table_info({table.name})")
            ]
            for table in schema.tables
        }
    finally:
        connection.close()


def test_both_files_have_exactly_the_declared_columns(store: Store, tmp_path: Path) -> None:
    assert made(tmp_path / "data" / "control.db", CONTROL) == declared(CONTROL)
    assert made(tmp_path / "data" / "projects" / "demo" / "records.db", RECORDS) == declared(RECORDS)


def test_every_column_says_what_it_holds() -> None:
    columns = [column for schema in (CONTROL, RECORDS) for table in schema.tables for column in table.columns]
    assert len(columns) > 100
    assert [column.name for column in columns if not column.description] == []


def test_every_foreign_key_and_index_names_declared_columns() -> None:
    for schema in (CONTROL, RECORDS):
        columns = {table.name: {column.name for column in table.columns} for table in schema.tables}
        for table in schema.tables:
            assert set(table.key) | set(table.search) <= columns[table.name]
            assert all(set(index.columns) <= columns[table.name] for index in table.indexes)
            assert all(reference.other_column in columns[reference.other] for reference in table.references)


def test_query_schema_offers_the_records_and_their_views_and_nothing_of_the_control_file() -> None:
    offered = query_schema()
    assert offered["lineage_edges"] == [
        "input_version_id",
        "output_version_id",
        "producing_cell_id",
        "created_at",
    ]
    assert offered["my_frames"] == offered["frames"]
    assert not {table.name for table in CONTROL.tables} & set(offered)
    assert not [name for name in offered if "fts" in name or name.startswith("_")]


def test_session_views_show_the_callers_session_only(store: Store) -> None:
    records = store.project("demo")
    frames = [store.new_frame(kind="turn", project_id="demo") for _ in range(2)]
    with records.database.transaction():
        for number, frame_id in enumerate(frames):
            fill(store, frame_id, number)
    connection = sqlite3.connect(records.path())
    try:
        connection.create_function("caller_session", 0, lambda: frames[0])
        assert set(session_views()) == {f"my_{table.name}" for table in RECORDS.tables}
        for name, select in session_views().items():
            connection.execute(f"CREATE TEMP VIEW {name} AS {select}")
            mine = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
            every = connection.execute(f"SELECT count(*) FROM {name.removeprefix('my_')}").fetchone()
            assert mine[0] * 2 == every[0] > 0, name
    finally:
        connection.close()


def fill(store: Store, frame_id: str, number: int) -> None:
    """One row of everything in the frame's session."""
    cell_id, artifact_id, version_id = f"c-{number}", f"a-{number}", f"v-{number}"
    session: dict[str, Any] = {"frame_id": frame_id, "root_frame_id": frame_id, "cell_id": cell_id, "status": "done"}
    named: dict[str, Any] = {"artifact_id": artifact_id, "filename": "f", "content_type": "t", "created_at": 1}
    for row in (
        Cell(seq=1, origin="agent", language="python", code="x", code_hash="h", **session),
        Job(exec_id=f"exec-{number}", server_id="s", created_at=1, **session),
        Artifact(root_frame_id=frame_id, latest_version_id=version_id, updated_at=1, **named),
        Version(version_id=version_id, ordinal=1, size_bytes=0, checksum="h", frame_id=frame_id, source="s", **named),
        Edge(input_version_id=version_id, output_version_id=version_id, created_at=1),
    ):
        store.project("demo").database.insert(row)
