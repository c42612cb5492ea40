"""Cells: pieces of code that ran, in the order they came."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from .errors import NotFound
from .ids import new_id
from .rows import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .sqlite import Database


CELLS_BITS = 24
"""Bits of a cell's row id that are its `seq`; those above are its frame's row id."""


def first_cell(frame_rowid: int) -> int:
    """The row id before which the cells of all earlier frames stand."""
    return min(frame_rowid << CELLS_BITS, 2**63 - 1)


class Cells:
    """The `cells` table of a project, in the order of their frames: a search reads the newest frames' cells first."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        *,
        frame_id: str,
        code: str,
        origin: str = "agent",
        language: str = "python",
        status: str = "queued",
        cell_id: str | None = None,
    ) -> Cell:
        """Puts a cell at the end of its frame. Raises `NotFound` when there is no such frame."""
        with self._database.transaction():
            frames = self._database.rows("SELECT rowid, root_frame_id FROM frames WHERE frame_id = ?", [frame_id])
            if not frames:
                raise NotFound("no such frame", hint="frame_new makes one")
            frame_rowid, root = frames[0]
            last = self._database.value("SELECT max(seq) FROM cells WHERE frame_id = ?", [frame_id])
            cell = Cell(
                cell_id=cell_id or new_id("c"),
                frame_id=frame_id,
                root_frame_id=root,
                seq=(last or 0) + 1,
                origin=origin,
                language=language,
                code=code,
                code_hash=hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest(),
                status=status,
            )
            self._database.insert(cell, rowid=first_cell(frame_rowid) + cell.seq)
        return cell

    def get(self, cell_id: str) -> Cell:
        """Raises `NotFound`."""
        cell = self._database.first(Cell, "WHERE cell_id = ?", [cell_id])
        if cell is None:
            raise NotFound("no such cell", hint="frames with a frame_id lists its cells")
        return cell

    def codes(self, cell_ids: Sequence[str], most: int) -> dict[str, str]:
        """How the code of each of these cells begins: at most so many characters."""
        sql = "SELECT cell_id, substr(code, 1, ?) FROM cells WHERE cell_id IN (SELECT value FROM json_each(?))"
        return dict(self._database.rows(sql, [most, msgspec.json.encode(cell_ids).decode()]))

    def page(self, frame_id: str, page: int, page_size: int) -> list[Cell]:
        """The cells of page `page`, from 0, in order of `seq`."""
        rest = "WHERE frame_id = ? ORDER BY seq LIMIT ? OFFSET ?"
        return self._database.select(Cell, rest, [frame_id, page_size, page * page_size])

    def count(self, frame_id: str) -> int:
        return int(self._database.value("SELECT count(*) FROM cells WHERE frame_id = ?", [frame_id]))
