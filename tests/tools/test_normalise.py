"""Every accepted form of params is the same call, and every problem of a call is told at once."""

from __future__ import annotations

from typing import Any

import pytest

from cellhost.store.errors import InvalidParams
from cellhost.tools.normalise import Signature, normalise, snake_case, validate
from cellhost.tools.registry import REGISTRY


def signature(name: str) -> Signature:
    tool = REGISTRY.get(name)
    assert tool is not None
    return tool.signature


def issues_of(name: str, params: Any) -> dict[str, str]:
    with pytest.raises(InvalidParams) as caught:
        validate(normalise(params, signature(name)), signature(name))
    return {issue.path: issue.message for issue in caught.value.issues}


@pytest.mark.parametrize(
    "params",
    [
        {"exec_id": "exec-1", "since": "0"},
        {"execId": "exec-1", "since": "0"},
        [{"execId": "exec-1", "since": "0"}],
        [{"exec_id": "exec-1", "since": "0", "max_chars": None}],
        ["exec-1", "0"],
        ["exec-1", "0", None],
    ],
)
def test_object_array_and_positional_forms_are_the_same_arguments(params: Any) -> None:
    assert normalise(params, signature("exec_peek")).named == {"exec_id": "exec-1", "since": "0"}


@pytest.mark.parametrize("params", [None, {}, [], [{}]])
def test_absent_params_are_no_arguments(params: Any) -> None:
    assert normalise(params, signature("exec_list")).named == {}


def test_only_top_level_keys_are_turned_into_snake_case() -> None:
    named = normalise({"sql": "select :rowId", "params": {"rowId": 1}}, signature("query")).named
    assert named == {"sql": "select :rowId", "params": {"rowId": 1}}


@pytest.mark.parametrize(
    ("camel", "snake"),
    [("versionId", "version_id"), ("inputVersionIds", "input_version_ids"), ("sql", "sql"), ("a1B", "a1_b")],
)
def test_camel_case_becomes_snake_case(camel: str, snake: str) -> None:
    assert snake_case(camel) == snake


def test_keys_of_the_older_sdk_are_accepted_and_kept_apart() -> None:
    given = normalise(
        {"code": "1", "origin": "user", "scope": "x", "producingCellId": "c"}, signature("exec_background")
    )
    assert given.named == {"code": "1"}
    assert given.extra == {"origin": "user", "scope": "x", "producing_cell_id": "c"}
    assert not given.issues


def test_too_many_positional_arguments_name_the_tool_and_its_parameters() -> None:
    with pytest.raises(InvalidParams, match=r"too many arguments for lineage_get\(version_id\*\): 2 given"):
        normalise(["v-1", "x"], signature("lineage_get"))


@pytest.mark.parametrize(
    ("params", "kind"), [(5, "a number"), ("x", "a string"), (True, "a boolean"), (1.5, "a number")]
)
def test_params_that_are_neither_object_nor_array_are_refused(params: Any, kind: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        normalise(params, signature("query"))
    assert caught.value.issues[0].message == f"expected an object or an array, got {kind}"


def test_all_problems_of_a_call_are_told_together() -> None:
    problems = issues_of("query", {"limit": 0, "params": 5, "formt": "table", "format": "csv", "df": "yes"})
    assert problems["$.sql"] == "required, but missing"
    assert problems["$.formt"] == "unknown parameter; did you mean format?"
    assert problems["$.limit"] == "Expected int >= 1"
    assert set(problems) == {"$.sql", "$.formt", "$.limit", "$.params", "$.format", "$.df"}


def test_at_most_sixteen_problems_are_told() -> None:
    assert len(issues_of("query", {f"unknown{number}": 1 for number in range(40)})) == 16


def test_a_key_given_in_both_spellings_is_refused() -> None:
    assert issues_of("exec_peek", {"exec_id": "a", "execId": "b"})["$.execId"] == "exec_id is given twice"


def test_a_problem_inside_a_list_has_its_path() -> None:
    assert issues_of("save_artifact", {"path": "a", "input_version_ids": ["v-1", 2]}) == {
        "$.input_version_ids[1]": "Expected str, got int"
    }


def test_null_for_a_required_parameter_is_a_problem_of_that_parameter() -> None:
    assert issues_of("query", {"sql": None}) == {"$.sql": "Expected str, got null"}
