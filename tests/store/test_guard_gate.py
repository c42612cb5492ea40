"""The keyword gate and the check of parameters, which need no worker."""

from __future__ import annotations

from typing import Any

import pytest

from cellhost.store.errors import HostError, InvalidParams, NotReadOnly, QueryError, TooLarge
from cellhost.store.guard_gate import check_verb, plan_of
from cellhost.store.guard_params import check_sql, encode_params


@pytest.mark.parametrize(
    "sql",
    [
        "delete from notes",
        "\ufeff -- a note\n /* and one */ DeLeTe from notes",
        "/* unfinished */ vacuum",
        "truncate notes",
        "explain select 1",
        "explain /* */ delete from notes",
        "explain query plan update notes set body = 1",
        "explain query plan explain select 1; delete from notes",
        "pragma journal_mode",
        "pragma main . journal_mode = delete",
        "PRAGMA/**/user_version=7",
        "explain query plan pragma query_only = off",
    ],
)
def test_a_verb_that_does_not_read_is_refused_with_what_is_allowed(sql: str) -> None:
    if sql.startswith("explain query plan explain"):
        assert check_verb(sql) == "explain"  # SQLite has a syntax error for it
        return
    with pytest.raises(NotReadOnly, match="only allows read-only") as refusal:
        check_verb(sql)
    assert "SELECT" in (refusal.value.hint or "")


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "with a as (select 1) select * from a",
        "values (1)",
        "explain query plan select 1",
        "explain\nquery /* */ plan select 1",
        "pragma table_info(notes)",
        "pragma main.index_list('notes')",
        "(select 1)",
        "nonsense",
        "'delete'",
    ],
)
def test_a_verb_that_reads_or_is_unknown_goes_on_to_sqlite(sql: str) -> None:
    check_verb(sql)


@pytest.mark.parametrize("sql", ["", "   ", "-- nothing", "/* nothing", "\ufeff"])
def test_an_empty_statement_is_an_error_of_its_sql(sql: str) -> None:
    with pytest.raises(QueryError, match="empty"):
        check_verb(sql)


def test_deeply_nested_explains_and_comments_cost_no_recursion() -> None:
    assert check_verb("explain query plan " * 20_000) == "explain"
    assert check_verb("/**/" * 90_000 + "select 1") == "select"


def test_a_plan_is_asked_for_once() -> None:
    assert plan_of("select 1", "select") == "explain query plan select 1"
    assert plan_of("explain query plan select 1", "explain") == "explain query plan select 1"


def test_closing_semicolons_are_dropped() -> None:
    assert check_sql("select 1 ; ;\n") == "select 1"


@pytest.mark.parametrize(
    ("sql", "error"),
    [(1, InvalidParams), ("a\0b", InvalidParams), ("\ud800", InvalidParams), ("é" * 200_001, TooLarge)],
)
def test_text_that_cannot_be_sql_is_refused(sql: object, error: type[HostError]) -> None:
    with pytest.raises(error):
        check_sql(sql)


@pytest.mark.parametrize(
    ("params", "encoded"),
    [
        (None, []),
        ([], []),
        ((1, "a", None, True, 1.5), [1, "a", None, True, 1.5]),
        ([b"\x00\xff"], [{"$blob": "AP8="}]),
        ([{"$blob": "AP8="}], [{"$blob": "AP8="}]),
        ([float("-inf")], [{"$float": "-inf"}]),
        ([2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ({"a": 1, "ü": None}, {"a": 1, "ü": None}),
    ],
)
def test_scalars_and_blobs_are_parameters(params: Any, encoded: object) -> None:
    assert encode_params(params) == encoded


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ("text", "$.params"),
        (3, "$.params"),
        ([0] * 1001, "$.params"),
        ([0, 0, 0, [1]], "$.params[3]"),
        ([{"a": 1}], "$.params[0]"),
        ([{"$blob": "A"}], "$.params[0]"),
        ([{"$blob": "AP8=", "x": 1}], "$.params[0]"),
        ([2**63], "$.params[0]"),
        (["\ud800"], "$.params[0]"),
        ({"a": object()}, "$.params.a"),
        ({"\ud800": 1}, "$.params"),
        ({"": 1}, "$.params"),
        ({1: 1}, "$.params"),
    ],
)
def test_anything_else_is_refused_with_its_path(params: Any, path: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        encode_params(params)
    assert [issue.path for issue in refusal.value.issues] == [path]


def test_all_problems_of_a_call_are_told_together() -> None:
    with pytest.raises(InvalidParams) as refusal:
        encode_params([[], 1, {}, 2**70])
    assert [issue.path for issue in refusal.value.issues] == ["$.params[0]", "$.params[2]", "$.params[3]"]
