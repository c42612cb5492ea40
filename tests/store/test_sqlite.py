"""A database file of ours, and everything a disk can do to it."""

import contextlib
import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

import cellhost.store.migrations
from cellhost.store.errors import Closed, InvalidParams, StorageError
from cellhost.store.rows import Rule, Setting
from cellhost.store.sqlite import Database
from cellhost.store.tables import CONTROL, Schema, Step, Table

NOBODY = 65534
IMPORTED_WHILE_WE_MAY = cellhost.store.migrations


def database(folder: Path, *, schema: Schema = CONTROL, busy_timeout_s: float = 5.0) -> Database:
    return Database(
        folder / "control.db",
        name="control.db",
        schema=schema,
        synchronous="FULL",
        busy_timeout_s=busy_timeout_s,
    )


def add_in_one_piece(opened: Database, *keys: str, value: str = "1") -> None:
    with opened.transaction():
        for key in keys:
            opened.insert(Setting(key=key, value=value))


def settings(opened: Database) -> list[str]:
    return [setting.key for setting in opened.select(Setting, "ORDER BY key")]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Database]:
    made = database(tmp_path / "data")
    with contextlib.closing(made):
        yield made


@pytest.fixture
def locked_out() -> Iterator[Path]:
    """A folder that the user running the test may read and not write."""
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def without_write_access(folder: Path) -> Generator[None]:
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:  # root may write anywhere
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


def test_nothing_is_made_before_the_first_use(tmp_path: Path) -> None:
    database(tmp_path / "data").close()
    assert list(tmp_path.iterdir()) == []


def test_folders_are_private_and_files_too(opened: Database) -> None:
    opened.insert(Setting(key="a", value="1"))
    assert stat.S_IMODE(opened.path.parent.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in opened.path.parent.iterdir()}
    assert modes == {"control.db": 0o600, "control.db-wal": 0o600, "control.db-shm": 0o600}


def test_the_file_is_opened_with_its_settings(opened: Database) -> None:
    assert opened.value("PRAGMA journal_mode") == "wal"
    assert opened.value("PRAGMA synchronous") == 2
    assert opened.value("PRAGMA foreign_keys") == 1
    assert opened.value("PRAGMA busy_timeout") == 5000
    assert opened.value("PRAGMA journal_size_limit") > 0


def test_a_file_that_needs_no_migration_is_opened_without_sqlite_utils(opened: Database) -> None:
    opened.open()
    program = (
        "import sys; from pathlib import Path; from cellhost.store.store import Store\n"
        "store = Store(Path(sys.argv[1])); rules = store.permission_rules(); store.close()\n"
        "print(len(rules), 'sqlite_utils' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", program, opened.path.parent],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout.split() == ["3", "False"]


def test_a_transaction_is_kept_whole_or_not_at_all(opened: Database) -> None:
    with opened.transaction():
        opened.insert(Setting(key="a", value="1"))
        with opened.transaction():
            opened.insert(Setting(key="b", value="1"))
    with pytest.raises(sqlite3.IntegrityError):
        add_in_one_piece(opened, "c", "a")
    assert settings(opened) == ["a", "b"]


@pytest.mark.parametrize("count", [0, 1, 50, 51, 120])
def test_many_rows_are_added_in_their_order(opened: Database, count: int) -> None:
    rows = [Setting(key=f"{number:03}", value=str(number)) for number in range(count)]
    with opened.transaction():
        opened.insert_many(rows)
    assert opened.select(Setting, "ORDER BY rowid") == rows


def test_a_second_row_of_the_same_key_is_an_integrity_error(opened: Database) -> None:
    opened.insert(Setting(key="a", value="1"))
    with pytest.raises(sqlite3.IntegrityError):
        opened.insert(Setting(key="a", value="2"))
    opened.insert(Setting(key="b", value="1"))
    assert settings(opened) == ["a", "b"]


@pytest.mark.parametrize("value", ["\ud800", 2**63])
def test_what_sqlite_cannot_hold_is_a_bad_argument(opened: Database, value: object) -> None:
    with pytest.raises(InvalidParams, match="cannot be kept"):
        opened.rows("SELECT ?", [value])


def test_a_closed_file_stays_closed(opened: Database) -> None:
    opened.open()
    opened.close()
    with pytest.raises(Closed, match="closed"):
        settings(opened)


def test_threads_share_the_connection(opened: Database) -> None:
    def add(name: str) -> None:
        for number in range(50):
            with opened.transaction():
                opened.insert(Setting(key=f"{name}{number}", value="1"))

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(settings(opened)) == 200


def test_a_file_of_a_newer_version_is_refused_untouched(opened: Database) -> None:
    opened.execute("INSERT INTO _sqlite_migrations (migration_set, name) VALUES ('cellhost-control', 'of_2031')")
    opened.close()
    before = opened.path.read_bytes()
    newer = database(opened.path.parent)
    with pytest.raises(StorageError, match=r"control\.db was made by a newer version") as caught:
        newer.open()
    assert caught.value.hint
    assert "upgrade cellhost" in caught.value.hint
    assert opened.path.read_bytes() == before


