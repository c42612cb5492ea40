"""Users' own database files, which a server is given with `--database NAME=PATH`."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ..clients import environments

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from .conftest import Peer, Spawn

BUDGET = 16_000
WITHIN_S = 30.0

WRITER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
number = 0
while True:
    number += 1
    database.execute("begin immediate")
    database.execute("insert into entries values (?, 1)", [number])
    database.execute("insert into entries values (?, -1)", [number])
    database.execute("commit")
    if number == 1:
        print("writing", flush=True)
"""


def made(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)
    return path


async def select(peer: Peer, database: str, sql: str) -> Any:
    return await peer.result("query", {"sql": sql, "database": database})


async def shown_to_a_model(peer: Peer, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer over MCP; its text is the same and within the budget."""
    answer = await peer.result("tools/call", {"name": tool, "arguments": arguments})
    assert not answer.get("isError"), answer
    (block,) = answer["content"]
    assert json.loads(block["text"]) == answer["structuredContent"]
    assert len(block["text"]) <= BUDGET
    structured: dict[str, Any] = answer["structuredContent"]
    return structured


async def test_a_user_database_can_be_queried_and_not_written(spawn: Spawn, tmp_path: Path) -> None:
    path = made(
        tmp_path / "sales 50%?.db",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL); INSERT INTO orders VALUES (1, 9.5)",
    )
    async with spawn("--database", f"sales={path}") as peer:
        assert await select(peer, "sales", "SELECT total FROM orders") == [{"total": 9.5}]
        schema = await peer.result("query_schema", {"database": "sales"})
        assert [column["name"] for column in schema["orders"]["columns"]] == ["id", "total"]
        assert (await peer.error("query", {"sql": "DELETE FROM orders", "database": "sales"}))["code"] == -31403
        absent = await peer.error("query", {"sql": "SELECT 1", "database": "absent"})
        assert absent["code"] == -31404
        assert "sales" in absent["data"]["hint"]


async def test_the_tables_of_a_large_database_come_within_the_budget_and_the_rest_can_be_asked_for(
    spawn: Spawn, tmp_path: Path
) -> None:
    columns = ", ".join(f"a_column_with_a_long_name_{number} text" for number in range(8))
    script = "".join(f"create table table_{number:03}(id integer primary key, {columns});" for number in range(200))
    path = made(tmp_path / "large.db", script)
    async with spawn("--database", f"large={path}") as peer:
        assert len(await peer.result("query_schema", {"database": "large"})) == 200
        shown = await shown_to_a_model(peer, "query_schema", database="large")
        assert shown["truncated"] is True
        assert "sqlite_schema" in shown["go_on_with"]
        tables = [name for name in shown if name.startswith("table_")]
        assert len(tables) > 10
        assert all(len(shown[name]["columns"]) == 9 for name in tables)
        rest = "select name from sqlite_schema where type = 'table' order by name"
        names = await shown_to_a_model(peer, "query", sql=rest, database="large")
        assert len(names["rows"]) == 200


async def test_a_file_that_another_process_writes_all_the_time_is_read_in_whole_transactions(
    spawn: Spawn, tmp_path: Path
) -> None:
    path = made(tmp_path / "busy.db", "pragma journal_mode = wal; create table entries(number, amount)")
    async with spawn("--database", f"busy={path}") as peer:
        with written_by_another_process(path) as writer:
            counts: list[int] = []
            with anyio.fail_after(WITHIN_S):
                while len(counts) < 50 or counts[-1] == counts[0]:
                    (row,) = await select(peer, "busy", "select count(*) as n, sum(amount) as balance from entries")
                    assert row["balance"] == 0
                    counts.append(row["n"])
            assert counts == sorted(counts)
            assert writer.poll() is None, "a reader stopped the writer"


@contextmanager
def written_by_another_process(path: Path) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-P", "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"
            yield writer
        finally:
            writer.kill()


async def test_what_is_wrong_with_a_file_is_said_without_its_folder_and_other_files_go_on(
    spawn: Spawn, tmp_path: Path
) -> None:
    good = made(tmp_path / "good.db", "create table t(a); insert into t values (1)")
    (tmp_path / "cipher.db").write_bytes(random.Random(3).randbytes(8192))
    (tmp_path / "table.csv").write_text("id,name\n1,ann\n")
    wrong = {
        "gone": ("gone.db", "there is no database file gone.db"),
        "cipher": ("cipher.db", "encrypted"),
        "table": ("table.csv", "CSV"),
        "folder": (".", "not a regular file"),
    }
    options = [f"--database={name}={tmp_path / file}" for name, (file, _) in wrong.items()]
    async with spawn(*options, f"--database=good={good}") as peer:
        for name, (_, message) in wrong.items():
            for method, params in (("query", {"sql": "SELECT 1"}), ("query_schema", {})):
                error = await peer.error(method, {**params, "database": name})
                assert error["data"]["kind"] == "storage"
                assert message in error["message"]
                assert error["data"]["hint"]
                assert str(tmp_path) not in json.dumps(error)
        assert await select(peer, "good", "SELECT a FROM t") == [{"a": 1}]


async def test_a_file_may_come_later_and_be_replaced_while_it_is_open(spawn: Spawn, tmp_path: Path) -> None:
    path = tmp_path / "later.db"
    async with spawn("--database", f"later={path}") as peer:
        await peer.error("query", {"sql": "SELECT 1", "database": "later"})
        made(path, "create table t(a); insert into t values (1)")
        assert await select(peer, "later", "SELECT a FROM t") == [{"a": 1}]
        made(tmp_path / "next.db", "create table u(b); insert into u values (2)").replace(path)
        assert await select(peer, "later", "SELECT b FROM u") == [{"b": 2}]
        schema = await peer.result("query_schema", {"database": "later"})
        assert list(schema) == ["u"]


async def test_no_statement_on_one_file_reaches_another(spawn: Spawn, tmp_path: Path) -> None:
    for name in ("one", "two"):
        made(tmp_path / f"{name}.db", f"create table only_{name}(a)")
    options = [f"--database={name}={tmp_path / name}.db" for name in ("one", "two")]
    async with spawn(*options) as peer:
        for sql in ("SELECT * FROM only_two", "SELECT * FROM frames", "SELECT * FROM two.only_two"):
            assert (await peer.error("query", {"sql": sql, "database": "one"}))["data"]["kind"] == "sql"
        attach = f"ATTACH '{tmp_path / 'two.db'}' AS two"
        assert (await peer.error("query", {"sql": attach, "database": "one"}))["data"]["kind"] == "denied"


@pytest.mark.slow
async def test_a_database_that_a_package_ships_answers_as_sqlite_itself_does(spawn: Spawn, tmp_path: Path) -> None:
    with environments.needed("pyzipcode"):
        (path,) = environments.python("pyzipcode").parents[1].glob("lib/python*/site-packages/pyzipcode/zipcodes.db")
    before = path.read_bytes()
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as plain:
        tables = [name for (name,) in plain.execute("select name from sqlite_schema where type = 'table'")]
        async with spawn("--database", f"zip={path}") as peer:
            schema = await shown_to_a_model(peer, "query_schema", database="zip")
            assert set(schema) == set(tables)
            (table,) = (name for name in tables if "state" in {each["name"] for each in schema[name]["columns"]})
            assert schema[table]["rows_estimate"] == plain.execute(f"select count(*) from {table}").fetchone()[0]
            for sql in (
                f"select state, count(*) as n, avg(latitude) as lat from {table} group by state order by n desc, state",
                f"select * from {table} where city like 'spring%' order by zip limit 50",
                f"select count(distinct city) as cities, min(zip) as low, max(zip) as high from {table}",
            ):
                cursor = plain.execute(sql)
                names = [column[0] for column in cursor.description]
                expected = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
                assert await select(peer, "zip", sql) == expected
    assert path.read_bytes() == before
