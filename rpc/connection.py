"""One peer's connection: frames in, each to its dialect and handler, replies out.

Knows no descriptor: it is fed frames and given a `send`. The wire and the kernel door are two users of it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec

from ..store.errors import HostError, InternalError
from . import jsonrpc, strictjson
from .batch import Batch
from .dialect import CANCELLED, MCP, PLAIN, Dialect, Handler
from .framing import BadHeader, Oversized
from .incoming import Incoming
from .workers import Workers

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from .framing import Item
    from .incoming import Id

logger = logging.getLogger(__name__)

INVALID_REQUEST = -32600

Response = dict[str, Any]


class Methods(msgspec.Struct, frozen=True):
    """What a connection serves: a table of handlers for each dialect, and the names served ahead of the queue.

    A table may make up handlers for names it does not hold, so that unknown methods are answered like any other.
    """

    plain: Mapping[str, Handler]
    mcp: Mapping[str, Handler]
    urgent: frozenset[str]

    def table(self, dialect: Dialect) -> Mapping[str, Handler]:
        """The handlers of a dialect."""
        return self.mcp if dialect.door == "mcp" else self.plain


class Connection:
    """State of one peer: its calls in flight and what it has told about itself; workers live in `tasks`."""

    def __init__(self, methods: Methods, send: Callable[[bytes], None], tasks: TaskGroup) -> None:
        self.workers = Workers(tasks, self._serve)
        self.in_flight: dict[Id, Incoming] = {}
        self.unanswered = 0
        self.mcp_version: str | None = None
        self._methods = methods
        self._send = send
        self._quiet = anyio.Event()

    def receive(self, item: Item) -> None:
        """Take one frame, or what stands for one that could not be read. Never raises, never waits."""
        if isinstance(item, Oversized):
            self._refuse(f"the frame has {item.size} bytes, more than a frame may have", item.id)
            return
        if isinstance(item, BadHeader):
            self._refuse(item.reason, None)
            return
        try:
            message = strictjson.decode(item)
        except strictjson.ParseFault as fault:
            self._respond(error_response(None, fault, self.dialect))
            return
        if isinstance(message, list):
            self._batch(cast("list[Any]", message))
        else:
            self._one(message, self._respond)

    @property
    def dialect(self) -> Dialect:
        """How errors are written to a peer whose message could not be read."""
        return PLAIN if self.mcp_version is None else MCP

    async def answered(self) -> None:
        """Return when every request that came in has its answer."""
        while self.unanswered:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    def cancel(self, id_: Any) -> None:
        """Cancel the request of that id, if it is in flight."""
        incoming = self.in_flight.get(id_) if isinstance(id_, int | str) else None
        if incoming is not None:
            incoming.cancel()

    def _batch(self, messages: list[Any]) -> None:
        if not messages:
            self._refuse("a batch needs at least one request", None)
            return
        batch = Batch(len(messages), self._respond)
        for message in messages:
            self._one(message, batch.add)

    def _one(self, message: Any, reply: Callable[[Any], None]) -> None:
        if not isinstance(message, dict):
            reply(self._invalid("a request is an object"))
            return
        request = cast("dict[str, Any]", message)
        if "method" not in request and ("result" in request or "error" in request):
            reply(None)  # an answer to nothing we asked
            return
        problem = _problem(request)
        if problem:
            id_ = request.get("id")
            known = isinstance(id_, int | str) and not isinstance(id_, bool)
            reply(self._invalid(problem, cast("Id", id_) if known else None))
            return
        id_ = cast("Id | None", request.get("id"))
        if id_ is not None and id_ in self.in_flight:
            reply(self._invalid("a request of this id is in flight", None, {"id": id_}))
            return
        self._accept(request, id_, reply)

    def _accept(self, request: dict[str, Any], id_: Id | None, reply: Callable[[Any], None]) -> None:
        method: str = request["method"]
        params = request.get("params")
        dialect = self._dialect_of(method)
        incoming = Incoming(self, dialect, method, params, id_, reply)
        if id_ is None and self._notified(incoming):
            reply(None)
            return
        if id_ is not None:
            self.in_flight[id_] = incoming
        self.unanswered += 1
        self.workers.put(
            incoming, urgent=method in self._methods.urgent or _urgent_tool(incoming, self._methods.urgent)
        )

    def _dialect_of(self, method: str) -> Dialect:
        if method == "ping":
            return self.dialect
        if method == "initialize":
            return MCP
        return MCP if method in self._methods.mcp else PLAIN

    def _notified(self, incoming: Incoming) -> bool:
        """Act on a notification that needs no worker; False for a call whose caller wants no answer."""
        params = _object(incoming.params)
        if incoming.method == "$/cancelRequest":
            self.cancel(params.get("id"))
        elif incoming.method == "notifications/cancelled":
            self.cancel(params.get("requestId"))
        elif not incoming.method.startswith(("$/", "notifications/")):
            return False
        return True

    async def _serve(self, incoming: Incoming) -> None:
        response: Response | None = None
        try:
            if not incoming.cancelled:
                with anyio.CancelScope() as incoming.scope:
                    response = await self._answer(incoming)
            if incoming.cancelled:
                response = _cancelled(incoming, response)
        finally:
            if incoming.id is not None:
                self.in_flight.pop(incoming.id, None)
            self.unanswered -= 1
            incoming.reply(response if incoming.id is not None else None)
            if not self.unanswered:
                self._quiet.set()

    async def _answer(self, incoming: Incoming) -> Response:
        table = self._methods.table(incoming.dialect)
        outcome = await jsonrpc.dispatch(table, incoming, incoming.method, incoming.params, incoming.id)
        if isinstance(outcome, jsonrpc.ErrorObject):
            return _response(incoming.id, error=outcome)
        return _response(incoming.id, result=outcome)

    def _invalid(self, reason: str, id_: Id | None = None, data: dict[str, Any] | None = None) -> Response:
        error = {
            "code": INVALID_REQUEST,
            "message": f"Invalid request: {reason}",
            "data": {"kind": "request", "retryable": False} | (data or {}),
        }
        return _response(id_, error=error, null_id=self.dialect.null_id)

    def _refuse(self, reason: str, id_: Id | None) -> None:
        self._respond(self._invalid(reason, id_))

    def _respond(self, response: Response | list[Response] | None) -> None:
        if response is None:
            return
        try:
            self._send(strictjson.encode(response))
        except strictjson.EncodeFault as fault:
            responses = response if isinstance(response, list) else [response]
            failed = [error_response(one.get("id"), internal_error(fault), self.dialect) for one in responses]
            self._send(strictjson.encode(failed if isinstance(response, list) else failed[0]))


def _urgent_tool(incoming: Incoming, urgent: frozenset[str]) -> bool:
    """An MCP call of a tool that is served ahead."""
    return incoming.method == "tools/call" and str(_object(incoming.params).get("name")) in urgent


def _object(params: Any) -> dict[str, Any]:
    """Params as named arguments; empty if they are not."""
    return cast("dict[str, Any]", params) if isinstance(params, dict) else {}


def _cancelled(incoming: Incoming, response: Response | None) -> Response | None:
    """What a cancelled call is answered: its result if it got that far, or nothing at all, as the dialect has it."""
    if not incoming.dialect.answers_cancelled:
        return None
    return response or _response(incoming.id, error={"code": CANCELLED, "message": "the request was cancelled"})


def _problem(request: dict[str, Any]) -> str | None:
    """What keeps an object from being a request, or None."""
    if request.get("jsonrpc") != "2.0":
        return '"jsonrpc" must be "2.0"'
    if not isinstance(request.get("method"), str):
        return '"method" must be a string'
    if "id" in request and (isinstance(request["id"], bool) or not isinstance(request["id"], int | str)):
        return '"id" must be a string or an integer'
    if not isinstance(request.get("params"), dict | list | None):
        return '"params" must be an object or an array'
    return None


def _response(id_: Id | None, *, null_id: bool = True, **content: Any) -> Response:
    """A response object; without a known id it carries null or, for peers that want that, no id."""
    response: Response = {"jsonrpc": "2.0"}
    if id_ is not None or null_id:
        response["id"] = id_
    return response | content


def error_response(id_: Id | None, error: HostError, dialect: Dialect) -> Response:
    """The response that carries one of our errors."""
    return _response(id_, null_id=dialect.null_id, error=error_object(error))


def error_object(error: HostError) -> dict[str, Any]:
    """An error as it stands on the wire."""
    return {"code": error.code, "message": error.message, "data": error.as_data()}


async def answer(work: Awaitable[Any]) -> jsonrpc.Result:
    """Await a handler's work and turn however it ends into a result. The one boundary: nothing gets past it."""
    try:
        return jsonrpc.succeeded(await work)
    except HostError as error:
        return jsonrpc.failed(error.code, error.message, error.as_data())
    except Exception as error:  # noqa: BLE001 (a fault of ours must not end the connection)
        fault = internal_error(error)
        return jsonrpc.failed(fault.code, fault.message, fault.as_data())


def internal_error(error: BaseException) -> InternalError:
    """What a caller learns of a fault of ours: an id to look for in the log."""
    reference = secrets.token_hex(6)
    logger.error("internal error %s", reference, exc_info=error)
    return InternalError(
        f"Internal error {reference}", hint="the server's log has more under this id", data={"id": reference}
    )
