"""One request or notification while it is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import anyio

    from .connection import Connection
    from .dialect import Dialect

Id = int | str


class Incoming:
    """A call from the wire. `id` is None for a notification; `reply` takes the finished response."""

    __slots__ = ("cancelled", "connection", "dialect", "id", "method", "params", "reply", "scope")

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        method: str,
        params: Any,
        id_: Id | None,
        reply: Callable[[dict[str, Any] | None], None],
    ) -> None:
        self.connection = connection
        self.dialect = dialect
        self.method = method
        self.params = params
        self.id = id_
        self.reply = reply
        self.scope: anyio.CancelScope | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """End the call, whether it runs or still waits for a worker."""
        self.cancelled = True
        if self.scope is not None:
            self.scope.cancel()
