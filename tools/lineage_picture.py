"""Lineage to look at: the versions of a walk with what there is to tell of each, in any of five forms.

picture = picture_of(records, version_id)
FORMATS["svg"](picture)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..store.lineage import Direction
    from ..store.records import Records

Way = Literal["up", "down", "both"]
MAX_CODE_CHARS = 4_000


class PicturedVersion(msgspec.Struct, frozen=True):
    """One version; `depth` is its distance from the root, negative towards its inputs; `code` may be cut."""

    version_id: str
    filename: str
    depth: int
    content_type: str
    size_bytes: int
    checksum: str
    created_at: int
    frame_id: str
    cell_id: str | None
    code: str | None


class Picture(msgspec.Struct, frozen=True):
    """What is drawn: edges go from input to output; `reason` names the limit that cut the walk."""

    root: str
    versions: dict[str, PicturedVersion]
    edges: list[tuple[str, str]]
    reason: str | None


def picture_of(
    records: Records, version_id: str, *, way: Way = "both", max_depth: int = 32, max_nodes: int = 500
) -> Picture:
    """The lineage around a version, within the limits of `lineage_graph` for each way. Raises `NotFound`."""
    ways: tuple[Direction, ...] = ("up", "down") if way == "both" else (way,)
    depths: dict[str, int] = {}
    edges: dict[tuple[str, str], None] = {}
    reason = None
    for direction in ways:
        graph = records.lineage.graph(version_id, direction=direction, max_depth=max_depth, max_nodes=max_nodes)
        sign = -1 if direction == "up" else 1
        for node in graph["nodes"]:
            depths.setdefault(node, sign * graph["info"][node]["depth"])
        edges |= dict.fromkeys((edge["from"], edge["to"]) for edge in graph["edges"])
        reason = reason or graph.get("reason")
    return Picture(version_id, _versions(records, depths), list(edges), reason)


def _versions(records: Records, depths: dict[str, int]) -> dict[str, PicturedVersion]:
    found = records.artifacts.versions_of(list(depths))
    codes = records.cells.codes([each.producing_cell_id for each in found if each.producing_cell_id], MAX_CODE_CHARS)
    told = {
        each.version_id: PicturedVersion(
            version_id=each.version_id,
            filename=each.filename,
            depth=depths[each.version_id],
            content_type=each.content_type,
            size_bytes=each.size_bytes,
            checksum=each.checksum,
            created_at=each.created_at,
            frame_id=each.frame_id,
            cell_id=each.producing_cell_id,
            code=codes.get(each.producing_cell_id or ""),
        )
        for each in found
    }
    return {version_id: told[version_id] for version_id in depths}


def _text(picture: Picture) -> str:
    from .lineage_text import text

    return text(picture)


def _mermaid(picture: Picture) -> str:
    from .lineage_text import mermaid

    return mermaid(picture)


def _dot(picture: Picture) -> str:
    from .lineage_text import dot

    return dot(picture)


def _svg(picture: Picture) -> str:
    from .lineage_svg import svg

    return svg(picture)


def _html(picture: Picture) -> str:
    from .lineage_page import page

    return page(picture)


FORMATS: dict[str, Callable[[Picture], str]] = {
    "text": _text,
    "mermaid": _mermaid,
    "dot": _dot,
    "svg": _svg,
    "html": _html,
}
