"""The base of all tools: a method that says everything about itself in one class.

class WriteFileTool(Tool[WriteFileParams, WriteFileResult]):
    name = "write_file"
    ...
    async def run(self, params, call): ...
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from ..store.errors import InvalidParams
from .method import Method, P, R
from .normalise import normalise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .call import Call
    from .host import Host

MAX_KEY_CHARS = 512
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Invokes(Protocol):
    """The seam of `Tool.execute`: something that carries a host method out, now or as an awaitable."""

    def invoke(self, method: str, *arguments: Any) -> Any: ...


class Tool(Method[P, R]):
    """A method an agent may call. Metadata is checked at registration (`tools/registry.py`)."""

    host_method: ClassVar[str]
    title: ClassVar[str]
    read_only: ClassVar[bool] = True
    requires_approval: ClassVar[bool] = False
    side_effect_class: ClassVar[str] = "read_only"
    idempotent: ClassVar[bool] = False
    destructive: ClassVar[bool] = False
    """It can undo what somebody did: overwrite a file, end a job."""
    go_on: ClassVar[str] = "ask for less"
    """How a caller gets the rest of an answer that was cut to its door's budget."""
    keyed: ClassVar[bool] = False
    """The answer is a collection by names: cut, it lacks members from its end."""
    bare: ClassVar[str | None] = None
    """The parameter that `execute` forwards as it is when it is the only one given."""
    bare_when_empty: ClassVar[bool] = False
    """`execute` forwards nothing at all when no argument is given."""
    path_parameter: ClassVar[str | None] = None
    """The parameter that names a workspace path: confined and vetoed before any rule is asked."""
    path_from_records: ClassVar[bool] = False
    """The path is no parameter but what `recorded_path` finds; until then the call stands in line for every file."""
    path_named_by: ClassVar[str | None] = None
    """The parameter that an error about such a path names: the caller gave no `path_parameter`."""
    target_is_code: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "host_method" not in cls.__dict__ and "name" in cls.__dict__:
            cls.host_method = cls.name
        cls.mutating = not cls.read_only

    def permission_target(self, arguments: Mapping[str, Any]) -> str:
        """What a permission rule's pattern is matched with; empty for tools that ask for none."""
        del arguments
        return ""

    async def recorded_path(self, params: P, host: Host, project_id: str) -> str:
        """The workspace path that only the records tell; it becomes the argument `path_parameter`."""
        raise NotImplementedError

    async def preview(self, params: P, call: Call) -> str:
        """What a person is shown who is asked about the call: the target, unless a tool has more to show."""
        del call
        return self.permission_target(msgspec.structs.asdict(params))

    def execute(self, context: Invokes, arguments: Mapping[str, Any]) -> Any:
        """Forward one normalised value to `context.invoke(host_method, …)` and return what that returns.

        Raises:
            InvalidParams: an unknown key, or one given twice.
        """
        given = normalise(dict(arguments), self.signature)
        if given.issues:
            raise InvalidParams(f"invalid arguments for {self.name}", given.issues)
        if not given.named and self.bare_when_empty:
            return context.invoke(self.host_method)
        if self.bare is not None and set(given.named) == {self.bare}:
            return context.invoke(self.host_method, given.named[self.bare])
        return context.invoke(self.host_method, given.named)


def resource_key(prefix: str, target: str) -> str:
    """`prefix:target` with `:` as `%3A`, control characters as blanks, at most 512 characters."""
    escaped = _CONTROL.sub(" ", target.replace(":", "%3A"))
    return f"{prefix}:{escaped}"[:MAX_KEY_CHARS]
