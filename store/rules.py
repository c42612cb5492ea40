"""Permission rules: what was allowed, denied or is to be asked (contract, Permissions). The gate weighs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .checks import check_one_of, check_text, invalid
from .ids import new_id, now_ms
from .rows import Rule

if TYPE_CHECKING:
    from .sqlite import Database

SCOPES = ("global", "project", "conversation")
DECISIONS = ("allow", "deny", "ask")
_MOST_PATTERN = 200_000


class Rules:
    """The `permission_rules` table of control.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set(self, *, scope: str, scope_id: str = "", tool: str, pattern: str, decision: str) -> str:
        """Sets a rule and returns its id; the same (scope, scope_id, tool, pattern) again replaces the decision.

        Raises `InvalidParams`.
        """
        _check(scope, scope_id, tool, pattern, decision)
        now = now_ms()
        rule = Rule(
            rule_id=new_id("perm"),
            scope=scope,
            scope_id=scope_id,
            tool=tool,
            pattern=pattern,
            decision=decision,
            created_at=now,
            updated_at=now,
        )
        ((rule_id,),) = self._database.insert(
            rule,
            "ON CONFLICT (scope, scope_id, tool, pattern) DO UPDATE"
            " SET decision = excluded.decision, updated_at = excluded.updated_at RETURNING rule_id",
        )
        return str(rule_id)

    def applicable(self, *, tool: str, project_id: str, root_frame_id: str | None) -> list[Rule]:
        """The rules that a call of `tool` in that project and session has to do with, whatever its target."""
        where = (
            "WHERE tool IN (?, '*') AND (scope = 'global' OR (scope, scope_id)"
            " IN (VALUES ('project', ?), ('conversation', ?))) ORDER BY rowid"
        )
        return self._database.select(Rule, where, [tool, project_id, root_frame_id])

    def remove(self, rule_id: str) -> bool:
        """Whether there was such a rule to remove."""
        return self._database.execute("DELETE FROM permission_rules WHERE rule_id = ?", [rule_id]) > 0

    def list(self, *, scope: str | None = None, tool: str | None = None) -> list[Rule]:
        """The rules, oldest first, of one scope or one tool where given."""
        return self._database.select(
            Rule, "WHERE scope = ifnull(?, scope) AND tool = ifnull(?, tool) ORDER BY rowid", [scope, tool]
        )


def _check(scope: str, scope_id: str, tool: str, pattern: str, decision: str) -> None:
    check_one_of("$.scope", scope, SCOPES)
    check_one_of("$.decision", decision, DECISIONS)
    check_text("$.tool", tool, most=128)
    check_text("$.pattern", pattern, most=_MOST_PATTERN)
    if scope == "global" and scope_id:
        raise invalid("$.scope_id", "must be empty for the global scope")
    if scope != "global":
        check_text("$.scope_id", scope_id, most=128)
