"""Responses as they stand on the wire, and the boundary where a fault of ours becomes one."""

from __future__ import annotations

import logging
import math
import secrets
from typing import TYPE_CHECKING, Any

import anyio

from ..store.errors import HostError, InternalError
from . import jsonrpc
from .dialect import CANCELLED

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .dialect import Dialect
    from .incoming import Id, Incoming

logger = logging.getLogger(__name__)

INVALID_REQUEST = -32600

Response = dict[str, Any]


def response(id_: Id | None, *, null_id: bool = True, **content: Any) -> Response:
    """A response object; without a known id it carries null or, for peers that want that, no id."""
    written: Response = {"jsonrpc": "2.0"}
    if id_ is not None or null_id:
        written["id"] = id_
    return written | content


def error_response(id_: Id | None, error: HostError, dialect: Dialect) -> Response:
    """The response that carries one of our errors."""
    content = {"code": error.code, "message": error.message, "data": error.as_data()}
    return response(id_, null_id=dialect.null_id, error=content)


def invalid_request(reason: str, id_: Id | None, dialect: Dialect, data: dict[str, Any] | None = None) -> Response:
    """The response to what is no request, or none that can be taken now."""
    error = {
        "code": INVALID_REQUEST,
        "message": f"Invalid request: {reason}",
        "data": {"kind": "request", "retryable": False} | (data or {}),
    }
    return response(id_, null_id=dialect.null_id, error=error)


def cancelled(incoming: Incoming, done: Response | None) -> Response | None:
    """What a cancelled call is answered: its result if it got that far, or nothing at all, as the dialect has it."""
    if not incoming.dialect.answers_cancelled:
        return None
    return done or response(incoming.id, error={"code": CANCELLED, "message": "the request was cancelled"})


async def answer(work: Awaitable[Any]) -> jsonrpc.Result:
    """Await a handler's work and turn however it ends into a result. The one boundary: nothing gets past it."""
    try:
        return jsonrpc.succeeded(await work)
    except HostError as error:
        return jsonrpc.failed(error.code, error.message, error.as_data())
    except (Exception, anyio.get_cancelled_exc_class()) as error:
        if not isinstance(error, Exception) and anyio.current_effective_deadline() == -math.inf:
            raise  # cancelled by whoever may; a library's own cancellation that got this far is a fault
        fault = internal_error(error)
        return jsonrpc.failed(fault.code, fault.message, fault.as_data())


def internal_error(error: BaseException) -> InternalError:
    """What a caller learns of a fault of ours: an id to look for in the log."""
    reference = secrets.token_hex(6)
    logger.error("internal error %s", reference, exc_info=error)
    return InternalError(
        f"Internal error {reference}", hint="the server's log has more under this id", data={"id": reference}
    )
