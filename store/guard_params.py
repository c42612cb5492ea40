"""Parameters of a query, checked and made ready for the worker: an array is positional, an object named."""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING, Any, cast

from .errors import InvalidParams, Issue, TooLarge
from .guard_policy import MAX_PARAMS, MAX_SQL_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Params = Sequence[Any] | Mapping[str, Any]

_INT_BITS = 64
_SCALAR = 'a value is null, a boolean, a number, a string or {"$blob": base64}'


def check_sql(sql: object) -> str:
    """The statement's text without closing semicolons. Raises `InvalidParams`, `TooLarge`."""
    if not isinstance(sql, str):
        raise InvalidParams("sql is not a string", [Issue("$.sql", "a string is needed")])
    try:
        size = len(sql) if sql.isascii() else len(sql.encode())
    except UnicodeEncodeError as error:
        raise InvalidParams("sql is not valid Unicode", [Issue("$.sql", "has a lone surrogate")]) from error
    if "\0" in sql:
        raise InvalidParams("sql has a NUL character", [Issue("$.sql", "has a NUL character")])
    if size > MAX_SQL_BYTES:
        raise TooLarge(f"sql is longer than {MAX_SQL_BYTES} bytes", hint="give values as params, not in the text")
    return sql.rstrip(" \t\r\n\f;")


def encode_params(params: Params | None) -> list[Any] | dict[str, Any]:
    """JSON-ready values. Raises `InvalidParams` that lists every problem, such as `$.params[3]`."""
    if params is None:
        return []
    if isinstance(params, (str, bytes, bytearray)) or not _iterable(params):
        raise InvalidParams("params is neither an array nor an object", [Issue("$.params", "an array or an object")])
    if len(params) > MAX_PARAMS:
        issue = Issue("$.params", f"at most {MAX_PARAMS}")
        raise InvalidParams("too many params", [issue])
    issues: list[Issue] = []
    encoded = {key: _value(value, path, issues) for key, path, value in _items(params, issues)}
    if issues:
        raise InvalidParams("; ".join(f"{issue.path}: {issue.message}" for issue in issues[:3]), issues)
    if isinstance(params, dict) or hasattr(params, "keys"):
        return {str(key): value for key, value in encoded.items()}
    return list(encoded.values())


def _iterable(params: object) -> bool:
    return hasattr(params, "__len__") and (hasattr(params, "keys") or hasattr(params, "__getitem__"))


def _items(params: Params, issues: list[Issue]) -> Iterator[tuple[str | int, str, Any]]:
    if not hasattr(params, "keys"):
        for index, value in enumerate(params):
            yield index, f"$.params[{index}]", value
        return
    for name, value in cast("Mapping[object, Any]", params).items():
        if not isinstance(name, str) or not name or _surrogate(name):
            issues.append(Issue("$.params", "a name is a non-empty string of valid Unicode"))
        else:
            yield name, f"$.params.{name}", value


def _value(value: Any, path: str, issues: list[Issue]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    problem = _SCALAR
    match value:
        case int():
            if -(1 << _INT_BITS - 1) <= value < 1 << _INT_BITS - 1:
                return int(value)
            problem = "an integer has at most 64 bits"
        case float():
            return {"$float": repr(value)} if math.isinf(value) else value
        case str():
            if not _surrogate(value):
                return value
            problem = "has a lone surrogate"
        case bytes() | bytearray():
            return {"$blob": base64.b64encode(value).decode()}
        case {"$blob": str() as text, **rest} if not rest:
            if _is_base64(text):
                return {"$blob": text}
            problem = "$blob is not base64"
        case _:
            pass
    issues.append(Issue(path, problem))
    return None


def _surrogate(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
