"""The editor dialect: the conduct of the Language Server Protocol's base protocol, 3.17, around our own methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..store.errors import HostError
from ..store.version import VERSION
from .responses import INVALID_REQUEST, answer
from .signature import takes_anything

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .dialect import Handler
    from .incoming import Incoming
    from .jsonrpc import Result

WITHOUT_SHUTDOWN = 1
"""Exit code of an `exit` that no `shutdown` came before."""


class ShuttingDown(HostError):
    """A request after `shutdown`, where only `exit` may follow."""

    kind = "request"
    code = INVALID_REQUEST


class EditorMethods(dict[str, "Handler"]):
    """The plain methods, under an editor's life cycle: initialize … shutdown … exit."""

    def __init__(self, plain: Mapping[str, Handler], stop: Callable[[int], None], watch: Callable[[int], None]) -> None:
        super().__init__()
        self._plain = plain
        self["initialize"] = _before_shutdown(_initialising(watch))
        self["shutdown"] = _before_shutdown(_handler(_shut_down))
        self["exit"] = _exiting(stop)

    def __missing__(self, name: str) -> Handler:
        return _before_shutdown(self._plain[name])


def _before_shutdown(handler: Handler) -> Handler:
    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        if incoming.connection.peer.shutting_down:
            return await answer(_refuse())
        return await handler(incoming, *args, **kwargs)

    return handle


def _handler(method: Callable[[Incoming], Any]) -> Handler:
    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        del args, kwargs
        return await answer(method(incoming))

    return handle


async def _refuse() -> None:
    raise ShuttingDown("only exit may follow shutdown")


async def _shut_down(incoming: Incoming) -> None:
    incoming.connection.peer.shutting_down = True


def _initialising(watch: Callable[[int], None]) -> Handler:
    async def initialize(incoming: Incoming, process_id: Any) -> dict[str, Any]:
        incoming.connection.peer.editor = True
        if isinstance(process_id, int) and process_id > 0:
            watch(process_id)  # if it is our parent, its end need not close our input: a sibling may hold that open
        return {"capabilities": {}, "serverInfo": {"name": "cellhost", "version": VERSION}}

    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        del args
        return await answer(initialize(incoming, kwargs.get("processId")))

    return handle


def _exiting(stop: Callable[[int], None]) -> Handler:
    async def end(incoming: Incoming) -> None:
        stop(0 if incoming.connection.peer.shutting_down else WITHOUT_SHUTDOWN)

    return _handler(end)
