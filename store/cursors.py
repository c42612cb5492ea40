"""Opaque cursors: where the next page starts, as a caller carries it back to us.

    decode_cursor("frames", encode_cursor("frames", 42)) == 42

A page is cut by key, never by offset, so rows added meanwhile neither repeat nor hide a row.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from .checks import invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST_ROWID = 2**63 - 1


def encode_cursor(listing: str, rowid: int) -> str:
    """The cursor after the row `rowid` of that listing."""
    return base64.urlsafe_b64encode(f"{listing}:{rowid}".encode()).decode().rstrip("=")


def decode_cursor(listing: str, cursor: str | None) -> int:
    """The row id to go on below; without a cursor, above every row. Raises `InvalidParams`."""
    return decode_place((listing,), cursor)[1]


def decode_place(listings: Sequence[str], cursor: str | None) -> tuple[str, int]:
    """Of listings that follow one another, the one to go on in and the row id below which; without a cursor, the first.

    Raises `InvalidParams`.
    """
    if cursor is None:
        return listings[0], LARGEST_ROWID
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        name, _, rowid = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii").partition(":")
    except (UnicodeError, binascii.Error):
        raise _malformed() from None
    if name not in listings or not (rowid.isdecimal() and len(rowid) < 19):
        raise _malformed()
    return name, int(rowid)


def _malformed() -> Exception:
    return invalid("$.cursor", "is not a cursor of this listing: pass next_cursor of the last answer as it is")