def test_an_older_file_is_brought_up_to_date_with_its_rows(tmp_path: Path) -> None:
    older = Schema("cellhost-control", (Table(Setting, key=("key",)),), (Step("tables"),))
    first = database(tmp_path, schema=older)
    first.insert(Setting(key="kept", value="1"))
    first.close()
    with contextlib.closing(database(tmp_path)) as second:
        assert settings(second) == ["kept"]
        assert [rule.tool for rule in second.select(Rule)] == ["write_file", "edit_file", "save_artifact"]


def test_a_failing_migration_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    broken = Schema("cellhost-control", CONTROL.tables, (*CONTROL.steps, Step("broken", ("SELECT no_such()",))))
    with pytest.raises(sqlite3.OperationalError):
        database(tmp_path, schema=broken).open()
    connection = sqlite3.connect(tmp_path / "control.db")
    with contextlib.closing(connection):
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"this is no database, whatever its name says " * 40, "is not a SQLite database"), (None, "is damaged")],
)
def test_a_spoilt_file_is_refused_by_name(opened: Database, content: bytes | None, message: str) -> None:
    opened.insert(Setting(key="a", value="1"))
    opened.close()
    if content is None:  # the header stays, the pages behind it do not
        whole = opened.path.read_bytes()
        content = whole[:100] + b"\xff" * (len(whole) - 100)
    opened.path.write_bytes(content)
    spoilt = database(opened.path.parent)
    with pytest.raises(StorageError, match=f"control.db {message}") as caught:
        settings(spoilt)
    assert caught.value.hint
    assert str(opened.path.parent) not in f"{caught.value} {caught.value.hint}"
    assert opened.path.read_bytes() == content


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(StorageError, match="leads through a file"):
        database(tmp_path / "data").open()
    with pytest.raises(StorageError, match="leads through a file"):
        database(tmp_path / "data" / "deeper").open()
    assert (tmp_path / "data").read_text() == "mine"


def test_a_data_folder_that_cannot_be_made_is_refused(locked_out: Path) -> None:
    with without_write_access(locked_out), pytest.raises(StorageError, match="cannot be written") as caught:
        database(locked_out / "data").open()
    assert caught.value.hint
    assert "--data-dir" in caught.value.hint


def test_a_read_only_file_is_refused(locked_out: Path) -> None:
    first = database(locked_out)
    first.open()
    first.close()
    with without_write_access(locked_out), pytest.raises(StorageError, match="read-only"):
        database(locked_out).open()


def test_a_file_locked_by_another_process_is_an_error_that_may_be_retried(tmp_path: Path) -> None:
    opened = database(tmp_path, busy_timeout_s=0.05)
    opened.insert(Setting(key="a", value="1"))
    other = sqlite3.connect(opened.path, isolation_level=None)
    with contextlib.closing(opened), contextlib.closing(other):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked by another process") as caught:
            opened.insert(Setting(key="b", value="1"))
        assert caught.value.as_data()["retryable"] is True
        assert settings(opened) == ["a"]  # readers go on
        other.execute("ROLLBACK")
        opened.insert(Setting(key="b", value="1"))
        assert settings(opened) == ["a", "b"]


def test_a_full_database_keeps_nothing_of_the_transaction(opened: Database) -> None:
    pages = opened.value("PRAGMA page_count")
    opened.value(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="disk of the data folder is full"):
        add_in_one_piece(opened, "one", "two", value="x" * 100_000)
    assert settings(opened) == []
    opened.value(f"PRAGMA max_page_count = {pages + 1000}")
    opened.insert(Setting(key="later", value="1"))
    assert settings(opened) == ["later"]


def test_a_disk_that_refuses_to_write_keeps_nothing_of_the_transaction(opened: Database) -> None:
    opened.open()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        with pytest.raises(StorageError, match=r"control\.db cannot"):
            add_in_one_piece(opened, "one", "two", value="x" * 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert settings(opened) == []
    assert opened.value("PRAGMA integrity_check") == "ok"


def test_many_processes_may_make_the_same_files_at_once(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from cellhost.store.store import Store\n"
        "import cellhost.store.migrations\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "store = Store(Path(sys.argv[1]))\n"
        "print(store.new_frame(kind='turn', project_id='shared'), len(store.permission_rules()), flush=True)\n"
        "store.close()"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path / "data")]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 6
    assert {rules for _, rules in answers} == {"3"}
    with contextlib.closing(sqlite3.connect(tmp_path / "data/projects/shared/records.db")) as connection:
        found = {frame_id for (frame_id,) in connection.execute("SELECT frame_id FROM frames")}
        assert found == {frame_id for frame_id, _ in answers}
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
