"""Who makes the kernels: a factory, team mode, and the executor that acts for its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.tools.kernel.background import BackgroundExecutor
from cellhost.tools.kernel.kernel import Kernel
from cellhost.tools.kernel.reaper_process import reaper_pid

if TYPE_CHECKING:
    from cellhost.tools.kernel.spec import KernelSpec

    from .conftest import Bench, Engine


async def test_team_mode_refuses_kernels_without_a_session_scoped_factory(bench: Bench) -> None:
    async with bench.engine(team_mode=True) as engine:
        for call in (engine.launch("print(1)"), engine.jobs.new_kernel()):
            with pytest.raises(RuntimeError, match="session-scoped kernel factory"):
                await call
        assert bench.records.rows == {}
        assert list(engine.run_dir.iterdir()) == []
        assert reaper_pid() is None


@pytest.mark.parametrize("team_mode", [True, False])
@pytest.mark.parametrize("awaited", [True, False])
async def test_an_explicit_factory_makes_the_kernels(bench: Bench, team_mode: bool, awaited: bool) -> None:
    asked: list[KernelSpec] = []

    def factory(spec: KernelSpec) -> Any:
        asked.append(spec)

        async def later() -> Kernel:
            return Kernel(spec)

        return later() if awaited else Kernel(spec)

    async with bench.engine(team_mode=team_mode, kernel_factory=factory) as engine:
        exec_id = await engine.launch("print(1)")
        assert (await engine.finish(exec_id))["stdout"] == "1\n"
    assert [spec.name for spec in asked] == [exec_id]
    assert asked[0].workspace == bench.workspace.resolve()


async def test_a_factory_that_fails_ends_its_job_and_not_the_engine(bench: Bench) -> None:
    def factory(spec: KernelSpec) -> Kernel:
        raise ZeroDivisionError(spec.name)

    async with bench.engine(kernel_factory=factory) as engine:
        answer = await engine.run("print(1)")
        assert (answer["status"], answer["error"]["name"]) == ("died", "InternalError")
        assert "ZeroDivision" not in str(answer)


async def test_a_kernel_of_no_job_can_be_used_directly(engine: Engine) -> None:
    kernel = await engine.jobs.new_kernel()
    assert kernel.pid is None
    async with kernel:
        with anyio.fail_after(30):
            await kernel.ready.wait()
            execution = kernel.execute("import os; os.getcwd()")
            await execution.over.wait()
        assert execution.result == repr(str(engine.workspace.resolve()))


async def test_the_executor_acts_for_its_owner(engine: Engine) -> None:
    executor = BackgroundExecutor(engine.jobs, engine.owner)
    launched = await executor.launch("print(1)", label="mine")
    answer = await executor.wait(launched["exec_id"], timeout_s=30)
    assert answer["stdout"] == "1\n"
    assert (await executor.peek(launched["exec_id"]))["label"] == "mine"
    assert (await executor.interrupt(launched["exec_id"]))["status"] == "done"
    assert [row["exec_id"] for row in await executor.list_jobs(limit=1)] == [launched["exec_id"]]
    await executor.shutdown(timeout_per_job=1.0)
