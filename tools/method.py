"""A method: a name, typed parameters and what it does. Tools are methods with a policy (`tools/tool.py`)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin

import msgspec

from .normalise import Signature
from .schema import Schema, parameters_schema, result_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .call import Call, Door

P = TypeVar("P", bound=msgspec.Struct)
R = TypeVar("R")

ALL_DOORS: frozenset[Door] = frozenset({"plain", "editor", "mcp", "kernel", "in_process"})


class Method(Generic[P, R]):
    """Base of everything callable: `class Ping(Method[PingParams, PingResult])`.

    `name` is what the wire calls it; `doors` are those it may be called through. `mutating` calls take their place
    in the order of their resource keys and are audited before their reply; `audited` is False for calls that look
    at nothing of anybody's.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    doors: ClassVar[frozenset[Door]] = ALL_DOORS
    mutating: ClassVar[bool] = False
    audited: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    """Takes its turn among calls that share its resource keys; a stop and a mere wait do not."""
    ahead: ClassVar[bool] = False
    """Served before queued calls, and never held up by one that has not started."""
    apart: ClassVar[bool] = False
    """Served by processes that have a queue of their own, so that however many there are, no other call waits."""

    params_type: ClassVar[type[msgspec.Struct]]
    result_type: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            arguments = get_args(base)
            if isinstance(get_origin(base), type) and len(arguments) == 2 and isinstance(arguments[0], type):
                cls.params_type, cls.result_type = arguments

    @cached_property
    def signature(self) -> Signature:
        """The parameters, read off their struct on first use: that costs more than importing the class."""
        return Signature.of(self.name, self.params_type)

    async def run(self, params: P, call: Call) -> R:
        """Do it.

        Raises:
            HostError: whatever went wrong, in the caller's terms.
        """
        raise NotImplementedError

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Keys this call shares with others, `prefix:target`."""
        del arguments
        return ()

    @classmethod
    def input_schema(cls) -> Schema:
        """JSON Schema of the parameters."""
        return parameters_schema(cls.params_type)

    @classmethod
    def output_schema(cls) -> Schema:
        """JSON Schema of the result."""
        return result_schema(cls.result_type)
