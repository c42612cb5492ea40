"""The keyword gate: a clear message for statements that plainly do not read.

It is no boundary: what it lets through still meets the worker's authorizer. A verb it does not know goes to SQLite
and gets SQLite's error.
"""

from __future__ import annotations

import re

from .errors import NotReadOnly, QueryError
from .guard_policy import READING_PRAGMAS

_BLANK = r"(?:[ \t\r\n\f\ufeff]|--[^\n]*|/\*.*?(?:\*/|\Z))"
_FIRST = re.compile(rf"{_BLANK}*+(\w*)", re.DOTALL)
_PLAN = re.compile(rf"{_BLANK}++query{_BLANK}++plan\b", re.DOTALL | re.IGNORECASE)
_PRAGMA = re.compile(rf"{_BLANK}++(?:\w+{_BLANK}*+\.{_BLANK}*+)?(\w+)", re.DOTALL)

WRITING_VERBS = frozenset(
    (
        "alter", "analyze", "attach", "begin", "commit", "create", "delete", "detach", "drop", "end", "grant",
        "insert", "merge", "reindex", "release", "replace", "revoke", "rollback", "savepoint", "truncate", "update",
        "upsert", "vacuum",
    )
)  # fmt: skip
ALLOWED = (
    "allowed are SELECT, WITH … SELECT, VALUES, EXPLAIN QUERY PLAN, "
    f"and PRAGMA {', '.join(READING_PRAGMAS[:-1])} and {READING_PRAGMAS[-1]}"
)


def not_read_only(what: str) -> NotReadOnly:
    """The error for a statement that does more than read; `what` says which part of it."""
    return NotReadOnly(f"query only allows read-only statements: {what}", hint=ALLOWED)


def check_verb(sql: str) -> str:
    """The statement's first word in lower case. Raises `NotReadOnly`, or `QueryError` for an empty statement."""
    found = _FIRST.match(sql)
    assert found is not None
    verb = found[1].lower()
    if not verb and found.end() == len(sql):
        raise QueryError("the statement is empty", hint=ALLOWED)
    if verb != "explain":
        _check(verb, sql, found.end())
        return verb
    plan = _PLAN.match(sql, found.end())
    if plan is None:
        raise not_read_only("EXPLAIN without QUERY PLAN is not one")
    explained = _FIRST.match(sql, plan.end())
    assert explained is not None
    _check(explained[1].lower(), sql, explained.end())
    return verb


def _check(verb: str, sql: str, position: int) -> None:
    if verb in WRITING_VERBS:
        raise not_read_only(f"{verb.upper()} is not one")
    if verb == "pragma":
        _check_pragma(sql, position)


def _check_pragma(sql: str, position: int) -> None:
    found = _PRAGMA.match(sql, position)
    if found is not None and found[1].lower() not in READING_PRAGMAS:
        raise not_read_only(f"PRAGMA {found[1][:64]} is not among those that may be read")


def plan_of(sql: str, verb: str) -> str:
    """The statement that explains this one."""
    return sql if verb == "explain" else f"explain query plan {sql}"
