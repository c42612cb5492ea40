"""Lineage as a drawing: a version is a box, inputs stand left of what was made from them."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from .layered_layout import lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .layered_layout import Point
    from .lineage_picture import Picture, PicturedVersion

BOX_WIDTH, BOX_HEIGHT = 196, 40
COLUMN, ROW, MARGIN = 270, 54, 24
MAX_NAME = 22
"""Characters of ordinary width that fit into a box."""

STYLE = """\
.lineage { font-family: system-ui, "DejaVu Sans", sans-serif; background: #fff; }
.lineage .edge { fill: none; stroke: #9aa5b1; stroke-width: 1.4; }
.lineage .version rect { fill: #f5f7fa; stroke: #616e7c; }
.lineage .version.root rect { fill: #fff3c4; stroke: #b44d12; stroke-width: 2.5; }
.lineage .name { font-size: 13px; fill: #1f2933; }
.lineage .id { font-size: 10px; fill: #616e7c; font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
.lineage .note { font-size: 13px; fill: #b44d12; }
"""


def svg(picture: Picture) -> str:
    """A self-contained SVG document, sizes in pixels; characters that XML forbids are left out."""
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    layout = lay_out(list(picture.versions), picture.edges)
    width = 2 * MARGIN + (layout.layers - 1) * COLUMN + BOX_WIDTH
    height = 2 * MARGIN + (layout.height - 1) * ROW + BOX_HEIGHT + (ROW / 2 if picture.reason else 0)
    yield (
        f'<svg class="lineage" xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="lineage of {picture.root}">'
    )
    yield f"<style>\n{STYLE}</style>"
    yield (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#9aa5b1"/></marker></defs>'
    )
    yield '<g class="all">'
    for (start, end), way in layout.edges.items():
        yield (f'<path class="edge" data-from="{start}" data-to="{end}" d="{_curve(way)}" marker-end="url(#arrow)"/>')
    for node, place in layout.nodes.items():
        yield _box(picture.versions[node], place, root=node == picture.root)
    if picture.reason:
        note = f"there is more: cut by {picture.reason}"
        yield f'<text class="note" x="{MARGIN}" y="{height - MARGIN / 2:.0f}">{note}</text>'
    yield "</g>"
    yield "</svg>"


def _box(version: PicturedVersion, place: Point, *, root: bool) -> str:
    x, y = _at(place)
    whole = f"{version.filename}\n{version.version_id}"
    return (
        f'<g class="version{" root" if root else ""}" data-id="{version.version_id}"'
        f' transform="translate({x:.1f} {y:.1f})" tabindex="0" role="button" aria-label={quoteattr(_clean(whole))}>'
        f"<title>{escape(_clean(whole))}</title>"
        f'<rect width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text class="name" x="9" y="17">{escape(_clean(_short(version.filename)))}</text>'
        f'<text class="id" x="9" y="32">{version.version_id}</text></g>'
    )


def _curve(way: list[Point]) -> str:
    """From the right side of a box to the left side of another, level where it passes through layers."""
    points = [_at(place) for place in way]
    middle = BOX_HEIGHT / 2
    forward = way[0][0] <= way[-1][0]
    x, y = points[0][0] + (BOX_WIDTH if forward else 0), points[0][1] + middle
    parts = [f"M{x:.1f} {y:.1f}"]
    for index, (left, top) in enumerate(points[1:], start=1):
        last = index == len(points) - 1
        near, far = (left, left + BOX_WIDTH) if forward else (left + BOX_WIDTH, left)
        bend = (near + x) / 2
        parts.append(f"C{bend:.1f} {y:.1f} {bend:.1f} {top + middle:.1f} {near:.1f} {top + middle:.1f}")
        if not last:
            parts.append(f"H{far:.1f}")
        x, y = far, top + middle
    return " ".join(parts)


def _at(place: Point) -> tuple[float, float]:
    return MARGIN + place[0] * COLUMN, MARGIN + place[1] * ROW


def _short(name: str) -> str:
    """The name with its middle left out if it is too wide; its end tells the kind of file."""
    widths = [2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in name]
    if sum(widths) <= MAX_NAME:
        return name
    head = tail = ""
    room = MAX_NAME - 1
    start, end = 0, len(name) - 1
    while start <= end:
        take_head = len(head) <= len(tail)
        width = widths[start] if take_head else widths[end]
        if width > room:
            break
        room -= width
        if take_head:
            head, start = head + name[start], start + 1
        else:
            tail, end = name[end] + tail, end - 1
    return f"{head}…{tail}"


def _clean(text: str) -> str:
    """XML 1.0 has no way to write most control characters, nor lone surrogates."""
    return "".join(
        c for c in text if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff")
    )
