"""Permission rules: which one decides a call, and what a check tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cellhost import Config, Dispatcher, build_dispatcher
from cellhost.store.errors import InvalidParams

from .checks import only_issue

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Finished, Refused

RULE = {"rule_id", "scope", "scope_id", "tool", "pattern", "decision", "created_at", "updated_at"}


async def wrote(dispatcher: Dispatcher, path: str = "a.txt") -> bool:
    """Whether a write was let through."""
    return "error" not in await dispatcher("write_file", [path, "x"])


class Executor:
    """Counts launches: what matters here is whether one happens."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    def launch(self, code: str, **_given: Any) -> dict[str, Any]:
        self.launched.append(code)
        return {"exec_id": "exec-1", "status": "running"}


@pytest.fixture
def executor(dispatcher: Dispatcher) -> Executor:
    made = Executor()
    dispatcher.background = made
    return made


# Rules


async def test_the_first_start_has_three_rules_that_can_be_removed(dispatcher: Dispatcher) -> None:
    rules = await dispatcher("permission_list")
    assert [set(rule) for rule in rules] == [RULE] * 3
    assert {(rule["scope"], rule["scope_id"], rule["tool"], rule["pattern"], rule["decision"]) for rule in rules} == {
        ("global", "", tool, "*", "allow") for tool in ("write_file", "edit_file", "save_artifact")
    }
    (rule_id,) = [rule["rule_id"] for rule in rules if rule["tool"] == "write_file"]
    assert await wrote(dispatcher)
    assert await dispatcher("permission_remove", [rule_id]) == {"removed": True}
    assert not await wrote(dispatcher)
    for unknown in (rule_id, "perm-000000000000", "nonsense", "command-line-1"):
        assert await dispatcher("permission_remove", {"ruleId": unknown}) == {"removed": False}


async def test_setting_the_same_rule_again_replaces_its_decision(dispatcher: Dispatcher) -> None:
    first = await dispatcher("permission_set", ["global", "write_file", "a.txt", "deny"])
    assert set(first) == {"rule_id"}
    assert not await wrote(dispatcher)
    again = await dispatcher(
        "permission_set",
        [{"scope": "global", "tool": "write_file", "pattern": "a.txt", "decision": "allow", "scopeId": None}],
    )
    assert again == first
    assert await wrote(dispatcher)
    mine = [rule for rule in await dispatcher("permission_list") if rule["pattern"] == "a.txt"]
    assert [(rule["rule_id"], rule["decision"]) for rule in mine] == [(first["rule_id"], "allow")]


async def test_the_scope_id_is_this_project_or_session_unless_given(dispatcher: Dispatcher) -> None:
    for scope, given in (("project", None), ("conversation", None), ("project", "other"), ("conversation", "f-1")):
        await dispatcher("permission_set", [scope, "query", "*", "ask", given])
    rules = await dispatcher("permission_list", {"tool": "query"})
    assert [(rule["scope"], rule["scope_id"]) for rule in rules] == [
        ("project", "default"),
        ("conversation", dispatcher.frame_id),
        ("project", "other"),
        ("conversation", "f-1"),
    ]
    assert len(await dispatcher("permission_list", ["project"])) == 2
    assert await dispatcher("permission_list", {"scope": "global", "tool": "query"}) == []


async def test_a_global_rule_has_no_scope_id_and_a_rule_is_for_a_tool_there_is(
    dispatcher: Dispatcher, refused: Refused
) -> None:
    error = await refused(dispatcher, "permission_set", ["global", "query", "*", "ask", "x"])
    assert only_issue(error) == ("$.scope_id", "must be empty for global")
    error = await refused(dispatcher, "permission_set", ["global", "write_fil", "*", "deny"])
    assert (str(error), only_issue(error)) == ("no such tool", ("$.tool", "did you mean write_file?"))
    path, message = only_issue(await refused(dispatcher, "permission_set", ["global", "zzz", "*", "deny"]))
    assert path == "$.tool"
    assert message.startswith("must be one of query_schema, query, ")
    assert len(await dispatcher("permission_list")) == 3
    await dispatcher("permission_set", ["global", "*", "x", "deny"])
    await dispatcher("permission_set", ["global", "artifacts", "*", "ask"])
    assert len(await dispatcher("permission_list", [None, "list_artifacts"])) == 1


