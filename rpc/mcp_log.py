"""Our log as MCP's `notifications/message`, for peers of the handshake era that asked for a level."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import anyio.from_thread
import anyio.lowlevel

from ..store.errors import InvalidParams, Issue

if TYPE_CHECKING:
    from .outgoing import Outgoing

# RFC 5424's names, as the protocol has them, by Python's levels.
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
_NAMES = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}


class McpLog(logging.Handler):
    """Sends what cellhost logs, from the level that was set on; silent until then."""

    def __init__(self, outgoing: Outgoing) -> None:
        super().__init__(logging.CRITICAL + 1)
        self._outgoing = outgoing
        self._sending = False
        self._thread = threading.get_ident()
        self._loop = anyio.lowlevel.current_token()

    def set_level(self, name: str) -> None:
        """Begin to send from this level on.

        Raises:
            InvalidParams: not one of the protocol's levels.
        """
        if name not in LEVELS:
            raise InvalidParams("unknown level", [Issue("$.level", f"must be one of {', '.join(LEVELS)}")])
        self.setLevel(LEVELS[name])
        ours = logging.getLogger("cellhost")
        ours.setLevel(min(LEVELS[name], logging.getLogger().level))
        ours.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record: its message without a traceback, which stays in our own log."""
        try:
            self._emit(record)
        except Exception:  # noqa: BLE001 (whoever logs is not concerned: text that is no JSON, a loop that has ended)
            self.handleError(record)

    def _emit(self, record: logging.LogRecord) -> None:
        level = _NAMES.get(record.levelno, "critical")
        params = {"level": level, "logger": record.name, "data": record.getMessage()}
        if threading.get_ident() == self._thread:
            self._send(params)
        else:
            anyio.from_thread.run_sync(self._send, params, token=self._loop)

    def _send(self, params: dict[str, Any]) -> None:
        if self._sending:  # whatever sending logs is not sent
            return
        self._sending = True
        try:
            self._outgoing.notify("notifications/message", params)
        finally:
            self._sending = False
