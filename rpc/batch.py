"""A batch: its items are served like any others; their answers go out together (JSON-RPC 2.0 §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Batch:
    """Collects one answer (or None) for each item and hands over those there are; nothing for notifications only."""

    def __init__(self, size: int, reply: Callable[[list[dict[str, Any]] | None], None]) -> None:
        self._missing = size
        self._reply = reply
        self._responses: list[dict[str, Any]] = []

    def add(self, response: dict[str, Any] | None) -> None:
        """Take one item's answer; the last one sends them all."""
        self._missing -= 1
        if response is not None:
            self._responses.append(response)
        if self._missing == 0:
            self._reply(self._responses or None)
