"""The signature our handlers show to jsonrpcserver, which binds it for every call.

The host validates the parameters; here everything fits. A ready-made signature spares `inspect` the work of making one
from the function each time.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

F = TypeVar("F")

_ANYTHING = inspect.Signature(
    [
        inspect.Parameter("incoming", inspect.Parameter.POSITIONAL_ONLY),
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)


def takes_anything(handler: F) -> F:
    """Mark a handler `(incoming, /, *args, **kwargs)` with its signature."""
    marked: Any = handler
    marked.__signature__ = _ANYTHING
    return handler
