"""What one peer has told about itself, by its handshake or by subscribing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dialect import EDITOR, MCP, PLAIN

if TYPE_CHECKING:
    from .dialect import Dialect


class Peer:
    """State of a connection that outlives its requests. A probe or a stateless request changes nothing here."""

    __slots__ = ("can_elicit", "editor", "events", "mcp_version", "shutting_down")

    def __init__(self) -> None:
        self.mcp_version: str | None = None
        """The revision agreed on in an MCP handshake."""
        self.can_elicit = False
        """The MCP handshake declared form elicitation."""
        self.editor = False
        """An editor's `initialize` came."""
        self.shutting_down = False
        """An editor's `shutdown` came: only `exit` may follow."""
        self.events: set[str] = set()
        """What a plain peer subscribed to."""

    @property
    def dialect(self) -> Dialect:
        """How to write to a peer whose message could not be read."""
        if self.mcp_version is not None:
            return MCP
        return EDITOR if self.editor else PLAIN
