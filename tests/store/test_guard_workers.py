"""The worker processes: order, replacement, cancelling, time limits, and nothing left behind."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from cellhost.store.errors import Closed, HostError, InternalError, TimedOut, TooLarge
from cellhost.store.guard import GuardedReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select max(x) from c"
DEAF = "select length(printf('%.*c', 900000000, 'x'))"  # one opcode of seconds, at which nothing can interrupt it
COMPILE = (
    "with t0 as (select 1 x)"
    + "".join(f", t{n} as (select a.x from t{n - 1} a, t{n - 1} b)" for n in range(1, 25))
    + " select count(*) from t24"
)
INSTR = (
    "with recursive c(s, i) as (select 'a', 0 union all select s || s, i + 1 from c where i < 19) "
    "select instr(a, b || 'b'), instr(a, b || 'c'), instr(a, b || 'd'), instr(a, b || 'e') "
    "from (select (select s from c where i = 19) a, (select s from c where i = 18) b)"
)
SORT = "with recursive c(x) as (select 1 union all select x + 1 from c) select x from c order by random() limit 1"
CARTESIAN = "select count(*) from nums a, nums b, nums c, nums d"
GROUP = "select json_group_array(a.n || b.n) from nums a, nums b, nums c"
BOMBS = {
    "compile": COMPILE,
    "printf": DEAF,
    "instr": INSTR,
    "recursive": ENDLESS,
    "cartesian": CARTESIAN,
    "sort": SORT,
    "json_group_array": GROUP,
}


def children() -> set[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text(encoding="ascii").split()}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a count


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


async def attempt(query: Callable[[], Awaitable[object]]) -> HostError | None:
    try:
        await query()
    except HostError as error:
        return error
    return None


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_ends_in_its_time_while_the_event_loop_and_a_writer_go_on(guard_file: Path, name: str) -> None:
    timeout_s = 0.3
    gaps: list[float] = []
    error: HostError | None = None
    elapsed, written = 0.0, 0

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await anyio.sleep(0.002)
            gaps.append(time.monotonic() - before - 0.002)

    def write(stop: threading.Event) -> int:
        count = 0
        with closing(sqlite3.connect(guard_file)) as writer:
            while not stop.is_set():
                writer.execute("insert into notes(body) values ('more')")
                writer.commit()
                count += 1
        return count

    async with GuardedReader(guard_file, timeout_s=timeout_s, workers=1) as reader:
        await reader.query("select 1", timeout_s=5)
        stop = threading.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(tick)

            async def keep_writing() -> None:
                nonlocal written
                written = await anyio.to_thread.run_sync(write, stop)

            group.start_soon(keep_writing)
            start = time.monotonic()
            error = await attempt(lambda: reader.query(BOMBS[name]))
            elapsed = time.monotonic() - start
            stop.set()
            group.cancel_scope.cancel()
        assert isinstance(error, (TimedOut, TooLarge))
        assert elapsed < timeout_s + 1
        assert written > 0 or elapsed < 0.05
        assert sorted(gaps)[len(gaps) * 9 // 10] < 0.05
        assert (await reader.query("select count(*) > 2 from notes", timeout_s=5)).rows == [[1]]


async def test_eight_queries_at_once_are_served_by_two_workers_in_order_of_arrival(guard_file: Path) -> None:
    # Each says when it started, and is long enough that starts of different rounds do not overlap.
    sql = (
        "with recursive c(x) as (select 1 union all select x + 1 from c where x < 200000) "
        "select (julianday('now') - 2440587.5) * 86400.0, max(x) from c"
    )
    started: dict[int, float] = {}
    most = 0

    async def run(number: int) -> None:
        nonlocal most
        row = (await reader.query(sql)).rows[0]
        started[number] = row[0]
        most = max(most, len(children() & set(reader.pids)))

    async with GuardedReader(guard_file, timeout_s=20, workers=2) as reader:
        await reader.query("select 1")
        await reader.query("select 1")
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(run, number)
        assert len(reader.pids) == 2
    assert most == 2
    assert all(started[number] <= started[number + 2] for number in range(6))


async def test_the_second_call_finds_a_spare_worker_and_a_killed_one_is_replaced_at_once(guard_file: Path) -> None:
    async with GuardedReader(guard_file, timeout_s=0.1) as reader:
        await reader.query("select 1", timeout_s=5)
        assert len(reader.pids) == 1
        await reader.query("select 1", timeout_s=5)
        before = set(reader.pids)
        assert len(before) == 2
        assert isinstance(await attempt(lambda: reader.query(DEAF)), TimedOut)
        after = set(reader.pids)
        assert len(after) == 2
        assert len(before & after) == 1
        assert children() >= after
        assert not children() & (before - after)


async def test_a_worker_killed_by_somebody_else_between_calls_is_not_noticed(guard_file: Path) -> None:
    async with GuardedReader(guard_file, workers=1) as reader:
        for _ in range(3):
            assert (await reader.query("select 1")).rows == [[1]]
            handle = os.pidfd_open(reader.pids[0])
            os.kill(reader.pids[0], signal.SIGKILL)
            with anyio.fail_after(5):
                await anyio.wait_readable(handle)
            os.close(handle)
        assert (await reader.query("select 1")).rows == [[1]]


async def kill_while_it_runs(reader: GuardedReader) -> None:
    """One query whose worker is killed under it, and one that works."""
    (pid,) = reader.pids
    errors: list[HostError | None] = []

    async def run() -> None:
        errors.append(await attempt(lambda: reader.query(ENDLESS)))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.lowlevel.checkpoint()
        os.kill(pid, signal.SIGKILL)
    assert isinstance(errors[0], TooLarge)
    assert "SIGKILL" in str(errors[0])
    assert (await reader.query("select 1")).rows == [[1]]


@pytest.mark.parametrize("kills", [20, pytest.param(1000, marks=pytest.mark.slow)])
async def test_kills_leave_no_process_descriptor_or_memory_behind(guard_file: Path, kills: int) -> None:
    before = children()
    async with GuardedReader(guard_file, timeout_s=30, workers=1) as reader:
        await reader.query("select 1")
        await kill_while_it_runs(reader)
        opened, memory = descriptors(), resident_bytes()
        for _ in range(kills):
            await kill_while_it_runs(reader)
        assert descriptors() == opened
        assert resident_bytes() - memory < 8 << 20
        assert children() - before == set(reader.pids)
    assert children() == before


async def test_leaving_the_reader_ends_running_queries_at_once_and_reaps_the_workers(guard_file: Path) -> None:
    before, opened = children(), descriptors()
    errors: list[HostError | None] = []

    async def run(sql: str) -> None:
        errors.append(await attempt(lambda: reader.query(sql)))

    async with anyio.create_task_group() as group:
        async with GuardedReader(guard_file, timeout_s=30) as reader:
            await reader.query("select 1")
            await reader.query("select 1")
            for sql in (DEAF, ENDLESS, "select 1", "select 2"):
                group.start_soon(run, sql)
            await anyio.lowlevel.checkpoint()
            start = time.monotonic()
        assert time.monotonic() - start < 1.5
        assert children() == before
    assert [type(error) for error in errors] == [Closed] * 4
    assert descriptors() == opened


async def test_a_cancelled_query_is_interrupted_and_its_worker_goes_on(guard_file: Path) -> None:
    async with GuardedReader(guard_file, timeout_s=30, workers=1) as reader:
        await reader.query("select 1")
        pids = reader.pids
        for _ in range(3):
            start = time.monotonic()
            with anyio.move_on_after(0.05) as scope:
                await reader.query(ENDLESS)
            assert scope.cancelled_caught
            assert time.monotonic() - start < 0.5
            assert (await reader.query("select 1")).rows == [[1]]
        assert reader.pids == pids


async def test_a_cancelled_query_that_cannot_be_interrupted_is_killed(guard_file: Path) -> None:
    async with GuardedReader(guard_file, timeout_s=30, workers=1) as reader:
        await reader.query("select 1")
        pids = reader.pids
        start = time.monotonic()
        with anyio.move_on_after(0.05):
            await reader.query(DEAF)
        assert time.monotonic() - start < 1
        assert reader.pids != pids
        assert (await reader.query("select 1")).rows == [[1]]


async def test_a_worker_whose_query_was_cancelled_before_it_was_ready_is_kept(guard_file: Path) -> None:
    async with GuardedReader(guard_file, workers=1) as reader:
        reader.prewarm()
        pids = reader.pids
        with anyio.CancelScope() as scope:
            scope.cancel()
            await reader.query("select 1")
        with anyio.move_on_after(0.001):
            await reader.query("select 1")
        assert (await reader.query("select 1")).rows == [[1]]
        assert reader.pids == pids


async def test_a_query_cancelled_while_it_waits_takes_no_place(guard_file: Path) -> None:
    async with GuardedReader(guard_file, timeout_s=0.5, workers=1) as reader:
        await reader.query("select 1")
        async with anyio.create_task_group() as group:
            group.start_soon(attempt, lambda: reader.query(ENDLESS))
            await anyio.lowlevel.checkpoint()
            with anyio.move_on_after(0.05) as scope:
                await reader.query("select 1")
            assert scope.cancelled_caught
        assert (await reader.query("select 1")).rows == [[1]]


async def test_a_query_that_needs_too_much_memory_is_too_large_and_the_next_one_works(guard_file: Path) -> None:
    hungry = (
        "with recursive c(x) as (select 1 union all select x + 1 from c) "
        "select x, printf('%.900000c', 'x') from c order by 2, x desc"
    )
    async with GuardedReader(guard_file, timeout_s=20, workers=1) as reader:
        with anyio.fail_after(25):
            assert isinstance(await attempt(lambda: reader.query(hungry)), TooLarge)
        assert (await reader.query("select count(*) from nums")).rows == [[1000]]


async def test_an_interpreter_that_is_not_there_or_is_none_is_an_error_that_says_so(guard_file: Path) -> None:
    async with GuardedReader(guard_file, python="/nonexistent/python") as reader:
        with pytest.raises(InternalError, match="no process could be started"):
            await reader.query("select 1")
    async with GuardedReader(guard_file, python="/bin/true") as reader:
        with pytest.raises(InternalError, match="did not start"):
            await reader.query("select 1")


async def test_a_reader_used_for_one_query_starts_one_worker(guard_file: Path) -> None:
    before = children()
    async with GuardedReader(guard_file) as reader:
        reader.prewarm()
        reader.prewarm()
        assert (await reader.query("select 1")).rows == [[1]]
        assert len(reader.pids) == 1
    assert children() == before


async def test_a_reader_that_ran_nothing_starts_nothing(guard_file: Path) -> None:
    before = children()
    async with GuardedReader(guard_file) as reader:
        assert reader.pids == []
        assert reader.engine == ""
        assert children() == before
