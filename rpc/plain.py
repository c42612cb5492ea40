"""The plain dialect's methods: every method of the host, and those that concern the connection itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from ..tools.call import Call
from ..tools.normalise import Signature, normalise, validate
from .asking import asker
from .progress import reporting
from .responses import answer
from .signature import takes_anything

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tools.host import Host
    from .dialect import Handler
    from .incoming import Incoming
    from .jsonrpc import Result
    from .subscriptions import Subscriptions

# What an editor's client may add to any request (Language Server Protocol, Work Done Progress).
_EDITOR_MEMBERS = ("workDoneToken", "partialResultToken")


class SubscribeParams(msgspec.Struct, frozen=True):
    events: Annotated[
        list[Literal["exec", "permission"]],
        Meta(description="exec: notifications about jobs; permission: questions come as permission/ask requests."),
    ]


class PlainMethods(dict[str, "Handler"]):
    """Handlers by name; one that is not there is made: the host answers for it, so that it is audited too."""

    def __init__(self, host: Host, subscriptions: Subscriptions, stop: Callable[[int], None]) -> None:
        super().__init__({name: _host_method(host, name) for name in host.methods})
        self._host = host
        self["shutdown"] = self["exit"] = _stopping(stop)
        self["subscribe"] = _subscribing(subscriptions)
        self["rpc.discover"] = _discovering(host)

    def __missing__(self, name: str) -> Handler:
        return _host_method(self._host, name)


def _host_method(host: Host, name: str) -> Handler:
    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        return await answer(call_host(host, name, list(args) or kwargs, incoming))

    return handle


async def call_host(host: Host, name: str, params: Any, incoming: Incoming) -> Any:
    """Carry out a host method for a plain or editor peer."""
    connection = incoming.connection
    with reporting(incoming, params) as progress:
        if incoming.dialect.name == "editor" and isinstance(params, dict):
            given = cast("dict[str, Any]", params)
            params = {key: value for key, value in given.items() if key not in _EDITOR_MEMBERS}
        call = Call(
            host,
            incoming.dialect.door,
            encoded=True,
            aside=incoming.aside,
            waiting=incoming.waiting,
            progress=progress,
            ask=asker(connection),
        )
        return await host.call(name, params, call)


def _subscribing(subscriptions: Subscriptions) -> Handler:
    signature = Signature.of("subscribe", SubscribeParams)

    async def subscribe(incoming: Incoming, params: Any) -> dict[str, Any]:
        asked = cast("SubscribeParams", validate(normalise(params, signature), signature))
        incoming.connection.peer.events |= set(asked.events)
        if "exec" in asked.events:
            subscriptions.follow_jobs()
        return {"events": sorted(incoming.connection.peer.events)}

    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        return await answer(subscribe(incoming, list(args) or kwargs))

    return handle


def _discovering(host: Host) -> Handler:
    async def discover() -> Any:
        from .discover import openrpc_document

        return openrpc_document(host.methods)

    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        del incoming, args, kwargs
        return await answer(discover())

    return handle


def _stopping(stop: Callable[[int], None]) -> Handler:
    async def end() -> None:
        stop(0)

    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        del incoming, args, kwargs
        return await answer(end())

    return handle
