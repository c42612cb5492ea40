"""All that can be read of a project by its id, in one list: artifacts, jobs, frames, the newest of each first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from .cursors import LARGEST_ROWID, decode_place, encode_cursor

if TYPE_CHECKING:
    from .sqlite import Database

Kind = Literal["artifact", "job", "frame"]
_BEGINNING = 200


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A saved file by its latest version, a job, or a frame.

    `name` is the file's, or what somebody called it; `text` how a job's code or a frame's summary begins. `ordinal`,
    `content_type` and `size_bytes` are a file's, `frame_kind` a frame's.
    """

    kind: Kind
    id: str
    name: str | None
    text: str | None = None
    ordinal: int = 0
    content_type: str = ""
    size_bytes: int = 0
    frame_kind: str = ""


class CataloguePage(msgspec.Struct, frozen=True):
    """`next_cursor` is null on the last."""

    entries: list[Entry]
    next_cursor: str | None


class _Source(msgspec.Struct, frozen=True):
    """Where a kind's entries are: `columns` fill the fields of `Entry`, `rowid` gives their order."""

    columns: dict[str, str]
    tables: str
    rowid: str

    def sql(self) -> str:
        columns = ", ".join([self.rowid, *self.columns.values()])
        return f"SELECT {columns} FROM {self.tables} WHERE {self.rowid} < ? ORDER BY {self.rowid} DESC LIMIT ?"


_SOURCES: dict[Kind, _Source] = {
    "artifact": _Source(
        {
            "id": "latest_version_id",
            "name": "artifacts.filename",
            "ordinal": "ordinal",
            "content_type": "artifacts.content_type",
            "size_bytes": "size_bytes",
        },
        "artifacts JOIN artifact_versions ON version_id = latest_version_id",
        "artifacts.rowid",
    ),
    "job": _Source(
        {"id": "exec_id", "name": "label", "text": f"substr(code, 1, {_BEGINNING})"},
        "jobs JOIN cells USING (cell_id)",
        "jobs.rowid",
    ),
    "frame": _Source(
        {
            "id": "frame_id",
            "name": f"substr(name, 1, {_BEGINNING})",
            "text": f"substr(task_summary, 1, {_BEGINNING})",
            "frame_kind": "kind",
        },
        "frames",
        "frames.rowid",
    ),
}


_LISTINGS: dict[str, Kind] = {f"resource-{kind}": kind for kind in _SOURCES}


def catalogue_page(database: Database, *, limit: int = 50, cursor: str | None = None) -> CataloguePage:
    """The entries after `cursor`, each exactly once over all pages whatever is added meanwhile.

    Raises `InvalidParams` for a cursor of something else.
    """
    listings = list(_LISTINGS)
    first, below = decode_place(listings, cursor)
    found: list[tuple[str, Entry]] = []
    for listing in listings[listings.index(first) :]:
        found += _entries(database, listing, below, limit + 1 - len(found))
        below = LARGEST_ROWID
    entries = [entry for _, entry in found[:limit]]
    return CataloguePage(entries, found[limit - 1][0] if len(found) > limit else None)


def _entries(database: Database, listing: str, below: int, most: int) -> list[tuple[str, Entry]]:
    """The newest entries of one kind below a row id, each with the cursor after it."""
    kind = _LISTINGS[listing]
    source = _SOURCES[kind]
    rows = database.rows(source.sql(), [below, most]) if most else []
    return [
        (encode_cursor(listing, rowid), Entry(kind=kind, **dict(zip(source.columns, values, strict=True))))
        for rowid, *values in rows
    ]
