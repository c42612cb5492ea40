"""Whatever the statement: nothing is written, no mark of another file is seen, it ends in time, as one of the kinds."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cellhost.store.errors import Denied, HostError, InvalidParams, QueryError, TimedOut, TooLarge
from cellhost.store.guard import GuardedReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TIMEOUT_S = 0.1
MARK = "s3cr3t-mark"
KINDS = (Denied, InvalidParams, QueryError, TimedOut, TooLarge)


def words(text: str) -> list[str]:
    return text.split()


names = st.sampled_from(
    words(
        """
        id body n session_id name payload title notes files messages docs docs_fts nums empty v_notes
        sqlite_schema sqlite_temp_schema json_each pragma_table_info pragma_database_list dbstat
        docs_fts_data rowid x c control
        """
    )
) | st.sampled_from(['"odd name"', '"a""b"', '"select"', "[ünï]", "main.notes", "temp.x"])
literals = st.sampled_from(
    [
        "1",
        "-1",
        "0",
        "null",
        "9223372036854775807",
        "1e999",
        "x'00ff'",
        "''",
        "'a'",
        "'[1,2]'",
        "'$.a'",
        "?",
        "?1",
        ":a",
    ]
) | st.integers().map(str)
functions = st.sampled_from(
    words(
        """
        abs max min count sum group_concat json_group_array json_extract printf format length substr replace
        instr hex unhex quote random randomblob zeroblob load_extension sqlite_version changes char unicode
        trim date strftime row_number lag bm25 snippet highlight typeof coalesce iif likelihood json_each
        fts3_tokenizer caller_session
        """
    )
)
operators = st.sampled_from(words("+ - * / % || = <> < > and or is like glob match in -> ->> & |"))
verbs = st.sampled_from(
    words(
        """
        select delete insert update drop create alter attach detach vacuum pragma explain begin commit
        reindex analyze replace with values release savepoint
        """
    )
)


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    call = st.tuples(functions, st.lists(inner, max_size=3)).map(lambda made: f"{made[0]}({', '.join(made[1])})")
    window = call.map(lambda made: f"{made} over (order by 1)")
    binary = st.tuples(inner, operators, inner).map(lambda made: f"({' '.join(made)})")
    choice = st.tuples(inner, inner).map(lambda made: f"case when {made[0]} then {made[1]} end")
    nested = st.tuples(inner, names).map(lambda made: f"(select {made[0]} from {made[1]} limit 2)")
    return call | window | binary | choice | nested


expressions = st.recursive(names | literals, compound, max_leaves=6)
sources = (
    names
    | st.tuples(names, names).map(lambda made: f"{made[0]} natural join {made[1]}")
    | st.tuples(names, names).map(lambda made: f"{made[0]} a, {made[1]} b")
    | st.tuples(names, names).map(lambda made: f"{made[0]} full join {made[1]} using (id)")
    | st.tuples(names, expressions).map(lambda made: f"{made[0]}({made[1]})")
    | expressions.map(lambda made: f"(select {made} as x)")
)
tails = st.sampled_from(["", " limit 3", " order by 1", " group by 1", " union select 1", " intersect select 2", ";"])
selects = st.tuples(st.lists(expressions, min_size=1, max_size=3), sources, expressions, tails).map(
    lambda made: f"select {', '.join(made[0])} from {made[1]} where {made[2]}{made[3]}"
)
withs = st.tuples(names, selects, selects).map(lambda made: f"with recursive {made[0]} as ({made[1]}) {made[2]}")
pragmas = st.tuples(names | functions, literals).map(lambda made: f"pragma {made[0]}({made[1]})")
statements = (
    selects
    | withs
    | pragmas
    | st.tuples(verbs, names, expressions).map(" ".join)
    | st.tuples(selects, verbs, names).map(lambda made: f"{made[0]}; {made[1]} {made[2]}")
    | selects.map(lambda made: f"explain query plan {made}")
)
parameters = (
    st.none()
    | st.lists(st.none() | st.integers() | st.text() | st.floats(), max_size=2)
    | st.dictionaries(st.sampled_from(["a", "b"]), st.integers() | st.text(), max_size=2)
)

TOKENS = re.compile(r"\w+|'[^']*'|\"[^\"]*\"|\s+|.", re.DOTALL)


def mutated(made: tuple[str, str, list[tuple[int, int, int]]]) -> str:
    """A case whose tokens were dropped, doubled, swapped or replaced by those of another."""
    first, second = TOKENS.findall(made[0]), TOKENS.findall(made[1])
    for action, where, other in made[2]:
        if not first:
            break
        at = where % len(first)
        match action % 4:
            case 0:
                del first[at]
            case 1:
                first.insert(at, first[other % len(first)])
            case 2:
                first[at], first[other % len(first)] = first[other % len(first)], first[at]
            case _:
                first[at : at + 1] = second[other % max(1, len(second)) :][:3]
    return "".join(first)


def mutations(cases: list[dict[str, Any]]) -> st.SearchStrategy[str]:
    texts = st.sampled_from([case["sql"] for case in cases])
    edits = st.tuples(st.integers(0, 3), st.integers(0, 500), st.integers(0, 500))
    return st.tuples(texts, texts, st.lists(edits, min_size=1, max_size=5)).map(mutated)


@pytest.fixture
def ask(guard_file: Path) -> Iterator[Callable[[str, Any], tuple[str, float]]]:
    """Runs a statement beside a control.db full of marks; gives what came of it as text, and its seconds."""
    with closing(sqlite3.connect(guard_file.parent / "control.db")) as connection:
        connection.executescript(f"create table control(a); insert into control values ('{MARK}')")

    async def run(reader: GuardedReader, sql: str, params: Any) -> tuple[str, float]:
        start = time.monotonic()
        try:
            answer = str((await reader.query(sql, params)).rows)
        except HostError as error:
            if not isinstance(error, KINDS):
                pytest.fail(f"{type(error)}: {error} for {sql!r}")
            answer = f"{error} {error.hint}"
        return answer, time.monotonic() - start

    with start_blocking_portal() as portal:
        reader = GuardedReader(guard_file, timeout_s=TIMEOUT_S)
        with portal.wrap_async_context_manager(reader):
            yield lambda sql, params: portal.call(run, reader, sql, params)


def fuzz(
    examples: int, ask: Callable[[str, Any], tuple[str, float]], cases: list[dict[str, Any]], guard_file: Path
) -> None:
    before = {path.name: path.read_bytes() for path in guard_file.parent.iterdir() if path.suffix == ".db"}

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(statements | mutations(cases), parameters)
    def check(sql: str, params: Any) -> None:
        answer, seconds = ask(sql, params)
        assert MARK not in answer
        assert seconds < TIMEOUT_S + 1, sql

    check()
    after = {path.name: path.read_bytes() for path in guard_file.parent.iterdir() if path.suffix == ".db"}
    assert after == before
    own = {guard_file.name, f"{guard_file.name}-wal", f"{guard_file.name}-shm", "control.db"}
    assert {path.name for path in guard_file.parent.iterdir()} <= own


def test_no_statement_of_a_short_fuzz_gets_through_or_gets_stuck(
    guard_file: Path, ask: Callable[[str, Any], tuple[str, float]], sql_cases: list[dict[str, Any]]
) -> None:
    fuzz(250, ask, sql_cases, guard_file)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_no_statement_of_a_long_fuzz_gets_through_or_gets_stuck(
    guard_file: Path, ask: Callable[[str, Any], tuple[str, float]], sql_cases: list[dict[str, Any]], part: int
) -> None:
    fuzz(2600, ask, sql_cases, guard_file)
