"""Whatever the statement: nothing is written, no mark of another file is seen, it ends in time, as one of the kinds.

The grammar makes statements that mostly mean something on the fixture, so that they run; one element in twenty is
any other word of the grammar. The mutations take the stated cases apart.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
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

    Ask = Callable[[str, Any], tuple[str, str, float]]

TIMEOUT_S = 0.1
MARK = "s3cr3t-mark"
KINDS = (Denied, InvalidParams, QueryError, TimedOut, TooLarge)

TABLES = {
    "notes": ["id", "body", "n"],
    "messages": ["id", "session_id", "body"],
    "files": ["id", "session_id", "name", "payload"],
    "docs": ["id", "title", "body"],
    "docs_fts": ["title", "body", "rank"],
    "nums": ["n"],
    "v_notes": ["id", "shout"],
    '"odd name"': ['"select"', '"a""b"', "ünï"],
    '"empty"': ["a", "b"],
    "sqlite_schema": ["type", "name", "sql", "rootpage"],
    "pragma_table_list": ["schema", "name", "ncol"],
    "json_each('[1, {\"a\": 2}, null]')": ["key", "value", "type"],
    "json_tree('{\"a\": [1, 2]}')": ["key", "value", "fullkey"],
    "pragma_table_info('notes')": ["cid", "name", "pk"],
    "docs_fts('fast')": ["title", "body"],
    "docs_fts_data": ["id", "block"],
}


def words(text: str) -> list[str]:
    return text.split()


# Each function with how many arguments it takes; the last lines are not on the list.
FUNCTIONS = {
    name: arity
    for arity, names in {
        0: "random caller_session changes last_insert_rowid sqlite_version total_changes current_date",
        1: """abs max min count sum avg total group_concat json_group_array json length hex quote char unicode trim
            lower upper typeof date strftime round sign soundex json_valid json_type unlikely
            randomblob zeroblob load_extension sqlite_compileoption_get fts3_tokenizer readfile""",
        2: """instr ifnull nullif json_extract printf format substr max min coalesce json_array glob like -> round
            sqlite_log load_extension fts3_tokenizer""",
        3: "replace substr iif json_set json_object printf char json_patch",
    }.items()
    for name in words(names)
}
AGGREGATES = words("count sum avg total max min group_concat json_group_array row_number rank lag first_value")
OPERATORS = words("+ - * / % || = <> < > <= and or is like glob in -> & | <<")
LITERALS = [
    "1",
    "-1",
    "0",
    "2",
    "null",
    "9223372036854775807",
    "1e999",
    "x'00ff'",
    "''",
    "'a'",
    "'%e%'",
    "'[1,2]'",
    "'$.a'",
]
WILD = [
    *words("id body nosuch rowid sqlite_temp_schema dbstat sqlite_stmt control main.notes temp.notes * distinct not"),
    *words("pragma_database_list pragma_compile_options pragma_module_list pragma_function_list writefile('x',1)"),
    *words("delete insert update attach detach pragma vacuum ; -- /* ) ( , ? ?2 :a $b @c"),
    "load_extension('/nonexistent/x.so')", "readfile('control.db')", "randomblob(9)", "zeroblob(1000000000)",
    "printf('%.*c', 2000000, 'x')", "'file:control.db?mode=ro'", "\"control.db\"", "cast(x'ff41' as text)",
]  # fmt: skip
VERBS = words(
    "delete insert update drop create alter attach detach vacuum begin commit reindex analyze replace release"
)
PRAGMAS = words("table_info index_list foreign_key_list table_list query_only journal_mode user_version database_list")
TAILS = ["", "", "", " limit 3", " order by 1", " group by 1", " union select 1", " limit 2 offset 1", ";", " -- end"]


def pick(draw: st.DrawFn, options: list[str]) -> str:
    return draw(st.sampled_from(options))


def expression(draw: st.DrawFn, columns: list[str], depth: int) -> str:
    if draw(st.integers(0, 19)) == 0:
        return pick(draw, WILD)
    choice = draw(st.integers(0, 8 if depth else 3))
    if choice <= 2:
        return pick(draw, columns)
    if choice == 3:
        return pick(draw, LITERALS)
    inner = [expression(draw, columns, depth - 1) for _ in range(3)]
    if choice == 4:
        return f"({inner[0]} {pick(draw, OPERATORS)} {inner[1]})"
    if choice == 5:
        return f"case when {inner[0]} then {inner[1]} else {inner[2]} end"
    if choice == 6:
        return f"({select(draw, depth - 1, 1)} limit 1)"
    name = pick(draw, list(FUNCTIONS))
    over = " over (order by 1)" if name in AGGREGATES and draw(st.booleans()) else ""
    return f"{name}({', '.join(inner[: FUNCTIONS[name]])}){over}"


def select(draw: st.DrawFn, depth: int, width: int) -> str:
    tables = draw(st.lists(st.sampled_from(list(TABLES)), min_size=1, max_size=2))
    columns = [f"t{index}.{column}" for index, table in enumerate(tables) for column in TABLES[table]]
    join = pick(draw, [", ", " join ", " left join ", " natural join ", " natural full join "])
    source = join.join(f"{table} as t{index}" for index, table in enumerate(tables))
    chosen = ", ".join(expression(draw, columns, depth) for _ in range(width))
    where = f" where {expression(draw, columns, depth)}" if draw(st.booleans()) else ""
    return f"select {chosen} from {source}{where}"


@st.composite
def statements(draw: st.DrawFn) -> str:
    body = select(draw, 2, draw(st.integers(1, 3))) + pick(draw, TAILS)
    match draw(st.integers(0, 11)):
        case 0:
            return f"with w as ({select(draw, 1, 1)}) {body}"
        case 1:
            endless = "with recursive w(x) as (select 1 union all select x + 1 from w)"
            return f"{endless} {body.replace(' where ', ', w where ')}"
        case 2:
            return f"explain query plan {body}"
        case 3:
            return f"{pick(draw, VERBS)} {pick(draw, list(TABLES))} {body}"
        case 4:
            return f"with w as (select 1) {pick(draw, ['delete from', 'insert into', 'update'])} notes {body}"
        case 5:
            return f"pragma {pick(draw, PRAGMAS)}({pick(draw, ['notes', '1', 'off', 'wal'])})"
        case 6:
            return f"{body}; {pick(draw, VERBS)} notes"
        case _:
            return body


parameters = st.none() | st.lists(st.none() | st.integers() | st.text() | st.floats(), max_size=2)
TOKENS = re.compile(r"\w+|'[^']*'|\"[^\"]*\"|\s+|.", re.DOTALL)


def mutated(made: tuple[str, str, list[tuple[int, int, int]]]) -> str:
    """A case whose tokens were dropped, doubled, swapped or replaced by those of another."""
    first, second = TOKENS.findall(made[0]), TOKENS.findall(made[1])
    for action, where, other in made[2]:
        if not first:
            break
        at = where % len(first)
        match action:
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
    return st.tuples(texts, texts, st.lists(edits, min_size=1, max_size=3)).map(mutated)


@pytest.fixture
def ask(guard_file: Path) -> Iterator[Ask]:
    """Runs a statement beside a control.db full of marks: the outcome's name, its text, and its seconds."""
    with closing(sqlite3.connect(guard_file.parent / "control.db")) as connection:
        connection.executescript(f"create table control(a); insert into control values ('{MARK}')")

    async def run(reader: GuardedReader, sql: str, params: Any) -> tuple[str, str, float]:
        start = time.monotonic()
        try:
            name, text = "ok", str((await reader.query(sql, params)).rows)
        except HostError as error:
            name, text = type(error).__name__, f"{error} {error.hint}"
            if not isinstance(error, KINDS):
                pytest.fail(f"{name}: {error} for {sql!r}")
        return name, text, time.monotonic() - start

    with start_blocking_portal() as portal:
        reader = GuardedReader(guard_file, timeout_s=TIMEOUT_S)
        with portal.wrap_async_context_manager(reader):
            yield lambda sql, params: portal.call(run, reader, sql, params)


