"""Bytes to frames and back, without I/O: lines and `Content-Length` headers, told apart frame by frame.

    deframer = Deframer()
    deframer.feed(b'{"id": 1}\\n{"id"')    # [b'{"id": 1}']
    deframer.feed(b': 2}\\n')              # [b'{"id": 2}']

A newline ends a frame that has no header, so JSON spread over several lines is not one frame; values that follow each
other on one line are several. What cannot be a frame comes out as `Oversized` or `BadHeader`, and reading goes on at
the next one. The frames do not depend on how the bytes were cut into chunks. At most one frame is held.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Literal

import msgspec

from .frame_text import HEADER_IN_JSON, recovered_id, split_body, split_header, split_values, touching

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_FRAME = 16 * 1024 * 1024
MAX_HEADER = 8 * 1024

Style = Literal["lines", "headers"]

_TOO_LONG = f"the header block is longer than {MAX_HEADER} bytes"
_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_HEAD_KEPT = 64 * 1024
_TAIL_KEPT = 4 * 1024
_HEADER_START = re.compile(rb"content-[a-z-]+[ \t]*:", re.IGNORECASE)
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9a-z-]+)[ \t]*:[ \t]*(.*?)[ \t]*", re.IGNORECASE | re.DOTALL)
_ANSWERED = -1  # the size of what is skipped after its error is out
_OVERLAP = 64  # longer than any header that `HEADER_IN_JSON` matches


class Oversized(msgspec.Struct, frozen=True):
    """A frame over the cap, skipped; `size` in bytes, `id` if what was kept of the frame shows it."""

    id: int | str | None
    size: int


class BadHeader(msgspec.Struct, frozen=True):
    """A header block that announces no frame; `reason` says why."""

    reason: str


Item = bytes | Oversized | BadHeader


def encode(payload: bytes, style: Style) -> bytes:
    """One frame around a JSON text."""
    if style == "headers":
        return b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload)
    if b"\n" in payload:
        # Only blank space between tokens can hold a raw line end, where a space means the same.
        payload = payload.replace(b"\n", b" ")
    return payload + b"\n"


class _State(Enum):
    LINE = auto()
    HEADERS = auto()
    BODY = auto()
    SKIP_LINE = auto()
    SKIP_BODY = auto()


class Deframer:
    """Cuts a byte stream into frames; `style` is the first frame's, in which replies go out."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.style: Style | None = None
        self._max = max_frame
        self._state = _State.LINE
        self._held = bytearray()  # the frame, header line or tail of what is skipped, as far as it has come
        self._need = 0  # bytes of the body that are still to come
        self._size = 0  # bytes of the frame that is skipped, so far
        self._head = bytearray()  # how the frame that is skipped begins
        self._length: int | None = None  # what the header block says so far
        self._header_size = 0
        self._steps: dict[_State, Callable[[bytes, int], int]] = {
            _State.LINE: self._take_line,
            _State.HEADERS: self._take_header,
            _State.BODY: self._take_body,
            _State.SKIP_LINE: self._skip_line,
            _State.SKIP_BODY: self._skip_body,
        }
        self._out: list[Item] = []
        self._again: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Item]:
        """The frames that `chunk` completes, in order; never raises."""
        plain = self._state is _State.LINE and not self._held and b"\n" in chunk and not touching(chunk)
        pending = [(chunk, self._take_plain_lines(chunk) if plain else 0)]
        while pending:
            data, at = pending.pop()
            while at < len(data):
                at = self._steps[self._state](data, at)
                if self._again:
                    # A body that was announced too long holds the start of what follows it.
                    pending.append((data, at))
                    data, at = self._again.pop(), 0
        out, self._out = self._out, []
        return out

    def finish(self) -> list[Item]:
        """The frames that the end of input completes, if any."""
        items = self._flush()
        while self._again:
            items += self.feed(self._again.pop())
            items += self._flush()
        return items

    def _flush(self) -> list[Item]:
        held = bytes(self._held)
        if self._state in {_State.SKIP_LINE, _State.SKIP_BODY}:
            self._emit_oversized()
        elif self._state is _State.BODY and held:
            self._reset()
            self._emit_body(held)
        elif self._state is _State.LINE:
            self._held.clear()
            self._end_line(held)
        if self._state is not _State.LINE:
            self._refuse_header("the input ends where a frame was announced")
        out, self._out = self._out, []
        return out

    # Lines

    def _take_plain_lines(self, data: bytes) -> int:
        """The same as line by line, for the lines at the start of a chunk that need no second look."""
        at = 0
        for line in data.split(b"\n")[:-1]:
            if not line or line[0] not in b"{[" or line[-1] not in b"}]" or len(line) > self._max:
                break
            self._out.append(line)
            at += len(line) + 1
        if at and self.style is None:
            self.style = "lines"
        return at

    def _take_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        piece = data[at:] if end < 0 else data[at:end]
        if end >= 0 and not self._held:
            self._end_line(piece)
        elif end >= 0:
            self._held += piece
            line = bytes(self._held)
            self._held = bytearray()
            self._end_line(line)
        else:
            self._held += piece if self._held else piece.lstrip(_BLANK)
            if len(self._held) > self._max + 1:
                self._start_skip(_State.SKIP_LINE, self._held)
        return len(data) if end < 0 else end + 1

    def _end_line(self, line: bytes) -> None:
        if len(line) > self._max and self._is_over(line := line.lstrip(_BLANK)):
            self._start_skip(_State.SKIP_LINE, line)
            self._finish_skipped_line()
            return
        line = line.strip(_BLANK).removeprefix(_BOM).lstrip(_BLANK)
        if not line:
            return
        if line[0] in b"cC" and _HEADER_START.match(line):
            self._start_header(line)
        elif line[-1] in b"]}":
            self._emit_values(line)
        else:
            self._end_torn_line(line)

    def _is_over(self, line: bytes) -> bool:
        return len(line) > self._max + line.endswith(b"\r")

    def _end_torn_line(self, line: bytes) -> None:
        """What follows a body that was announced too short is the rest of it and the next header."""
        frame, header = split_header(line)
        if frame:
            self._emit_values(frame)
        if header:
            self._start_header(header)

    def _emit_values(self, line: bytes) -> None:
        self.style = self.style or "lines"
        self._out.extend(split_values(line))

    # Header blocks and bodies

    def _start_header(self, line: bytes) -> None:
        self.style = self.style or "headers"
        self._state = _State.HEADERS
        self._length = None
        self._header_size = 0
        if len(line) > MAX_HEADER:
            self._refuse_header(_TOO_LONG)
        else:
            self._end_header_line(line)

    def _take_header(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        self._held += data[at:] if end < 0 else data[at:end]
        line = bytes(self._held)
        if self._header_size + len(line) > MAX_HEADER:
            self._refuse_header(_TOO_LONG)
            self._start_skip(_State.SKIP_LINE, line)
            self._size = _ANSWERED
            if end >= 0:
                self._finish_skipped_line()
        elif end >= 0:
            self._held.clear()
            self._end_header_line(line)
        return len(data) if end < 0 else end + 1

    def _end_header_line(self, line: bytes) -> None:
        self._header_size += len(line) + 1
        line = line.strip(_BLANK)
        if not line:
            self._end_header()
            return
        header = _HEADER_LINE.fullmatch(line)
        if header is None:
            self._refuse_header("a line of the header block is no header")
            self._end_line(line)
        elif header[1].lower() == b"content-length":
            self._note_length(header[2])

    def _note_length(self, text: bytes) -> None:
        length = int(text) if text.isdigit() and len(text) <= 18 else None
        if length is None or self._length not in {None, length}:
            self._length = -1
        else:
            self._length = length

    def _end_header(self) -> None:
        if self._length is None:
            self._refuse_header("the header block has no Content-Length")
        elif self._length < 0:
            self._refuse_header("Content-Length is not one count of bytes")
        elif self._length == 0:
            self._refuse_header("Content-Length is 0: a frame holds one JSON value")
        else:
            self._need = self._length
            self._state = _State.BODY
            if self._need > self._max:
                self._start_skip(_State.SKIP_BODY, b"")

    def _refuse_header(self, reason: str) -> None:
        self._reset()
        self._out.append(BadHeader(reason))

    def _take_body(self, data: bytes, at: int) -> int:
        piece = data[at : at + self._need] if at or len(data) > self._need else data
        self._need -= len(piece)
        if self._need:
            self._held += piece
        elif self._held:
            self._held += piece
            body = bytes(self._held)
            self._reset()
            self._emit_body(body)
        else:
            self._reset()
            self._emit_body(piece)
        return at + len(piece)

    def _emit_body(self, body: bytes) -> None:
        frame, rest = split_body(body)
        self._out.append(frame.removeprefix(_BOM))
        if rest:
            self._again.append(rest)

    # Skipping

    def _start_skip(self, state: _State, begun: bytes | bytearray) -> None:
        self._state = state
        self._size = len(begun)
        self._head = bytearray(begun[:_HEAD_KEPT])
        self._held = bytearray(begun[-_TAIL_KEPT - _OVERLAP :])

    def _skip_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        stop = len(data) if end < 0 else end
        self._keep_ends(data[at:stop])
        if end >= 0:
            self._finish_skipped_line()
        return len(data) if end < 0 else end + 1

    def _finish_skipped_line(self) -> None:
        _, header = split_header(bytes(self._held[-_TAIL_KEPT:]).strip(_BLANK))
        self._emit_oversized()
        if header:
            self._start_header(header)

    def _skip_body(self, data: bytes, at: int) -> int:
        """Skip, but not past a header that no JSON text can contain: a length may be plainly wrong."""
        piece = data[at : at + self._need]
        overlap = bytes(self._held[-_OVERLAP:])
        if found := HEADER_IN_JSON.search(overlap + piece):
            piece = piece[: found.end() - len(overlap)]
            self._keep_ends(piece)
            del self._held[-len(found[0]) :]
            self._size -= len(found[0])
            self._emit_oversized()
            self._start_header(found[0])
        else:
            self._keep_ends(piece)
            self._need -= len(piece)
            if not self._need:
                self._emit_oversized()
        return at + len(piece)

    def _keep_ends(self, piece: bytes) -> None:
        if len(self._head) < _HEAD_KEPT:
            self._head += piece[: _HEAD_KEPT - len(self._head)]
        if self._size != _ANSWERED:
            self._size += len(piece)
        self._held += piece[-_TAIL_KEPT - _OVERLAP :]
        if len(self._held) > 4 * _TAIL_KEPT:
            del self._held[: -_TAIL_KEPT - _OVERLAP]

    def _emit_oversized(self) -> None:
        if self._size != _ANSWERED:
            self.style = self.style or "lines"
            tail = bytes(self._held[-_TAIL_KEPT:])
            self._out.append(Oversized(recovered_id(bytes(self._head), tail), self._size))
        self._reset()

    def _reset(self) -> None:
        self._state = _State.LINE
        if self._held:
            self._held = bytearray()
        if self._head:
            self._head = bytearray()
        self._need, self._size, self._length = 0, 0, None
