"""A conversation in a file, one message a line: `{"->": sent}`, `{"<-": received}`, `{"#": "note"}`.

The first line may be a note that is an object and says how the server was started:
`{"#": {"serve": ["--allow", "exec_background"], "framing": "lines", "files": {"data.csv": "a\\n1\\n"}, "exit": 0}}`.
A frame that is not JSON stands as `{"->": {"$blob": base64}}`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ..store.errors import InvalidParams, NotFound
from . import strictjson
from .framing import Style
from .redaction import redacted

if TYPE_CHECKING:
    from pathlib import Path

Mark = Literal["->", "<-", "#"]
_MARKS: tuple[Mark, ...] = ("->", "<-", "#")


class Head(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How to start the server: its options (holes such as `<workspace>` are filled), the client's framing, files in
    the workspace beforehand, and the exit status it ends with."""

    serve: list[str] = []
    framing: Style = "lines"
    files: dict[str, str] = {}
    exit: int = 0


class Line(msgspec.Struct, frozen=True):
    """One message or note; `number` is its line in the file, from 1."""

    mark: Mark
    message: Any
    number: int = 0


class Transcript(msgspec.Struct, frozen=True):
    """A whole conversation and what it started from."""

    head: Head
    lines: list[Line]


def read(path: Path) -> Transcript:
    """Read a transcript.

    Raises:
        NotFound: there is no such file, or it cannot be read.
        InvalidParams: a line is not one of the three forms.

    """
    try:
        texts = path.read_bytes().splitlines()
    except OSError as error:
        raise NotFound(f"the transcript {path.name} cannot be read: {error.strerror}.") from error
    lines = [_line(text, number) for number, text in enumerate(texts, 1) if text.strip()]
    if lines and lines[0].mark == "#" and isinstance(lines[0].message, dict):
        return Transcript(_head(lines[0]), lines[1:])
    return Transcript(Head(), lines)


def render(transcript: Transcript) -> bytes:
    """The bytes of a transcript file; equal transcripts give equal bytes."""
    lines = [Line("#", msgspec.to_builtins(transcript.head)), *transcript.lines]
    return b"".join(render_line(line.mark, line.message) for line in lines)


def render_line(mark: Mark, message: Any) -> bytes:
    """One line of a transcript file."""
    return strictjson.encode({mark: message}) + b"\n"


def from_frame(frame: bytes) -> Any:
    """The message of a frame, its secrets taken out."""
    try:
        return redacted(strictjson.decode(frame))
    except strictjson.ParseFault:
        return {"$blob": base64.b64encode(frame).decode()}


def to_frame(message: Any) -> bytes:
    """The frame of a message."""
    if isinstance(message, dict) and (members := cast("dict[str, Any]", message)).keys() == {"$blob"}:
        return base64.b64decode(members["$blob"])
    return strictjson.encode(message)


def _line(text: bytes, number: int) -> Line:
    try:
        line = strictjson.decode(text)
    except strictjson.ParseFault as fault:
        raise InvalidParams(f"line {number} of the transcript is not JSON: {fault.reason}") from fault
    if isinstance(line, dict) and len(members := cast("dict[str, Any]", line)) == 1:
        for mark in _MARKS:
            if mark in members:
                return Line(mark, members[mark], number)
    raise InvalidParams(f'line {number} of the transcript is not an object with one of "->", "<-", "#"')


def _head(line: Line) -> Head:
    try:
        return msgspec.convert(line.message, Head)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"line {line.number} of the transcript does not start a server: {error}") from error
