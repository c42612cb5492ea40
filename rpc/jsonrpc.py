"""jsonrpcserver, typed: its method lookup, result types and error mapping, one request at a time.

Its dispatch of whole messages is left aside: that drops a batch for one bad item and costs several times as much. So is
the package's `__init__`, which loads jsonschema and an HTTP server for it: 55 of 70 ms at every start.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


@contextmanager
def _package_not_run(name: str) -> Generator[None]:
    """Let a package's modules be imported without running the package itself; a later import of it does that."""
    spec = find_spec(name)
    if name in sys.modules or spec is None:
        yield
        return
    sys.modules[name] = module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[name]


with _package_not_run("jsonrpcserver"):
    from jsonrpcserver.async_dispatcher import dispatch_request
    from jsonrpcserver.request import Request
    from jsonrpcserver.result import Error, Success

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
