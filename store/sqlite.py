"""A SQLite file of ours: opened, migrated and guarded against everything a disk can do.

    database = Database(path, name="control.db", schema=CONTROL, synchronous="FULL")
    with database.transaction():
        database.insert(Setting(key="theme", value='"dark"'))

sqlite-utils makes tables, indexes, full text and migrations (`migrations.py`); its import costs more than opening a
file does, so it happens only when a migration is due. Failures of the file become `StorageError`; errors of integrity
pass as they are.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

import msgspec

from .checks import invalid
from .errors import Closed, StorageError
from .faults import sqlite_fault, write_fault
from .folders import make_private_folder
from .rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from .tables import Schema

R = TypeVar("R", bound=Row)

_SETTINGS = ("PRAGMA foreign_keys = ON", "PRAGMA journal_size_limit = 4194304", "PRAGMA temp_store = MEMORY")
_RETRY_S = 0.01
_TOGETHER = 50  # rows in one statement: more than that many values of most tables some versions of SQLite do not bind


class Database:
    """One file, one connection, shared by threads under `lock`; opened by its first use.

    `name` is what error messages call the file. Every method may raise `StorageError`, and `Closed` after `close`.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        schema: Schema,
        synchronous: Literal["FULL", "NORMAL"],
        lock: threading.RLock | None = None,
        busy_timeout_s: float = 5.0,
        on_open: Callable[[], None] | None = None,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._read_only = read_only
        self.lock = lock or threading.RLock()
        self._name = name
        self._schema = schema
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s
        self._on_open = on_open
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def open(self) -> sqlite3.Connection:
        """Opens and migrates the file if that has not happened yet."""
        with self.lock:
            if self._connection is None:
                if self._closed:
                    raise Closed("the store is closed", hint="open the data folder again")
                if self._on_open and not self._read_only:
                    self._on_open()
                self._connection = self._connect_read_only() if self._read_only else self._connect()
            return self._connection

    def close(self) -> None:
        """Ends the connection; the last one to a file folds its write-ahead log in."""
        with self.lock:
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Runs one statement and returns how many rows it changed."""
        with self.lock, self._faults():
            return self.open().execute(sql, values).rowcount

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of one statement; a statement that writes may return rows too."""
        with self.lock, self._faults():
            return self.open().execute(sql, values).fetchall()

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or `None` without one."""
        found = self.rows(sql, values)
        return found[0][0] if found else None

    def select(self, row: type[R], rest: str = "", values: Sequence[Any] = ()) -> list[R]:
        """The rows of `row`'s table as structs; `rest` is everything after FROM table."""
        reader = _reader(row)
        return [reader(found) for found in self.rows(f"{_select(row)} {rest}", values)]

    def first(self, row: type[R], rest: str, values: Sequence[Any]) -> R | None:
        """The first of `select`, or `None`."""
        found = self.rows(f"{_select(row)} {rest}", values)
        return _reader(row)(found[0]) if found else None

    def insert(self, row: Row, otherwise: str = "", *, rowid: int | None = None) -> list[tuple[Any, ...]]:
        """Adds one row, at its place in the table where `rowid` names one.

        `otherwise` is the ON CONFLICT clause, and its RETURNING gives the rows returned.
        Without one, a second row of the same key raises `sqlite3.IntegrityError`.
        """
        values = msgspec.structs.astuple(row)
        if rowid is not None:
            return self.rows(f"{_insert(type(row), placed=True)} {otherwise}", [*values, rowid])
        return self.rows(f"{_insert(type(row))} {otherwise}", values)

    def insert_many(self, rows: Sequence[Row]) -> None:
        """Adds rows of one table, many with each statement, for after each the thread queues for the interpreter.

        A second row of the same key raises `sqlite3.IntegrityError`, and those before it may be there.
        """
        for start in range(0, len(rows), _TOGETHER):
            some = rows[start : start + _TOGETHER]
            values = [value for row in some for value in msgspec.structs.astuple(row)]
            self.rows(_insert(type(some[0]), len(some)), values)

    def give_back_space(self) -> None:
        """Returns the pages of what was deleted to the disk, as far as no reader stands in the way."""
        for pragma in ("incremental_vacuum", "wal_checkpoint(TRUNCATE)"):
            self.rows(f"PRAGMA {pragma}")

    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """Everything inside is kept, or nothing; one inside another joins it. The write lock is taken at once."""
        return self._between("BEGIN IMMEDIATE")

    def snapshot(self) -> contextlib.AbstractContextManager[None]:
        """Everything read inside is of one moment; nobody waits for it."""
        return self._between("BEGIN")

    @contextlib.contextmanager
    def _between(self, begin: str) -> Generator[None]:
        with self.lock:
            connection = self.open()
            if connection.in_transaction:
                yield
                return
            self.execute(begin)
            try:
                yield
                self.execute("COMMIT")
            finally:
                # After a commit there is none to roll back; SQLite itself ends one that a full disk broke.
                if connection.in_transaction:
                    connection.rollback()

    @contextlib.contextmanager
    def _faults(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            fault = sqlite_fault(error, self._name)
            if fault is None:
                raise
            raise fault from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise invalid("$", "holds a text or a number that cannot be kept") from error

    def _connect(self) -> sqlite3.Connection:
        self._make_file()
        return self._connected("mode=rw", self._prepare)

    def _connect_read_only(self) -> sqlite3.Connection:
        """The file as it is, for whoever only looks: nothing is made, and nothing in it can be changed."""
        if not self.path.exists():
            raise StorageError(
                f"{self._name} is not there: nothing has been recorded yet",
                hint="name the right folder with --data-dir and --project; a server's first call makes its records",
            )
        # In a folder nobody may write SQLite cannot make the -shm file that a log needs; without one there is no log.
        alone = not _may_write(self.path.parent, os.W_OK) and not self.path.with_name(f"{self.path.name}-wal").exists()
        return self._connected("mode=ro&immutable=1" if alone else "mode=ro", self._check_version)

    def _connected(self, mode: str, prepare: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
        with self._faults():
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?{mode}",
                uri=True,
                timeout=self._busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            try:
                prepare(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _make_file(self) -> None:
        """Makes folder and file, private from the start; SQLite gives its -wal and -shm the file's own mode."""
        make_private_folder(self.path.parent)
        try:
            # Only a new file is opened here: closing a second descriptor of a file would drop SQLite's locks on it.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise write_fault(error) from error
        if not (_may_write(self.path, os.W_OK) and _may_write(self.path.parent, os.W_OK | os.X_OK)):
            raise StorageError(
                f"{self._name} cannot be written: the data folder is read-only",
                hint="give this user write access to the data folder, or choose another one with --data-dir",
            )

    def _check_version(self, connection: sqlite3.Connection) -> set[str]:
        """The migrations that the file still lacks; to whoever only looks that is an error."""
        applied = self._applied(connection)
        known = {step.name for step in self._schema.steps}
        if applied - known:
            raise StorageError(
                f"{self._name} was made by a newer version of cellhost",
                hint="upgrade cellhost, or choose another data folder with --data-dir",
            )
        if self._read_only and known - applied:
            raise StorageError(
                f"{self._name} was made by an older version of cellhost",
                hint="start a server with this data folder once: it brings the file up to date",
            )
        return known - applied

    def _prepare(self, connection: sqlite3.Connection) -> None:
        pending = self._check_version(connection)
        for setting in _SETTINGS:
            connection.execute(setting)
        self._use_wal(connection)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        if pending:
            _migrate(connection, self._schema)

    def _applied(self, connection: sqlite3.Connection) -> set[str]:
        """Names of the migrations this file has had, as sqlite-utils keeps them."""
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = '_sqlite_migrations'").fetchall():
            return set()
        sql = "SELECT name FROM _sqlite_migrations WHERE migration_set = ?"
        return {name for (name,) in connection.execute(sql, [self._schema.name])}

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Set before the first page is written, so that gc can give space back without VACUUM, which may renumber
        # the row ids that full text refers to.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # Two servers switching a fresh file: SQLite refuses one at once, without its busy time-out.
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)


def _may_write(path: Path, rights: int) -> bool:
    return os.access(path, rights, effective_ids=True)


def _migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    from .migrations import migrate

    migrate(connection, schema)


@cache
def _select(row: type[Row]) -> str:
    columns = ", ".join(f"{row.table}.{name}" for name in row.__struct_fields__)
    return f"SELECT {columns} FROM {row.table}"


@cache
def _insert(row: type[Row], count: int = 1, *, placed: bool = False) -> str:
    names = (*row.__struct_fields__, "rowid") if placed else row.__struct_fields__
    values = f"({', '.join('?' * len(names))})"
    return f"INSERT INTO {row.table} ({', '.join(names)}) VALUES {', '.join([values] * count)}"


@cache
def _reader(row: type[R]) -> Callable[[tuple[Any, ...]], R]:
    names = row.__struct_fields__
    # SQLite keeps a truth value as a number.
    truths = [name for name, declared in get_type_hints(row).items() if declared is bool]

    def read(values: tuple[Any, ...]) -> R:
        fields = dict(zip(names, values, strict=True))
        for name in truths:
            fields[name] = bool(fields[name])
        return row(**fields)

    return read
