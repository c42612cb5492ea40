"""A worker's connection: read-only, warmed up, and armed with an authorizer, limits and a deadline.

Part of the stand-alone worker program (`guard_worker.py`): standard library only. Invariant: a statement of the
caller runs only on a connection whose authorizer and progress handler are set, and they are never taken off.
"""

from __future__ import annotations

import math
import os
import re
import resource
import sqlite3
import stat
import time
from typing import TYPE_CHECKING, Any

from .guard_worker_rows import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    Json = dict[str, Any]

PROGRESS_OPCODES = 1000
DBCONFIG_DEFENSIVE = 1010
NAME_CHARS = 64
LOOK_EVERY_S = 0.02  # how often a running query looks for a cancel: a system call each
ACTIONS = {
    getattr(sqlite3, f"SQLITE_{name}"): name.replace("_", " ")
    for name in (
        "ALTER_TABLE", "ANALYZE", "ATTACH", "CREATE_INDEX", "CREATE_TABLE", "CREATE_TEMP_INDEX", "CREATE_TEMP_TABLE",
        "CREATE_TEMP_TRIGGER", "CREATE_TEMP_VIEW", "CREATE_TRIGGER", "CREATE_VIEW", "CREATE_VTABLE", "DELETE",
        "DETACH", "DROP_INDEX", "DROP_TABLE", "DROP_TEMP_INDEX", "DROP_TEMP_TABLE", "DROP_TEMP_TRIGGER",
        "DROP_TEMP_VIEW", "DROP_TRIGGER", "DROP_VIEW", "DROP_VTABLE", "FUNCTION", "INSERT", "PRAGMA", "READ",
        "REINDEX", "SAVEPOINT", "TRANSACTION", "UPDATE",
    )
}  # fmt: skip
# Any built-in virtual table's name and module, as SQLite stores its declaration.
MODULE = re.compile(
    r"""create \s+ virtual \s+ table \s+
    (?: "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\] | '(?:[^']|'')*' | [^\s"'`\[]+ )
    \s+ using \s+ (\w+)""",
    re.IGNORECASE | re.VERBOSE,
)


class Stopped(Exception):
    """The deadline or a cancel ended the query between two steps."""


class Guard:
    """The authorizer and the progress handler of the connection, and what they recorded of the running query."""

    def __init__(self, policy: Json, cancelled: Callable[[], bool]) -> None:
        self._cancelled = cancelled
        self._functions = frozenset(policy["functions"])
        self._pragmas = frozenset(policy["pragmas"])
        self._look, self._deadline = 0.0, 0.0
        self._cpu = 0
        self.own = False  # a statement of ours is running: PRAGMA schema_version
        self.forbidden: frozenset[str] = frozenset()
        self.session: str | None = None
        self.denial: tuple[str, str, str] | None = None
        self.stopped: str | None = None

    def begin(self, timeout: float, session: str | None) -> None:
        now = time.monotonic()
        self._look, self._deadline = now + LOOK_EVERY_S, now + timeout
        self.session, self.denial, self.stopped = session, None, None
        cpu = math.ceil(time.process_time() + timeout) + 1
        if cpu != self._cpu:  # ends a single long opcode even if the server is itself stopped
            self._cpu = cpu
            resource.setrlimit(resource.RLIMIT_CPU, (cpu, resource.RLIM_INFINITY))

    def authorize(self, action: int, first: str | None, second: str | None, *_where: str | None) -> int:
        if not self.own and self.progress():  # a compile bomb comes by here, if nowhere else
            return sqlite3.SQLITE_DENY
        if self._allows(action, first or "", second or ""):
            return sqlite3.SQLITE_OK
        if self.denial is None:
            self.denial = (ACTIONS.get(action, str(action)), (first or "")[:NAME_CHARS], (second or "")[:NAME_CHARS])
        return sqlite3.SQLITE_DENY

    def _allows(self, action: int, first: str, second: str) -> bool:
        if action == sqlite3.SQLITE_READ:
            return first.lower() not in self.forbidden
        if action == sqlite3.SQLITE_FUNCTION:
            return second in self._functions
        if action == sqlite3.SQLITE_PRAGMA:
            return first.lower() in self._pragmas or (self.own and first == "schema_version" and not second)
        return action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)

    def progress(self) -> int:
        """Non-zero once the query must end."""
        if self.stopped is None:
            now = time.monotonic()
            if now >= self._deadline:
                self.stopped = "timeout"
            elif now >= self._look:
                self._look = now + LOOK_EVERY_S
                if self._cancelled():
                    self.stopped = "cancelled"
        return self.stopped is not None

    def check(self) -> None:
        if self.progress():
            raise Stopped


