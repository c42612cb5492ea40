"""Records in SQLite, immutable bytes, the query guard and the error tree."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .guard import GuardedReader
    from .guard_results import Encoded, Table

__all__ = ["Encoded", "GuardedReader", "Table"]

# Resolved on first use, as in `cellhost` itself: a server that only answers a ping loads no query guard.
_HOMES = {"Encoded": "guard_results", "GuardedReader": "guard", "Table": "guard_results"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cellhost.store' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
