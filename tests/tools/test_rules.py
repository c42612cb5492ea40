"""Which rule decides, and what a pattern matches."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from cellhost.store.rows import Rule
from cellhost.tools.rules import Subject, code_pattern, decide, literal_pattern, matches


def subject(target: str = "print(1)", *, code: bool = True, tool: str = "exec_background") -> Subject:
    return Subject(tool, target, code, "project-1", "f-root")


def rule(decision: str, **changed: Any) -> Rule:
    fields: dict[str, Any] = {
        "rule_id": f"r-{decision}",
        "scope": "global",
        "scope_id": "",
        "tool": "exec_background",
        "pattern": "*",
        "decision": decision,
        "created_at": 1,
        "updated_at": 1,
    }
    return Rule(**(fields | changed))


def test_without_a_rule_a_person_is_asked() -> None:
    assert decide([], subject()).decision == "ask"


def test_any_matching_deny_wins_over_the_most_specific_allow() -> None:
    rules = [rule("allow", pattern="print(1)", scope="conversation", scope_id="f-root"), rule("deny", tool="*")]
    assert decide(rules, subject()).decision == "deny"


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ({"tool": "*"}, {}),
        ({"pattern": "*"}, {"pattern": "print*"}),
        ({"pattern": "p*"}, {"pattern": "print*"}),
        ({}, {"scope": "project", "scope_id": "project-1"}),
        ({"scope": "project", "scope_id": "project-1"}, {"scope": "conversation", "scope_id": "f-root"}),
        ({"updated_at": 1}, {"updated_at": 2}),
    ],
)
def test_the_more_specific_of_allow_and_ask_decides(weaker: dict[str, Any], stronger: dict[str, Any]) -> None:
    assert decide([rule("ask", **weaker), rule("allow", **stronger)], subject()).decision == "allow"
    assert decide([rule("allow", **weaker), rule("ask", **stronger)], subject()).decision == "ask"


def test_rules_of_another_project_or_conversation_do_not_count() -> None:
    others = [
        rule("allow", scope="project", scope_id="project-2"),
        rule("allow", scope="conversation", scope_id="f-else"),
    ]
    assert decide(others, subject()).decision == "ask"


@pytest.mark.parametrize(
    ("pattern", "target"),
    [
        ("*", "anything\nat all"),
        ("print(*", "print(1)"),
        ("a?c", "abc"),
        ("[ab]x", "bx"),
        ("[!ab]x", "cx"),
        ("[*]", "*"),
        ("a*b*c", "a__b__c"),
        ("odd [name", "odd [name"),
        ("x*[z-a]", "x*[z-a]"),
    ],
)
def test_a_glob_matches(pattern: str, target: str) -> None:
    assert matches(pattern, subject(target, code=False), allowing=True)


@pytest.mark.parametrize(
    ("pattern", "target"),
    [("print(*", "xprint(1)"), ("a?c", "ac"), ("[ab]x", "cx"), ("A", "a"), ("a*b", "ab "), ("x*[z-a]", "xq")],
)
def test_a_glob_does_not_match(pattern: str, target: str) -> None:
    assert not matches(pattern, subject(target, code=False), allowing=True)


@pytest.mark.parametrize("newline", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("pattern", ["print(*", "print[!x]1*", "print?1*", "print*"])
def test_an_allow_pattern_of_code_stops_at_a_line_end_and_a_deny_pattern_does_not(pattern: str, newline: str) -> None:
    code = subject(f"print(1){newline}import os")
    assert not matches(pattern, code, allowing=True)
    assert matches(pattern, code, allowing=False)


def test_a_whole_code_matches_itself_and_its_hash_matches_nothing_else() -> None:
    code = "print(1)\nprint(2)"
    assert matches(code, subject(code), allowing=True)
    assert matches(code_pattern(code), subject(code), allowing=True)
    assert not matches(code_pattern(code), subject(code + "\n"), allowing=True)


@pytest.mark.parametrize("path", ["a*.csv", "what?.txt", "[draft].md", "plain.txt"])
def test_a_remembered_path_matches_that_path_only(path: str) -> None:
    assert matches(literal_pattern(path), subject(path, code=False), allowing=True)
    assert not matches(literal_pattern(path), subject(path.replace("*", "x").replace("?", "y") + "z"), allowing=True)


def test_matching_time_grows_with_the_text_and_not_with_its_power() -> None:
    pattern = "*a*b*c*d*e*f*g*zz"
    small, large = (subject("abcdefg" * count, code=False) for count in (2_000, 20_000))
    matches(pattern, small, allowing=False)
    started = process_time()
    matches(pattern, small, allowing=False)
    middle = process_time()
    matches(pattern, large, allowing=False)
    assert process_time() - middle < 100 * (middle - started) + 0.05
