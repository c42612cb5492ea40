"""Queries as a client has them: this server beside a FastMCP tool with `mode=ro`, and datasette's JSON API.

    python tests/bench/sql_wire.py [rounds]

Interleaved rounds, medians; ratios to sqlite3 + json in this one process. The last line is a point query in pings.
"""

from __future__ import annotations

import http.client
import json
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contenders import SERVERS, environments, ours
from peer import MCP, Peer
from sql import POINT, QUERIES, build

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Ask = Callable[[str, list[Any]], object]

ROUNDS = 5
STARTED_WITHIN_S = 30.0
CASES: dict[str, tuple[str, list[Any], int]] = {
    "point query": (*POINT, 300),
    **{what: (sql, params, 3) for what, (sql, params, _, most) in QUERIES.items() if most},
}
PING = "ping"


@contextmanager
def raw(path: Path) -> Generator[Ask]:
    with closing(sqlite3.connect(path)) as connection:
        yield lambda sql, params: json.dumps(connection.execute(sql, params).fetchall())


@contextmanager
def serving(path: Path) -> Generator[tuple[Ask, Callable[[], object]]]:
    """This server, and its ping."""
    with tempfile.TemporaryDirectory() as folder:
        plain = ours(folder, str(path))[0]
        peer = Peer(plain.command, plain.speech)
        more = {"database": "bench", "format": "table"}
        try:
            yield (
                lambda sql, params: peer.ask("query", {"sql": sql, "params": params, **more}),
                lambda: peer.ask(PING, {}),
            )
        finally:
            peer.close()


@contextmanager
def fastmcp(path: Path) -> Generator[Ask]:
    peer = Peer([str(environments.python("fastmcp")), str(SERVERS / "readonly.py"), str(path)], MCP)
    try:
        yield lambda sql, params: peer.ask("query", {"sql": sql, "params": params})
    finally:
        peer.close()


@contextmanager
def datasette(path: Path) -> Generator[Ask]:
    """A connection for each call; parameters are in the address, by name."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = ("max_returned_rows", "10000", "sql_time_limit_ms", "60000", "num_sql_threads", "1")
    options = [
        part for name, value in zip(settings[::2], settings[1::2], strict=True) for part in ("--setting", name, value)
    ]
    command = [str(environments.python("datasette")), "-m", "datasette", str(path), "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        deadline = time.monotonic() + STARTED_WITHIN_S
        while connection.sock is None:
            try:
                connection.connect()
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

        def ask(sql: str, params: list[Any]) -> object:
            for number in range(len(params)):
                sql = sql.replace("?", f":p{number}", 1)
            named = {f"p{number}": value for number, value in enumerate(params)}
            address = f"/{path.stem}.json?" + urllib.parse.urlencode({"sql": sql, "_shape": "arrays", **named})
            connection.close()  # it ends what has been idle for 5 s, and others may take as long
            connection.request("GET", address)
            return json.loads(connection.getresponse().read())

        try:
            yield ask
        finally:
            connection.close()
            process.terminate()


def timed(ask: Ask, case: str) -> float:
    """Milliseconds of one call."""
    sql, params, times = CASES[case]
    started = time.perf_counter()
    for _ in range(times):
        ask(sql, params)
    return (time.perf_counter() - started) / times * 1000


def timed_ping(ping: Callable[[], object], times: int = 300) -> float:
    started = time.perf_counter()
    for _ in range(times):
        ping()
    return (time.perf_counter() - started) / times * 1000


def main(rounds: int, path: Path) -> None:
    build(path)
    with ExitStack() as stack:
        cellhost, ping = stack.enter_context(serving(path))
        columns: dict[str, Ask] = {"raw": stack.enter_context(raw(path)), "cellhost": cellhost}
        for name, contender in (("FastMCP, mode=ro", fastmcp), ("datasette", datasette)):
            try:
                columns[name] = stack.enter_context(contender(path))
            except environments.MissingError as missing:
                print(f"{name} is left out: {missing}")
        for ask in columns.values():
            ask(*POINT)
        times: dict[tuple[str, str], list[float]] = {}
        pings: list[float] = []
        in_pings: list[float] = []
        for _ in range(rounds):
            for case in CASES:
                for name, ask in columns.items():
                    times.setdefault((case, name), []).append(timed(ask, case))
            pings.append(timed_ping(ping))
            in_pings.append(timed(cellhost, "point query") / pings[-1])
    print(f"{'':40}" + "".join(f"{name:>20}" for name in columns))
    for case in CASES:
        medians = {name: statistics.median(times[case, name]) for name in columns}
        ratios = "".join(f"{medians[name] / medians['raw']:>19.2f}x" for name in columns)
        label = f"{case} ({medians['raw']:.3f} ms)"
        print(f"{label:40}{ratios}")
    ping_us = statistics.median(pings) * 1000
    print(f"a point query is {statistics.median(in_pings):.2f} pings of {ping_us:.0f} µs (must 3.5, aim 2.5)")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(int(sys.argv[1]) if sys.argv[1:] else ROUNDS, Path(folder) / "bench.db")
