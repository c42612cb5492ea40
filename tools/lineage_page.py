"""Lineage as one self-contained page: the drawing, to be moved and enlarged, and what there is to tell of each version.

Everything is in the file, and its policy lets it load nothing.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from .lineage_svg import svg

if TYPE_CHECKING:
    from .lineage_picture import Picture

_TEMPLATE = "lineage_page.html"


def page(picture: Picture) -> str:
    """The HTML document, ASCII where names are told, so that whatever reads it reads them right."""
    root = picture.versions[picture.root]
    parts = {
        "title": escape(f"{root.filename} ({root.version_id})").encode("ascii", "xmlcharrefreplace").decode(),
        "count": str(len(picture.versions)),
        "more": f", cut by {picture.reason}" if picture.reason else "",
        "drawing": svg(picture),
        "data": _data(picture),
    }
    template = files(__package__ or "").joinpath(_TEMPLATE).read_text("utf-8")
    pieces = template.split("@@")  # text, name, text, name, …, text: what is filled in is never looked at again
    return "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))


def _data(picture: Picture) -> str:
    told = {"root": picture.root, "versions": msgspec.to_builtins(picture.versions), "edges": picture.edges}
    return json.dumps(told).replace("<", "\\u003c")  # no name can end the script element
