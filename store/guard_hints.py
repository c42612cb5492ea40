"""What to add to SQLite's words about a name it does not know: the nearest table or column of the file."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MISSING = re.compile(r"no such (table|column): (.+)", re.DOTALL)
_OTHER_DIALECTS = {
    "show": "list tables with: select name from sqlite_schema",
    "describe": "list columns with: pragma table_info(<table>)",
    "desc": "list columns with: pragma table_info(<table>)",
    "use": "there is one database; name tables as they are",
    "set": "there are no settings; only statements that read",
}
_SHOWN = 12  # names in a list that is meant to be read


def missing_name(message: str) -> tuple[str, str] | None:
    """What is missing, `table` or `column`, and its name as the statement has it."""
    found = _MISSING.match(message)
    return (found[1], found[2]) if found else None


def dialect_hint(verb: str) -> str | None:
    """What to write instead of a verb of another database."""
    return _OTHER_DIALECTS.get(verb)


def nearest_table(name: str, tables: Mapping[str, Sequence[str]]) -> str | None:
    """The nearest table, or the tables there are."""
    wanted = name.rpartition(".")[2]
    close = _nearest(wanted, tables)
    if close:
        return f"the nearest is {close}"
    return f"there are {_listed(sorted(tables))}" if tables else "the database has no tables"


def nearest_column(name: str, sql: str, tables: Mapping[str, Sequence[str]]) -> str | None:
    """The nearest column among the tables the statement names, such as `artifacts has filename`; else theirs."""
    wanted = name.rpartition(".")[2]
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    used = {table: columns for table, columns in tables.items() if table.lower() in words or f'"{table}"' in sql}
    owners: dict[str, str] = {}
    for table, columns in used.items():
        for column in columns:
            owners.setdefault(column, table)
    close = _nearest(wanted, owners)
    if close:
        return f"{owners[close]} has {close}"
    return "; ".join(f"{table} has {_listed(columns)}" for table, columns in list(used.items())[:3]) or None


def _nearest(name: str, candidates: Mapping[str, object]) -> str | None:
    lowered = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.lower(), lowered, n=1)
    return lowered[close[0]] if close else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
