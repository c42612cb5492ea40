"""Waiting again and again: wake-ups that are set early, late or for nobody, and descriptors nobody waits for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cellhost.store.watch import Wakeup, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

Ends = tuple[int, int]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """(read end, write end) of a pipe; reading never blocks."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    yield read_end, write_end
    os.close(read_end)
    os.close(write_end)


async def test_a_wakeup_ends_the_wait_it_is_set_in_or_else_the_next_one() -> None:
    wakeup = Wakeup()
    waits = 0

    async def wait_twice() -> None:
        nonlocal waits
        for _ in range(2):
            await wakeup.wait()
            waits += 1

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            wakeup.set()
            assert wakeup.is_set()
            tasks.start_soon(wait_twice)
            await anyio.wait_all_tasks_blocked()
            assert (waits, wakeup.is_set()) == (1, False)
            wakeup.set()
            wakeup.set()
        assert waits == 2


async def test_a_wakeup_outlives_whoever_gave_up_waiting() -> None:
    wakeup = Wakeup()
    with anyio.fail_after(5):
        with anyio.move_on_after(0.01):
            await wakeup.wait()
        wakeup.set()
        await wakeup.wait()


async def test_a_watch_takes_only_while_somebody_waits_and_until_enough_has_arrived(ends: Ends) -> None:
    taken: list[bytes] = []

    def take() -> bool:
        taken.append(os.read(ends[0], 1))
        return taken[-1] == b"."

    watch = Watch(ends[0], take)
    with anyio.fail_after(5):
        os.write(ends[1], b"ab.cd.e")
        await watch.arrival()
        assert b"".join(taken) == b"ab."
        for _ in range(5):
            await checkpoint()
        assert b"".join(taken) == b"ab."
        await watch.arrival()
        assert b"".join(taken) == b"ab.cd."
        with anyio.move_on_after(0.02) as waiting:
            await watch.arrival()
        assert waiting.cancelled_caught
        os.write(ends[1], b"f.")
        for _ in range(5):
            await checkpoint()
        assert b"".join(taken) == b"ab.cd.e"
        watch.close()
        await watch.arrival()
        assert b"".join(taken) == b"ab.cd.ef."
        watch.close()
        watch.close()
