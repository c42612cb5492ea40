"""One cell on its way through a kernel: what its messages say, and when it is over.

A cell is over when its reply *and* the kernel's `idle` for it have come; either may come first and one may be lost,
so after the first the second is waited for only so long.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from ...store.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from .channels import Message

MAX_TEXT = 100_000
MAX_LINE = 4_000
FIRST_FRAMES = 5
LAST_FRAMES = 10
_OUTPUTS = frozenset({"display_data", "update_display_data", "execute_result", "clear_output"})
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class CellError(msgspec.Struct, frozen=True):
    """What a cell raised; all three are bounded."""

    name: str
    value: str
    traceback: str


class Execution:
    """The state of one execute request; the events tell its stages, and `on_output` gets what it displays."""

    def __init__(self, request_id: str, on_output: Callable[[Message], None]) -> None:
        self.request_id = request_id  # known before the request is sent: the reply may be read while it is
        self._on_output = on_output
        self.sent_at = time.time_ns() // 1_000_000  # epoch milliseconds
        self.started = anyio.Event()  # the kernel has begun with it: from here on an interrupt reaches the code
        self.ending = anyio.Event()  # the reply or the idle is there
        self.over = anyio.Event()  # both are
        self.started_at: int | None = None  # epoch milliseconds
        self.status: str | None = None
        self.error: CellError | None = None
        self.result: str | None = None
        self.exit_requested = False
        self.heard = 0  # publications so far
        self._replied = False
        self._idle = False

    def take_reply(self, message: Message) -> None:
        """Note the reply to the request; replies to others are ignored."""
        if message.parent_id != self.request_id or message.type != "execute_reply":
            return
        content = message.content
        self.status = str(content.get("status"))
        if self.status != "ok":
            self.error = read_error(content)
        self.exit_requested = any(_is_exit(payload) for payload in content.get("payload") or ())
        self._replied = True
        self._begin()
        self._advance()

    def take_publication(self, message: Message) -> None:
        """Note what is published on behalf of the request."""
        if message.parent_id != self.request_id:
            return
        self.heard += 1
        if message.type in _OUTPUTS:
            self._on_output(message)
        if message.type == "execute_input":
            self._begin()
        elif message.type == "execute_result":
            self.result = bounded(str(message.content["data"].get("text/plain", "")), MAX_TEXT)
        elif message.type == "status" and message.content.get("execution_state") == "idle":
            self._idle = True
            self._advance()

    def _begin(self) -> None:
        if self.started_at is None:
            self.started_at = time.time_ns() // 1_000_000
            self.started.set()

    def _advance(self) -> None:
        self.ending.set()
        if self._replied and self._idle:
            self.over.set()


def _is_exit(payload: dict[str, Any]) -> bool:
    return payload.get("source") == "ask_exit" and not payload.get("keepkernel")


def read_error(content: dict[str, Any]) -> CellError:
    """The error in an `execute_reply` or `error` message, without colours and bounded."""
    frames = [_COLOUR.sub("", str(frame)) for frame in content.get("traceback") or ()]
    name, value = str(content.get("ename", "Error")), str(content.get("evalue", ""))
    return CellError(bounded(name, 200), bounded(_COLOUR.sub("", value), MAX_LINE), shorten_traceback(frames))


def shorten_traceback(frames: list[str]) -> str:
    """The first 5 and the last 10 frames of a traceback, each bounded.

    A kernel sends a heading, the frames, and a last entry with the message.
    """
    left_out = len(frames) - (1 + FIRST_FRAMES + LAST_FRAMES + 1)
    if left_out > 0:
        note = f"[… {counted(left_out, 'frame')} left out …]"
        frames = [*frames[: 1 + FIRST_FRAMES], note, *frames[-LAST_FRAMES - 1 :]]
    return "\n".join(bounded(frame, MAX_LINE) for frame in frames)


def bounded(text: str, limit: int) -> str:
    """The text, or its beginning and end with a note of what is missing between them."""
    if len(text) <= limit:
        return text
    note = f"\n[… {counted(len(text) - limit, 'character')} left out …]\n"
    return text[: limit // 2] + note + text[-(limit - limit // 2) :]
