"""What an answer looks like: cells, columns, types, limits, forms."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.errors import InvalidParams, TooLarge
from cellhost.store.guard import GuardedReader

if TYPE_CHECKING:
    from pathlib import Path

COUNT = "with recursive c(x) as (select 1 union all select x + 1 from c where x < {}) "


async def records(reader: GuardedReader, sql: str, params: Any = None, **options: Any) -> Any:
    return json.loads((await reader.fetch(sql, params, form="records", **options)).body)


async def test_a_table_has_columns_types_and_rows(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        table = await reader.query("select id, body, n, null as no from notes order by id")
        assert table.columns == ["id", "body", "n", "no"]
        assert table.types == ["integer", "text", "real", "null"]
        assert table.rows[0] == [1, "alpha", 1.5, None]
        assert (table.row_count, table.truncated) == (3, False)
        assert table.elapsed_ms > 0
        assert reader.engine.startswith("3.")


async def test_types_name_every_storage_class_seen(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        table = await reader.query("select column1 from (values (1), ('a'), (x'00'), (null), (1.5))")
        assert table.types == ["blob|integer|real|text"]


async def test_records_name_the_columns_and_make_repeated_names_unique(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        assert await records(reader, "select 1 as a, 2 as a, 3 as a_2, 4 as b") == [
            {"a": 1, "a_3": 2, "a_2": 3, "b": 4}
        ]
        assert await records(reader, "select 1 as a, 2 as a") == [{"a": 1, "a_2": 2}]
        assert (await reader.query("select 1 as a, 2 as a")).columns == ["a", "a"]


async def test_zero_rows_still_have_columns(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        table = await reader.query('select * from "empty"')
        assert (table.columns, table.types, table.rows) == (["a", "b"], ["null", "null"], [])
        assert await records(reader, 'select * from "empty"') == []


@pytest.mark.parametrize(
    ("expression", "cell"),
    [
        ("9007199254740992", 9007199254740992),
        ("9007199254740993", {"$int": "9007199254740993"}),
        ("-9223372036854775808", {"$int": "-9223372036854775808"}),
        ("1e999", {"$float": "inf"}),
        ("-1e999", {"$float": "-inf"}),
        ("0.0/0", None),
        ("x'00ff'", {"$blob": "AP8="}),
        ("zeroed", {"$blob": ""}),
        ("cast(x'ff41' as text)", "\ufffdA"),
        ("char(0, 9, 8232, 128512)", "\0\t\u2028\U0001f600"),
        ("'\"\\'", '"\\'),
    ],
)
async def test_a_cell_json_cannot_hold_is_tagged(guard_file: Path, expression: str, cell: object) -> None:
    async with GuardedReader(guard_file) as reader:
        sql = f"select {expression} as cell, 1 as one from (select x'' as zeroed)"
        assert (await reader.query(sql)).rows == [[cell, 1]]
        assert await records(reader, sql) == [{"cell": cell, "one": 1}]


async def test_one_odd_row_among_many_changes_no_other(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        odd = "case n when 700 then 1e999 when 701 then 9007199254740993 when 702 then x'61' else n end"
        rows = (await reader.query(f"select n, {odd} from nums")).rows
        assert len(rows) == 1000
        assert [row for row in rows if row[0] != row[1]] == [
            [700, {"$float": "inf"}],
            [701, {"$int": "9007199254740993"}],
            [702, {"$blob": "YQ=="}],
        ]


async def test_a_later_row_that_is_not_utf8_is_replaced_and_the_rest_is_exact(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        sql = "select case n when 900 then cast(x'ff' as text) else 'é' || n end from nums"
        rows = (await reader.query(sql)).rows
        assert (len(rows), rows[899], rows[0], rows[999]) == (1000, ["\ufffd"], ["é1"], ["é1000"])
        assert (await reader.query("select 'ü'")).rows == [["ü"]]


async def test_an_explicit_limit_gives_exactly_so_many_rows(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        some = await reader.query("select n from nums order by n", limit=7)
        assert (some.row_count, some.truncated, some.rows[-1]) == (7, True, [7])
        every = await reader.query("select n from nums where n <= 7", limit=7)
        assert (every.row_count, every.truncated) == (7, False)
        result = await reader.fetch("select n from nums", form="records", limit=7)
        assert (result.row_count, result.truncated) == (7, True)


@pytest.mark.parametrize("limit", [0, -1, 1001, True, 1.5, "3"])
async def test_a_limit_outside_the_cap_is_refused_with_its_path(guard_file: Path, limit: Any) -> None:
    async with GuardedReader(guard_file) as reader:
        with pytest.raises(InvalidParams) as refusal:
            await reader.query("select 1", limit=limit)
        assert refusal.value.issues[0].path == "$.limit"


async def test_rows_over_the_cap_are_cut_in_a_table_and_an_error_in_records(guard_file: Path) -> None:
    sql = COUNT.format(1001) + "select x from c"
    async with GuardedReader(guard_file) as reader:
        table = await reader.query(sql)
        assert (table.row_count, table.truncated) == (1000, True)
        with pytest.raises(TooLarge) as refusal:
            await reader.fetch(sql, form="records")
        assert "limit" in (refusal.value.hint or "")
        assert 'format: "table"' in (refusal.value.hint or "")


async def test_bytes_over_the_budget_are_an_error_or_cut_to_the_rows_that_fit(guard_file: Path) -> None:
    sql = "select n, 'some text' as t from nums order by n"
    async with GuardedReader(guard_file) as reader:
        whole = await reader.fetch(sql)
        assert len((await reader.fetch(sql, max_bytes=len(whole.body))).body) == len(whole.body)
        with pytest.raises(TooLarge):
            await reader.fetch(sql, max_bytes=len(whole.body) - 1)
        for budget in (2, 40, 500, len(whole.body) - 1):
            cut = await reader.fetch(sql, max_bytes=budget, cut=True)
            rows = json.loads(cut.body)
            assert cut.truncated
            assert len(cut.body) <= budget
            assert cut.row_count == len(rows)
            assert rows == json.loads(whole.body)[: len(rows)]
            following = len(json.dumps(json.loads(whole.body)[len(rows)], separators=(",", ":")))
            assert len(cut.body) + following + 1 > budget


async def test_ten_thousand_rows_and_a_cell_of_900_kilobytes_come_whole(guard_file: Path) -> None:
    async with GuardedReader(guard_file, max_rows=10_000, max_bytes=8 << 20) as reader:
        table = await reader.query(COUNT.format(10_000) + "select x, x * 2, 'row ' || x, x / 2.0 from c")
        assert (table.row_count, table.truncated) == (10_000, False)
        assert table.rows[-1] == [10_000, 20_000, "row 10000", 5000.0]
        assert table.rows == [[x, 2 * x, f"row {x}", x / 2] for x in range(1, 10_001)]
        cell = (await reader.query("select printf('%.900000c', 'x')")).rows[0][0]
        assert cell == "x" * 900_000


async def test_more_than_two_hundred_columns_are_too_many(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        assert len((await reader.query("select " + ", ".join("1" for _ in range(200)))).columns) == 200
        with pytest.raises(TooLarge, match="columns"):
            await reader.query("select " + ", ".join("1" for _ in range(201)))


async def test_column_names_count_as_bytes(guard_file: Path) -> None:
    name = "n" * 100_000
    async with GuardedReader(guard_file) as reader:
        with pytest.raises(TooLarge):
            await reader.query(f'select {", ".join(["t.*"] * 11)} from (select 1 as "{name}") t')


async def test_explain_answers_with_the_query_plan(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        plan = await reader.query("select * from notes where id = ?", [1], explain=True)
        assert plan.columns[-1] == "detail"
        assert "PRIMARY KEY" in plan.rows[0][-1]
        assert (
            await reader.query("explain query plan select * from notes where id = 1", explain=True)
        ).rows == plan.rows


async def test_session_views_show_the_callers_own_rows(guard_file: Path) -> None:
    views = {"my_messages": "select * from main.messages where session_id = caller_session()"}
    async with GuardedReader(guard_file, session_views=views, workers=1) as reader:
        sql = "select body from my_messages order by id"
        assert (await reader.query(sql, session="s1")).rows == [["mine one"], ["mine two"]]
        assert (await reader.query(sql, session="s2")).rows == [["other"]]
        assert (await reader.query(sql)).rows == []
        plan = await reader.query(sql, session="s1", explain=True)
        assert any("messages_s" in row[-1] for row in plan.rows)


async def test_params_are_positional_or_named(guard_file: Path) -> None:
    async with GuardedReader(guard_file) as reader:
        assert (await reader.query("select ?2, ?1, ?", ["a", "b", 3])).rows == [["b", "a", 3]]
        assert (await reader.query("select :a, @b, $c, :a", {"a": 1, "b": "x", "c": None})).rows == [[1, "x", None, 1]]
        assert (await reader.query("select ?, typeof(?)", [b"\x00\xff", {"$blob": "AP8="}])).rows == [
            [{"$blob": "AP8="}, "blob"]
        ]
        assert (await reader.query("select ?, ?, ?", [True, float("inf"), 2**63 - 1])).rows == [
            [1, {"$float": "inf"}, {"$int": str(2**63 - 1)}]
        ]
