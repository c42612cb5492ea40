"""Permission rules as they are kept."""

from pathlib import Path

import pytest

from cellhost.store.errors import InvalidParams
from cellhost.store.store import Store


def decisions(store: Store, tool: str) -> list[str]:
    return [rule.decision for rule in store.permission_rules(tool=tool)]


def test_a_fresh_folder_allows_the_tools_that_stay_in_the_workspace(store: Store) -> None:
    rules = store.permission_rules()
    assert [(rule.scope, rule.scope_id, rule.tool, rule.pattern, rule.decision) for rule in rules] == [
        ("global", "", tool, "*", "allow") for tool in ("write_file", "edit_file", "save_artifact")
    ]


def test_a_removed_first_rule_does_not_come_back(store: Store, tmp_path: Path) -> None:
    first = store.permission_rules()[0]
    assert store.remove_permission_rule(first.rule_id) is True
    assert store.remove_permission_rule(first.rule_id) is False
    store.close()
    with Store(tmp_path / "data") as again:
        assert [rule.tool for rule in again.permission_rules()] == ["edit_file", "save_artifact"]


def test_the_same_key_again_replaces_the_decision_and_keeps_the_id(store: Store) -> None:
    first = store.set_permission_rule(scope="global", tool="query", pattern="*", decision="deny")
    again = store.set_permission_rule(scope="global", tool="query", pattern="*", decision="allow")
    assert first == again
    assert decisions(store, "query") == ["allow"]
    other = store.set_permission_rule(scope="project", scope_id="p", tool="query", pattern="*", decision="ask")
    assert other != first
    assert decisions(store, "query") == ["allow", "ask"]


def test_rules_are_listed_by_scope_and_by_tool(store: Store) -> None:
    store.set_permission_rule(scope="conversation", scope_id="f-1", tool="write_file", pattern="a", decision="ask")
    assert [rule.pattern for rule in store.permission_rules(tool="write_file")] == ["*", "a"]
    assert [rule.tool for rule in store.permission_rules(scope="conversation")] == ["write_file"]
    assert store.permission_rules(scope="conversation", tool="query") == []


def test_only_rules_of_the_calls_own_scopes_apply(store: Store) -> None:
    for scope, scope_id in (
        ("project", "mine"),
        ("project", "other"),
        ("conversation", "f-mine"),
        ("conversation", "mine"),
    ):
        store.set_permission_rule(scope=scope, scope_id=scope_id, tool="exec_background", pattern="*", decision="allow")
    store.set_permission_rule(scope="global", tool="*", pattern="*", decision="ask")
    found = store.control.rules.applicable(tool="exec_background", project_id="mine", root_frame_id="f-mine")
    assert [(rule.scope, rule.scope_id) for rule in found] == [
        ("project", "mine"),
        ("conversation", "f-mine"),
        ("global", ""),
    ]
    without = store.control.rules.applicable(tool="exec_background", project_id="mine", root_frame_id=None)
    assert [rule.scope for rule in without] == ["project", "global"]


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"scope": "galaxy"}, "$.scope"),
        ({"decision": "maybe"}, "$.decision"),
        ({"tool": ""}, "$.tool"),
        ({"pattern": ""}, "$.pattern"),
        ({"pattern": "\ud800"}, "$.pattern"),
        ({"scope_id": "f-1"}, "$.scope_id"),
        ({"scope": "project"}, "$.scope_id"),
    ],
)
def test_a_bad_rule_is_refused_with_the_argument_that_is_wrong(
    store: Store, changed: dict[str, str], path: str
) -> None:
    rule = {"scope": "global", "tool": "query", "pattern": "*", "decision": "deny"} | changed
    with pytest.raises(InvalidParams) as caught:
        store.set_permission_rule(**rule)
    assert [issue.path for issue in caught.value.issues] == [path]
    assert decisions(store, "query") == []