# From the most general to the most specific; each is set on top of the ones before.
PRECEDENCE: list[tuple[list[Any], bool]] = [
    (["global", "*", "*", "ask"], True),  # the first start's rule names the tool
    (["global", "write_file", "*", "ask"], False),  # the same rule, decided anew
    (["project", "write_file", "*", "allow"], True),
    (["conversation", "write_file", "*", "ask"], False),
    (["global", "write_file", "*.txt", "allow"], True),  # a pattern before a scope
    (["global", "write_file", "a.t*t", "allow"], True),
    (["global", "write_file", "a.txt", "ask"], False),  # the longer pattern
    (["conversation", "write_file", "a.txt", "allow"], True),
    (["project", "write_file", "a.txt", "ask"], True),  # the conversation's holds
    (["project", "write_file", "b.txt", "deny"], True),  # not of this file
    (["conversation", "write_file", "A.TXT", "deny"], True),  # patterns are case-sensitive
    (["project", "*", "*", "deny"], False),  # any deny wins
    (["conversation", "write_file", "a.txt", "allow"], False),
]


async def test_the_most_specific_rule_decides_and_any_deny_wins(dispatcher: Dispatcher) -> None:
    for number, (rule, allowed) in enumerate(PRECEDENCE):
        await dispatcher("permission_set", rule)
        checked = await dispatcher("permission_check", ["write_file", {"path": "a.txt", "content": "x"}])
        assert (checked["decision"] == "allow") is allowed, (number, rule, checked)
        assert await wrote(dispatcher) is allowed, (number, rule)


async def test_rules_of_another_project_or_session_decide_nothing_here(dispatcher: Dispatcher) -> None:
    for scope, scope_id in (("project", "other"), ("conversation", "f-000000000000")):
        await dispatcher("permission_set", [scope, "write_file", "*", "deny", scope_id])
    assert await wrote(dispatcher)


async def test_a_deny_rule_for_everything_leaves_reading_and_stopping_alone(
    running: Dispatcher, finished: Finished
) -> None:
    await running("permission_set", ["global", "exec_background", "*", "allow"])
    outcome = await finished(running, "print(1)")
    launched = await running("exec_background", ["import time; time.sleep(60)"])
    await running("permission_set", ["global", "*", "*", "deny"])
    for method, params in (
        ("query", ["SELECT 1"]),
        ("query_schema", None),
        ("frames", None),
        ("exec_list", None),
        ("exec_peek", [outcome["exec_id"]]),
        ("exec_wait", [outcome["exec_id"]]),
        ("exec_interrupt", [launched["exec_id"]]),
        ("kernel_info", ["x"]),
        ("list_files", None),
        ("list_artifacts", None),
        ("ping", None),
        ("permission_list", None),
    ):
        answer: Any = await running(method, params)
        assert "error" not in answer or "exec_id" in answer, method
    assert (await running("exec_wait", [launched["exec_id"]]))["status"] == "interrupted"
    for method, params in (
        ("exec_background", ["1"]),
        ("write_file", ["a", "x"]),
        ("edit_file", ["a", "x", "y"]),
        ("save_artifact", ["a"]),
    ):
        assert await running(method, params) == {"error": f"Permission denied: a rule denies {method}"}
    assert not (running.host.workspace.root / "a").exists()


@pytest.mark.parametrize(
    ("pattern", "code", "allowed"),
    [
        ("print(*)", "print(1)", True),
        ("print(*)", "print(1)\nimport os", False),
        ("print(*)", "print(1)\rimport os", False),
        ("*print(1)*", "import os\nprint(1)", False),
        ("*", "import os\nprint(1)", True),
        ("a\nb", "a\nb", True),
        ("print([0-9])", "print(7)", True),
        ("PRINT(1)", "print(1)", False),
    ],
)
async def test_an_allowed_pattern_of_code_never_reaches_past_a_line(
    dispatcher: Dispatcher, executor: Executor, pattern: str, code: str, allowed: bool
) -> None:
    await dispatcher("permission_set", ["global", "exec_background", pattern, "allow"])
    await dispatcher("exec_background", [code])
    assert executor.launched == ([code] if allowed else [])


