"""Speed of the wire beside the raw pipe loop and the engines of others, in one run, interleaved.

    python tests/bench/wire.py [ROUNDS] [NAME]...

Prints medians over at least five rounds as ratios to the raw loop; the first reply and memory also as they are.
With NAMEs only those servers take part, beside the raw loop and this one. What a server does not have stays empty.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
from contenders import BASE, Contender, others, ours, raw
from peer import Peer, Speech

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS = 5
BURSTS = 5
TITLE = 44
ROWS = 10_000
POINT = {"sql": "select id, name from notes where id = ?", "params": [ROWS // 2], "database": "bench"}
ECHO = {"text": "x" * 2**20}

Figures = dict[str, float]


class Case(msgspec.Struct, frozen=True):
    """A line of the table: a call and how it is made; `must` and `aim` are the most its ratio may be."""

    title: str
    call: tuple[str, Any]
    pipelined: bool = False
    must: float | None = None
    aim: float | None = None
    times: int = 500

    def seconds(self, peer: Peer) -> float:
        """What the case takes now."""
        name, arguments = self.call
        if self.pipelined:
            return statistics.median(peer.pipelined(name, arguments) for _ in range(BURSTS))
        return peer.round_trip(name, arguments, self.times)


CALLS = (
    Case("round trip ping", ("ping", {}), must=5, aim=3),
    Case("round trip exec_list", ("exec_list", {}), must=8, aim=5),
    Case("1,000 pipelined exec_list", ("exec_list", {}), pipelined=True, must=4, aim=2.5),
)
QUERIES = (
    Case("round trip point query", ("query", POINT)),
    Case("1,000 pipelined point queries", ("query", POINT), pipelined=True, must=18, aim=10),
)
ECHOES = (Case("1 MiB echo", ("echo", ECHO), must=0.7, aim=0.4, times=20),)
FIRST_REPLY, MEMORY = "spawn → first reply, ms", "memory after ping, MB"
ABSOLUTE = {FIRST_REPLY: (180.0, 120.0), MEMORY: (40.0, 32.0)}


def measured(contender: Contender) -> Figures:
    """One round of one server: seconds by case, milliseconds, megabytes."""
    peer = Peer(contender.command, contender.speech)
    try:
        peer.ask("ping", {})
        figures = {FIRST_REPLY: peer.first_reply * 1000, MEMORY: peer.memory_mb()}
        figures |= timed(peer, CALLS)
        if contender.queries:
            figures |= timed(peer, QUERIES)
        if contender.echoes and contender.echo is None:
            figures |= timed(peer, ECHOES)
    finally:
        peer.close()
    return figures if contender.echo is None else figures | echoed(contender.echo, contender.speech)


def echoed(command: Sequence[str], speech: Speech) -> Figures:
    """The echo of a server that has the tool only there."""
    peer = Peer(command, speech)
    try:
        return timed(peer, ECHOES)
    finally:
        peer.close()


def timed(peer: Peer, cases: Sequence[Case]) -> Figures:
    """Seconds of each case, once its calls are known to work and are warm."""
    figures: Figures = {}
    for case in cases:
        name, arguments = case.call
        assert peer.works(name, arguments, 1000 if case.pipelined else 1), f"{case.title}: a call fails"
        if not case.pipelined:
            peer.round_trip(name, arguments, min(100, case.times))
        figures[case.title] = case.seconds(peer)
    return figures


def build(path: str) -> None:
    """A database to ask for single rows."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table notes(id integer primary key, name text)")
        connection.executemany("insert into notes values (?, ?)", ((n, f"note {n}") for n in range(ROWS)))
        connection.commit()


def one_round(contenders: Sequence[Contender]) -> dict[str, Figures]:
    """Every server once, on fresh data."""
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/bench.db"
        build(database)
        everyone = (*raw(), *ours(folder, database), *contenders)
        return {contender.name: measured(contender) for contender in everyone}


def show(rounds: list[dict[str, Figures]], notes: Sequence[str]) -> None:
    """Print the table."""
    median = {
        name: {case: statistics.median(figures[name][case] for figures in rounds) for case in rounds[0][name]}
        for name in rounds[0]
    }
    names = list(median)
    print(f"{'':<{TITLE}}" + "".join(f"{name:>15}" for name in names) + f"{'must':>7}{'aim':>6}")
    for case in (*CALLS, *QUERIES, *ECHOES):
        base = median[BASE][case.title]
        ratios = [median[name][case.title] / base if case.title in median[name] else None for name in names]
        print(line(f"{case.title} ({base * 1e6:,.0f} µs)", ratios, case.must, case.aim, "x"))
    for title, (must, aim) in ABSOLUTE.items():
        print(line(title, [median[name][title] for name in names], must, aim, ""))
    for note in notes:
        print(note)


def line(title: str, values: Sequence[float | None], must: float | None, aim: float | None, unit: str) -> str:
    cells = "".join(f"{'' if value is None else f'{value:.2f}{unit}':>15}" for value in values)
    return f"{title:<{TITLE}}{cells}" + "".join(f"{bound or '':>{width}}" for bound, width in ((must, 7), (aim, 6)))


def main() -> None:
    arguments = sys.argv[1:]
    rounds = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else ROUNDS
    found, notes = others()
    chosen = [contender for contender in found if not arguments or contender.name in arguments]
    show([one_round(chosen) for _ in range(rounds)], notes)


if __name__ == "__main__":
    main()
