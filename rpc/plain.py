"""The plain dialect's methods: every method of the host, and those that concern the connection itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tools.call import Call
from .connection import answer
from .signature import takes_anything

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tools.host import Host
    from .dialect import Handler
    from .incoming import Incoming
    from .jsonrpc import Result


class PlainMethods(dict[str, "Handler"]):
    """Handlers by name; one that is not there is made: the host answers for it, so that it is audited too."""

    def __init__(self, host: Host, stop: Callable[[], None]) -> None:
        super().__init__({name: _host_method(host, name) for name in host.methods})
        self._host = host
        self["shutdown"] = self["exit"] = _stopping(stop)

    def __missing__(self, name: str) -> Handler:
        return _host_method(self._host, name)


def _host_method(host: Host, name: str) -> Handler:
    async def call(incoming: Incoming, params: Any) -> Any:
        waiting = incoming.connection.workers.waiting
        return await host.call(name, params, Call(host, "plain", encoded=True, waiting=waiting))

    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        return await answer(call(incoming, list(args) or kwargs))

    return handle


def _stopping(stop: Callable[[], None]) -> Handler:
    async def end() -> None:
        stop()

    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        del incoming, args, kwargs
        return await answer(end())

    return handle
