"""Every stated case on its fixture gives the stated answer, and leaves the file, the folder and memory as they were."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.store.errors import HostError
from cellhost.store.guard import GuardedReader

if TYPE_CHECKING:
    from cellhost.store.guard_results import Table

KINDS = {"denied": "denied", "sql": "syntax", "params": "syntax", "timeout": "timeout", "too_large": "too_big"}
BOMBS = ("timeout", "too_big")


async def outcome(reader: GuardedReader, case: dict[str, Any]) -> tuple[str, Table | HostError]:
    try:
        return "ok", await reader.query(case["sql"], case["params"])
    except HostError as error:
        return KINDS[error.kind], error


async def mistake(reader: GuardedReader, case: dict[str, Any], timeout_s: float) -> str | None:
    """What is wrong with the answer to a case, or None."""
    start = time.monotonic()
    with anyio.fail_after(timeout_s + 1):
        kind, answer = await outcome(reader, case)
    if time.monotonic() - start > timeout_s + 1:
        return f"took too long: {case['sql'][:80]}"
    allowed = (*BOMBS, "denied") if case["expect"] in BOMBS else (case["expect"],)
    if kind not in allowed:
        return f"{kind} ({answer}) instead of {case['expect']}: {case['sql'][:80]}"
    if "rows" in case and not (not isinstance(answer, HostError) and answer.rows == case["rows"]):
        return f"other rows: {answer}: {case['sql'][:80]}"
    return None


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def content(path: Path) -> bytes:
    return path.read_bytes()


def foreign_files(path: Path) -> set[str]:
    """What lies beside the database and is not SQLite's own."""
    return {found.name for found in path.parent.iterdir()} - {path.name, f"{path.name}-wal", f"{path.name}-shm"}


async def test_every_case_that_ends_by_itself_gives_the_stated_answer(
    guard_file: Path, sql_cases: list[dict[str, Any]]
) -> None:
    before = content(guard_file)
    async with GuardedReader(guard_file, timeout_s=5) as reader:
        mistakes = [await mistake(reader, case, 5) for case in sql_cases if case["expect"] not in BOMBS]
    assert len(mistakes) > 90
    assert [found for found in mistakes if found] == []
    assert content(guard_file) == before
    assert foreign_files(guard_file) == set()


async def test_every_bomb_ends_in_its_time_and_the_next_query_works(
    guard_file: Path, sql_cases: list[dict[str, Any]]
) -> None:
    bombs = [case for case in sql_cases if case["expect"] in BOMBS]
    mistakes: list[str | None] = []

    async def run(reader: GuardedReader, case: dict[str, Any]) -> None:
        mistakes.append(await mistake(reader, case, 0.4))
        assert (await reader.query("select count(*) from notes", timeout_s=5)).rows == [[3]]

    async with GuardedReader(guard_file, timeout_s=0.4, workers=1) as reader:
        for case in bombs:
            await run(reader, case)
    assert len(mistakes) >= 12
    assert [found for found in mistakes if found] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_the_cases_give_the_same_answers_in_any_order_on_one_reader(
    guard_file: Path, sql_cases: list[dict[str, Any]], seed: int
) -> None:
    before = content(guard_file)
    order = random.Random(seed).sample(sql_cases, len(sql_cases))
    async with GuardedReader(guard_file) as reader:
        await reader.query("select 1")
        memory = resident_bytes()
        mistakes = [await mistake(reader, case, 1) for case in order]
    assert [found for found in mistakes if found] == []
    assert resident_bytes() - memory < 16 << 20
    assert content(guard_file) == before
    assert foreign_files(guard_file) == set()
