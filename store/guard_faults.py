"""From a worker's outcome to the error tree: decided by SQLite's name of the error and the guard's own record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .counting import counted
from .errors import Denied, InternalError, InvalidParams, Issue, QueryError, StorageError, TooLarge
from .guard_files import file_fault
from .guard_gate import ALLOWED, not_read_only
from .guard_pool import timed_out

if TYPE_CHECKING:
    from .errors import HostError
    from .guard_process import Head

_MEMORY = frozenset(("SQLITE_NOMEM", "SQLITE_IOERR_NOMEM", "SQLITE_FULL"))
_FILE = tuple(
    f"SQLITE_{name}"
    for name in ("NOTADB", "CORRUPT", "CANTOPEN", "READONLY", "IOERR", "BUSY", "LOCKED", "PROTOCOL", "PERM", "FORMAT")
)
_FILE_OURS = frozenset(("missing", "not_a_file", "replaced"))
_PARAMS = {
    "params": "they do not fit the statement's",
    "unused": "given but not used by the statement (names are given without `:`, `@` or `$`)",
}
_HINTS = {
    "rows": 'pass `limit`, or `format: "table"` for the first rows',
    "bytes": "select fewer columns or rows, or page with LIMIT and OFFSET",
    "columns": "name the columns you need",
}


def error_of(head: Head, file_name: str, timeout_s: float) -> HostError:
    """The error a named outcome becomes; `file_name` has no folder."""
    name = head.name or ""
    if name == "timeout":
        return timed_out(timeout_s)
    if name in _PARAMS:
        return _params(head)
    if name in _HINTS or name == "SQLITE_TOOBIG" or name in _MEMORY:
        return _too_large(head)
    if head.denial and name in ("SQLITE_AUTH", "SQLITE_ERROR"):
        return _denied(head.denial)
    if name in ("SQLITE_AUTH", "SQLITE_INTERRUPT"):  # by nothing on record: the handler itself ran out of memory
        return _too_large(head)
    if name == "internal":
        return InternalError(f"the query worker failed: {head.message}")
    if name in _FILE_OURS or (name.startswith(_FILE) and name != "SQLITE_CORRUPT_VTAB"):
        message, hint = file_fault(head, file_name)
        return StorageError(message, hint=hint)
    return _sql(head)


def _sql(head: Head) -> QueryError:
    match head.name:
        case "empty":
            return QueryError("the statement is empty", hint=ALLOWED)
        case "several":
            return QueryError("only one statement at a time", hint="send each statement as a call of its own")
        case "utf8":
            return QueryError("a column's name is not valid UTF-8", hint="name the columns with AS")
        case "SQLITE_CORRUPT_VTAB":
            return QueryError(head.message, hint="this full-text index does not match its table and must be rebuilt")
        case _:
            return QueryError(head.message)


def _params(head: Head) -> InvalidParams:
    if head.names:
        issues = [Issue(f"$.params.{name}", _PARAMS["unused"]) for name in head.names]
        return InvalidParams(f"unused params: {', '.join(head.names[:5])}", issues)
    return InvalidParams(head.message, [Issue("$.params", head.message)])


def _too_large(head: Head) -> TooLarge:
    match head.name:
        case "rows":
            message = f"the result has more than {counted(head.limit, 'row')}"
        case "bytes":
            message = f"the result has more than {counted(head.limit, 'byte')}"
        case "columns":
            message = f"the result has more than {counted(head.limit, 'column')}"
        case "SQLITE_TOOBIG":
            message = "a value is larger than a value may be, or the statement is too long"
        case _:
            message = "the query needs more memory than a query may use"
    return TooLarge(message, hint=_HINTS.get(head.name or "", "narrow the query, or take parts with substr()"))


def _denied(denial: tuple[str, str, str]) -> Denied:
    action, first, second = denial
    if action == "FUNCTION":
        return Denied(f"the function {second}() is not allowed in a query", hint="plain SQL functions are")
    if action == "PRAGMA":
        return not_read_only(f"PRAGMA {first} is not among those that may be read")
    if action == "READ" or (action == "UPDATE" and first in ("sqlite_master", "sqlite_temp_master")):
        # The second is a virtual table's constructor that was not run before the guard was armed.
        named = first if action == "READ" else "this virtual table"
        return Denied(f"{named} may not be read", hint="json_each, json_tree and the file's own tables may")
    return not_read_only(f"{action} is not one")
