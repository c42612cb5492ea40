"""Every wrong argument of every tool and harness method, with the exact problems the caller is told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from cellhost.store.errors import InvalidParams
from cellhost.tools.harness import HARNESS_METHODS
from cellhost.tools.registry import REGISTRY

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Refused

METHODS = {**REGISTRY.tools, **{method.name: method for method in HARNESS_METHODS}}

SIGNATURES = {
    "query_schema": "query_schema(database)",
    "query": "query(sql*, params, limit, df, format, database, explain)",
    "frames": "frames(frame_id, pattern, project_id, status, roots_only, page, page_size, limit, cursor)",
    "lineage_get": "lineage_get(version_id*)",
    "lineage_graph": "lineage_graph(version_id*, direction, max_depth, max_nodes)",
    "exec_background": "exec_background(code*, label, timeout_s, memory_mb, kernel, env, key)",
    "exec_list": "exec_list(status, limit, cursor)",
    "exec_peek": "exec_peek(exec_id*, since, max_chars, stream)",
    "exec_wait": "exec_wait(exec_id*, timeout_s, since, until)",
    "exec_interrupt": "exec_interrupt(exec_id*)",
    "exec": "exec(code*, session, yield_after_s)",
    "exec_restart": "exec_restart(session)",
    "kernel_info": "kernel_info(packages)",
    "list_files": "list_files(pattern, limit)",
    "read_file": "read_file(path*, offset, limit, encoding)",
    "write_file": "write_file(path*, content*, append, expect_checksum)",
    "edit_file": "edit_file(path*, old*, new*, replace_all)",
    "save_artifact": "save_artifact(path*, filename, content_type, input_version_ids, priority)",
    "list_artifacts": "list_artifacts(search, filename, content_type, limit, cursor)",
    "list_artifact_versions": "list_artifact_versions(artifact_id*, limit, cursor)",
    "get_artifact_metadata": "get_artifact_metadata(artifact_id*, version_id)",
    "read_artifact": "read_artifact(version_id*, offset, limit)",
    "diff_artifact": "diff_artifact(from_version_id*, to_version_id*)",
    "restore_artifact_version": "restore_artifact_version(artifact_id*, version_id*)",
    "materialise_artifact": "materialise_artifact(version_id*, filename)",
    "ping": "ping()",
    "frame_new": "frame_new(kind*, name, project_id, status)",
    "frame_update": "frame_update(frame_id*, status, name, task_summary)",
    "frame_use": "frame_use(frame_id*)",
    "permission_set": "permission_set(scope*, tool*, pattern*, decision*, scope_id)",
    "permission_list": "permission_list(scope, tool)",
    "permission_remove": "permission_remove(rule_id*)",
    "permission_check": "permission_check(tool*, arguments*)",
    "permission_pending": "permission_pending()",
    "permission_resolve": "permission_resolve(request_id*, decision*, remember)",
}

VALID: dict[str, dict[str, Any]] = {
    "query": {"sql": "SELECT 1"},
    "lineage_get": {"version_id": "v-000000000000"},
    "lineage_graph": {"version_id": "v-000000000000"},
    "exec_background": {"code": "1"},
    "exec_peek": {"exec_id": "exec-000000000000"},
    "exec_wait": {"exec_id": "exec-000000000000"},
    "exec_interrupt": {"exec_id": "exec-000000000000"},
    "exec": {"code": "1"},
    "read_file": {"path": "a.txt"},
    "write_file": {"path": "a.txt", "content": "x"},
    "edit_file": {"path": "a.txt", "old": "x", "new": "y"},
    "save_artifact": {"path": "a.txt"},
    "list_artifact_versions": {"artifact_id": "a-000000000000"},
    "get_artifact_metadata": {"artifact_id": "a-000000000000"},
    "read_artifact": {"version_id": "v-000000000000"},
    "diff_artifact": {"from_version_id": "v-000000000000", "to_version_id": "v-000000000000"},
    "restore_artifact_version": {"artifact_id": "a-000000000000", "version_id": "v-000000000000"},
    "materialise_artifact": {"version_id": "v-000000000000"},
    "frame_new": {"kind": "turn"},
    "frame_update": {"frame_id": "f-000000000000"},
    "frame_use": {"frame_id": "f-000000000000"},
    "permission_set": {"scope": "global", "tool": "query", "pattern": "*", "decision": "ask"},
    "permission_remove": {"rule_id": "perm-000000000000"},
    "permission_check": {"tool": "query", "arguments": {}},
    "permission_resolve": {"request_id": "perm-000000000000", "decision": "deny"},
}

NOT_TEXT = "Expected str, got int"
NOT_TEXT_OR_NULL = "Expected str | null, got int"
EMPTY = "Expected str of length >= 1"
LARGEST = 2**53 - 1
FRAME_STATES = (
    "Expected one of 'ready', 'processing', 'done', 'failed', 'interrupted', 'awaiting_user_response'"  # and no other
)
JOB_STATES = (
    "Expected one of 'queued', 'starting', 'running', 'done', 'failed', 'interrupted', 'timeout', 'killed', 'died', "
    "'lost'"
)
HASH = "Expected str matching regex '^[0-9a-f]{64}$'"
MEDIA = (
    "Expected str matching regex "
    r"'^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*$(?!\\n)'"
)


def longest(most: int) -> str:
    return f"Expected str of length <= {most}"


def text(most: int) -> list[tuple[Any, str]]:
    """What is wrong with a required text of 1 to `most` characters."""
    return [(5, NOT_TEXT), (None, "Expected str, got null"), ("", EMPTY), ("x" * (most + 1), longest(most))]


def optional_text(most: int, least: int = 0) -> list[tuple[Any, str]]:
    return [(5, NOT_TEXT_OR_NULL), ("x" * (most + 1), longest(most)), *([("", EMPTY)] if least else [])]


def whole(least: int, most: int) -> list[tuple[Any, str]]:
    """What is wrong with an optional whole number; a truth value is none, nor is text or a fraction."""
    return [
        (least - 1, f"Expected int >= {least}"),
        (most + 1, f"Expected int <= {most}"),
        (10**400, f"Expected int <= {most}"),
        (1.5, "Expected int | null, got float"),
        (True, "Expected int | null, got bool"),
        ("1", "Expected int | null, got str"),
    ]


def choice(*values: str) -> list[tuple[Any, str]]:
    problem = "Expected one of " + ", ".join(f"'{value}'" for value in values)
    return [("nonsense", problem), ("x" * 100_000, problem), (values[0].upper(), problem)]


FLAG: list[tuple[Any, str]] = [
    (1, "Expected bool | null, got int"),
    ("true", "Expected bool | null, got str"),
]

# method → parameter → (bad value, what its issue says)
WITHIN_TEN_MINUTES: list[tuple[Any, str]] = [
    (-0.1, "Expected float >= 0.0"),
    (600.1, "Expected float <= 600.0"),
    ("30", "Expected float | null, got str"),
    (False, "Expected float | null, got bool"),
]

WRONG: dict[str, dict[str, list[tuple[Any, str]]]] = {
    "query_schema": {"database": optional_text(64, 1)},
    "query": {
        "sql": [*text(100_000), ("SELECT '\ud800'", "has a lone surrogate")],
        "params": [
            (5, "Expected object | array | null, got int"),
            ("x", "Expected object | array | null, got str"),
            ([0] * 1001, "Expected array of length <= 1000"),
            ({f"p{number}": 0 for number in range(1001)}, "Expected object of length <= 1000"),
        ],
        "limit": whole(1, 10_000),
        "df": FLAG,
        "format": [*choice("records", "table"), (5, NOT_TEXT_OR_NULL)],
        "database": optional_text(64, 1),
        "explain": FLAG,
    },
    "frames": {
        "frame_id": optional_text(256),
        "pattern": optional_text(1000, 1),
        "project_id": optional_text(64, 1),
        "status": [("nonsense", FRAME_STATES), (5, NOT_TEXT_OR_NULL)],
        "roots_only": FLAG,
        "page": whole(0, LARGEST),
        "page_size": whole(1, 200),
        "limit": whole(1, 200),
        "cursor": optional_text(1000),
    },
    "lineage_get": {"version_id": text(256)},
    "lineage_graph": {
        "version_id": text(256),
        "direction": [*choice("up", "down"), (5, NOT_TEXT_OR_NULL)],
        "max_depth": whole(0, 100),
        "max_nodes": whole(1, 10_000),
    },
    "exec_background": {
        "code": text(200_000),
        "label": optional_text(200),
        "timeout_s": [
            (0, "Expected float > 0.0"),
            (-1.5, "Expected float > 0.0"),
            (2_592_001, "Expected float <= 2592000.0"),
            (float("nan"), "Expected float > 0.0"),
            (float("inf"), "Expected float <= 2592000.0"),
            ("5", "Expected float | null, got str"),
            (True, "Expected float | null, got bool"),
        ],
        "memory_mb": whole(16, 1_048_576),
        "kernel": [
            (5, "Expected str | object | null, got int"),
            (["python"], "Expected str | object | null, got array"),
        ],
        "env": [
            ("A=1", "Expected object | null, got str"),
            ({f"V{number}": "" for number in range(201)}, "Expected object of length <= 200"),
        ],
        "key": optional_text(200, 1),
    },
    "exec_list": {
        "status": [("nonsense", JOB_STATES), (5, NOT_TEXT_OR_NULL)],
        "limit": whole(1, 1000),
        "cursor": optional_text(256),
    },
    "exec_peek": {
        "exec_id": text(256),
        "since": optional_text(1000),
        "max_chars": whole(1, 1_000_000),
        "stream": [*choice("stdout", "stderr", "both"), (5, NOT_TEXT_OR_NULL)],
    },
    "exec_wait": {
        "exec_id": text(256),
        "timeout_s": WITHIN_TEN_MINUTES,
        "since": optional_text(1000),
        "until": [*choice("news", "done"), (5, NOT_TEXT_OR_NULL)],
    },
    "exec_interrupt": {"exec_id": text(256)},
    "exec": {"code": text(200_000), "session": optional_text(100, 1), "yield_after_s": WITHIN_TEN_MINUTES},
    "exec_restart": {"session": optional_text(100, 1)},
    "kernel_info": {"packages": optional_text(100)},
    "list_files": {"pattern": optional_text(1000, 1), "limit": whole(1, 10_000)},
    "read_file": {
        "path": [*text(4096), ("a\ud800", "has a lone surrogate")],
        "offset": whole(1, LARGEST),
        "limit": whole(1, LARGEST),
        "encoding": [*choice("utf-8", "base64"), (5, NOT_TEXT_OR_NULL)],
    },
    "write_file": {
        "path": text(4096),
        "content": [
            (5, NOT_TEXT),
            (None, "Expected str, got null"),
            (["x"], "Expected str, got array"),
            ("\udcff", "has a lone surrogate"),
        ],
        "append": FLAG,
        "expect_checksum": [("abc", HASH), ("A" * 64, HASH), (5, NOT_TEXT_OR_NULL)],
    },
    "edit_file": {
        "path": text(4096),
        "old": [(5, NOT_TEXT), (None, "Expected str, got null"), ("", EMPTY)],
        "new": [(5, NOT_TEXT), (None, "Expected str, got null")],
        "replace_all": FLAG,
    },
    "save_artifact": {
        "path": text(4096),
        "filename": optional_text(255, 1),
        "content_type": [
            ("x" * 129, longest(128)),
            ("text", MEDIA),
            ("text/plain\n", MEDIA),
            ("text/plain; charset=utf-8", MEDIA),
            ("téxt/plain", MEDIA),
            (5, NOT_TEXT_OR_NULL),
        ],
        "input_version_ids": [
            ("v-000000000000", "Expected array | null, got str"),
            (["v-000000000000"] * 501, "Expected array of length <= 500"),
        ],
        "priority": whole(0, 100),
    },
    "list_artifacts": {
        "search": optional_text(1000),
        "filename": optional_text(255),
        "content_type": optional_text(128),
        "limit": whole(1, 200),
        "cursor": optional_text(1000),
    },
    "list_artifact_versions": {
        "artifact_id": text(256),
        "limit": whole(1, 200),
        "cursor": optional_text(1000),
    },
    "get_artifact_metadata": {"artifact_id": text(256), "version_id": optional_text(256, 1)},
    "read_artifact": {"version_id": text(256), "offset": whole(1, LARGEST), "limit": whole(1, LARGEST)},
    "diff_artifact": {"from_version_id": text(256), "to_version_id": text(256)},
    "restore_artifact_version": {"artifact_id": text(256), "version_id": text(256)},
    "materialise_artifact": {"version_id": text(256), "filename": optional_text(4096, 1)},
    "ping": {},
    "frame_new": {
        "kind": text(64),
        "name": optional_text(1000),
        "project_id": optional_text(64, 1),
        "status": [("nonsense", FRAME_STATES), (5, NOT_TEXT_OR_NULL)],
    },
    "frame_update": {
        "frame_id": text(256),
        "status": [("nonsense", FRAME_STATES), (5, NOT_TEXT_OR_NULL)],
        "name": optional_text(1000),
        "task_summary": optional_text(10_000),
    },
    "frame_use": {"frame_id": text(256)},
    "permission_set": {
        "scope": [*choice("global", "project", "conversation"), (5, NOT_TEXT)],
        "tool": text(64),
        "pattern": text(200_000),
        "decision": [*choice("allow", "deny", "ask"), (5, NOT_TEXT)],
        "scope_id": optional_text(128),
    },
    "permission_list": {
        "scope": [*choice("global", "project", "conversation"), (5, NOT_TEXT_OR_NULL)],
        "tool": optional_text(64),
    },
    "permission_remove": {"rule_id": text(256)},
    "permission_check": {
        "tool": text(64),
        "arguments": [
            ([], "Expected object, got array"),
            ("x", "Expected object, got str"),
            (None, "Expected object, got null"),
        ],
    },
    "permission_pending": {},
    "permission_resolve": {
        "request_id": text(256),
        "decision": [*choice("allow", "deny"), (5, NOT_TEXT)],
        "remember": [*choice("once", "conversation", "project", "always"), (5, NOT_TEXT_OR_NULL)],
    },
}

# A bad value deep inside an argument has its own path.
INSIDE = [
    ("save_artifact", {"input_version_ids": ["v-000000000000", 2]}, "$.input_version_ids[1]", "Expected str, got int"),
    ("save_artifact", {"input_version_ids": [""]}, "$.input_version_ids[0]", "Expected str of length >= 1"),
    ("save_artifact", {"input_version_ids": ["x" * 257]}, "$.input_version_ids[0]", "Expected str of length <= 256"),
    ("save_artifact", {"input_version_ids": ["\ud800"]}, "$.input_version_ids[0]", "has a lone surrogate"),
    ("exec_background", {"env": {"GOOD": "1", "BAD": 2}}, "$.env.BAD", "Expected str, got int"),
    ("exec_background", {"env": {"x" * 5000: 2}}, f"$.env.{'x' * 64}…", "Expected str, got int"),
    ("exec_background", {"env": {1: "2"}}, "$.env", "Expected only strings as keys"),
    ("exec_background", {"env": {"A": "\ud800"}}, "$.env.A", "has a lone surrogate"),
    ("query", {"params": [1, "\udfff"]}, "$.params[1]", "has a lone surrogate"),
    ("query", {"params": {"a": {"$blob": "\ud800"}}}, "$.params.a.$blob", "has a lone surrogate"),
    ("permission_check", {"arguments": {"\ud800": 1}}, "$.arguments.?", "has a lone surrogate"),
]


class Wrong(NamedTuple):
    method: str
    parameter: str
    value: Any
    message: str


CASES = [
    Wrong(method, parameter, value, message)
    for method, parameters in WRONG.items()
    for parameter, bad in parameters.items()
    for value, message in bad
]


def case_id(case: Wrong) -> str:
    return f"{case.method}-{case.parameter}-{str(case.value)[:20].encode('ascii', 'replace').decode()}"


def issues_of(error: Exception) -> list[tuple[str, str]]:
    assert isinstance(error, InvalidParams)
    assert (error.kind, error.code, error.retryable) == ("params", -32602, False)
    assert error.as_data()["issues"] == [{"path": issue.path, "message": issue.message} for issue in error.issues]
    return [(issue.path, issue.message) for issue in error.issues]


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match.group(1).upper(), name)


def names_of(method: str, upto: str) -> list[str]:
    names = re.findall(r"\w+", SIGNATURES[method])[1:]
    return names[: names.index(upto) + 1]


def test_the_tables_have_every_method_and_every_parameter() -> None:
    assert METHODS.keys() == SIGNATURES.keys() == WRONG.keys()
    for name, method in METHODS.items():
        assert method.signature.listed() == SIGNATURES[name]
        assert list(WRONG[name]) == list(method.signature.fields)


PROBLEM_OF = {
    "minLength": r"of length >= ",
    "maxLength": r"of length <= ",
    "maxItems": r"array of length <= ",
    "maxProperties": r"object of length <= ",
    "minimum": r" >= ",
    "exclusiveMinimum": r" > ",
    "maximum": r" <= ",
    "pattern": r"matching regex",
    "enum": r"Expected one of",
}


@pytest.mark.parametrize("method", METHODS)
def test_every_limit_a_schema_states_has_a_case_that_is_over_it(method: str) -> None:
    for parameter, schema in METHODS[method].input_schema()["properties"].items():
        messages = [message for _, message in WRONG[method][parameter]]
        assert any("got" in message for message in messages), (parameter, "no wrong type")
        stated = {key for option in schema.get("anyOf", [schema]) for key in option} & PROBLEM_OF.keys()
        for limit in stated:
            assert any(re.search(PROBLEM_OF[limit], message) for message in messages), (parameter, limit)


@pytest.mark.parametrize("case", CASES, ids=case_id)
async def test_a_wrong_argument_is_told_exactly_in_every_form(
    shared: Dispatcher, refused: Refused, case: Wrong
) -> None:
    named = VALID.get(case.method, {}) | {case.parameter: case.value}
    expected = [(f"$.{case.parameter}", case.message)]
    error = await refused(shared, case.method, named)
    assert issues_of(error) == expected
    assert str(error) == f"invalid argument for {case.method}: $.{case.parameter}: {case.message}"
    assert error.hint == f"pass {SIGNATURES[case.method]}"
    forms: list[Any] = [[named], {camel(name): value for name, value in named.items()}]
    in_order = [named.get(name) for name in names_of(case.method, upto=case.parameter)]
    if len(in_order) >= len(VALID.get(case.method, {})) and not isinstance(in_order[0], dict):
        forms.append(in_order)
    for form in forms:
        assert issues_of(await refused(shared, case.method, form)) == expected


@pytest.mark.parametrize(("method", "wrong", "path", "message"), INSIDE)
async def test_a_problem_inside_an_argument_has_its_path(
    shared: Dispatcher, refused: Refused, method: str, wrong: dict[str, Any], path: str, message: str
) -> None:
    assert issues_of(await refused(shared, method, VALID[method] | wrong)) == [(path, message)]
