"""Quick queries that are sent ahead to a worker: each gets its own answer, whatever becomes of the one before it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import anyio
from anyio.lowlevel import checkpoint

from cellhost.store.errors import HostError, TooLarge
from cellhost.store.guard import GuardedReader
from cellhost.store.guard_line import AHEAD

if TYPE_CHECKING:
    from pathlib import Path

COUNT = "with recursive c(x) as (select 1 union all select x + 1 from c where x < ?) select max(x) from c"
SLOW = 2_000_000_000


async def known_as_quick(reader: GuardedReader) -> None:
    for number in range(4):  # both workers are ready then
        assert (await reader.query(COUNT, [number])).rows == [[max(1, number)]]


async def test_many_at_once_each_get_their_own_answer(guard_file: Path) -> None:
    answers: dict[int, Any] = {}

    async def ask(number: int) -> None:
        answers[number] = (await reader.query(COUNT, [number])).rows[0][0]

    async with GuardedReader(guard_file) as reader:
        await known_as_quick(reader)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(1, 301):
                    tasks.start_soon(ask, number)
    assert answers == {number: number for number in range(1, 301)}


async def test_one_that_is_slow_for_once_does_not_hold_up_those_behind_it(guard_file: Path) -> None:
    done: list[int] = []
    all_quick_done = anyio.Event()

    async def ask(number: int) -> None:
        await reader.query(COUNT, [number])
        done.append(number)
        if len(done) == 2 * AHEAD:
            all_quick_done.set()

    async with GuardedReader(guard_file, timeout_s=30) as reader:
        await known_as_quick(reader)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, SLOW)
                for number in range(1, 2 * AHEAD + 1):
                    tasks.start_soon(ask, number)
                await all_quick_done.wait()
                tasks.cancel_scope.cancel()
        assert sorted(done) == list(range(1, 2 * AHEAD + 1))


async def test_one_cancelled_behind_another_is_passed_over(guard_file: Path) -> None:
    done: list[int] = []

    async def ask(number: int, scope: anyio.CancelScope) -> None:
        with scope:
            await reader.query(COUNT, [number])
            done.append(number)

    async with GuardedReader(guard_file, timeout_s=30, workers=1) as reader:
        await known_as_quick(reader)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                scopes = [anyio.CancelScope() for _ in range(4)]
                for scope, number in zip(scopes, (SLOW, 2, 3, 4), strict=True):
                    tasks.start_soon(ask, number, scope)
                await checkpoint()
                scopes[2].cancel()
                await checkpoint()
                scopes[0].cancel()
        assert sorted(done) == [2, 4]
        assert (await reader.query(COUNT, [5])).rows == [[5]]


async def test_those_behind_one_whose_worker_is_killed_are_answered_by_the_next(guard_file: Path) -> None:
    outcomes: dict[int, Any] = {}

    async def ask(number: int) -> None:
        try:
            outcomes[number] = (await reader.query(COUNT, [number])).rows
        except HostError as error:
            outcomes[number] = error

    async with GuardedReader(guard_file, timeout_s=30, workers=1) as reader:
        await known_as_quick(reader)
        (pid,) = reader.pids
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for number in (SLOW, 2, 3, 4):
                    tasks.start_soon(ask, number)
                await checkpoint()
                os.kill(pid, signal.SIGKILL)
    assert isinstance(outcomes.pop(SLOW), TooLarge)
    assert outcomes == {2: [[2]], 3: [[3]], 4: [[4]]}
