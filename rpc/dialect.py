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

STATELESS_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""In a request's `_meta`: it belongs to MCP's stateless era (revision 2026-07-28, Versioning)."""


class Handler(Protocol):
    """A method as jsonrpcserver calls it: the request as context, then the params."""

    def __call__(self, incoming: Incoming, /, *args: Any, **kwargs: Any) -> Awaitable[Result]: ...


class Dialect(msgspec.Struct, frozen=True):
    """How one kind of peer wants its replies written.

    `null_id`: an error without a known id carries `"id": null` (JSON-RPC 2.0 §5), else no id at all.
    `answers_cancelled`: a cancelled request is answered with -32800, else nothing more is sent for it.
    `cancel`: the notification that takes one of our own requests back, and the name of its parameter.
    """

    name: Literal["plain", "mcp", "mcp_stateless", "editor"]
    door: Literal["plain", "mcp", "editor"]
    null_id: bool
    answers_cancelled: bool
    cancel: tuple[str, str] = ("$/cancelRequest", "id")


_MCP_CANCEL = ("notifications/cancelled", "requestId")

PLAIN = Dialect("plain", "plain", null_id=True, answers_cancelled=True)
MCP = Dialect("mcp", "mcp", null_id=False, answers_cancelled=False, cancel=_MCP_CANCEL)
STATELESS = Dialect("mcp_stateless", "mcp", null_id=False, answers_cancelled=False, cancel=_MCP_CANCEL)
EDITOR = Dialect("editor", "editor", null_id=True, answers_cancelled=True)
