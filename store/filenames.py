"""Names under which artifacts are shown: safe to print, to save under and to compare."""

from __future__ import annotations

import unicodedata

from .checks import invalid

_MOST_BYTES = 255


def clean_filename(name: str) -> str:
    """The last part of `name`, without what deceives or breaks: control and direction characters, outer blanks.

    At most 255 bytes of UTF-8; the ending is kept. Raises `InvalidParams` when nothing is left.
    """
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rstrip("/").rpartition("/")[2]
    kept = "".join(character for character in last if not unicodedata.category(character).startswith(("C", "Zl", "Zp")))
    cleaned = _shortened(kept.strip())
    if cleaned in ("", ".", ".."):
        raise invalid("$.filename", "must name a file")
    return cleaned


def _shortened(name: str) -> str:
    if len(name.encode()) <= _MOST_BYTES:
        return name
    stem, dot, ending = name.rpartition(".")
    if not dot or len(ending.encode()) > 32:
        stem, ending = name, ""
    room = _MOST_BYTES - len(f"{dot if ending else ''}{ending}".encode())
    return stem.encode()[:room].decode(errors="ignore") + (f".{ending}" if ending else "")
