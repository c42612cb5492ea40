"""Workers: who starts when, how many at once, and what a cancelled call leaves behind."""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint

from cellhost.rpc.workers import ACTIVE, APART, Workers


class Served:
    """Serves names: they start at once and end when they are let go."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.scopes: dict[str, anyio.CancelScope] = {}
        self._gates: dict[str, anyio.Event] = {}

    async def serve(self, name: str, scope: anyio.CancelScope) -> None:
        self.started.append(name)
        self.scopes[name] = scope
        try:
            await self._gate(name).wait()
        finally:
            self.ended.append(name)

    def let_go(self, *names: str) -> None:
        for name in names:
            self._gate(name).set()

    def _gate(self, name: str) -> anyio.Event:
        return self._gates.setdefault(name, anyio.Event())


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {number}" for number in range(count)]


async def settled() -> None:
    for _ in range(5):
        await checkpoint()
    await anyio.wait_all_tasks_blocked()


async def test_calls_start_in_order_of_arrival_and_urgent_ones_wait_for_no_place() -> None:
    served = Served()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            workers = Workers(tasks, served.serve)
            for name in names("call", ACTIVE + 3):
                workers.put(name)
            await settled()
            assert served.started == names("call", ACTIVE)
            workers.put("look", "urgent")
            await settled()
            assert served.started[-1] == "look"
            served.let_go("look", "call 5")
            await settled()
            assert served.started[-1] == f"call {ACTIVE}"
            tasks.cancel_scope.cancel()


async def test_calls_apart_take_few_workers_and_hold_nobody_up() -> None:
    served = Served()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            workers = Workers(tasks, served.serve)
            for name in names("query", 1000):
                workers.put(name, "apart")
            for name in names("call", ACTIVE):
                workers.put(name)
            await settled()
            assert served.started == names("query", APART) + names("call", ACTIVE)
            served.let_go(*names("query", 1000))
            await settled()
            assert [name for name in served.started if name.startswith("query")] == names("query", 1000)
            tasks.cancel_scope.cancel()


async def test_calls_apart_and_others_start_as_they_came_while_there_is_room() -> None:
    served = Served()
    arrivals = ["call 0", "query 0", "call 1", "query 1", "call 2"]
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            workers = Workers(tasks, served.serve)
            for name in arrivals:
                workers.put(name, "apart" if name.startswith("query") else "main")
            await settled()
            assert served.started == arrivals
            tasks.cancel_scope.cancel()


async def test_a_cancelled_call_ends_alone_and_its_worker_serves_on() -> None:
    served = Served()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            workers = Workers(tasks, served.serve)
            served.let_go("first", "third")
            for name in ("first", "second", "third", "fourth"):
                workers.put(name)
            await settled()
            assert served.ended == ["first", "third"]
            served.scopes["second"].cancel()
            await settled()
            assert served.ended == ["first", "third", "second"]
            served.let_go("fourth", "fifth")
            workers.put("fifth")
            await settled()
            assert served.ended[3:] in (["fourth", "fifth"], ["fifth", "fourth"])
            tasks.cancel_scope.cancel()


async def test_what_is_held_begins_once_released() -> None:
    served = Served()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            workers = Workers(tasks, served.serve)
            workers.hold()
            workers.put("call")
            workers.put("query", "apart")
            workers.put("look", "urgent")
            await settled()
            assert served.started == []
            workers.release()
            await settled()
            assert sorted(served.started) == ["call", "look", "query"]
            tasks.cancel_scope.cancel()