def fuzz(examples: int, ask: Ask, cases: list[dict[str, Any]], guard_file: Path) -> None:
    before = {path.name: path.read_bytes() for path in guard_file.parent.iterdir() if path.suffix == ".db"}
    outcomes: Counter[str] = Counter()

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(SLOW))
    @given(statements() | mutations(cases), parameters)
    def check(sql: str, params: Any) -> None:
        name, text, seconds = ask(sql, params if "?" in sql else None)
        outcomes[name] += 1
        assert MARK not in text
        assert seconds < TIMEOUT_S + 1, sql

    check()
    after = {path.name: path.read_bytes() for path in guard_file.parent.iterdir() if path.suffix == ".db"}
    assert after == before
    own = {guard_file.name, f"{guard_file.name}-wal", f"{guard_file.name}-shm", "control.db"}
    assert {path.name for path in guard_file.parent.iterdir()} <= own
    assert outcomes["ok"] > examples / 20, outcomes  # else the grammar would only be testing the parser
    assert outcomes["Denied"] > 0, outcomes


SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def test_no_statement_of_a_short_fuzz_gets_through_or_gets_stuck(
    guard_file: Path, ask: Ask, sql_cases: list[dict[str, Any]]
) -> None:
    fuzz(250, ask, sql_cases, guard_file)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_no_statement_of_a_long_fuzz_gets_through_or_gets_stuck(
    guard_file: Path, ask: Ask, sql_cases: list[dict[str, Any]], part: int
) -> None:
    fuzz(2600, ask, sql_cases, guard_file)
