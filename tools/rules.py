"""Which permission rule decides: matching patterns, and the order of precedence.

Any matching deny wins; else the most specific allow or ask; else ask.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Literal

import msgspec

from .globs import ANYTHING, compile_glob

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..store.rows import Rule

Decision = Literal["allow", "deny", "ask"]
Scope = Literal["global", "project", "conversation"]

_SCOPE_RANK: dict[str, int] = {"global": 0, "project": 1, "conversation": 2}
_HASH_PREFIX = "sha256:"


class Verdict(msgspec.Struct, frozen=True):
    """What the rules say of one call, and which rule said it (None: no rule matched)."""

    decision: Decision
    rule_id: str | None = None


class Subject(msgspec.Struct, frozen=True):
    """The call the rules are asked about."""

    tool: str
    target: str
    target_is_code: bool
    project_id: str
    root_frame_id: str


def code_pattern(code: str) -> str:
    """The pattern that an approval of code is remembered by: it matches that code and no other."""
    return _HASH_PREFIX + hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


def literal_pattern(text: str) -> str:
    """The glob that matches `text` and nothing else."""
    return re.sub(r"([*?\[])", r"[\1]", text)


def decide(rules: Iterable[Rule], subject: Subject) -> Verdict:
    """Weigh all rules; the verdict is `ask` when none matches."""
    matching = [rule for rule in rules if _applies(rule, subject)]
    denying = next((rule for rule in matching if rule.decision == "deny"), None)
    if denying is not None:
        return Verdict("deny", denying.rule_id)
    if not matching:
        return Verdict("ask")
    best = max(matching, key=_specificity)
    return Verdict("allow" if best.decision == "allow" else "ask", best.rule_id)


def _applies(rule: Rule, subject: Subject) -> bool:
    scope_id = {"global": rule.scope_id, "project": subject.project_id}.get(rule.scope, subject.root_frame_id)
    return (
        rule.tool in ("*", subject.tool)
        and rule.scope_id == scope_id
        and matches(rule.pattern, subject, allowing=rule.decision == "allow")
    )


def _specificity(rule: Rule) -> tuple[bool, bool, int, int, int]:
    return (
        rule.tool != "*",
        rule.pattern != "*",
        len(rule.pattern),
        _SCOPE_RANK[rule.scope],
        rule.updated_at,
    )


def matches(pattern: str, subject: Subject, *, allowing: bool) -> bool:
    """Match a case-sensitive glob (`*`, `?`, `[…]`) with a call's target.

    A text always matches itself and `*` alone everything. In an allow rule no other pattern of code reaches past a
    line's end, so that an allowed first line does not let a second one through.
    """
    target = subject.target
    if pattern in ("*", target):
        return True
    if subject.target_is_code and pattern.startswith(_HASH_PREFIX):
        return pattern == code_pattern(target)
    anything = r"[^\r\n]" if allowing and subject.target_is_code else ANYTHING
    return compile_glob(pattern, anything).fullmatch(target) is not None
