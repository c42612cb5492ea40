"""What the query guard hands out: tables, the same with their rows still encoded, and a database's shape.

Cells are JSON everywhere, so an answer is the same through every door: an integer beyond ±2^53 is
`{"$int": "…"}`, an infinity `{"$float": "inf"}`, a blob `{"$blob": base64}`; text that is not UTF-8 has U+FFFD.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Table(msgspec.Struct, frozen=True):
    """`rows[i][j]` is the cell of `columns[j]`; `types[j]` the storage classes seen there, such as `integer|text`.

    `types` has `null` for a column without a value. `truncated` says that there were more rows. `elapsed_ms` is
    the worker's time. Column names may repeat.
    """

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    row_count: int
    truncated: bool
    elapsed_ms: float


class Encoded(msgspec.Struct, frozen=True):
    """A `Table` whose rows are `body`: UTF-8 JSON, an array of arrays (`table`) or of objects (`records`)."""

    columns: list[str]
    types: list[str]
    body: bytes
    row_count: int
    truncated: bool
    elapsed_ms: float


class Column(msgspec.Struct, frozen=True):
    """`pk` is the place in the primary key from 1, or 0; `references` is `table.column`, or None."""

    name: str
    type: str
    pk: int
    references: str | None = None


class TableShape(msgspec.Struct, frozen=True):
    """`type` is `table`, `view` or `virtual`; `rows_estimate` is exact up to 1,000, None where it would cost a scan."""

    type: str
    columns: list[Column]
    rows_estimate: int | None = None
