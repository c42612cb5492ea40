"""Requests for permission: what is on record, and what a decision does and does not do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.store.errors import NotFound

from .checks import only_issue

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Refused


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
        assert str(error) == "no such permission request"


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
