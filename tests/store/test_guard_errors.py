"""Which error a statement ends with, what it says, and the hint that goes with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.errors import (
    Closed,
    Denied,
    HostError,
    InvalidParams,
    NotReadOnly,
    QueryError,
    TimedOut,
    TooLarge,
)
from cellhost.store.guard import GuardedReader

if TYPE_CHECKING:
    from pathlib import Path


async def error(reader: GuardedReader, sql: str, params: Any = None, **options: Any) -> HostError:
    with pytest.raises(HostError) as raised:
        await reader.query(sql, params, **options)
    return raised.value


async def test_a_write_behind_a_reading_verb_is_not_read_only(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        for sql in (
            "with x as (select 1) insert into notes(body) select 'y' returning id",
            "with x as (select 1) update notes set body = 'y'",
            "with x as (select 1) delete from notes",
            'pragma "query_only" = 0',
            "pragma [journal_mode]",
        ):
            found = await error(reader, sql)
            assert isinstance(found, NotReadOnly)
            assert "only allows read-only" in str(found)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from dbstat",
        "select count(*) from dbstat",
        "select 1 from notes where exists (select 1 from sqlite_stmt)",
        "select * from pragma_database_list",
        "select * from pragma_pragma_list",
        "select (select name from pragma_function_list limit 1)",
        "select sqlite_version()",
        "select last_insert_rowid()",
        "select 1 where sqlite_source_id() > ''",
        "select * from notes order by randomblob(8)",
        "select max(changes()) over () from notes",
    ],
)
async def test_what_is_not_on_the_list_is_denied_wherever_it_stands(guard_file: Path, sql: str) -> None:
    async with GuardedReader(guard_file) as reader:
        found = await error(reader, sql)
        assert isinstance(found, Denied)
        assert found.hint


async def test_a_denied_function_is_named(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        assert "load_extension()" in str(await error(reader, "select load_extension('x')"))


async def test_innocent_names_and_texts_are_no_reason_to_refuse(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        assert (await reader.query("select 1 as \"drop\", 2 as attach, 'vacuum' as c")).rows == [[1, 2, "vacuum"]]
        assert (await reader.query("with my_notes as (select 5 as settings) select settings from my_notes")).rows == [
            [5]
        ]
        assert (await reader.query("select replace('a', 'a', 'b')")).rows == [["b"]]


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("select bodi from notes", "notes has body"),
        ("select n.bodi from notes n", "notes has body"),
        ("select nothing_like_it from notes", "notes has id, body, n"),
        ("select titel from docs_fts", "docs_fts has title"),
        ('select xyz from "odd name"', 'odd name has select, a"b, ünï'),
        ("select * from note", "the nearest is notes"),
        ("select * from main.mesages", "the nearest is messages"),
        ("select * from zzz", "there are docs, docs_fts, empty, files, messages, notes, nums, odd name, v_notes"),
        ("show tables", "list tables with: select name from sqlite_schema"),
        ("describe notes", "list columns with: pragma table_info(<table>)"),
        ("select 'a' regexp 'b'", "there is no REGEXP; use LIKE, GLOB or instr()"),
        ("select 1 +", None),
    ],
)
async def test_an_error_of_sql_says_what_is_nearest(guard_file: Path, sql: str, hint: str | None) -> None:
    async with GuardedReader(guard_file) as reader:
        found = await error(reader, sql)
        assert isinstance(found, QueryError)
        assert found.hint == hint


async def test_the_message_is_sqlites_and_bounded(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        assert str(await error(reader, "select filname from notes")) == "no such column: filname"
        assert len(str(await error(reader, f"select {'x' * 300_000} from notes"))) <= 500


@pytest.mark.parametrize(
    ("sql", "params", "path"),
    [
        ("select ?", None, "$.params"),
        ("select ?", [], "$.params"),
        ("select ?", [1, 2], "$.params"),
        ("select ?", {"a": 1}, "$.params"),
        ("select :a, ?", {"a": 1}, "$.params"),
        ("select :a", {}, "$.params"),
        ("select :a", {"b": 1}, "$.params"),
        ("select :a", {"a": 1, "b": 2}, "$.params.b"),
        ("select 1", {"b": 2}, "$.params.b"),
        ("select ?, ?", [1, [2]], "$.params[1]"),
    ],
)
async def test_parameters_that_do_not_fit_are_bad_params(guard_file: Path, sql: str, params: Any, path: str) -> None:
    async with GuardedReader(guard_file) as reader:
        found = await error(reader, sql, params)
        assert isinstance(found, InvalidParams)
        assert found.issues[0].path == path


@pytest.mark.parametrize("params", [None, [], {}, [1], {"a": 1}])
async def test_two_statements_are_an_error_of_sql_whatever_the_params(guard_file: Path, params: Any) -> None:
    async with GuardedReader(guard_file) as reader:
        found = await error(reader, "select 1; select 2", params)
        assert isinstance(found, QueryError)
        assert "one statement" in str(found)


async def test_time_and_size_have_their_own_errors(guard_file: Path) -> None:
    async with GuardedReader(guard_file, timeout_s=0.2) as reader:
        endless = "with recursive c(x) as (select 1 union all select x + 1 from c) select max(x) from c"
        assert isinstance(await error(reader, endless), TimedOut)
        assert isinstance(await error(reader, "select n from nums", max_bytes=100), TooLarge)
        assert isinstance(await error(reader, "select printf('%.2000000c', 'x')"), TooLarge)
        assert isinstance(
            await error(reader, "select length(format('%s%s', a, a)) from (select printf('%.900000c', 'x') a)"),
            TooLarge,
        )
        assert isinstance(await error(reader, "select ?", ["x" * 1_000_001]), TooLarge)


async def test_a_call_that_is_too_large_to_send_is_refused(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        assert isinstance(await error(reader, "select ?", ["x" * 900_000] * 20), TooLarge)
        assert (await reader.query("select 1")).rows == [[1]]


async def test_formatting_in_the_files_own_views_still_works(guard_file: Path) -> None:
    with closing(sqlite3.connect(guard_file)) as connection:
        connection.execute("create view v_money as select printf('%.2f', n) as money from notes")
    async with GuardedReader(guard_file) as reader:
        assert (await reader.query("select money from v_money limit 1")).rows == [["1.50"]]
        assert (await reader.query("select format('%s-%04d', 'a', 7), printf(null), printf('')")).rows[0][:2] == [
            "a-0007",
            None,
        ]


async def test_an_unsafe_function_in_the_files_own_view_is_an_error_of_sql_or_denied(guard_file: Path) -> None:
    with closing(sqlite3.connect(guard_file)) as connection:
        connection.execute("create view v_bad as select load_extension('x') as a")
    async with GuardedReader(guard_file) as reader:
        assert isinstance(await error(reader, "select * from v_bad"), (Denied, QueryError))


async def test_a_reader_that_is_not_open_says_so(guard_file: Path) -> None:
    reader = GuardedReader(guard_file)
    with pytest.raises(Closed, match="not open"):
        await reader.query("select 1")
    async with reader:
        await reader.query("select 1")
        with pytest.raises(Closed, match="open already"):
            await reader.__aenter__()
    with pytest.raises(Closed, match="not open"):
        await reader.query("select 1")
    async with reader:
        assert (await reader.query("select 1")).rows == [[1]]
