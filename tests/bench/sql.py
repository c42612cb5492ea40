"""Speed of the query guard in process, as ratios to raw sqlite3 + json in one process, same run.

    python tests/bench/sql.py

Each figure is the median of alternating runs, so that a busy machine weighs on both sides.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from cellhost.store.guard import GuardedReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROWS = 1_000_000
TEN_THOUSAND = "select id, name, x, y from t limit 10000"
QUERIES: dict[str, tuple[str, list[Any], int, float | None]] = {
    # what: statement, params, runs, the most the ratio may be
    "10,000 rows of 4 columns": (TEN_THOUSAND, [], 15, 4.0),
    "aggregate over 1,000,000 rows": ("select count(*), sum(y), avg(x), max(x) from t", [], 9, 1.2),
    "GROUP BY over 1,000,000 rows": ("select y % 100, count(*), avg(x) from t group by 1", [], 7, None),
    "LIKE over 1,000,000 rows": ("select count(*) from t where name like '%99%'", [], 7, None),
}
POINT = ("select id, name from t where id = ?", [500_000])


def build(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table t(id integer primary key, name text, x real, y integer)")
        rows = ((n, f"name {n}", n * 1.5, n * 7) for n in range(ROWS))
        connection.executemany("insert into t values (?, ?, ?, ?)", rows)
        connection.commit()


async def side_by_side(
    raw: Callable[[], object], guarded: Callable[[], Awaitable[object]], runs: int
) -> tuple[float, float]:
    """Median milliseconds of each."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        start = time.perf_counter()
        raw()
        middle = time.perf_counter()
        await guarded()
        times[0].append(middle - start)
        times[1].append(time.perf_counter() - middle)
    return statistics.median(times[0]) * 1000, statistics.median(times[1]) * 1000


def show(what: str, raw: float, guarded: float, most: float | None = None) -> None:
    bound = f"(at most {most:g})" if most else ""
    print(f"{what:<34} raw {raw:9.3f} ms   guarded {guarded:9.3f} ms   ratio {guarded / raw:6.2f} {bound}")


async def first_row(path: Path) -> None:
    async with GuardedReader(path) as reader:
        await reader.fetch(*POINT)


async def main(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:

        def raw(sql: str, params: list[Any]) -> bytes:
            return json.dumps(connection.execute(sql, params).fetchall()).encode()

        def raw_records(sql: str) -> bytes:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description]
            return json.dumps([dict(zip(names, row, strict=True)) for row in cursor.fetchall()]).encode()

        async with GuardedReader(path, timeout_s=60, max_rows=10_000, max_bytes=8 << 20) as reader:
            await reader.fetch("select 1")
            for what, (sql, params, runs, most) in QUERIES.items():
                show(what, *await side_by_side(lambda: raw(sql, params), lambda: reader.fetch(sql, params), runs), most)  # noqa: B023
            times = await side_by_side(
                lambda: raw_records(TEN_THOUSAND), lambda: reader.fetch(TEN_THOUSAND, form="records"), 15
            )
            show("… as records", *times)
            show("point query", *await side_by_side(lambda: raw(*POINT), lambda: reader.fetch(*POINT), 2000))
        print(f"SQLite {reader.engine}")

    def raw_first_row() -> None:
        with closing(sqlite3.connect(path)) as opened:
            opened.execute(*POINT).fetchone()

    show("start → first row → end", *await side_by_side(raw_first_row, lambda: first_row(path), 15))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "bench.db")
        anyio.run(main, Path(folder) / "bench.db")
