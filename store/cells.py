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


class Cells:
    """The `cells` table of a project."""

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
            root = self._database.value("SELECT root_frame_id FROM frames WHERE frame_id = ?", [frame_id])
            if root is None:
                raise NotFound("no such frame", hint="frame_new makes one")
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
            self._database.insert(cell)
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
