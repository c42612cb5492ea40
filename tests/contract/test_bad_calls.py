"""Calls whose arguments are missing, unknown, too many or no arguments at all, and what the caller is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.errors import InvalidParams
from cellhost.tools.harness import HARNESS_METHODS
from cellhost.tools.registry import REGISTRY

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Refused

METHODS = {**REGISTRY.tools, **{method.name: method for method in HARNESS_METHODS}}

REQUIRED = {
    "query": ["sql"],
    "lineage_get": ["version_id"],
    "lineage_graph": ["version_id"],
    "exec_background": ["code"],
    "exec_peek": ["exec_id"],
    "exec_wait": ["exec_id"],
    "exec_interrupt": ["exec_id"],
    "exec": ["code"],
    "read_file": ["path"],
    "write_file": ["path", "content"],
    "edit_file": ["path", "old", "new"],
    "save_artifact": ["path"],
    "list_artifact_versions": ["artifact_id"],
    "get_artifact_metadata": ["artifact_id"],
    "read_artifact": ["version_id"],
    "diff_artifact": ["from_version_id", "to_version_id"],
    "restore_artifact_version": ["artifact_id", "version_id"],
    "materialise_artifact": ["version_id"],
    "frame_new": ["kind"],
    "frame_update": ["frame_id"],
    "frame_use": ["frame_id"],
    "permission_set": ["scope", "tool", "pattern", "decision"],
    "permission_remove": ["rule_id"],
    "permission_check": ["tool", "arguments"],
    "permission_resolve": ["request_id", "decision"],
}


def issues_of(error: Exception) -> list[tuple[str, str]]:
    assert isinstance(error, InvalidParams)
    assert (error.kind, error.code, error.retryable) == ("params", -32602, False)
    assert error.as_data()["issues"] == [{"path": issue.path, "message": issue.message} for issue in error.issues]
    return [(issue.path, issue.message) for issue in error.issues]


def missing(method: str) -> list[tuple[str, str]]:
    return [(f"$.{name}", "required, but missing") for name in REQUIRED.get(method, [])]


def test_the_table_has_every_method_with_a_required_parameter() -> None:
    for name, method in METHODS.items():
        assert [field.name for field in method.signature.fields.values() if field.required] == REQUIRED.get(name, [])


@pytest.mark.parametrize("method", REQUIRED)
@pytest.mark.parametrize("params", [None, {}, [], [{}]], ids=["absent", "object", "array", "array of one"])
async def test_missing_arguments_are_told_all_at_once(
    shared: Dispatcher, refused: Refused, method: str, params: Any
) -> None:
    error = await refused(shared, method, params)
    assert issues_of(error) == missing(method)
    assert error.hint == f"pass {METHODS[method].signature.listed()}"


@pytest.mark.parametrize("method", METHODS)
async def test_an_unknown_key_is_told_in_every_form(shared: Dispatcher, refused: Refused, method: str) -> None:
    for params in ({"zzzzzz": 1}, [{"zzzzzz": 1}]):
        issues = issues_of(await refused(shared, method, params))
        assert issues == [("$.zzzzzz", "unknown parameter"), *missing(method)]


@pytest.mark.parametrize(
    ("method", "given", "path", "message"),
    [
        ("query", {"sql": "SELECT 1", "sqll": "SELECT 1"}, "$.sqll", "unknown parameter; did you mean sql?"),
        ("exec_peek", {"exec_id": "exec-1", "max_char": 5}, "$.max_char", "unknown parameter; did you mean max_chars?"),
        ("exec_peek", {"exec_id": "exec-1", "maxChar": 5}, "$.maxChar", "unknown parameter; did you mean max_chars?"),
        ("exec_peek", {"exec_id": "exec-1", "execId": "exec-1"}, "$.execId", "exec_id is given twice"),
        ("read_file", {"path": "a", "k" * 100_000: 1}, f"$.{'k' * 64}…", "unknown parameter"),
        ("read_file", {"path": "a", 7: 1}, "$.7", "unknown parameter"),
        ("read_file", {"path": "a", "\ud800": 1}, "$.?", "unknown parameter"),
    ],
)
async def test_an_unknown_key_is_shown_short_with_the_nearest_name(
    shared: Dispatcher, refused: Refused, method: str, given: dict[Any, Any], path: str, message: str
) -> None:
    assert issues_of(await refused(shared, method, given)) == [(path, message)]


@pytest.mark.parametrize("method", METHODS)
async def test_too_many_positional_arguments_name_the_parameters(
    shared: Dispatcher, refused: Refused, method: str
) -> None:
    most = len(METHODS[method].signature.fields)
    error = await refused(shared, method, ["x"] * (most + 1))
    assert str(error) == f"too many arguments for {METHODS[method].signature.listed()}: {most + 1} given"
    assert issues_of(error) == [(f"$[{most}]", "no parameter stands at this place")]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("params", "kind"),
    [(5, "a number"), (1.5, "a number"), ("x", "a string"), (True, "a boolean"), (b"x", "a Python bytes")],
)
async def test_params_that_hold_no_arguments_are_refused(
    shared: Dispatcher, refused: Refused, method: str, params: Any, kind: str
) -> None:
    error = await refused(shared, method, params)
    assert str(error) == f"params of {method} must be an object or an array"
    assert issues_of(error) == [("$", f"expected an object or an array, got {kind}")]


async def test_all_problems_are_told_together_and_at_most_sixteen(shared: Dispatcher, refused: Refused) -> None:
    error = await refused(shared, "query", {"limit": 0, "nonsense": 1, "format": "csv", "params": 5})
    assert issues_of(error) == [
        ("$.nonsense", "unknown parameter"),
        ("$.sql", "required, but missing"),
        ("$.params", "Expected object | array | null, got int"),
        ("$.limit", "Expected int >= 1"),
        ("$.format", "Expected one of 'records', 'table'"),
    ]
    error = await refused(shared, "query", {f"unknown_{number}": 1 for number in range(200_000)})
    assert len(issues_of(error)) == 16


async def test_no_message_grows_with_what_was_given(shared: Dispatcher, refused: Refused) -> None:
    long = "x" * 1_000_000
    for method, params in (
        ("query", {"sql": "SELECT 1", long: 1}),
        ("query", {"sql": "SELECT 1", "format": long}),
        ("exec_background", {"code": "1", "kernel": {"python": long}}),
        ("permission_set", {"scope": long, "tool": "query", "pattern": "*", "decision": "ask"}),
        ("permission_check", {"tool": "query", "arguments": {long: 1}}),
        (long, {}),
    ):
        error = await refused(shared, method, params)
        assert len(str([str(error), error.as_data()])) < 2000


async def test_null_counts_as_absent_for_every_optional_parameter(shared: Dispatcher) -> None:
    nulls = {"df": None, "format": None, "limit": None, "params": None, "database": None, "explain": None}
    assert await shared("query", {"sql": "SELECT 1 AS a"} | nulls) == [{"a": 1}]
    assert await shared("query", ["SELECT 1 AS a", None, None, None, None, None, None]) == [{"a": 1}]


async def test_keys_of_the_older_sdk_are_accepted_by_every_method_and_change_nothing(shared: Dispatcher) -> None:
    older = {
        "scope": "everything",
        "origin": "user",
        "source": "sdk",
        "producingCellId": "c-000000000000",
        "execution_cell_id": "c-000000000000",
    }
    assert await shared("query", {"sql": "SELECT 1 AS a"} | older) == [{"a": 1}]
    await shared("write_file", {"path": "older.txt", "content": "x"} | older)
    saved = await shared("save_artifact", {"path": "older.txt"} | older)
    assert (await shared("lineage_get", [saved["version_id"]]))["producing_cell_id"] is None


async def test_a_method_name_that_is_no_text_of_ours_is_unknown_and_audited_short(
    shared: Dispatcher, refused: Refused
) -> None:
    for name in ("bash", "submit_output", "no\nsuch", "\ud800", "n" * 1_000_000, ""):
        error = await refused(shared, name)
        assert (error.kind, error.code) == ("method", -32601)
        assert len(str(error)) < 100
    await shared("permission_remove", ["x"])  # a mutating call writes all that waits
    methods = [row.method for row in shared.store.control.audit.list(limit=7)]
    assert max(methods, key=len) == "n" * 64 + "…"
    assert "?" in methods