async def test_a_denied_pattern_of_code_reaches_over_lines(dispatcher: Dispatcher, executor: Executor) -> None:
    await dispatcher("permission_set", ["global", "exec_background", "*", "allow"])
    await dispatcher("permission_set", ["global", "exec_background", "*rmtree*", "deny"])
    for code in ("import shutil\nshutil.rmtree('.')", "rmtree", "a\rrmtree\nb"):
        assert set(await dispatcher("exec_background", [code])) == {"error"}
    await dispatcher("exec_background", ["print(1)"])
    assert executor.launched == ["print(1)"]


async def test_rules_of_the_command_line_hold_for_this_conversation_only(tmp_path: Path) -> None:
    config = Config(
        data_dir=tmp_path / "data",
        rules=(("write_file", "a.txt", "deny"), ("exec_background", "print(*)", "allow"), ("edit_file", "*", "ask")),
    )
    made = build_dispatcher(config, workspace=tmp_path / "work")
    executor = made.background = Executor()
    assert not await wrote(made, "a.txt")
    assert await wrote(made, "b.txt")
    await made("exec_background", ["print(1)"])
    await made("exec_background", ["import os"])
    assert executor.launched == ["print(1)"]
    assert set(await made("edit_file", ["b.txt", "x", "y"])) == {"error"}
    own = [rule for rule in await made("permission_list") if rule["rule_id"].startswith("command-line-")]
    assert [(rule["scope"], rule["scope_id"], rule["tool"], rule["decision"]) for rule in own] == [
        ("conversation", made.frame_id, "write_file", "deny"),
        ("conversation", made.frame_id, "exec_background", "allow"),
        ("conversation", made.frame_id, "edit_file", "ask"),
    ]
    await made.host.aclose()
    later = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
    assert await wrote(later, "a.txt")
    assert len(await later("permission_list")) == 3
    await later.host.aclose()


# permission_check


async def test_a_check_tells_decision_and_rule_without_doing_anything(
    dispatcher: Dispatcher, executor: Executor, tmp_path: Path
) -> None:
    rule_id = (await dispatcher("permission_set", ["global", "exec_background", "print(1)", "allow"]))["rule_id"]
    check = ["exec_background", {"code": "print(1)"}]
    assert await dispatcher("permission_check", check) == {"decision": "allow", "rule_id": rule_id}
    assert await dispatcher("permission_check", ["exec_background", {"code": "2"}]) == {
        "decision": "ask",
        "rule_id": None,
    }
    assert await dispatcher("permission_check", {"tool": "query", "arguments": {"sql": "DROP TABLE x"}}) == {
        "decision": "allow",
        "rule_id": None,
    }
    assert await dispatcher("permission_check", ["artifacts", {}]) == {"decision": "allow", "rule_id": None}
    camel: dict[str, Any] = {"path": "a.txt", "inputVersionIds": []}
    assert (await dispatcher("permission_check", ["save_artifact", camel]))["decision"] == "allow"
    assert executor.launched == []
    assert not (tmp_path / "work").exists()
    assert await dispatcher("permission_pending") == []


async def test_a_check_of_a_call_that_would_be_refused_says_what_is_wrong(
    dispatcher: Dispatcher, refused: Refused
) -> None:
    error = await refused(dispatcher, "permission_check", ["query", {"sql": 5, "limt": 1}])
    assert isinstance(error, InvalidParams)
    assert [(issue.path, issue.message) for issue in error.issues] == [
        ("$.arguments.limt", "unknown parameter; did you mean limit?"),
        ("$.arguments.sql", "Expected str, got int"),
    ]
    assert only_issue(await refused(dispatcher, "permission_check", ["queri", {}])) == (
        "$.tool",
        "did you mean query?",
    )
    error = await refused(dispatcher, "permission_check", ["write_file", {"path": "../x", "content": ""}])
    assert (error.kind, str(error)) == ("denied", "the path is outside the workspace")
