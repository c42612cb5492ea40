"""The one error tree: everything cellhost raises on purpose, with the wire code each becomes.

    HostError                      base; never raised itself
    ├── InvalidParams              params      -32602  (ValueError)
    ├── UnknownMethod              method      -32601  (LookupError)
    ├── QueryError                 sql         -31400  (ValueError)
    ├── PermissionNeeded           permission  -31401
    ├── Denied                     denied      -31403  (PermissionError)
    │   └── NotReadOnly            denied      -31403  (ValueError too)
    ├── NotFound                   not_found   -31404  (KeyError)
    ├── TimedOut                   timeout     -31408  (TimeoutError)
    ├── Closed                     closed      -31410  (RuntimeError)
    ├── TooLarge                   too_large   -31413  (ValueError)
    ├── Busy                       busy        -31429  (RuntimeError)
    ├── StorageError               storage     -31507  (RuntimeError)
    └── InternalError              internal    -32603  (RuntimeError)

A message says what went wrong and carries no absolute path, traceback or SQL of ours; `hint` says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ISSUES = 16


class Issue(msgspec.Struct, frozen=True):
    """One problem with a call's arguments; `path` is a JSON path such as `$.params[3]`."""

    path: str
    message: str


class HostError(Exception):
    """Base of the tree: `kind`, `code`, `retryable` are the class's, `hint` and `data` the occurrence's."""

    kind: ClassVar[str] = "internal"
    code: ClassVar[int] = -32603
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.data = data or {}

    def __str__(self) -> str:
        # OSError and KeyError, mixed in below, would print "[Errno …]" or quotes.
        return self.message

    def as_data(self) -> dict[str, Any]:
        """The `data` member of the wire error: kind, retryable, hint where there is one, and the rest."""
        data: dict[str, Any] = {"kind": self.kind, "retryable": self.retryable}
        if self.hint:
            data["hint"] = self.hint
        return data | self.data


class InvalidParams(HostError, ValueError):
    """The arguments do not fit the method; `issues` lists up to 16 problems together."""

    kind = "params"
    code = -32602

    def __init__(self, message: str, issues: Sequence[Issue] = (), *, hint: str | None = None) -> None:
        self.issues = tuple(issues)[:MAX_ISSUES]
        listed = [{"path": issue.path, "message": issue.message} for issue in self.issues]
        super().__init__(message, hint=hint, data={"issues": listed})


class UnknownMethod(HostError, LookupError):
    """No method of that name; the hint names the nearest."""

    kind = "method"
    code = -32601


class QueryError(HostError, ValueError):
    """The SQL itself has an error, as SQLite words it."""

    kind = "sql"
    code = -31400


class PermissionNeeded(HostError):
    """The gate said no; `data` has `tool`, `request_id` and `allow_with`. In process it becomes a result."""

    kind = "permission"
    code = -31401


class Denied(HostError, PermissionError):
    """What the call would do is never allowed, whatever the rules say."""

    kind = "denied"
    code = -31403


class NotReadOnly(Denied, ValueError):
    """A statement that is not a read, by its first verb."""


class NotFound(HostError, KeyError):
    """Absent, malformed or another project's: the same words for all three."""

    kind = "not_found"
    code = -31404


class TimedOut(HostError, TimeoutError):
    """The time limit ended the work."""

    kind = "timeout"
    code = -31408


class Closed(HostError, RuntimeError):
    """Not open yet, or shutting down."""

    kind = "closed"
    code = -31410


class TooLarge(HostError, ValueError):
    """Over a limit of size; the hint names the argument to go on with."""

    kind = "too_large"
    code = -31413


class Busy(HostError, RuntimeError):
    """Too many at once; the same call may go through later."""

    kind = "busy"
    code = -31429
    retryable = True


class StorageError(HostError, RuntimeError):
    """The data folder or workspace cannot be used: full, read-only, locked, too new, damaged."""

    kind = "storage"
    code = -31507


class InternalError(HostError, RuntimeError):
    """A fault of ours: an opaque id for the caller, the traceback in the log."""
