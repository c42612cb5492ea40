"""One request or notification while it is served."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    import anyio

    from .connection import Connection
    from .dialect import Dialect

Id = int | str


class Incoming:
    """A call from the wire. `id` is None for a notification; `reply` takes the finished response.

    `size`: bytes of memory it counts with.
    """

    __slots__ = ("cancelled", "connection", "dialect", "id", "method", "params", "reply", "scope", "size")

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        method: str,
        params: Any,
        id_: Id | None,
        reply: Callable[[dict[str, Any] | None], None],
        size: int,
    ) -> None:
        self.connection = connection
        self.dialect = dialect
        self.method = method
        self.params = params
        self.id = id_
        self.reply = reply
        self.size = size
        self.scope: anyio.CancelScope | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """End the call, whether it runs or still waits for a worker."""
        self.cancelled = True
        if self.scope is not None:
            self.scope.cancel()

    def aside(self) -> AbstractContextManager[None]:
        """Entered while the call waits for its turn or for what is limited elsewhere: it holds no worker."""
        return self.connection.workers.aside()

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Entered while the call waits for a job, for news or for a person: it holds no worker.

        Raises:
            Busy: too many calls wait already.
        """
        with self.connection.load.waiting(self.size), self.aside():
            yield
