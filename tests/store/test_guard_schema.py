"""The shape of a database, as `schema()` tells it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from cellhost.store.guard import GuardedReader
from cellhost.store.guard_results import Column

if TYPE_CHECKING:
    from pathlib import Path


async def test_tables_views_and_virtual_tables_have_columns_and_counts(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        schema = await reader.schema()
    assert set(schema) == {"messages", "files", "notes", "docs", "docs_fts", "nums", "odd name", "empty", "v_notes"}
    assert schema["notes"].columns == [Column("id", "INTEGER", 1), Column("body", "TEXT", 0), Column("n", "REAL", 0)]
    assert {name: shape.rows_estimate for name, shape in schema.items()} == {
        "messages": 3, "files": 2, "notes": 3, "docs": 2, "docs_fts": None, "nums": 1000, "odd name": 1, "empty": 0,
        "v_notes": None,
    }  # fmt: skip
    assert {name: shape.type for name, shape in schema.items() if shape.type != "table"} == {
        "v_notes": "view", "docs_fts": "virtual",
    }  # fmt: skip
    assert [column.name for column in schema["odd name"].columns] == ["select", 'a"b', "ünï"]
    assert [column.name for column in schema["docs_fts"].columns] == ["title", "body"]


async def test_keys_name_what_they_reference_and_large_tables_are_estimated(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """create table artist(artist_id integer primary key, name text);
            create table album(id integer primary key, artist integer references artist, title text);
            create table track(album integer, n integer, primary key (album, n),
                foreign key (album) references album(id));
            create table tag(name text primary key, made as (name || '!')) without rowid;
            create table hidden(rowid text, oid text, _rowid_ text);
            create view broken as select * from nowhere;
            create view denied as select randomblob(9) as noise;
            create virtual table pages using dbstat;
            with recursive c(x) as (select 1 union all select x + 1 from c where x < 5000)
            insert into artist select x, 'name' from c;
            insert into tag select artist_id from artist;
            insert into hidden select artist_id, 1, 2 from artist;"""
        )
    async with GuardedReader(path) as reader:
        schema = await reader.schema()
        assert schema["album"].columns[1] == Column("artist", "INTEGER", 0, "artist.artist_id")
        assert schema["track"].columns == [Column("album", "INTEGER", 1, "album.id"), Column("n", "INTEGER", 2)]
        assert [column.name for column in schema["tag"].columns] == ["name", "made"]
        assert schema["broken"].columns == schema["pages"].columns == []
        assert [column.name for column in schema["denied"].columns] == ["noise"]
        assert schema["artist"].rows_estimate == 5000
        assert schema["tag"].rows_estimate is None
        assert schema["hidden"].rows_estimate is None
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("analyze")
        assert (await reader.schema())["tag"].rows_estimate == 5000


async def test_two_hundred_tables_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "wide.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("".join(f"create table t{n}(a, b references t0(a)); " for n in range(200)))
    async with GuardedReader(path) as reader:
        schema = await reader.schema()
    assert len(schema) == 200
    assert schema["t199"].columns[1].references == "t0.a"


async def test_session_views_are_listed_too(guard_file: Path) -> None:
    views = {"my_messages": "select * from main.messages where session_id = caller_session()"}
    async with GuardedReader(guard_file, session_views=views) as reader:
        schema = await reader.schema()
    assert [column.name for column in schema["my_messages"].columns] == ["id", "session_id", "body"]
