"""The declarations against what SQLite makes of them."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    insert = store.project("demo").database.execute
    statements = (
        (
            "INSERT INTO cells (cell_id, frame_id, root_frame_id, seq, origin, language, code, code_hash, status)"
            " VALUES ('c-' || ?1, ?2, ?2, 1, 'agent', 'python', 'x', 'h', 'done')"
        ),
        (
            "INSERT INTO jobs (exec_id, cell_id, frame_id, root_frame_id, status, server_id, stdout_bytes,"
            " stderr_bytes, created_at) VALUES ('exec-' || ?1, 'c-' || ?1, ?2, ?2, 'done', 's', 0, 0, 1)"
        ),
        "INSERT INTO artifacts VALUES ('a-' || ?1, ?2, 'f', 't', 0, 'v-' || ?1, 1, 1)",
        "INSERT INTO artifact_versions VALUES ('v-' || ?1, 'a-' || ?1, 1, 'f', 't', 0, 'h', NULL, ?2, 's', 1)",
        "INSERT INTO lineage_edges SELECT 'v-' || ?1, 'v-' || ?1, NULL, 1 WHERE ?2 IS NOT NULL",
    )
    for statement in statements:
        insert(statement, [number, frame_id])
