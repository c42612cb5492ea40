"""The signature our handlers show to jsonrpcserver, which binds it for every call.

The host validates the parameters; here everything fits. So binding need not happen: it costs more than the rest of the
dispatch, and so does making a signature from the function each time.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

F = TypeVar("F")


class _Anything(inspect.Signature):
    """`(incoming, /, *args, **kwargs)`, to which all arguments bind; nobody asks to what."""

    def bind(self, *_args: Any, **_kwargs: Any) -> inspect.BoundArguments:
        return _BOUND


_ANYTHING = _Anything(
    [
        inspect.Parameter("incoming", inspect.Parameter.POSITIONAL_ONLY),
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)
_BOUND = inspect.Signature.bind(_ANYTHING, None)


def takes_anything(handler: F) -> F:
    """Mark a handler `(incoming, /, *args, **kwargs)` with its signature."""
    marked: Any = handler
    marked.__signature__ = _ANYTHING
    return handler
