"""What a frame's text tells before it is decoded: values on one line, a header torn into it, the id of a huge one.

All of it rests on what valid JSON cannot contain, so a good frame is never cut: a raw line end inside a string, a last
byte other than a bracket (for objects and arrays), two values side by side.
"""

from __future__ import annotations

import re

from .strictjson import STRING, ParseFault, decode

# A header with its line end cannot stand in JSON: inside a string the line end would be escaped.
HEADER_IN_JSON = re.compile(rb"content-length[ \t]{0,4}:[ \t]{0,8}\d{1,20}[ \t]{0,8}\r?\n", re.IGNORECASE)

_BLANK = b" \t\r\n"
_WINDOW = 256  # longer than any header a client writes
_LAST_HEADER = re.compile(rb"content-(?:length|type)[ \t]*:[^\x00-\x08\x0a-\x1f{}\[\]\"]*\Z", re.IGNORECASE)
_HEADER_NAMES = (b"content-length:", b"content-type:")
_MAX_SPLIT = 64 * 1024  # a longer line stays one frame: nobody writes such, and looking costs as much as decoding
_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]+|"', re.DOTALL)
_SCALAR_ID = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?\d+', re.DOTALL)
_ID_AT_END = re.compile(
    rb',\s*"id"\s*:\s*("[^"\\]*+(?:\\.[^"\\]*+)*+"|-?\d+)'
    rb'(?:\s*,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*+")*\s*\}\s*\Z',
    re.DOTALL,
)


def split_values(line: bytes) -> list[bytes]:
    """The objects and arrays that stand side by side on one line; most often the line itself."""
    if len(line) > _MAX_SPLIT or not touching(line) or not touching(STRING.sub(b'""', line)):
        return [line]
    values: list[bytes] = []
    depth = start = 0
    for bracket in _BRACKET.finditer(line):
        if bracket[0] in {b"{", b"["}:
            depth += 1
        elif bracket[0] in {b"}", b"]"}:
            depth -= 1
            if depth <= 0:
                values.append(line[start : bracket.end()].strip(_BLANK))
                depth, start = 0, bracket.end()
    rest = line[start:].strip(_BLANK)
    return [*values, rest] if rest else values


def touching(text: bytes) -> bool:
    """Whether two values may stand side by side in `text`; inside a string it may be a false alarm."""
    return b"}{" in text or b"} {" in text or b"][" in text


def split_header(line: bytes) -> tuple[bytes, bytes]:
    """A line as (what stands before, the header at its end); the latter is empty where there is none."""
    header = _LAST_HEADER.search(line, max(0, len(line) - _WINDOW))
    if header is None:
        return line, b""
    return line[: header.start()].rstrip(_BLANK), header[0]


def split_body(body: bytes) -> tuple[bytes, bytes]:
    """A body as (frame, start of the next header that a length too great took in)."""
    if b"\n" in body and (header := HEADER_IN_JSON.search(body)):
        return body[: header.start()], body[header.start() :]
    if body[-1:] in {b"}", b"]"}:
        return body, b""
    end = max(body.rfind(b"}"), body.rfind(b"]")) + 1
    rest = body[end : end + _WINDOW].lstrip(_BLANK).lower()
    if end and rest and len(body) - end <= _WINDOW and _starts_header(rest):
        return body[:end], body[end:]
    return body, b""


def _starts_header(text: bytes) -> bool:
    return any(name.startswith(text) or text.startswith(name) for name in _HEADER_NAMES)


def recovered_id(head: bytes, tail: bytes) -> int | str | None:
    """The id of a request of which only the two ends were kept, or None; never a guess from inside `params`."""
    found = _id_in_head(head)
    if found is None and (at_end := _ID_AT_END.search(tail)):
        found = at_end[1]
    return None if found is None else _as_id(found)


def _id_in_head(head: bytes) -> bytes | None:
    tokens = _TOKEN.finditer(head)
    first = next(tokens, None)
    if first is None or first[0] != b"{":
        return None
    depth, before, key = 1, b"{", b""
    for token in tokens:
        text = token[0]
        if text == b'"':
            return None  # a string that goes on past what was kept
        if depth == 1 and before in {b"{", b","}:
            key = text
        elif depth == 1 and before == b":" and key == b'"id"' and token.end() < len(head):
            return text
        depth += (text in {b"{", b"["}) - (text in {b"}", b"]"})
        before = text
    return None


def _as_id(text: bytes) -> int | str | None:
    if not _SCALAR_ID.fullmatch(text):
        return None
    try:
        value: int | str = decode(text)
    except ParseFault:
        return None
    return value
