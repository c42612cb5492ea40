"""One peer's connection: frames in, each to its dialect and handler, replies out.

Knows no descriptor: it is fed frames and given a `send`. The wire and the kernel door are two users of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import anyio
import msgspec

from ..store.errors import Busy
from . import jsonrpc, strictjson
from .batch import Batch
from .dialect import EDITOR, MCP, PLAIN, STATELESS, STATELESS_VERSION_KEY, Dialect, Handler
from .framing import BadHeader, Oversized
from .incoming import Incoming
from .load import CALL_COST, Load
from .outgoing import Outgoing
from .peer import Peer
from .responses import cancelled, error_response, internal_error, invalid_request, response
from .workers import Queue, Workers

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from ..tools.method import Method
    from .framing import Item
    from .incoming import Id
    from .responses import Response


MAX_BATCH = 10_000
"""Requests in one batch: an error for each of millions would take many times the memory of the frame."""


class Methods(msgspec.Struct, frozen=True):
    """What a connection serves: a table of handlers for each dialect, and which names do not go in the main queue.

    A table may make up handlers for names it does not hold, so that unknown methods are answered like any other.
    """

    plain: Mapping[str, Handler]
    mcp: Mapping[str, Handler] = {}
    mcp_stateless: Mapping[str, Handler] = {}
    editor: Mapping[str, Handler] = {}
    queues: Mapping[str, Queue] = {}

    def table(self, dialect: Dialect) -> Mapping[str, Handler]:
        """The handlers of a dialect."""
        return cast("Mapping[str, Handler]", getattr(self, dialect.name))


class Connection:
    """State of one peer: its calls in flight, ours to it, what it has told; workers live in `tasks`."""

    def __init__(self, send: Callable[[bytes], None], tasks: TaskGroup) -> None:
        self.methods = Methods(plain={})
        self.peer = Peer()
        self.load = Load()
        self.outgoing = Outgoing(send, self.load.look_again)
        self.workers = Workers(tasks, self._serve)
        self.in_flight: dict[Id, Incoming] = {}
        self.unanswered = 0
        self._send = send
        self._quiet = anyio.Event()

    def receive(self, item: Item) -> None:
        """Take one frame, or what stands for one that could not be read. Never raises, never waits."""
        if isinstance(item, Oversized):
            if self.outgoing.waits_for(item.id):  # an answer to us, of which no more can be known
                self.outgoing.answered({"id": item.id})
                return
            self._refuse(f"the frame has {item.size} bytes, more than a frame may have", item.id)
            return
        if isinstance(item, BadHeader):
            self._refuse(item.reason, None)
            return
        try:
            message = strictjson.decode(item)
        except strictjson.ParseFault as fault:
            self._respond(error_response(None, fault, self.peer.dialect))
            return
        if isinstance(message, list):
            self._batch(cast("list[Any]", message), len(item))
        else:
            self._one(message, self._respond, len(item))

    async def room(self) -> None:
        """Return when more may be taken: the peer's calls hold no more than they should, or we have asked it something.

        An answer to us must be read, whatever comes before it; calls that come meanwhile are refused.
        """
        if self.load.full:
            await self.load.room(lambda: self.outgoing.open)

    async def answered(self) -> None:
        """Return when every request that came in has its answer."""
        while self.unanswered:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    def cancel(self, id_: Any) -> None:
        """Cancel the request of that id, if it is in flight; one that has not begun is settled at once."""
        incoming = self.in_flight.get(id_) if _is_id(id_) else None
        if incoming is None:
            return
        incoming.cancel()
        if incoming.scope is None:
            self._settle(incoming, None)

    def _batch(self, messages: list[Any], size: int) -> None:
        if not messages or len(messages) > MAX_BATCH:
            self._refuse(f"a batch has 1 to {MAX_BATCH} requests", None)
            return
        batch = Batch(len(messages), self._respond)
        for message in messages:
            self._one(message, batch.add, size // len(messages))

    def _one(self, message: Any, reply: Callable[[Any], None], size: int) -> None:
        if not isinstance(message, dict):
            reply(invalid_request("a request is an object", None, self.peer.dialect))
            return
        request = cast("dict[str, Any]", message)
        if "method" not in request and ("result" in request or "error" in request):
            self.outgoing.answered(request)
            reply(None)
            return
        method, params = request.get("method"), request.get("params")
        dialect = self._dialect_of(method, params) if isinstance(method, str) else self.peer.dialect
        problem = _problem(request)
        if problem:
            reply(self._invalid(problem, _id_of(request), dialect))
            return
        id_ = _id_of(request)
        if id_ is not None and id_ in self.in_flight:
            reply(self._invalid("a request of this id is in flight", id_, dialect))
            return
        self._accept(Incoming(self, dialect, cast("str", method), params, id_, reply, size + CALL_COST))

    def _accept(self, incoming: Incoming) -> None:
        id_, reply = incoming.id, incoming.reply
        if id_ is None and self._notified(incoming):
            reply(None)
            return
        if self.load.full and self.outgoing.open:
            reply(error_response(id_, _too_much(), incoming.dialect) if id_ is not None else None)
            return
        if id_ is not None:
            self.in_flight[id_] = incoming
        self.unanswered += 1
        self.load.take(incoming.size)
        self.workers.put(incoming, self._queue_of(incoming.method, incoming.params))

    def _dialect_of(self, method: str, params: Any) -> Dialect:
        if isinstance(params, dict):
            given = cast("dict[str, Any]", params)
            if STATELESS_VERSION_KEY in _object(given.get("_meta")):
                return STATELESS
            if method == "initialize" and self.methods.editor:
                return MCP if "protocolVersion" in given else EDITOR
        if method == "ping":
            return MCP if self.peer.mcp_version is not None else self._own_dialect()
        if method in self.methods.mcp:
            return MCP
        return STATELESS if method in self.methods.mcp_stateless else self._own_dialect()

    def _own_dialect(self) -> Dialect:
        return EDITOR if self.peer.editor else PLAIN

    def _queue_of(self, method: str, params: Any) -> Queue:
        name = str(_object(params).get("name")) if method == "tools/call" else method
        return self.methods.queues.get(name, "main")

    def _notified(self, incoming: Incoming) -> bool:
        """Act on a notification that needs no worker; False for a call whose caller wants no answer."""
        params = _object(incoming.params)
        if incoming.method == "$/cancelRequest":
            self.cancel(params.get("id"))
        elif incoming.method == "notifications/cancelled":
            self.cancel(params.get("requestId"))
        elif incoming.method == "initialized" and self.peer.editor:
            pass
        elif not incoming.method.startswith(("$/", "notifications/")):
            return False
        return True

    async def _serve(self, incoming: Incoming, scope: anyio.CancelScope) -> None:
        answer: Response | None = None
        try:
            if not incoming.cancelled:
                incoming.scope = scope
                answer = await self._answer(incoming)
        finally:
            self.unanswered -= 1
            self.load.drop(incoming.size)
            if incoming.scope is not None:  # else it was cancelled before it began, and is settled
                self._settle(incoming, answer)
            if not self.unanswered:
                self._quiet.set()

    def _settle(self, incoming: Incoming, answer: Response | None) -> None:
        """Answer a call, if its caller wants that; from now on its id is free and nothing cancels it."""
        if incoming.id is not None:
            self.in_flight.pop(incoming.id, None)
        if incoming.cancelled:
            answer = cancelled(incoming, answer)
        incoming.reply(answer if incoming.id is not None else None)

    async def _answer(self, incoming: Incoming) -> Response:
        table = self.methods.table(incoming.dialect)
        outcome = await jsonrpc.dispatch(table, incoming, incoming.method, incoming.params, incoming.id)
        if isinstance(outcome, jsonrpc.ErrorObject):
            return response(incoming.id, error=outcome)
        return response(incoming.id, result=outcome)

    def _refuse(self, reason: str, id_: Id | None) -> None:
        self._respond(self._invalid(reason, id_, self.peer.dialect))

    def _invalid(self, reason: str, id_: Id | None, dialect: Dialect) -> Response:
        """The answer to what is no request; one with the id of a call in flight would settle that."""
        if id_ in self.in_flight:
            return invalid_request(reason, None, dialect, {"id": id_})
        return invalid_request(reason, id_, dialect)

    def _respond(self, answer: Response | list[Response] | None) -> None:
        if answer is None:
            return
        try:
            self._send(strictjson.encode(answer))
        except strictjson.EncodeFault as fault:
            if isinstance(answer, list):
                answer = [self._encodable(one) for one in answer]
            else:
                answer = error_response(answer.get("id"), internal_error(fault), self.peer.dialect)
            self._send(strictjson.encode(answer))

    def _encodable(self, answer: Response) -> Response:
        """The answer, or the error that takes the place of one that is not JSON."""
        try:
            strictjson.encode(answer)
        except strictjson.EncodeFault as fault:
            return error_response(answer.get("id"), internal_error(fault), self.peer.dialect)
        return answer


def queues_of(methods: Mapping[str, Method[Any, Any]]) -> dict[str, Queue]:
    """The queues of those of the host's methods that do not go in the main one."""
    return {
        name: "urgent" if method.ahead else "apart" for name, method in methods.items() if method.ahead or method.apart
    }


def _too_much() -> Busy:
    return Busy("too much is waiting to be carried out", hint="wait for answers before you send more")


def _object(value: Any) -> dict[str, Any]:
    """Params as named arguments; empty if they are not."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _id_of(request: dict[str, Any]) -> Id | None:
    id_ = request.get("id")
    return id_ if _is_id(id_) else None


def _is_id(value: Any) -> TypeGuard[Id]:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _problem(request: dict[str, Any]) -> str | None:
    """What keeps an object from being a request, or None."""
    if request.get("jsonrpc") != "2.0":
        return '"jsonrpc" must be "2.0"'
    if not isinstance(request.get("method"), str):
        return '"method" must be a string'
    if "id" in request and not _is_id(request["id"]):
        return '"id" must be a string or an integer'
    if not isinstance(request.get("params"), dict | list | None):
        return '"params" must be an object or an array'
    return None
