"""A database's shape, read with ordinary queries through the guard: tables, columns, keys and row estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import Denied, HostError, QueryError
from .guard_results import Column, TableShape

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Rows = list[list[Any]]
    Run = Callable[[str, list[Any]], Awaitable[Rows]]

_TABLES = """select schema, name, type from pragma_table_list
    where type <> 'shadow' and name not like 'sqlite\\_%' escape '\\' order by schema, name"""
# A view or virtual table can be broken, and then ends the whole statement: those are read one by one.
_COLUMNS = """select m.name, c.name, c.type, c.pk from pragma_table_list m join pragma_table_xinfo(m.name, m.schema) c
    where m.type = 'table' and m.name not like 'sqlite\\_%' escape '\\' and c.hidden <> 1 order by m.name, c.cid"""
_COLUMNS_OF = "select name, type, pk from pragma_table_xinfo(?1, ?2) where hidden <> 1 order by cid"
_REFERENCES = """select m.name, f."from", f."table", f."to" from pragma_table_list m
    join pragma_foreign_key_list(m.name, m.schema) f where m.type = 'table' order by f.id desc, f.seq"""
_STATISTICS = "select tbl, max(cast(stat as integer)) from sqlite_stat1 group by tbl"
_EXACT_ROWS = 1000
_BATCH = 40  # below the guard's limit of terms in a compound SELECT
_ROWID_NAMES = ("rowid", "_rowid_", "oid")


def quoted(name: str) -> str:
    """An identifier as SQL."""
    return '"' + name.replace('"', '""') + '"'


async def table_names(run: Run) -> dict[str, str]:
    """The schema, `main` or `temp`, of each table, view and virtual table, by name. Raises what a query raises."""
    return {name: schema for schema, name, *_ in await run(_TABLES, [])}


async def columns_of(run: Run, schema: str, name: str) -> list[Column]:
    """A table's columns without the hidden ones; none for a view that cannot be read. Raises `TimedOut`."""
    try:
        return [Column(name=row[0], type=row[1], pk=row[2]) for row in await run(_COLUMNS_OF, [name, schema])]
    except (QueryError, Denied):
        return []  # of a table that is gone, with a function not on the list, of a module this SQLite lacks


async def read_schema(run: Run) -> dict[str, TableShape]:
    """Each table's shape by its name. Raises what a query raises."""
    shapes = await _shapes(run)
    keys = {(row[0], row[1]): (row[2], row[3]) for row in await run(_REFERENCES, [])}
    estimates = await _estimates(run, shapes)
    return {
        name: TableShape(
            type=shape.type,
            columns=[_with_reference(name, column, keys, shapes) for column in shape.columns],
            rows_estimate=estimates.get(name),
        )
        for name, shape in shapes.items()
    }


async def _shapes(run: Run) -> dict[str, TableShape]:
    columns: dict[str, list[Column]] = {}
    for table, name, kind, pk in await run(_COLUMNS, []):
        columns.setdefault(table, []).append(Column(name=name, type=kind, pk=pk))
    shapes: dict[str, TableShape] = {}
    for schema, name, kind in await run(_TABLES, []):
        if kind != "table":
            columns[name] = await columns_of(run, schema, name)
        shapes[name] = TableShape(type=kind, columns=columns.get(name, []))
    return shapes


def _with_reference(
    table: str, column: Column, keys: dict[tuple[str, str], tuple[str, str | None]], shapes: dict[str, TableShape]
) -> Column:
    target = keys.get((table, column.name))
    if target is None:
        return column
    parent, name = target
    if name is None:  # the parent's primary key is meant
        name = next((other.name for other in shapes[parent].columns if other.pk), "") if parent in shapes else ""
    return Column(name=column.name, type=column.type, pk=column.pk, references=f"{parent}.{name}")


async def _estimates(run: Run, shapes: dict[str, TableShape]) -> dict[str, int]:
    tables = [name for name, shape in shapes.items() if shape.type == "table"]
    counts: dict[str, int] = {}
    for start in range(0, len(tables), _BATCH):
        batch = tables[start : start + _BATCH]
        terms = (f"(select count(*) from (select 1 from {quoted(name)} limit {_EXACT_ROWS + 1}))" for name in batch)
        rows = await run("select " + ", ".join(terms), [])
        counts |= dict(zip(batch, rows[0], strict=True))
    large = [name for name, count in counts.items() if count > _EXACT_ROWS]
    if not large:
        return counts
    statistics = await _optional(run, _STATISTICS)
    known = {row[0]: row[1] for row in statistics}
    for name in large:
        estimate = known.get(name) or await _highest_rowid(run, name, shapes[name])
        if estimate is None:
            del counts[name]
        else:
            counts[name] = max(estimate, _EXACT_ROWS + 1)
    return counts


async def _highest_rowid(run: Run, table: str, shape: TableShape) -> int | None:
    taken = {column.name.lower() for column in shape.columns}
    alias = next((name for name in _ROWID_NAMES if name not in taken), None)
    rows = await _optional(run, f"select max({alias}) from {quoted(table)}") if alias else []
    return rows[0][0] if rows and isinstance(rows[0][0], int) else None


async def _optional(run: Run, sql: str) -> Rows:
    try:
        return await run(sql, [])
    except HostError:
        return []  # a table without rowids, a file never analysed
