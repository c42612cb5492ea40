"""Every job has an end, and one only, whatever meets in the moment of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.store.errors import StorageError

from .conftest import OWNER, PATIENCE_S

if TYPE_CHECKING:
    from cellhost.tools.kernel.kernel import Kernel
    from cellhost.tools.kernel.spec import KernelSpec

    from .conftest import Bench, Engine

FINAL = {"done", "failed", "interrupted", "timeout", "killed", "died"}


class Gate:
    """A factory whose kernels fail when they are told to."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.fails = anyio.Event()
        self.failed = anyio.Event()

    async def __call__(self, spec: KernelSpec) -> Kernel:
        self.asked.set()
        await self.fails.wait()
        self.failed.set()
        raise StorageError("no kernel")


class SlowStore:
    """Holds changes back until it is let go."""

    def __init__(self, bench: Bench) -> None:
        self.came, self.go = anyio.Event(), anyio.Event()
        self._write = bench.records.updated

    async def __call__(self, project_id: str, exec_id: str, fields: Any) -> None:
        self.came.set()
        await self.go.wait()
        await self._write(project_id, exec_id, fields)


@pytest.fixture
def store(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> SlowStore:
    """What writes down the bench's jobs, once it is let."""
    made = SlowStore(bench)
    monkeypatch.setattr(bench.records, "updated", made)
    return made


def ends_of(bench: Bench, exec_id: str) -> list[str]:
    """The final states that were written down for a job."""
    return [fields["status"] for each, fields in bench.records.changes if each == exec_id and "ended_by" in fields]


async def test_a_cell_whose_kernel_fails_while_it_is_being_interrupted_has_one_end(
    bench: Bench, store: SlowStore
) -> None:
    gate = Gate()
    with anyio.fail_after(PATIENCE_S):
        async with bench.engine(kernel_factory=gate) as engine, anyio.create_task_group() as tasks:
            exec_id = await engine.enter("1")
            await gate.asked.wait()
            tasks.start_soon(engine.interrupt, exec_id)
            await store.came.wait()  # its end is on the way to the store
            gate.fails.set()
            await gate.failed.wait()
            following = await engine.enter("2")
            store.go.set()
            first = await engine.finish(exec_id)
            assert (first["status"], first["error"]) == ("interrupted", None)
            assert (await engine.finish(following))["error"]["value"] == "no kernel"
            assert await engine.jobs.peek(OWNER, exec_id) == first
            assert ends_of(bench, exec_id) == ["interrupted"]
            assert ends_of(bench, following) == ["died"]


async def test_a_cell_that_is_interrupted_while_its_failed_start_is_recorded_has_one_end(
    bench: Bench, store: SlowStore
) -> None:
    gate = Gate()
    with anyio.fail_after(PATIENCE_S):
        async with bench.engine(kernel_factory=gate) as engine:
            gate.fails.set()
            exec_id = await engine.enter("1")
            await store.came.wait()
            assert not (await engine.interrupt(exec_id))["done"]
            store.go.set()
            assert (await engine.finish(exec_id))["status"] == "died"
            assert ends_of(bench, exec_id) == ["died"]


@pytest.mark.parametrize("python", ["/bin/false", "/etc"])
async def test_interrupts_at_any_moment_of_a_failing_start_give_every_cell_one_end(bench: Bench, python: str) -> None:
    def factory(spec: KernelSpec) -> Kernel:
        from msgspec.structs import replace

        from cellhost.tools.kernel.kernel import Kernel

        return Kernel(replace(spec, interpreter=python))

    async with bench.engine(kernel_factory=factory) as engine:
        exec_ids: list[str] = []
        for n in range(20):
            cells = [await engine.enter(str(n)) for _ in range(3)]
            await anyio.sleep(0.004 * n)
            for cell in cells[: 1 + n % 3]:
                await engine.interrupt(cell)
            for cell in cells:
                await engine.finish(cell)
            exec_ids += cells
        answers = [await engine.jobs.peek(OWNER, exec_id) for exec_id in exec_ids]
    assert {answer["status"] for answer in answers} <= {"died", "interrupted"}
    assert [ends_of(bench, exec_id) for exec_id in exec_ids] == [[answer["status"]] for answer in answers]


@pytest.mark.parametrize("put", ["os.mkdir(log)", "os.mkfifo(log)", "os.symlink(log, log)"])
async def test_a_job_that_puts_something_else_in_the_place_of_its_log_ends_as_any(engine: Engine, put: str) -> None:
    code = f"import os\nlog = os.readlink('/proc/self/fd/1')\nos.remove(log)\n{put}\n6 * 7"
    for answer in (await engine.run(code), await engine.cell(code)):
        assert (answer["status"], answer["result"], answer["stdout"]) == ("done", "42", "")
    assert (await engine.run("print(1)"))["stdout"] == "1\n"