class Database:
    """The one connection, opened again when the file or its schema is another than when it was opened."""

    def __init__(self, config: Json, guard: Guard) -> None:
        self._config, self._guard = config, guard
        self._path: bytes = config["path"].encode("latin-1")
        self._file: tuple[int, int] | None = None
        self._schema = -1
        self._connection: sqlite3.Connection | None = None

    def current(self) -> sqlite3.Connection:
        """The connection to the file that is there now."""
        if self._connection is None or self._file != self._identity():
            return self.open()
        return self._connection

    def outdated(self) -> bool:
        """Whether the schema is not the one whose virtual tables were touched; then the connection is closed.

        Asked after an error: the constructor of a table that is new is denied. What needs none SQLite sees itself.
        """
        if self._connection is None:
            return False
        self._guard.own = True
        try:
            outdated = schema_version(self._connection) != self._schema
        except sqlite3.Error:
            return False  # the error there was says more
        finally:
            self._guard.own = False
        if outdated:
            self.close()
        return outdated

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _identity(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path)  # noqa: PTH116  the path is bytes
        except OSError as error:
            raise Refused("missing") from error
        if not stat.S_ISREG(found.st_mode):
            raise Refused("not_a_file")
        return found.st_dev, found.st_ino

    def open(self) -> sqlite3.Connection:
        """Open the file read-only and arm the guard; a connection that could not be armed is closed again."""
        self.close()
        self._file = self._identity()
        connection = sqlite3.connect(
            uri(self._path), uri=True, timeout=self._config["timeout_s"], isolation_level=None, cached_statements=0
        )
        try:
            self._arm(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _arm(self, connection: sqlite3.Connection) -> None:
        limit(connection, self._config)
        for setting in ("temp_store=memory", "trusted_schema=off", "mmap_size=0"):
            connection.execute(f"pragma {setting}").close()
        connection.create_function("caller_session", 0, lambda: self._guard.session, deterministic=True)
        for name, statement in self._config["views"].items():
            connection.execute(f"create temp view {quoted(name)} as {statement}")
        self._touch(connection)
        format_loudly(connection, self._config["max_length"])
        if self._file != self._identity():
            raise Refused("replaced")
        connection.execute("pragma query_only=on").close()
        connection.set_progress_handler(self._guard.progress, PROGRESS_OPCODES)
        connection.set_authorizer(self._guard.authorize)

    def _touch(self, connection: sqlite3.Connection) -> None:
        # A virtual table's constructor declares a table: under the guard it would be denied.
        policy = self._config["policy"]
        connection.execute("begin")
        self._schema = schema_version(connection)
        tables = dict(connection.execute("select name, sql from sqlite_master where type = 'table' and rootpage = 0"))
        allowed = {name for name, sql in tables.items() if module_of(sql) in policy["modules"]}
        built_in = {row[0] for row in connection.execute("select name from pragma_module_list")}
        unlisted = (built_in - set(policy["table_functions"])) | (tables.keys() - allowed)
        self._guard.forbidden = frozenset(name.lower() for name in unlisted)
        for name in (*policy["table_functions"], *allowed):
            try:
                connection.execute(f"select 1 from {quoted(name)} limit 0").close()
            except sqlite3.DatabaseError:
                continue  # not in this build, or damaged: a query on it gets SQLite's words
        connection.rollback()

    def first_bytes(self) -> str:
        """What the file begins with, in hex. Closes the connection: closing another descriptor drops its locks."""
        self.close()
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123  the path is bytes
                return file.read(64).hex()
        except OSError:
            return ""


def uri(path: bytes) -> str:
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-~"
    return "file://" + "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in path) + "?mode=ro"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma schema_version").fetchone()[0])


def module_of(statement: str | None) -> str | None:
    found = MODULE.match(statement or "")
    return found[1].lower() if found else None


def format_loudly(connection: sqlite3.Connection, length: int) -> None:
    """Make printf() and format() fail on a text over the limit; some versions of SQLite make it NULL.

    Not where the file's own schema uses them: there a function that is not SQLite's would be refused.
    """
    used = "select 1 from sqlite_master where sql like '%printf%' or sql like '%format%'"
    if silent_formats(connection) and connection.execute(used).fetchone() is None:
        plain = sqlite3.connect(":memory:")
        plain.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)

        def checked(*values: Any) -> Any:
            text = plain.execute(f"select printf({','.join('?' * len(values))})", values).fetchone()[0]
            if text is None and values and values[0]:
                raise OverflowError  # becomes SQLITE_TOOBIG
            return text

        for name in ("printf", "format"):
            connection.create_function(name, -1, checked, deterministic=True)


def silent_formats(connection: sqlite3.Connection) -> bool:
    usual = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 64)
    try:
        return connection.execute("select printf('%.99c', 'x')").fetchone()[0] is None
    except sqlite3.Error:
        return False
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, usual)


def limit(connection: sqlite3.Connection, config: Json) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, config["max_length"])
    for name, value in config["policy"]["limits"].items():
        connection.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{name}"), value)
    configure: Any = getattr(connection, "setconfig", None)  # from Python 3.12 on
    if configure is not None:
        configure(DBCONFIG_DEFENSIVE, True)
