"""What a caller may not read is not in reach of its worker: no descriptor, no memory map, no answer."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from cellhost.store.errors import HostError
from cellhost.store.guard import GuardedReader

MARK = "s3cr3t-mark"
LONG = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 300000) select max(x) from c"


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    """A control.db full of marks and two projects, the second full of marks too."""
    for name in ("one", "two"):
        (tmp_path / "projects" / name).mkdir(parents=True)
        fill(tmp_path / "projects" / name / "records.db", MARK if name == "two" else "open")
    fill(tmp_path / "control.db", MARK)
    return tmp_path


def fill(path: Path, text: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("pragma journal_mode=wal; create table if not exists settings(key, value)")
        connection.executemany("insert into settings values (?, ?)", [(text, f"{text} {n}") for n in range(50)])
        connection.commit()


def attacks(folder: Path) -> list[str]:
    control = folder / "control.db"
    two = folder / "projects" / "two" / "records.db"
    return [
        f"attach '{control}' as c",
        f"select * from '{control}'.settings",
        f'select * from "file:{control}?mode=ro"',
        f"explain query plan select * from '{two}'",
        f"vacuum into '{folder / 'copy.db'}'",
        f"select readfile('{control}')",
        f"select load_extension('{control}')",
        f"select * from json_each(readfile('{two}'))",
        f"select fts3_tokenizer('simple', x'00'), '{control}'",
        "select * from pragma_database_list",
        "select * from (select '' as key, '' as value) natural full join settings",
        "select * from settings join settings s using (key, value)",
        "select * from sqlite_schema",
        "select group_concat(value) from settings",
        f"pragma temp_store_directory = '{folder}'",
        f"pragma database_list('{control}')",
        f"select * from csv('{control}')",
        f"select * from fsdir('{folder}')",
    ]


def within(folder: Path, path: str) -> bool:
    return path.startswith(f"{folder}/")


async def answers(reader: GuardedReader, statements: list[str]) -> list[Any]:
    found: list[Any] = []
    for sql in statements:
        try:
            found.append((await reader.query(sql)).rows)
        except HostError as error:
            found.append((type(error).__name__, str(error), error.hint))
    return found


async def test_no_descriptor_and_no_memory_map_of_a_worker_names_another_file(data_folder: Path) -> None:
    own = data_folder / "projects" / "one" / "records.db"
    with (data_folder / "control.db").open("rb") as held:
        os.set_inheritable(held.fileno(), True)
        async with GuardedReader(own, timeout_s=20) as reader:
            await answers(reader, [*attacks(data_folder), "select count(*), max(value) from settings"])
            async with anyio.create_task_group() as group:  # both workers are at work, not one still starting
                for _ in range(2):
                    group.start_soon(reader.query, LONG)
            assert len(reader.pids) == 2
            for pid in reader.pids:
                descriptors = await anyio.to_thread.run_sync(opened_by, pid)
                maps = await anyio.to_thread.run_sync(mapped_by, pid)
                allowed = {str(own), f"{own}-wal", f"{own}-shm"}
                assert {path for path in descriptors if within(data_folder, path)} <= allowed
                assert {path for path in maps if within(data_folder, path)} <= allowed
                assert {path for path in descriptors if not within(data_folder, path)} <= {"/dev/null", "socket:"}


def opened_by(pid: int) -> set[str]:
    folder = Path(f"/proc/{pid}/fd")
    return {str(link.readlink()).partition("[")[0] for link in folder.iterdir()}


def mapped_by(pid: int) -> set[str]:
    lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}


async def test_a_worker_has_an_empty_environment_and_a_session_of_its_own(data_folder: Path) -> None:
    async with GuardedReader(data_folder / "projects" / "one" / "records.db") as reader:
        await reader.query("select 1")
        pid = reader.pids[0]
        assert await anyio.Path(f"/proc/{pid}/environ").read_bytes() == b""
        assert os.getsid(pid) == pid != os.getsid(0)
        assert await anyio.Path(f"/proc/{pid}/cwd").readlink() == anyio.Path("/")


async def test_no_answer_changes_when_only_the_other_files_change(data_folder: Path) -> None:
    statements = attacks(data_folder)
    async with GuardedReader(data_folder / "projects" / "one" / "records.db") as reader:
        before = await answers(reader, statements)
        fill(data_folder / "control.db", f"{MARK} more")
        fill(data_folder / "projects" / "two" / "records.db", f"{MARK} more")
        assert await answers(reader, statements) == before
    assert MARK not in str(before)
    assert "open 49" in str(before)
    assert not (data_folder / "copy.db").exists()


SERVER = """
import anyio, sys
from cellhost.store.guard import GuardedReader
async def main():
    async with GuardedReader(sys.argv[1], timeout_s=60) as reader, anyio.create_task_group() as group:
        await reader.query("select 1")
        await reader.query("select 1")
        for bomb in ("select length(printf('%.*c', 900000000, 'x'))",
                     "with recursive c(x) as (select 1 union all select x + 1 from c) select max(x) from c"):
            group.start_soon(reader.query, bomb)
        while len(reader.pids) < 2:
            await anyio.lowlevel.checkpoint()
        print(*reader.pids, flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


def test_workers_end_when_the_server_is_killed(data_folder: Path) -> None:
    own = str(data_folder / "projects" / "one" / "records.db")
    command = [sys.executable, "-P", "-c", SERVER, own]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as server:
        assert server.stdout is not None
        pids = [int(pid) for pid in server.stdout.readline().split()]
        assert len(pids) == 2
        handles = [os.pidfd_open(pid) for pid in pids]
        server.send_signal(signal.SIGKILL)
        for handle in handles:
            ended, _, _ = select.select([handle], [], [], 2.0)
            os.close(handle)
            assert ended
