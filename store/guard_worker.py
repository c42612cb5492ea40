"""One query worker: a program run by path with `python -I -S`, which answers queries on one file.

It is given a socket as descriptor 0 and nothing else, reads its configuration from it, and answers one request at
a time. An answer is two 4-byte lengths, a JSON head and a body. Standard library only: it imports nothing of the
server, and the server never imports it. What a statement may do is the policy's, and anything else is denied and
recorded (design section "The query guard"). What an outcome means is for the server to say: it is told SQLite's
name of the error, or one of ours.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sqlite3
import sys
import time
import types
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    # Run by path there is no package: a bare one lets the two siblings be found, and runs nothing of the server's.
    __package__ = "query_worker"
    sys.modules[__package__] = types.ModuleType(__package__)
    sys.modules[__package__].__path__ = [__file__.rpartition(os.sep)[0]]

from .guard_worker_connection import Database, Guard, Stopped
from .guard_worker_rows import Refused, rows_of

if TYPE_CHECKING:
    Json = dict[str, Any]

PR_SET_PDEATHSIG = 1
MESSAGE_CHARS = 500  # a message may quote the statement
M_TRIM_THRESHOLD, M_TOP_PAD = -1, -2  # of glibc
HEADER = 8
OPENINGS = 3  # of a file whose schema is changed again and again meanwhile
# After any other error the connection is opened anew.
HARMLESS = {f"SQLITE_{name}" for name in ("ERROR", "AUTH", "INTERRUPT", "TOOBIG", "MISMATCH", "RANGE", "BUSY")}


encode_head = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Pipe:
    """Requests and answers over descriptor 0; its end means that the server is gone, and ends this process.

    A request is its length, its number and its JSON; one that is empty takes the request of that number back.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._requests: dict[int, bytes] = {}
        self._number = 0
        self._taken_back = False
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)

    def receive(self) -> Json:
        """The next request; an empty one was taken back."""
        while not self._requests:
            self._read()
        self._number, self._taken_back = next(iter(self._requests)), False
        request = self._requests.pop(self._number)
        return json.loads(request.decode()) if request else {}

    def _read(self) -> None:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            os._exit(0)
        self._buffer += chunk
        start, size = 0, len(self._buffer)
        while size - start >= HEADER:
            end = start + HEADER + int.from_bytes(self._buffer[start : start + 4], "little")
            if end > size:
                break
            number = int.from_bytes(self._buffer[start + 4 : start + HEADER], "little")
            self._arrived(number, bytes(self._buffer[start + HEADER : end]))
            start = end
        del self._buffer[:start]

    def _arrived(self, number: int, request: bytes) -> None:
        if request or number in self._requests:
            self._requests[number] = request
        elif number == self._number:
            self._taken_back = True

    def cancelled(self) -> bool:
        """Whether the server has taken the last request back."""
        while self._poll.poll(0):
            self._read()
        return self._taken_back

    def send(self, head: Json, body: bytes = b"") -> None:
        encoded = encode_head(head).encode()
        sizes = len(encoded).to_bytes(4, "little") + len(body).to_bytes(4, "little")
        view = memoryview(b"".join((sizes, encoded, body)))
        while view:
            view = view[os.write(0, view) :]


def lenient(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def read(connection: sqlite3.Connection, request: Json, guard: Guard) -> tuple[Json, bytes]:
    try:
        return rows_of(connection, request, guard.check)
    except sqlite3.OperationalError as error:
        if hasattr(error, "sqlite_errorname"):
            raise
        # Text that is not UTF-8: the only error of the module's own while reading rows.
        connection.text_factory = lenient
        try:
            return rows_of(connection, request, guard.check)
        finally:
            connection.text_factory = str


def answer(database: Database, request: Json, guard: Guard) -> tuple[Json, bytes]:
    for _ in range(OPENINGS):
        connection = database.current()
        try:
            return read(connection, request, guard)
        except sqlite3.Error:
            if guard.stopped or not database.outdated():
                raise
            guard.denial = None
    raise Refused("replaced")


def outcome(database: Database, request: Json, guard: Guard) -> tuple[Json, bytes]:
    """The answer, or the name of the error: SQLite's, or ours."""
    try:
        return answer(database, request, guard)
    except Refused as refusal:
        head = refusal.head
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "internal")
        head = {"name": name, "message": str(error)[:MESSAGE_CHARS], "denial": guard.denial}
        if head["name"] not in HARMLESS:
            head["first_bytes"] = database.first_bytes()
    except Stopped:
        head = {}
    except MemoryError:
        head = {"name": "SQLITE_NOMEM"}
    except UnicodeError:
        head = {"name": "utf8"}
    except Exception as error:  # noqa: BLE001  the worker's boundary
        head = {"name": "internal", "message": type(error).__name__}
    return (head | {"name": guard.stopped} if guard.stopped else head), b""


def confine(config: Json) -> None:
    """Die with the server, and use no more than the policy's resources."""
    library = ctypes.CDLL(None)
    library.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != config["parent"]:
        os._exit(0)
    for name, value in config["policy"]["resources"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    # A sort in memory is a million small blocks: untuned, glibc takes three times as long over the second one.
    if (tune := getattr(library, "mallopt", None)) is not None:
        tune(M_TRIM_THRESHOLD, 64 << 20)
        tune(M_TOP_PAD, 1 << 20)


def serve(pipe: Pipe) -> None:
    config = pipe.receive()
    confine(config)
    guard = Guard(config["policy"], pipe.cancelled)
    database = Database(config, guard)
    try:
        database.open()
    except (sqlite3.Error, Refused):
        database.close()  # each query tries again and says what is wrong
    pipe.send({"engine": sqlite3.sqlite_version})
    while True:
        request = pipe.receive()
        if not request:
            pipe.send({"name": "cancelled"})
            continue
        start = time.monotonic()
        guard.begin(request["timeout_s"], request["session"])
        head, body = outcome(database, request, guard)
        head["elapsed_ms"] = round((time.monotonic() - start) * 1000, 3)
        pipe.send(head, body)


if __name__ == "__main__":
    serve(Pipe())
