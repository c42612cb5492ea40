"""jsonrpcserver, typed: its method lookup, result types and error mapping, one request at a time.

Its dispatch of whole messages is left aside: that drops a batch for one bad item, and costs several times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec
from jsonrpcserver.async_dispatcher import dispatch_request
from jsonrpcserver.request import Request
from jsonrpcserver.result import Error, Success

if TYPE_CHECKING:
    from collections.abc import Mapping

Result: TypeAlias = Any
"""What a handler returns: `succeeded(value)` or `failed(code, message, data)`. jsonrpcserver's own type is untyped."""


class ErrorObject(msgspec.Struct, frozen=True):
    """The `error` member of a response."""

    code: int
    message: str
    data: Any


def succeeded(value: Any) -> Result:
    """The result of a call that went well."""
    return Success(value)


def failed(code: int, message: str, data: Any) -> Result:
    """The result of a call that did not."""
    return Error(code, message, data)


async def dispatch(table: Mapping[str, Any], context: Any, method: str, params: Any, id_: Any) -> Any:
    """Call the handler of `method` with `context` and the params; its value, or an `ErrorObject`."""
    request = Request(method, {} if params is None else params, id_)
    _, outcome = await dispatch_request(cast("Any", table), context, request)
    either: Any = outcome  # an OSlash Either, which has no accessors: Left carries _error, Right _value
    error = getattr(either, "_error", None)
    if error is not None:
        return ErrorObject(error.code, error.message, error.data)
    return either._value.result
