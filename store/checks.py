"""What the store refuses to keep, said the way the contract says it: a JSON path and a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import InvalidParams, Issue

if TYPE_CHECKING:
    from collections.abc import Iterable


def invalid(path: str, message: str) -> InvalidParams:
    """The error for one bad argument; `path` is a JSON path such as `$.cursor`."""
    return InvalidParams(f"{path}: {message}", [Issue(path, message)])


def check_one_of(path: str, value: str, allowed: Iterable[str]) -> None:
    """Raises `InvalidParams` that lists the choices when `value` is none of them."""
    choices = tuple(allowed)
    if value not in choices:
        raise invalid(path, f"must be one of {', '.join(choices)}")


def check_text(path: str, value: str, *, most: int) -> None:
    """Raises `InvalidParams` for an empty or over-long text, or one that UTF-8 cannot hold."""
    if not 0 < len(value) <= most:
        raise invalid(path, f"must have 1 to {most} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(path, "holds half of a surrogate pair") from None
