"""The audit: one row for every call, whatever door it came through and however it ended.

A mutating call's row is on disk before its reply; calls in flight together share one commit. Rows of calls that only
read follow within 250 ms.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec

from ..store.counting import counted
from ..store.errors import HostError
from .normalise import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..store.rows import HostCall
    from .call import Call
    from .session import Session
    from .store_thread import StoreThread

LAG_S = 0.25
MANY = 4_000
"""Rows that are written at once, so that a mutating call never waits long behind them."""
MAX_UNWRITTEN = 10_000
PREVIEW_CHARS = 500

_CONTENTS = frozenset({"content", "old", "new"})
_SECRET = re.compile("secret|token|password|passwd|api_?key|credential", re.IGNORECASE)

_encode = msgspec.json.Encoder().encode

logger = logging.getLogger(__name__)


class Entry:
    """A call on its way into the audit; `ended` fixes how long it took."""

    __slots__ = (
        "arguments",
        "at",
        "call",
        "elapsed_us",
        "error_kind",
        "keys",
        "method",
        "request_id",
        "side_effect_class",
        "started",
    )

    def __init__(self, method: str, call: Call) -> None:
        self.method = method
        self.call = call
        self.at = time.time_ns() // 1_000_000
        self.started = time.perf_counter_ns()
        self.elapsed_us = 0
        self.arguments: Any = None
        self.keys: tuple[str, ...] = ()
        self.side_effect_class: str | None = None
        self.request_id: str | None = None
        self.error_kind: str | None = None

    def ended(self) -> Entry:
        """Note the end, and return the entry."""
        self.elapsed_us = (time.perf_counter_ns() - self.started) // 1000
        return self

    def row(self, make: type[HostCall]) -> HostCall:
        """The row it becomes; made by the store's thread, which has the store's modules loaded."""
        identity = self.call.identity
        return make(
            at=self.at,
            door=self.call.door,
            root_frame_id=identity.root_frame_id if identity else None,
            exec_id=identity.exec_id if identity else None,
            method=shown(self.method),
            side_effect_class=self.side_effect_class,
            resource_keys=_encode(self.keys).decode() if self.keys else "[]",
            args_preview=preview(self.arguments),
            ok=self.error_kind is None,
            error_kind=self.error_kind,
            elapsed_us=self.elapsed_us,
            request_id=self.request_id,
        )


def preview(arguments: Any) -> str:
    """The arguments as JSON of at most 500 characters, without file contents and secrets."""
    if isinstance(arguments, dict):
        named = cast("dict[str, Any]", arguments)
        arguments = {name: _shown(name, value) for name, value in named.items()}
    try:
        text = _encode(arguments).decode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError):  # in process, anything may be passed
        text = f"<{type(arguments).__name__}>"
    return text if len(text) <= PREVIEW_CHARS else text[: PREVIEW_CHARS - 1] + "…"


def _shown(name: str, value: Any) -> Any:
    if name in _CONTENTS and isinstance(value, str):
        return f"<{counted(len(value), 'character')}>"
    if _SECRET.search(name):
        return "<hidden>"
    if name == "env" and isinstance(value, dict):
        return dict.fromkeys(cast("Mapping[str, Any]", value), "<hidden>")
    return value[: PREVIEW_CHARS * 2] if isinstance(value, str) else value


class Audit:
    """Collects rows and writes them in groups; `flush_forever` runs in the host's task group."""

    def __init__(self, store: StoreThread, session: Session) -> None:
        self._store = store
        self._session = session
        self._entries: deque[Entry] = deque()  # filled by the loop, emptied by the store's thread
        self._dropped = 0
        self._more = anyio.Event()
        self._many = anyio.Event()

    def add(self, entry: Entry) -> None:
        """Note a call that only read; it is written later."""
        if len(self._entries) >= MAX_UNWRITTEN:
            self._dropped += 1  # the store cannot be written: said once it can
            return
        self._note(entry)
        self._more.set()
        if len(self._entries) >= MANY:
            self._many.set()

    async def commit(self, entry: Entry) -> None:
        """Write a mutating call, and all that wait, before returning.

        Raises:
            StorageError: it could not be written.
        """
        self._note(entry)
        await self.flush()

    def _note(self, entry: Entry) -> None:
        if entry.call.identity is None:  # refused before anybody asked whose it is
            entry.call.identity = self._session.known(entry.call.door)
        self._entries.append(entry.ended())

    async def flush(self) -> None:
        """Write what waits; what cannot be written is kept for the next time."""
        # Calls in flight queue for the store's one thread: the first takes everybody's entries along.
        await self._store.run(self.write_now)

    def write_now(self) -> None:
        """As `flush`, blocking: in the store's thread only."""
        entries = [self._entries.popleft() for _ in range(len(self._entries))]
        if not entries:
            return
        from ..store.rows import HostCall

        for entry in entries:
            if entry.call.identity is None:
                entry.call.identity = self._session.look(entry.call.door)
        try:
            self._store.store.control.audit.add_calls([entry.row(HostCall) for entry in entries])
        except HostError:
            self._entries.extendleft(reversed(entries))
            raise
        if self._dropped:
            logger.warning("%d reading calls are missing in the audit: the store could not be written", self._dropped)
            self._dropped = 0

    async def flush_forever(self) -> None:
        """Write reading calls' rows within `LAG_S` of their arrival, sooner when there are many."""
        while True:
            await self._more.wait()
            with anyio.move_on_after(LAG_S):
                await self._many.wait()
            self._more, self._many = anyio.Event(), anyio.Event()
            try:
                await self.flush()
            except HostError as error:
                logger.warning("the audit could not be written: %s", error)
                await anyio.sleep(LAG_S)
