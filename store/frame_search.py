"""Which frames have all words of a pattern: in their own texts or in those of one of their cells.

A search with a filter can be slow either way: most of a million cells may have the words and hardly a frame pass the
filter, or the other way round. So both ways are gone by turns, a short piece of each, until one has the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .cursors import LARGEST_ROWID
from .search import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Generator

    from .search import TextQuery
    from .sqlite import Database

_TEXTS_READ = 16
"""Matching texts read at once for each frame that is wanted."""
_FRAMES_TRIED = 4
"""Frames looked into at once: takes about as long as that."""


class Filter(msgspec.Struct, frozen=True):
    """Conditions on columns of `frames`, and their values."""

    conditions: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def where(self, *others: str) -> str:
        """The clause that asks for these, and for others before them."""
        conditions = (*others, *self.conditions)
        return f"WHERE {' AND '.join(conditions)}" if conditions else ""


class Texts:
    """A full-text table whose row ids are those of the frames, moved up by `bits`.

    Its rows stand in the order of their frames, so the newest frames' can be read first.
    """

    def __init__(self, database: Database, table: str, bits: int) -> None:
        self._database = database
        self._table = table
        self._bits = bits
        self._words = Vocabulary(database, table)

    def frames_with(self, words: list[str], among: Filter, below: int, most: int) -> set[int]:
        """Row ids of the newest frames below that one with a text that has all words: `most`, if there are so many."""
        query = self._words.match_all(words)
        if query is None:
            return set()
        if not query.begins_at_once:
            return self._whole(query, among, below, most)
        walks = [self._along_texts(query, among, below, most)]
        if among.conditions:
            walks.append(self._along_frames(query, among, below, most))
        while True:
            for walk in walks:
                found = next(walk)
                if found is not None:
                    return found

    def _whole(self, query: TextQuery, among: Filter, below: int, most: int) -> set[int]:
        """Reads matching texts of frames that pass the filter, with as few queries as that takes."""
        where = among.where(f"{self._table} MATCH ?", f"{self._table}.rowid < ?")
        sql = (
            f"SELECT frames.rowid FROM {self._table} CROSS JOIN frames ON frames.rowid = {self._table}.rowid >> ?"
            f" {where} ORDER BY {self._table}.rowid DESC LIMIT ?"
        )
        some = most * _TEXTS_READ
        found: set[int] = set()
        while True:
            rows = self._database.rows(sql, [self._bits, query.text, self._first_of(below), *among.values, some])
            found.update(rowid for (rowid,) in rows)
            if len(rows) < some or len(found) >= most:
                return found
            below = rows[-1][0]

    def _along_texts(self, query: TextQuery, among: Filter, below: int, most: int) -> Generator[set[int] | None]:
        """Reads matching texts; what is left of the last frame they are of is passed over. Its answer comes last."""
        sql = (
            f"WITH read AS (SELECT rowid AS text FROM {self._table} WHERE {self._table} MATCH ? AND rowid < ?"
            " ORDER BY rowid DESC LIMIT ?) SELECT count(*), min(text) >> ? FROM read UNION ALL"
            f" SELECT 0, frames.rowid FROM read CROSS JOIN frames ON frames.rowid = text >> ? {among.where()}"
        )
        some = most * _TEXTS_READ
        found: set[int] = set()
        while True:
            values = [query.text, self._first_of(below), some, self._bits, self._bits, *among.values]
            (read, last), *rows = self._database.rows(sql, values)
            found.update(rowid for _, rowid in rows)
            if read < some or len(found) >= most:
                yield found
            yield None
            below = last

    def _along_frames(self, query: TextQuery, among: Filter, below: int, most: int) -> Generator[set[int] | None]:
        """Looks for texts of the frames that pass the filter. Its answer comes last."""
        candidates = f"SELECT rowid FROM frames {among.where('rowid < ?')} ORDER BY rowid DESC LIMIT ?"
        sql = (
            f"SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM {self._table}"
            f" WHERE {self._table} MATCH ? AND rowid >= value << ? AND rowid < (value + 1) << ?)"
        )
        found: set[int] = set()
        while True:
            some = [rowid for (rowid,) in self._database.rows(candidates, [below, *among.values, _FRAMES_TRIED])]
            values = [msgspec.json.encode(some).decode(), query.text, self._bits, self._bits]
            found.update(rowid for (rowid,) in self._database.rows(sql, values))
            if len(some) < _FRAMES_TRIED or len(found) >= most:
                yield found
            yield None
            below = some[-1]

    def _first_of(self, frame_rowid: int) -> int:
        """The row id before which the texts of all earlier frames stand."""
        return min(frame_rowid << self._bits, LARGEST_ROWID)
