"""The schema and SQL over the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.errors import Denied, InvalidParams, NotFound, NotReadOnly, QueryError, TimedOut, TooLarge

from .checks import only_issue

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost import Dispatcher

    from .conftest import Refused

TABLES = ("frames", "cells", "jobs", "artifacts", "artifact_versions", "lineage_edges")


async def save(dispatcher: Dispatcher, name: str, *inputs: str) -> str:
    await dispatcher("write_file", [name, name])
    saved = await dispatcher("save_artifact", {"path": name, "input_version_ids": list(inputs)})
    version_id: str = saved["version_id"]
    return version_id


# query_schema


@pytest.mark.parametrize("params", [None, [], {}, [{}], [None], {"database": None}])
async def test_query_schema_lists_the_columns_of_every_table_that_sql_may_read(shared: Dispatcher, params: Any) -> None:
    schema = await shared("query_schema", params)
    assert {*TABLES, *(f"my_{name}" for name in TABLES)} <= schema.keys()
    for name in TABLES:
        table = await shared("query", {"sql": f"SELECT * FROM {name} LIMIT 0", "format": "table"})
        assert schema[name] == table["columns"]
        assert schema[f"my_{name}"] == schema[name]


@pytest.mark.parametrize("tool", ["query", "query_schema"])
async def test_a_database_that_was_not_given_is_not_there(shared: Dispatcher, refused: Refused, tool: str) -> None:
    given = {"sql": "SELECT 1"} if tool == "query" else {}
    for name in ("sales", "control", "../control.db", "default"):
        error = await refused(shared, tool, given | {"database": name})
        assert isinstance(error, NotFound)
        assert (str(error), error.code) == ("no such database", -31404)


# query


@pytest.mark.parametrize(
    "params",
    [
        ["SELECT :a AS a", {"a": 7}],
        ["SELECT ? AS a", [7]],
        {"sql": "SELECT ? AS a", "params": [7]},
        [{"sql": "SELECT $a AS a", "params": {"a": 7}}],
        ["SELECT ? AS a", [7], None, None, "records", None, False],
    ],
)
async def test_every_form_of_query_binds_its_values(shared: Dispatcher, params: Any) -> None:
    assert await shared("query", params) == [{"a": 7}]


async def test_query_answers_in_three_forms(shared: Dispatcher) -> None:
    sql = "SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2.5, NULL"
    assert await shared("query", {"sql": sql}) == [{"a": 1, "b": "x"}, {"a": 2.5, "b": None}]
    assert await shared("query", {"sql": sql, "format": "records"}) == [{"a": 1, "b": "x"}, {"a": 2.5, "b": None}]
    assert await shared("query", {"sql": sql, "df": True}) == {"columns": ["a", "b"], "rows": [[1, "x"], [2.5, None]]}
    table = await shared("query", {"sql": sql, "format": "table"})
    assert table.pop("elapsed_ms") >= 0
    assert table == {
        "columns": ["a", "b"],
        "types": table["types"],
        "rows": [[1, "x"], [2.5, None]],
        "row_count": 2,
        "truncated": False,
    }
    assert len(table["types"]) == 2


async def test_no_rows_still_have_columns(shared: Dispatcher) -> None:
    sql = "SELECT 1 AS a WHERE 0"
    assert await shared("query", {"sql": sql}) == []
    assert await shared("query", {"sql": sql, "df": True}) == {"columns": ["a"], "rows": []}
    assert (await shared("query", {"sql": sql, "format": "table"}))["columns"] == ["a"]


async def test_values_that_json_cannot_hold_are_marked(shared: Dispatcher) -> None:
    sql = "SELECT 9007199254740993 AS big, x'00ff' AS bytes, 9e999 AS inf, 9007199254740992 AS exact"
    assert await shared("query", [sql]) == [
        {
            "big": {"$int": "9007199254740993"},
            "bytes": {"$blob": "AP8="},
            "inf": {"$float": "inf"},
            "exact": 9007199254740992,
        }
    ]
    assert await shared("query", ["SELECT length(?) AS n", [{"$blob": "AP8="}]]) == [{"n": 2}]


async def test_a_limit_gives_exactly_so_many_rows_and_without_one_too_many_are_an_error(
    shared: Dispatcher, refused: Refused
) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10001) SELECT i FROM n"
    assert await shared("query", {"sql": numbers, "limit": 2}) == [{"i": 1}, {"i": 2}]
    table = await shared("query", {"sql": numbers, "limit": 2, "format": "table"})
    assert (table["row_count"], table["truncated"]) == (2, True)
    assert len(await shared("query", {"sql": numbers, "limit": 10_000})) == 10_000
    error = await refused(shared, "query", {"sql": numbers})
    assert isinstance(error, TooLarge)
    assert error.code == -31413
    assert "limit" in (error.hint or "")


async def test_explain_shows_the_plan_and_runs_nothing(shared: Dispatcher) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with anyio.fail_after(2):
        plan = await shared("query", {"sql": endless, "explain": True})
    assert all("detail" in row for row in plan)


@pytest.mark.parametrize(
    ("sql", "kind", "code", "message"),
    [
        ("DELETE FROM frames", NotReadOnly, -31403, "only allows read-only"),
        ("INSERT INTO frames DEFAULT VALUES", NotReadOnly, -31403, "only allows read-only"),
        ("ATTACH 'x' AS y", NotReadOnly, -31403, "only allows read-only"),
        ("SELECT load_extension('x')", Denied, -31403, ""),
        ("SELECT * FROM no_such_table", QueryError, -31400, "no such table"),
        ("SELECT no_such_column FROM frames", QueryError, -31400, "no such column"),
        ("SELEC 1", QueryError, -31400, "syntax error"),
        ("   ", QueryError, -31400, "the statement is empty"),
        ("SELECT 1; SELECT 2", QueryError, -31400, "only one statement at a time"),
        ("SELECT 1 \0", InvalidParams, -32602, "NUL"),
    ],
)
async def test_sql_that_cannot_run_says_which_kind_of_wrong_it_is(
    shared: Dispatcher, refused: Refused, sql: str, kind: type[Exception], code: int, message: str
) -> None:
    error = await refused(shared, "query", [sql])
    assert isinstance(error, kind)
    assert error.code == code
    assert message in str(error)


@pytest.mark.parametrize(
    ("sql", "params", "path"),
    [
        ("SELECT ?", [], "$.params"),
        ("SELECT ?", [1, 2], "$.params"),
        ("SELECT ?", [[1]], "$.params[0]"),
        ("SELECT ?", [2**63], "$.params[0]"),
        ("SELECT ?", [{"$blob": "!"}], "$.params[0]"),
        ("SELECT :a", {"b": 1}, "$.params"),
        ("SELECT :a", {"a": 1, "b": 1}, "$.params"),
    ],
)
async def test_values_that_do_not_fit_the_statement_are_told_with_their_place(
    shared: Dispatcher, refused: Refused, sql: str, params: Any, path: str
) -> None:
    error = await refused(shared, "query", [sql, params])
    assert isinstance(error, InvalidParams)
    assert error.code == -32602
    assert all(issue.path.startswith(path) for issue in error.issues)
    assert error.issues


async def test_df_and_format_exclude_each_other(shared: Dispatcher, refused: Refused) -> None:
    error = await refused(shared, "query", {"sql": "SELECT 1", "df": True, "format": "records"})
    assert only_issue(error) == ("$.df", "leave it out when format is given")


async def test_a_query_that_takes_too_long_ends_at_its_limit(tmp_path: Path, refused: Refused) -> None:
    config = Config(data_dir=tmp_path / "data")
    config.limits.query_timeout_s = 0.3
    made = build_dispatcher(config, workspace=tmp_path / "work")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with anyio.fail_after(5):
        error = await refused(made, "query", [endless])
    assert isinstance(error, TimedOut)
    assert error.code == -31408
    await made.host.aclose()


async def test_sql_sees_what_was_just_recorded_and_my_views_only_this_session(dispatcher: Dispatcher) -> None:
    await save(dispatcher, "a.txt")
    first = dispatcher.frame_id
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session")
    await save(dispatcher, "b.txt")
    assert await dispatcher("query", ["SELECT filename FROM artifacts ORDER BY 1"]) == [
        {"filename": "a.txt"},
        {"filename": "b.txt"},
    ]
    mine = "SELECT filename, root_frame_id FROM my_artifacts"
    assert await dispatcher("query", [mine]) == [{"filename": "b.txt", "root_frame_id": dispatcher.frame_id}]
    dispatcher.frame_id = first
    assert await dispatcher("query", [mine]) == [{"filename": "a.txt", "root_frame_id": first}]
