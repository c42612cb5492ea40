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
_OTHER_FUNCTIONS = {
    "regexp": "there is no REGEXP; use LIKE, GLOB or instr()",
    "concat": "join text with ||",
    "now": "use datetime('now')",
    "left": "use substr(x, 1, n)",
    "right": "use substr(x, -n)",
    "date_trunc": "use date(x, 'start of month') or strftime()",
    "to_char": "use strftime() or printf()",
    "extract": "use strftime('%Y', x)",
}
_SHOWN = 12  # names in a list that is meant to be read
_TABLES = 4
_COMPARED = 2000  # names; comparing takes microseconds each, on the event loop


def missing_name(message: str) -> tuple[str, str] | None:
    """What is missing, `table` or `column`, and its name as the statement has it."""
    found = _MISSING.match(message)
    return (found[1], found[2]) if found else None


def dialect_hint(verb: str) -> str | None:
    """What to write instead of a verb of another database."""
    return _OTHER_DIALECTS.get(verb)


def function_hint(message: str) -> str | None:
    """What to write instead of a function of another database."""
    found = re.match(r"no such function: (\w+)", message)
    return _OTHER_FUNCTIONS.get(found[1].lower()) if found else None


def nearest_table(name: str, tables: Sequence[str]) -> str:
    """The nearest table, or the tables there are."""
    close = _nearest(name.rpartition(".")[2], tables)
    if close:
        return f"the nearest is {close}"
    return f"there are {_listed(tables)}" if tables else "the database has no tables"


def mentioned(sql: str, tables: Sequence[str]) -> list[str]:
    """The tables whose names stand in the statement."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    return [table for table in tables if table.lower() in words or f'"{table}"' in sql][:_TABLES]


def nearest_column(name: str, columns: Mapping[str, Sequence[str]]) -> str | None:
    """The nearest of the tables' columns, such as `artifacts has filename`, or the columns they have."""
    owners = {column: table for table in reversed(list(columns)) for column in columns[table]}
    close = _nearest(name.rpartition(".")[2], list(owners))
    if close:
        return f"{owners[close]} has {close}"
    return "; ".join(f"{table} has {_listed(columns[table])}" for table in columns) or None


def _nearest(name: str, candidates: Sequence[str]) -> str | None:
    lowered = {candidate.lower(): candidate for candidate in candidates[:_COMPARED]}
    close = difflib.get_close_matches(name.lower(), lowered, n=1)
    return lowered[close[0]] if close else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
