"""The file itself: odd paths, other kinds of file, damage, locks, and a file that changes while it is open."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cellhost.store.errors import Denied, InvalidParams, StorageError
from cellhost.store.guard import GuardedReader

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE_TABLE = "create table t(a); insert into t values ({})"


def database(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def names_in(folder: Path) -> set[str]:
    return {found.name for found in folder.iterdir()}


async def trouble(path: Path, sql: str = "select * from sqlite_schema") -> StorageError:
    async with GuardedReader(path) as reader:
        with pytest.raises(StorageError) as raised:
            await reader.query(sql)
    assert raised.value.hint
    assert str(path.parent) not in f"{raised.value} {raised.value.hint}"
    return raised.value


@pytest.mark.parametrize("name", ["a b.db", "q?mode=rwc&x=1.db", "100%41.db", "a#b.db", "ünï 数.db", "semi;'\".db"])
async def test_any_file_name_works(tmp_path: Path, name: str) -> None:
    path = database(tmp_path / name, ONE_TABLE.format(7))
    async with GuardedReader(path) as reader:
        assert (await reader.query("select a from t")).rows == [[7]]
    assert names_in(tmp_path) == {name}


async def test_a_name_that_is_not_utf8_works(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"latin-\xe9.db")
    shutil.copy(database(tmp_path / "plain.db", ONE_TABLE.format(8)), path)
    async with GuardedReader(path) as reader:
        assert (await reader.query("select a from t")).rows == [[8]]


async def test_a_relative_path_is_taken_from_the_folder_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database(tmp_path / "here.db", ONE_TABLE.format(9))
    monkeypatch.chdir(tmp_path)
    reader = GuardedReader("here.db")
    monkeypatch.chdir("/")
    async with reader:
        assert (await reader.query("select a from t")).rows == [[9]]


def test_a_path_with_a_nul_is_bad_params() -> None:
    with pytest.raises(InvalidParams):
        GuardedReader("a\0b")


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (b"id,name\n1,ann\n", "CSV", "sqlite-utils insert"),
        ("größe;ä\n1;2\n".encode() * 100, "CSV", "sqlite-utils insert"),
        (b'{"a": 1}\n' * 900, "CSV, JSON", "sqlite-utils insert"),
        (b"PAR1" + bytes(5000), "Parquet", "read_parquet"),
        (bytes(8) + b"DUCK" + bytes(5000), "DuckDB", "DuckDB"),
        (b"PK\x03\x04" + bytes(5000), "spreadsheet", "read_excel"),
        (b"\x1f\x8b" + bytes(5000), "gzip", "decompress"),
        (random.Random(1).randbytes(8192), "encrypted", "decrypt"),
    ],
)
async def test_a_file_of_another_kind_is_recognised(tmp_path: Path, content: bytes, message: str, hint: str) -> None:
    error = await trouble(written(tmp_path / "data.db", content))
    assert message in str(error)
    assert hint in (error.hint or "")


async def test_an_empty_file_is_an_empty_database(tmp_path: Path) -> None:
    async with GuardedReader(written(tmp_path / "empty.db", b"")) as reader:
        assert (await reader.query("select count(*) from sqlite_schema")).rows == [[0]]


async def test_a_missing_file_or_a_folder_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    assert "there is no database file gone.db" in str(await trouble(tmp_path / "gone.db"))
    (tmp_path / "folder.db").mkdir()
    assert "not a regular file" in str(await trouble(tmp_path / "folder.db"))
    os.mkfifo(tmp_path / "pipe.db")
    assert "not a regular file" in str(await trouble(tmp_path / "pipe.db"))
    assert names_in(tmp_path) == {"folder.db", "pipe.db"}


async def test_a_file_that_appears_later_is_found_by_the_same_reader(tmp_path: Path) -> None:
    path = tmp_path / "later.db"
    async with GuardedReader(path, workers=1) as reader:
        with pytest.raises(StorageError):
            await reader.query("select 1")
        database(path, ONE_TABLE.format(1))
        assert (await reader.query("select a from t")).rows == [[1]]
        path.unlink()
        with pytest.raises(StorageError):
            await reader.query("select a from t")


async def test_a_damaged_file_is_an_error_and_the_reader_goes_on(tmp_path: Path) -> None:
    script = "create table t(a); with recursive c(x) as (select 1 union all select x+1 from c where x < 9999) "
    path = database(tmp_path / "damaged.db", script + "insert into t select hex(x) || 'padding' from c")
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 12] = random.Random(2).randbytes(4096 * 10)
    written(path, bytes(content))
    error = await trouble(path, "select count(a), max(a) from t")
    assert "damaged" in str(error)
    async with GuardedReader(path, workers=1) as reader:
        with pytest.raises(StorageError):
            await reader.query("select max(a) from t")
        assert (await reader.query("select 1")).rows == [[1]]


async def test_a_file_swapped_for_another_is_opened_anew(tmp_path: Path) -> None:
    path = database(tmp_path / "data.db", ONE_TABLE.format(1))
    other = database(tmp_path / "other.db", "create table u(b); insert into u values (2)")
    async with GuardedReader(path, workers=1) as reader:
        assert (await reader.query("select a from t")).rows == [[1]]
        other.replace(path)
        assert (await reader.query("select b from u")).rows == [[2]]


async def test_what_a_writer_commits_is_seen_schema_included(guard_file: Path) -> None:
    async with GuardedReader(guard_file, workers=1) as reader:
        await reader.query("select 1")
        with closing(sqlite3.connect(guard_file)) as writer:
            writer.execute("insert into notes(body) values ('new')")
            writer.commit()
            assert (await reader.query("select count(*) from notes")).rows == [[4]]
            writer.execute("create table made(a)")
            writer.execute("insert into made values (5)")
            writer.commit()
            assert (await reader.query("select a from made")).rows == [[5]]
            writer.execute("create virtual table made_fts using fts5(words)")
            writer.execute("insert into made_fts values ('quick brown')")
            writer.commit()
            assert (await reader.query("select words from made_fts where made_fts match 'brown'")).rows == [
                ["quick brown"]
            ]
        assert (await reader.query("select value from json_each('[3]')")).rows == [[3]]


async def test_a_table_of_a_module_off_the_list_is_denied_though_it_was_made_after_the_file_was_opened(
    guard_file: Path,
) -> None:
    async with GuardedReader(guard_file, workers=1) as reader:
        await reader.query("select 1")
        with closing(sqlite3.connect(guard_file)) as writer:
            writer.execute("create virtual table listed using fts3tokenize('simple')")
            writer.commit()
            for _ in range(2):
                with pytest.raises(Denied):
                    await reader.query("select token from listed where input = 'a b'")
            writer.execute("drop table listed")
            writer.execute("create table listed(a)")
            writer.commit()
        assert (await reader.query("select * from listed")).rows == []


async def test_a_file_in_rollback_mode_that_is_locked_says_to_try_again(tmp_path: Path) -> None:
    path = database(tmp_path / "locked.db", ONE_TABLE.format(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("begin exclusive")
        async with GuardedReader(path, timeout_s=0.2) as reader:
            with pytest.raises(StorageError, match="locked") as raised:
                await reader.query("select a from t")
            assert "try again" in (raised.value.hint or "")
            writer.execute("commit")
            assert (await reader.query("select a from t", timeout_s=5)).rows == [[1]]


async def test_fts3_fts4_and_rtree_tables_of_the_file_can_be_read(tmp_path: Path) -> None:
    script = """create virtual table old using fts4(words); insert into old values ('one two');
        create virtual table vocabulary using fts5vocab(new, 'row');
        create virtual table new using fts5(words); insert into new values ('three four');
        create virtual table boxes using rtree(id, x0, x1); insert into boxes values (1, 0, 9);
        create virtual table pages using dbstat;"""
    async with GuardedReader(database(tmp_path / "search.db", script), workers=1) as reader:
        found = await reader.query("select snippet(old) from old where old match 'two'")
        assert "two" in found.rows[0][0]
        assert (await reader.query("select term from vocabulary order by term")).rows == [["four"], ["three"]]
        assert (await reader.query("select id from boxes where x1 > 5")).rows == [[1]]
        with pytest.raises(PermissionError):
            await reader.query("select * from pages")


@pytest.fixture
def sealed_folder() -> Iterator[Path]:
    """A folder everybody may enter and nobody write, with a file in WAL mode and one in rollback mode."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "sealed"
        folder.mkdir()
        database(folder / "wal.db", f"pragma journal_mode=wal; {ONE_TABLE.format(1)}")
        database(folder / "rollback.db", ONE_TABLE.format(2))
        Path(parent).chmod(0o755)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


@pytest.fixture
def plain_python(sealed_folder: Path) -> str:
    """An interpreter whose process may not write where its folder says so, not even as root."""
    if os.getuid() != 0:
        return sys.executable
    wrapper = sealed_folder.parent / "python"
    wrapper.write_text(f'#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    works = subprocess.run([wrapper, "-c", ""], check=False, capture_output=True, cwd="/").returncode == 0
    if not works:
        pytest.skip("root may write anywhere, and nobody else can run this interpreter")
    return str(wrapper)


async def test_a_wal_file_in_a_folder_that_cannot_be_written_says_why(sealed_folder: Path, plain_python: str) -> None:
    async with GuardedReader(sealed_folder / "rollback.db", python=plain_python) as reader:
        assert (await reader.query("select a from t")).rows == [[2]]
    async with GuardedReader(sealed_folder / "wal.db", python=plain_python) as reader:
        with pytest.raises(StorageError, match="WAL mode and its folder cannot be written") as raised:
            await reader.query("select a from t")
        assert "journal_mode=delete" in (raised.value.hint or "")
