"""Which of an object's representations is kept: the richest that a reader without a notebook can use.

    represent({"text/plain": "<Figure>", "image/png": "iVBORw0…"})      # mime "image/png", body b"\\x89PNG…"

A kernel sends a bundle `{mime: data}`: base64 for what is binary, an object for JSON, else text
(https://jupyter-client.readthedocs.io/en/stable/messaging.html#display-data).
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .execution import bounded

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN = "text/plain"
MAX_TEXT = 4_000
_ENDINGS = {  # the richest first
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/webp": "webp",
    "image/gif": "gif",
    "image/svg+xml": "svg",
    "application/pdf": "pdf",
    "text/html": "html",
    "text/markdown": "md",
    "text/latex": "tex",
    "application/json": "json",
}
_LIVE = "application/vnd.jupyter.widget-view+json"  # names an object in the kernel, which dies with it


class Representation(msgspec.Struct, frozen=True):
    """One representation and the text that stands beside it; `body` is `None` where the text says it all."""

    mime: str
    body: bytes | None
    text: str

    @property
    def ending(self) -> str:
        """What a file of it is called after the dot."""
        return _ENDINGS.get(self.mime) or ("json" if self.mime.endswith("+json") else "txt")


def represent(bundle: Mapping[str, Any]) -> Representation:
    """The representation to keep, from what a kernel sent."""
    plain = _joined(bundle.get(PLAIN) or "")
    text = bounded(plain, MAX_TEXT)
    others = [mime for mime, data in bundle.items() if mime not in {PLAIN, _LIVE} and data is not None]
    for mime in sorted(others, key=_rank):
        try:
            return Representation(mime, _body(mime, bundle[mime]), text)
        except (binascii.Error, ValueError, TypeError):  # not what its type says: the next one may be
            continue
    return Representation(PLAIN, None if len(plain) <= MAX_TEXT else _encoded(plain), text)


def _rank(mime: str) -> int:
    return list(_ENDINGS).index(mime) if mime in _ENDINGS else len(_ENDINGS)


def _body(mime: str, data: Any) -> bytes:
    if mime == "application/json" or mime.endswith("+json"):
        return msgspec.json.encode(data)
    text = _joined(data)
    if mime == "application/pdf" or (mime.startswith("image/") and mime != "image/svg+xml"):
        return base64.b64decode("".join(text.split()), validate=True)
    return _encoded(text)


def _joined(data: Any) -> str:
    """Text, which older kernels send as its lines."""
    return "".join(cast("list[str]", data)) if isinstance(data, list) else str(data)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
