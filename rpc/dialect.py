"""Dialects as values: what differs between peers is data, chosen for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .incoming import Incoming
    from .jsonrpc import Result

CANCELLED = -32800
"""Code of the answer to a cancelled request (Language Server Protocol, `RequestCancelled`)."""


class Handler(Protocol):
    """A method as jsonrpcserver calls it: the request as context, then the params."""

    def __call__(self, incoming: Incoming, /, *args: Any, **kwargs: Any) -> Awaitable[Result]: ...


class Dialect(msgspec.Struct, frozen=True):
    """How one kind of peer wants its replies written.

    `null_id`: an error without a known id carries `"id": null` (JSON-RPC 2.0 §5), else no id at all.
    `answers_cancelled`: a cancelled request is answered with -32800, else nothing more is sent for it.
    """

    door: Literal["plain", "mcp", "editor"]
    null_id: bool
    answers_cancelled: bool


PLAIN = Dialect(door="plain", null_id=True, answers_cancelled=True)
MCP = Dialect(door="mcp", null_id=False, answers_cancelled=False)
EDITOR = Dialect(door="editor", null_id=True, answers_cancelled=True)
