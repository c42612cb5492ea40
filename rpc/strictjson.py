"""JSON as RFC 8259 has it, in and out: nothing is repaired on the way in, nothing is lost on the way out.

`decode(b'{"id": 1}')` is `{"id": 1}`; `decode(b'[NaN]')` raises `ParseFault`; `encode(float("nan"))` raises
`EncodeFault` where msgspec alone would write `null`.

Integers keep their value up to the interpreter's limit (4,300 digits). Numbers beyond that, and decimals that
overflow a double (`1e999`), are refused: they could not be echoed as they came. Of two members with one name
the last counts.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..store.errors import HostError, InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_DEPTH = 200

# One table maps both kinds of bracket onto one, the other drops what is no bracket.
_FOLDED = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_PAIR_PASSES = 8
_SHORT = 4096
_LONG = 64 * 1024
_FEW = 100
_SLICE = 65536
_RUN = re.compile(rb"\[+|\]+")
_OPEN = ord("[")
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
# The first two bytes after msgpack's float marker when the exponent is all ones: NaN or infinity.
_NON_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")

_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode
_encode_msgpack = msgspec.msgpack.Encoder().encode


class ParseFault(HostError):
    """A frame that is not JSON; `reason` says where and why without quoting it."""

    kind = "parse"
    code = -32700

    def __init__(self, reason: str) -> None:
        super().__init__(f"Parse error: {reason}", hint="send one JSON value per frame, UTF-8, as RFC 8259 has it.")
        self.reason = reason


class EncodeFault(InternalError):
    """A value that JSON cannot carry; a fault of whoever produced it, not of the caller."""


def decode(frame: bytes) -> Any:
    """Decode one frame strictly.

    Raises:
        ParseFault: bad JSON, bad UTF-8, NaN or infinity, a lone surrogate, a number out of range, more than
            `MAX_DEPTH` nested arrays and objects.

    """
    if _has_many_brackets(frame) and _is_deeper(frame, MAX_DEPTH):
        raise ParseFault(f"nested more than {MAX_DEPTH} deep")
    try:
        return _decode_json(frame)
    except msgspec.ValidationError as error:
        raise ParseFault("a number too large to keep exactly") from error
    except msgspec.DecodeError as error:
        raise ParseFault(_reason(error, frame)) from error
    except RecursionError as error:
        raise ParseFault("nested too deep") from error


def encode(value: Any) -> bytes:
    """Encode a value strictly; `msgspec.Raw` parts go out as they are.

    Raises:
        EncodeFault: NaN or infinity, a lone surrogate, a type JSON does not have, a value that contains itself.

    """
    try:
        payload = _encode_json(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise EncodeFault(f"The result is not JSON: {type(error).__name__}.") from error
    if len(payload) > _LONG and not _may_hold_floats(value):
        return payload
    if b"null" in payload and _has_non_finite(value):
        raise EncodeFault("The result is not JSON: it has NaN or an infinity in it.")
    return payload


def _reason(error: msgspec.DecodeError, frame: bytes) -> str:
    reason = str(error).removeprefix("JSON is malformed: ")
    if reason == "Input data was truncated":
        # msgspec says the same of a high surrogate with nothing after it.
        return "an unpaired surrogate or an unfinished value" if _HIGH_SURROGATE.search(frame) else "unfinished value"
    return reason


def _has_many_brackets(frame: bytes) -> bool:
    """Whether there are enough of them to nest too deep."""
    if len(frame) < _SHORT:
        return frame.count(b"[") + frame.count(b"{") > MAX_DEPTH
    left = MAX_DEPTH
    for bracket in (b"[", b"{"):  # to find a few takes a small part of the time that it takes to count
        at = frame.find(bracket)
        while at >= 0 and left >= 0:
            left -= 1
            at = frame.find(bracket, at + 1)
    return left < 0


def _is_deeper(frame: bytes, limit: int) -> bool:
    """Whether brackets outside strings nest deeper than `limit`; exact for JSON, never slow for anything else."""
    brackets = STRING.sub(b"", frame).translate(_FOLDED, _NO_BRACKET)
    for _ in range(_PAIR_PASSES):
        # Dropping every innermost pair takes one off the depth, at the speed of memcpy.
        shorter = brackets.replace(b"[]", b"")
        if len(shorter) == len(brackets):
            break
        brackets, limit = shorter, limit - 1
    return any(depth > limit for depth in _depths(brackets))


def _depths(brackets: bytes) -> Iterator[int]:
    """The nesting after each run of brackets, read in slices so that a hopeless frame is given up early."""
    depth = 0
    for start in range(0, len(brackets), _SLICE):
        for run in _RUN.findall(brackets, start, start + _SLICE):
            depth += len(run) if run[0] == _OPEN else -len(run)
            yield depth


def _may_hold_floats(value: Any) -> bool:
    """False for a few values without a float among them: a long text is not searched for what it cannot be."""
    values = [value]
    seen = 0
    while values:
        item: Any = values.pop()
        if isinstance(item, (dict, list)):
            inner = cast("dict[str, Any] | list[Any]", item)
            seen += len(inner) + 1
            if seen > _FEW:
                return True
            values.extend(inner.values() if isinstance(inner, dict) else inner)
        elif item is not None and not isinstance(item, (str, int, msgspec.Raw)):
            return True
    return False


def _has_non_finite(value: Any) -> bool:
    """Whether `null` in the output may have been NaN: msgpack, as quick as JSON, keeps the bits to look for."""
    try:
        if not _NON_FINITE.search(_encode_msgpack(value)):
            return False
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        pass  # Integers over 64 bits, say: look at each value instead.
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_pass_raw)
    return any(not isfinite(number) for number in _floats(plain))


def _pass_raw(_raw: Any) -> None:
    """Parts that were encoded before are taken as they are."""


def _floats(value: Any) -> Iterator[float]:
    stack = [value]
    while stack:
        item: Any = stack.pop()
        if isinstance(item, float):
            yield item
        elif isinstance(item, dict):
            stack.extend(cast("dict[str, Any]", item).values())
        elif isinstance(item, (list, tuple)):
            stack.extend(cast("Sequence[Any]", item))
