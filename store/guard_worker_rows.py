"""A worker's half of a query's data: parameters in, rows out as JSON under a budget.

Part of the stand-alone worker program (`guard_worker.py`): standard library only.
"""

from __future__ import annotations

import binascii
import json
import math
import sqlite3
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Json = dict[str, Any]

FIRST_ROWS, MOST_ROWS, STEP_BYTES = 16, 512, 1 << 20
NAME_CHARS = 64
EXACT_INT = 2**53  # a JSON reader that uses doubles would change an integer beyond it
STORAGE_CLASSES = {int: "integer", float: "real", str: "text", bytes: "blob"}


class Refused(Exception):
    """The query ends with an outcome of ours, by name."""

    def __init__(self, name: str, message: str = "", **more: Any) -> None:
        super().__init__(message)
        self.head: Json = {"name": name, "message": message, **more}


class Positional(list[Any]):
    """Parameters that know whether SQLite came to the point of binding them."""

    counted = False

    def __len__(self) -> int:
        self.counted = True
        return super().__len__()


class Named(dict[str, Any]):
    """Parameters that know which of them SQLite asked for."""

    def __init__(self, values: Json) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)


class Body:
    """The rows of one answer as JSON, under a budget of bytes."""

    def __init__(self, columns: list[str], request: Json) -> None:
        self._keys = unique(columns) if request["form"] == "records" else None
        self._budget: int = request["bytes"]
        self._cut: bool = request["cut"]
        self._parts: list[bytes] = []
        self._classes: list[set[type]] = [set() for _ in columns]
        self.size, self.count = 2, 0

    def add(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Take rows; False when the budget ended and the caller wants the rows that fit."""
        classes = [set(map(type, column)) for column in zip(*rows, strict=True)]
        part = self._encode(rows, classes)
        size = self.size + len(part) + (self.count > 0)
        if size > self._budget:
            if not self._cut:
                raise Refused("bytes", limit=self._budget)
            return len(rows) > 1 and all(self.add([row]) for row in rows)
        self._parts.append(part)
        self.size, self.count = size, self.count + len(rows)
        for seen, found in zip(self._classes, classes, strict=True):
            seen.update(found)
        return True

    def _encode(self, rows: Sequence[Sequence[Any]], classes: list[set[type]]) -> bytes:
        if any(int in found and inexact(rows, index) for index, found in enumerate(classes)):
            rows = [[tagged(cell) for cell in row] for row in rows]
        try:
            return self._json(rows)
        except ValueError:  # an infinity, which JSON lacks
            return self._json([[tagged(cell) for cell in row] for row in rows])

    def _json(self, rows: Sequence[Sequence[Any]]) -> bytes:
        keys = self._keys
        items = rows if keys is None else [dict(zip(keys, row, strict=True)) for row in rows]
        return ROWS.encode(items)[1:-1].encode()

    def types(self) -> list[str]:
        names = (sorted(STORAGE_CLASSES[found] for found in seen if found in STORAGE_CLASSES) for seen in self._classes)
        return ["|".join(found) or "null" for found in names]

    def encoded(self) -> bytes:
        return b"[" + b",".join(self._parts) + b"]"


def tagged(cell: Any) -> Any:
    if type(cell) is int and not -EXACT_INT <= cell <= EXACT_INT:
        return {"$int": str(cell)}
    if type(cell) is float and math.isinf(cell):
        return {"$float": "inf" if cell > 0 else "-inf"}
    return cell


def tagged_blob(cell: Any) -> Json:
    return {"$blob": binascii.b2a_base64(cell, newline=False).decode()}


ROWS = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), default=tagged_blob
)


def inexact(rows: Sequence[Sequence[Any]], index: int) -> bool:
    integers: list[int] = [row[index] for row in rows if type(row[index]) is int]
    return max(integers) > EXACT_INT or min(integers) < -EXACT_INT


def unique(columns: list[str]) -> list[str]:
    """The names, with `_2`, `_3` … on those that repeat, never one that stands elsewhere."""
    taken, names = set(columns), list[str]()
    for name in columns:
        number, candidate = 1, name
        while candidate in names or (number > 1 and candidate in taken):
            number += 1
            candidate = f"{name}_{number}"
        names.append(candidate)
    return names


def parameter(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    special = cast("dict[str, str]", value)
    return float(special["$float"]) if "$float" in special else binascii.a2b_base64(special["$blob"])


def execute(cursor: sqlite3.Cursor, sql: str, given: list[Any] | Json) -> None:
    """Run with parameters; the module names no error of its own, so what it did with them tells which it was."""
    values: Positional | Named
    if isinstance(given, list):
        values = Positional(parameter(value) for value in given)
    else:
        values = Named({name: parameter(value) for name, value in given.items()})
    try:
        cursor.execute(sql, values)
    except (sqlite3.ProgrammingError, sqlite3.Warning) as error:
        if hasattr(error, "sqlite_errorname"):
            raise
        raise Refused("params" if binding(cursor, sql, values) else "several", str(error)) from error
    if isinstance(values, Named) and (unused := values.keys() - values.asked):
        raise Refused("unused", names=[name[:NAME_CHARS] for name in sorted(unused)])


def binding(cursor: sqlite3.Cursor, sql: str, values: Positional | Named) -> bool:
    """Whether the statement failed at its parameters; when only a name could tell, none are given and counted."""
    if isinstance(values, Named):
        if values.asked:
            return True
        values = Positional()
        try:
            cursor.execute(sql, values)
        except (sqlite3.ProgrammingError, sqlite3.Warning):
            return values.counted
    return values.counted


def rows_of(connection: sqlite3.Connection, request: Json, check: Callable[[], None]) -> tuple[Json, bytes]:
    cursor = connection.cursor()
    try:
        execute(cursor, request["sql"], request["params"])
        columns = [column[0] for column in cursor.description or ()]
        if not columns:
            raise Refused("empty")
        if len(columns) > request["columns"]:
            raise Refused("columns", limit=request["columns"])
        if sum(map(len, columns)) > request["bytes"]:
            raise Refused("bytes", limit=request["bytes"])
        body = Body(columns, request)
        more = fill(body, cursor, request["rows"], check)
    finally:
        cursor.close()
    if more and request["whole"]:
        raise Refused("rows", limit=request["rows"])
    head = {"columns": columns, "types": body.types(), "row_count": body.count, "truncated": more}
    return head, body.encoded()


def fill(body: Body, cursor: sqlite3.Cursor, most: int, check: Callable[[], None]) -> bool:
    """Fetch into the body, in steps that keep memory small; True when there were more rows than it took."""
    step = FIRST_ROWS
    while True:
        check()
        asked = min(step, most + 1 - body.count)
        rows = cursor.fetchmany(asked)
        over = body.count + len(rows) > most
        if over:
            rows.pop()
        if rows and not body.add(rows):
            return True
        if over or len(rows) < asked:
            return over
        step = max(1, min(step * 4, MOST_ROWS, STEP_BYTES * body.count // body.size))
