"""Frames: the sessions and turns that everything else in a project belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from .cells import CELLS_BITS
from .checks import check_one_of, check_text, invalid
from .cursors import decode_cursor, encode_cursor
from .errors import NotFound
from .frame_search import Filter, Texts
from .ids import FRAME_ID, new_id, now_ms
from .rows import Frame
from .search import words_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cells import Cells
    from .rows import Cell
    from .sqlite import Database

STATUSES = ("ready", "processing", "done", "failed", "interrupted", "awaiting_user_response")
_MOST_CHILDREN = 200


class FrameListing(TypedDict):
    """A page of frames, newest first; `next_cursor` is null on the last."""

    mode: Literal["browse", "search"]
    frames: list[dict[str, Any]]
    next_cursor: str | None


class FrameSearch(FrameListing):
    pattern: str


class FrameDetail(TypedDict):
    """One frame, a page of its cells in the order they came, and its first 200 children."""

    frame: dict[str, Any]
    cells: list[dict[str, Any]]
    children: list[dict[str, Any]]
    page: int
    page_size: int
    n_pages: int
    total_cells: int
    last_page: bool


class Frames:
    """The `frames` table of a project; `claim` is told of each new id before its row is written."""

    def __init__(self, database: Database, cells: Cells, claim: Callable[[str], None]) -> None:
        self._database = database
        self._cells = cells
        self._claim = claim
        self._texts = (Texts(database, "frames_fts", 0), Texts(database, "cells_fts", CELLS_BITS))

    def add(
        self,
        *,
        kind: str,
        status: str = "ready",
        name: str | None = None,
        parent_id: str | None = None,
        workspace: str | None = None,
        task_summary: str | None = None,
        model: str | None = None,
        frame_id: str | None = None,
    ) -> Frame:
        """Writes a frame at once: a root, or a child of `parent_id` in its session.

        Raises `NotFound` for an absent parent, `InvalidParams` for a bad value or an id that is taken.
        """
        check_text("$.kind", kind, most=64)
        check_one_of("$.status", status, STATUSES)
        parent = self.get(parent_id) if parent_id is not None else None
        fresh = _checked_id(frame_id) if frame_id is not None else new_id("f")
        self._claim(fresh)
        now = now_ms()
        frame = Frame(
            frame_id=fresh,
            parent_id=parent_id,
            root_frame_id=parent.root_frame_id if parent else fresh,
            kind=kind,
            name=name,
            task_summary=task_summary,
            model=model,
            status=status,
            depth=parent.depth + 1 if parent else 0,
            workspace=workspace if workspace is not None or parent is None else parent.workspace,
            created_at=now,
            updated_at=now,
        )
        with self._database.transaction():
            if self.find(fresh):
                raise invalid("$.frame_id", "is taken")
            self._database.insert(frame)
        return frame

    def find(self, frame_id: str) -> Frame | None:
        return self._database.first(Frame, "WHERE frame_id = ?", [frame_id])

    def get(self, frame_id: str) -> Frame:
        """Raises `NotFound`."""
        frame = self.find(frame_id)
        if frame is None:
            raise NotFound("no such frame", hint="call frames without arguments to list them")
        return frame

    def update(
        self,
        frame_id: str,
        *,
        status: str | None = None,
        name: str | None = None,
        task_summary: str | None = None,
        model: str | None = None,
    ) -> Frame:
        """Changes what is given, and returns the frame as it is then. Raises `NotFound`, `InvalidParams`."""
        if status is not None:
            check_one_of("$.status", status, STATUSES)
        sql = (
            "UPDATE frames SET status = ifnull(?, status), name = ifnull(?, name), task_summary ="
            " ifnull(?, task_summary), model = ifnull(?, model), updated_at = ? WHERE frame_id = ?"
        )
        with self._database.transaction():
            self._database.execute(sql, [status, name, task_summary, model, now_ms(), frame_id])
            return self.get(frame_id)

    def browse(
        self,
        *,
        status: str | None = None,
        roots_only: bool = True,
        limit: int = 50,
        cursor: str | None = None,
    ) -> FrameListing:
        """The frames, newest first. Raises `InvalidParams` for a cursor of something else."""
        frames, following = self._page(_filter(status, roots_only=roots_only), limit, cursor)
        return {"mode": "browse", "frames": frames, "next_cursor": following}

    def search(
        self,
        pattern: str,
        *,
        status: str | None = None,
        roots_only: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> FrameSearch:
        """The frames, newest first, whose name, summary or one of whose cells has all words of `pattern`.

        A word matches words that begin with it; any text is a valid pattern.
        """
        words = words_of(pattern)
        below = decode_cursor("frames", cursor)
        among = _filter(status, roots_only=roots_only)
        frames: list[dict[str, Any]] = []
        following = None
        if words:
            found: set[int] = set()
            for texts in self._texts:
                found |= texts.frames_with(words, among, below, limit + 1)
            rowids = msgspec.json.encode(sorted(found, reverse=True)[: limit + 1]).decode()
            newest = Filter(("rowid IN (SELECT value FROM json_each(?))",), (rowids,))
            frames, following = self._page(newest, limit, cursor)
        return {"mode": "search", "pattern": pattern, "frames": frames, "next_cursor": following}

    def detail(self, frame_id: str, *, page: int = 0, page_size: int = 50) -> FrameDetail:
        """The frame with the page of its cells, in order of `seq`. Raises `NotFound`."""
        frame = self.get(frame_id)
        total = self._cells.count(frame_id)
        n_pages = max(1, -(-total // page_size))
        return {
            "frame": msgspec.structs.asdict(frame),
            "cells": [_cell(cell) for cell in self._cells.page(frame_id, page, page_size)],
            "children": [msgspec.structs.asdict(child) for child in self.children(frame_id)],
            "page": page,
            "page_size": page_size,
            "n_pages": n_pages,
            "total_cells": total,
            "last_page": page >= n_pages - 1,
        }

    def children(self, frame_id: str) -> list[Frame]:
        """The frames made in it, oldest first, at most 200."""
        return self._database.select(Frame, "WHERE parent_id = ? ORDER BY rowid LIMIT ?", [frame_id, _MOST_CHILDREN])

    def _page(self, among: Filter, limit: int, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        sql = f"SELECT rowid, {_COLUMNS} FROM frames {among.where('rowid < ?')} ORDER BY rowid DESC LIMIT ?"
        found = self._database.rows(sql, [decode_cursor("frames", cursor), *among.values, limit + 1])
        frames = [dict(zip(Frame.__struct_fields__, row[1:], strict=True)) for row in found[:limit]]
        return frames, encode_cursor("frames", found[limit - 1][0]) if len(found) > limit else None


_COLUMNS = ", ".join(Frame.__struct_fields__)


def _filter(status: str | None, *, roots_only: bool) -> Filter:
    conditions = ("parent_id IS NULL",) if roots_only else ()
    if status is None:
        return Filter(conditions)
    check_one_of("$.status", status, STATUSES)
    return Filter((*conditions, "status = ?"), (status,))


def _checked_id(frame_id: str) -> str:
    if not FRAME_ID.fullmatch(frame_id):
        raise invalid("$.frame_id", "must be f- and 12 hex digits")
    return frame_id


def _cell(cell: Cell) -> dict[str, Any]:
    """A cell as it is shown: its outputs are a list."""
    return msgspec.structs.asdict(cell) | {"outputs": msgspec.json.decode(cell.outputs or "[]")}
