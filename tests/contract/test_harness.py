"""The harness methods: who we are, frames, permissions; and that a rule decides the calls it is for."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, Dispatcher, build_dispatcher
from cellhost.store.errors import InvalidParams, NotFound, UnknownMethod
from cellhost.store.version import VERSION
from cellhost.tools.call import Call

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Finished, Refused

FRAME = {
    *("frame_id", "parent_id", "root_frame_id", "kind", "name", "task_summary", "model", "status", "depth"),
    *("workspace", "created_at", "updated_at"),
}
RULE = {"rule_id", "scope", "scope_id", "tool", "pattern", "decision", "created_at", "updated_at"}


def only_issue(error: Exception) -> tuple[str, str]:
    assert isinstance(error, InvalidParams)
    (issue,) = error.issues
    return issue.path, issue.message


async def wrote(dispatcher: Dispatcher, path: str = "a.txt") -> bool:
    """Whether a write was let through."""
    return "error" not in await dispatcher("write_file", [path, "x"])


async def ask_for(dispatcher: Dispatcher, code: str = "print(1)") -> str:
    """The request that a launch nobody could be asked about leaves behind."""
    assert set(await dispatcher("exec_background", [code])) == {"error"}
    request_id: str = (await dispatcher("permission_pending"))[-1]["request_id"]
    return request_id


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


# ping


@pytest.mark.parametrize("params", [None, {}, [], [{}]])
async def test_ping_tells_who_we_are(dispatcher: Dispatcher, params: Any) -> None:
    ping = await dispatcher("ping", params)
    assert ping == {
        "version": VERSION,
        "protocol": "1",
        "sqlite": sqlite3.sqlite_version,
        "limits": ping["limits"],
        "features": ping["features"],
        "confinement": "none",
        "project_id": "default",
        "frame_id": dispatcher.frame_id,
    }
    assert ping["limits"]["jobs_running"] == 16
    assert "mcp" in ping["features"]


# Frames


async def test_a_new_frame_is_written_at_once_below_the_current_one_and_does_not_become_it(
    dispatcher: Dispatcher,
) -> None:
    current = dispatcher.frame_id
    answer = await dispatcher("frame_new", {"kind": "turn", "name": "a turn", "status": "processing"})
    assert set(answer) == {"frame_id"}
    assert dispatcher.frame_id == current
    (row,) = await dispatcher("query", ["SELECT * FROM frames WHERE frame_id = ?", [answer["frame_id"]]])
    assert (row["parent_id"], row["root_frame_id"], row["depth"]) == (current, current, 1)
    assert (row["kind"], row["name"], row["status"]) == ("turn", "a turn", "processing")


@pytest.mark.parametrize(
    "params",
    [
        ["turn", "named", "other", "done"],
        {"kind": "turn", "name": "named", "projectId": "other", "status": "done"},
        [{"kind": "turn", "name": "named", "project_id": "other", "status": "done"}],
    ],
)
async def test_a_frame_for_another_project_is_a_root_there(dispatcher: Dispatcher, params: Any) -> None:
    frame_id = (await dispatcher("frame_new", params))["frame_id"]
    detail = await dispatcher("frames", {"frame_id": frame_id, "project_id": "other"})
    frame = detail["frame"]
    assert (frame["parent_id"], frame["root_frame_id"], frame["status"]) == (None, frame_id, "done")
    assert (await dispatcher("query", ["SELECT count(*) AS n FROM frames"])) == [{"n": 0}]


@pytest.mark.parametrize("project_id", ["Upper", "a b", "../x", ".hidden", "-x", "é", "a\n"])
async def test_a_project_name_that_no_folder_may_have_is_told(
    dispatcher: Dispatcher, refused: Refused, project_id: str
) -> None:
    error = await refused(dispatcher, "frame_new", {"kind": "turn", "project_id": project_id})
    path, message = only_issue(error)
    assert path == "$.project_id"
    assert message == "must be 1-64 of a-z, 0-9, '.', '_', '-' and start with a letter or digit"
    assert not (dispatcher.host.config.data_folder() / "projects").exists()


async def test_updating_a_frame_changes_what_is_given_and_answers_with_the_frame(dispatcher: Dispatcher) -> None:
    frame_id = (await dispatcher("frame_new", ["turn", "before"]))["frame_id"]
    frame = await dispatcher("frame_update", {"frame_id": frame_id, "status": "done"})
    assert set(frame) == FRAME
    assert (frame["name"], frame["status"], frame["task_summary"]) == ("before", "done", None)
    frame = await dispatcher("frame_update", [frame_id, None, "after", "did it"])
    assert (frame["name"], frame["status"], frame["task_summary"]) == ("after", "done", "did it")
    frame = await dispatcher("frame_update", [{"frameId": frame_id, "taskSummary": "again"}])
    assert (frame["name"], frame["task_summary"]) == ("after", "again")
    assert frame["updated_at"] >= frame["created_at"]
    assert (await dispatcher("frames", [frame_id]))["frame"] == frame


async def test_the_current_frame_can_be_updated_before_anything_is_recorded_in_it(dispatcher: Dispatcher) -> None:
    frame = await dispatcher("frame_update", [dispatcher.frame_id, "done"])
    assert (frame["frame_id"], frame["kind"], frame["status"]) == (dispatcher.frame_id, "session", "done")


async def test_later_calls_are_recorded_in_the_frame_that_is_used_and_in_its_project(
    running: Dispatcher, finished: Finished
) -> None:
    home = running.frame_id
    there = (await running("frame_new", ["turn", None, "other"]))["frame_id"]
    assert await running("frame_use", [there]) == {"frame_id": there, "project_id": "other"}
    ping = await running("ping")
    assert (ping["frame_id"], ping["project_id"]) == (there, "other")
    await running("permission_set", ["project", "exec_background", "*", "allow"])
    await running("write_file", ["a.txt", "x"])
    saved = await running("save_artifact", ["a.txt"])
    outcome = await finished(running, "print(host.query('SELECT count(*) AS n FROM artifacts'))")
    assert outcome["stdout"] == "[{'n': 1}]\n"
    frames = "SELECT frame_id FROM jobs UNION SELECT frame_id FROM artifact_versions"
    assert await running("query", [frames]) == [{"frame_id": there}]

    await running("frame_use", {"frameId": home})
    assert await running("query", [frames]) == []
    assert await running("exec_list") == []
    with pytest.raises(NotFound):
        await running("exec_peek", [outcome["exec_id"]])
    with pytest.raises(NotFound):
        await running("lineage_get", [saved["version_id"]])
    assert set(await running("exec_background", ["print(1)"])) == {"error"}  # that rule is of the other project


async def test_a_child_frame_that_is_used_keeps_its_root(dispatcher: Dispatcher) -> None:
    root = dispatcher.frame_id
    child = (await dispatcher("frame_new", ["turn"]))["frame_id"]
    await dispatcher("frame_use", [child])
    await dispatcher("write_file", ["a.txt", "x"])
    saved = await dispatcher("save_artifact", ["a.txt"])
    assert (await dispatcher("lineage_get", [saved["version_id"]]))["frame_id"] == child
    (artifact,) = (await dispatcher("list_artifacts"))["artifacts"]
    assert artifact["root_frame_id"] == root
    grandchild = (await dispatcher("frame_new", ["turn"]))["frame_id"]
    assert (await dispatcher("frames", [grandchild]))["frame"]["depth"] == 2


async def test_a_frame_that_is_not_there_does_not_become_current(dispatcher: Dispatcher, refused: Refused) -> None:
    before = dispatcher.frame_id
    for frame_id in ("f-000000000000", "nonsense", "/etc", "f-" + "0" * 200):
        error = await refused(dispatcher, "frame_use", [frame_id])
        assert isinstance(error, NotFound)
        assert (str(error), error.code) == ("no such frame", -31404)
    assert dispatcher.frame_id == before


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


# Requests


async def test_a_request_is_on_record_with_what_was_asked(dispatcher: Dispatcher, executor: Executor) -> None:
    assert await dispatcher("permission_pending") == []
    denied = await dispatcher("exec_background", ["print('asked')"])
    assert denied == {"error": "Permission denied: exec_background needs approval, and nobody was there to give it"}
    (request,) = await dispatcher("permission_pending")
    assert request == {
        "request_id": request["request_id"],
        "tool": "exec_background",
        "preview": "print('asked')",
        "state": "pending",
        "door": "in_process",
        "created_at": request["created_at"],
        "expires_at": request["created_at"] + 15 * 60 * 1000,
    }
    assert request["request_id"].startswith("perm-")
    assert executor.launched == []


@pytest.mark.parametrize(
    ("remember", "scope"),
    [("conversation", "conversation"), ("project", "project"), ("always", "global")],
)
@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_a_decision_that_is_remembered_is_a_rule_of_that_scope_for_that_code(
    dispatcher: Dispatcher, executor: Executor, remember: str, scope: str, decision: str
) -> None:
    request_id = await ask_for(dispatcher)
    resolved = await dispatcher(
        "permission_resolve", {"requestId": request_id, "decision": decision, "remember": remember}
    )
    assert set(resolved) == {"state", "rule_id"}
    assert resolved["state"] == {"allow": "allowed", "deny": "denied"}[decision]
    (rule,) = [each for each in await dispatcher("permission_list") if each["rule_id"] == resolved["rule_id"]]
    own = {"conversation": dispatcher.frame_id, "project": "default", "global": ""}[scope]
    assert (rule["scope"], rule["scope_id"], rule["decision"]) == (scope, own, decision)
    assert rule["pattern"].startswith("sha256:")
    assert executor.launched == []
    for _ in range(2):
        await dispatcher("exec_background", ["print(1)"])
    await dispatcher("exec_background", ["print(2)"])
    assert executor.launched == (["print(1)"] * 2 if decision == "allow" else [])
    await dispatcher("permission_remove", [resolved["rule_id"]])
    await dispatcher("exec_background", ["print(1)"])
    assert len(executor.launched) == (2 if decision == "allow" else 0)  # no approval is left over


async def test_an_approval_once_is_spent_by_the_next_identical_call(dispatcher: Dispatcher, executor: Executor) -> None:
    request_id = await ask_for(dispatcher)
    assert await dispatcher("permission_resolve", [request_id, "allow", "once"]) == {
        "state": "allowed",
        "rule_id": None,
    }
    await dispatcher("exec_background", ["print(2)"])
    assert executor.launched == []
    for _ in range(2):
        await dispatcher("exec_background", [{"code": "print(1)", "label": "the code is what counts"}])
    assert executor.launched == ["print(1)"]


async def test_a_denial_once_denies_that_request_and_the_next_call_asks_again(
    dispatcher: Dispatcher, executor: Executor
) -> None:
    request_id = await ask_for(dispatcher)
    assert await dispatcher("permission_resolve", [request_id, "deny"]) == {"state": "denied", "rule_id": None}
    assert await dispatcher("permission_pending") == []
    assert await ask_for(dispatcher) != request_id
    assert executor.launched == []


async def test_a_request_is_decided_once(dispatcher: Dispatcher, executor: Executor, refused: Refused) -> None:
    request_id = await ask_for(dispatcher)
    await dispatcher("permission_resolve", [request_id, "allow"])
    for decision in ("allow", "deny"):
        error = await refused(dispatcher, "permission_resolve", [request_id, decision, "always"])
        assert only_issue(error) == ("$.request_id", "the request is allowed already")
    await dispatcher("exec_background", ["print(1)"])
    error = await refused(dispatcher, "permission_resolve", [request_id, "deny"])
    assert only_issue(error) == ("$.request_id", "the request is spent already")
    assert executor.launched == ["print(1)"]
    for unknown in ("perm-000000000000", "nonsense", "/etc/passwd"):
        error = await refused(dispatcher, "permission_resolve", [unknown, "allow"])
        assert isinstance(error, NotFound)
        assert str(error) == "No such permission request"


async def test_a_project_is_remembered_as_the_one_that_asked_whoever_answers_is_in_another(
    dispatcher: Dispatcher, executor: Executor
) -> None:
    request_id = await ask_for(dispatcher)
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session", project_id="other")
    resolved = await dispatcher("permission_resolve", [request_id, "allow", "project"])
    (rule,) = [each for each in await dispatcher("permission_list") if each["rule_id"] == resolved["rule_id"]]
    assert (rule["scope"], rule["scope_id"]) == ("project", "default")
    await dispatcher("exec_background", ["print(1)"])
    assert executor.launched == []


async def test_a_path_that_is_remembered_is_that_path_and_no_glob(dispatcher: Dispatcher) -> None:
    await dispatcher("permission_set", ["global", "write_file", "*", "ask"])
    assert not await wrote(dispatcher, "a[1]*.txt")
    (request,) = await dispatcher("permission_pending")
    await dispatcher("permission_resolve", [request["request_id"], "allow", "always"])
    assert await wrote(dispatcher, "a[1]*.txt")
    assert await wrote(dispatcher, "./x/../a[1]*.txt")
    assert not await wrote(dispatcher, "a1.txt")
    assert not await wrote(dispatcher, "a[1]b.txt")


async def test_what_a_write_would_change_is_shown_and_bounded(dispatcher: Dispatcher) -> None:
    work = dispatcher.host.workspace.make()
    (work / "a.txt").write_text("one\ntwo\n")
    (work / "large").write_text("x\n" * 100_000)
    await dispatcher("permission_set", ["global", "*", "*", "ask"])
    for tool in ("write_file", "edit_file"):
        await dispatcher("permission_set", ["global", tool, "*", "ask"])
    bomb = {"path": "large", "old": "x", "new": "y" * 1_000_000, "replace_all": True}
    with anyio.fail_after(10):
        for tool, params in (
            ("write_file", ["a.txt", "one\nthree\n"]),
            ("write_file", ["new.txt", "fresh"]),
            ("write_file", ["b.txt", ""]),
            ("edit_file", bomb),
            ("write_file", {"path": "large", "content": "\n".join(map(str, range(50_000)))}),
        ):
            assert set(await dispatcher(tool, params)) == {"error"}
        await dispatcher("edit_file", ["a.txt", "one\ntwo\n", "one\r\ntwo\r\n"])
    previews = [request["preview"] for request in await dispatcher("permission_pending")]
    assert previews == [
        "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three",
        "--- new.txt\n+++ new.txt\n@@ -0,0 +1 @@\n+fresh",
        "b.txt stays as it is",
        "large: 200000 characters become 100000100000",
        "large: 200000 characters become 288889",
        "a.txt: only the ends of lines change",
    ]
    assert (work / "a.txt").read_text() == "one\ntwo\n"


# Doors


@pytest.mark.parametrize("door", ["mcp", "kernel"])
async def test_no_agent_and_no_job_can_call_the_harness_methods(dispatcher: Dispatcher, door: Any) -> None:
    for method in (
        *("ping", "frame_new", "frame_update", "frame_use", "permission_set", "permission_list"),
        *("permission_remove", "permission_check", "permission_pending", "permission_resolve"),
    ):
        with pytest.raises(UnknownMethod):
            await dispatcher.host.call(method, {}, Call(dispatcher.host, door))


@pytest.mark.parametrize("door", ["mcp", "kernel"])
async def test_no_agent_and_no_job_sees_another_project(dispatcher: Dispatcher, door: Any) -> None:
    frame_id = dispatcher.store.new_frame(kind="turn", project_id="other")
    for params in ({"project_id": "other"}, {"project_id": "absent"}, {"project_id": "other", "frame_id": frame_id}):
        with pytest.raises(NotFound, match="no such project"):
            await dispatcher.host.call("frames", params, Call(dispatcher.host, door))
    assert (await dispatcher.host.call("frames", {"project_id": "default"}, Call(dispatcher.host, door)))[
        "frames"
    ] == []
