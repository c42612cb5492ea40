"""The warm pool: the next job's kernel is up before the job is there, and nobody but the clock can tell."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.tools.kernel.kernel import Kernel
from cellhost.tools.kernel.limits import JobLimits

from ..processes import command_of
from .conftest import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from .conftest import Bench, Door, Engine

WARM = JobLimits(warm_kernels=1)


async def until_warm(engine: Engine, count: int = 1) -> list[int]:
    """The processes of the pool, once that many are ready."""
    with anyio.fail_after(PATIENCE_S):
        while engine.jobs.kernels.pool.ready < count:  # noqa: ASYNC110 - nobody else waits for the pool
            await anyio.sleep(0.005)
    return warm_processes(engine.run_dir)


def warm_processes(run_dir: Path) -> list[int]:
    """Processes whose connection file lies in a warm kernel's folder."""
    folder = f"{run_dir}/w".encode()
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if folder in command_of(int(process.name))]


@asynccontextmanager
async def warmed(bench: Bench, **given: Any) -> AsyncGenerator[Engine]:
    """An engine that has a kernel ready before its first job."""
    async with bench.engine(**{"limits": WARM, **given}) as engine:
        await engine.jobs.kernels.prewarm()
        await until_warm(engine)
        yield engine


@pytest.fixture
async def warm(bench: Bench) -> AsyncIterator[Engine]:
    async with warmed(bench) as engine:
        yield engine


async def test_a_job_runs_in_the_kernel_that_waited_and_the_next_in_another(warm: Engine, gone: Any) -> None:
    seen: set[int] = set()
    for _ in range(3):
        (waiting,) = await until_warm(warm)
        answer = await warm.run("import os; print(os.getpid())")
        assert answer["stdout"] == f"{waiting}\n"
        assert (answer["status"], answer["stderr"]) == ("done", "")
        assert answer["usage"]["cpu_s"] < 0.2, "the start is not the job's"
        seen.add(waiting)
    assert len(seen) == 3
    for pid in seen:
        await gone(pid)


async def test_a_job_that_ran_is_followed_by_a_kernel_for_the_next(bench: Bench) -> None:
    async with bench.engine(limits=WARM) as engine:
        assert engine.jobs.kernels.pool.ready == 0
        await engine.run("pass")
        (waiting,) = await until_warm(engine)
        assert (await engine.run("import os; print(os.getpid())"))["stdout"] == f"{waiting}\n"


async def test_a_kernel_that_is_still_starting_is_taken_too(bench: Bench) -> None:
    async with bench.engine(limits=WARM) as engine:
        pool = engine.jobs.kernels.pool
        await engine.jobs.kernels.prewarm()
        with anyio.fail_after(PATIENCE_S):
            while not pool.alive:  # noqa: ASYNC110 - a process gives no event
                await anyio.sleep(0.001)
        starting = warm_processes(engine.run_dir)
        answer = await engine.run("import os; print(os.getpid(), os.getcwd())")
        assert answer["stdout"] == f"{starting[0]} {engine.workspace.resolve()}\n", answer


async def test_a_warm_job_finds_what_a_cold_one_finds(bench: Bench) -> None:
    code = (
        "import gc, json, os, signal, sys, threading\n"
        "print(json.dumps([dict(os.environ), sys.path, sys.argv, os.getcwd(), gc.isenabled(), str(host),\n"
        "    signal.getsignal(signal.SIGINT).__qualname__, threading.active_count(), In, Out,\n"
        "    get_ipython().execution_count, sorted(os.listdir('/proc/self/fd')),\n"
        "    sorted(name for name in globals() if not name.startswith('_'))]))"
    )
    async with bench.engine(limits=JobLimits()) as engine:
        cold = json.loads((await engine.run(code))["stdout"])
    async with warmed(bench) as engine:
        warm = json.loads((await engine.run(code))["stdout"])
    assert warm == cold


async def test_variables_of_a_job_are_there_from_its_processs_start_and_in_no_other(warm: Engine) -> None:
    code = "import os, sys; print(os.environ.get('MINE'), hash('x'), sys.flags.hash_randomization)"
    (waiting,) = await until_warm(warm)
    first = await warm.run(code, env={"MINE": "yes", "PYTHONHASHSEED": "0"})
    assert first["stdout"].startswith("yes ")
    assert first["stdout"].endswith(" 0\n")
    assert (await until_warm(warm)) == [waiting], "the kernel without those variables still waits"
    assert (await warm.run(code))["stdout"].startswith("None ")
    await until_warm(warm)
    assert (await warm.run(code))["stdout"].startswith("None ")


async def test_a_memory_limit_holds_in_a_warm_kernel(warm: Engine) -> None:
    (waiting,) = await until_warm(warm)
    answer = await warm.run("import os; print(os.getpid())\nbytearray(400 << 20)", memory_mb=100)
    assert answer["stdout"] == f"{waiting}\n"
    assert answer["error"]["name"] == "MemoryError"
    await until_warm(warm)
    assert (await warm.run("len(bytearray(400 << 20))"))["status"] == "done"


async def test_a_warm_jobs_host_has_the_jobs_token_and_no_process_can_read_it(bench: Bench, door: Door) -> None:
    async with warmed(bench, door=lambda: door.path) as engine:
        door.tokens = engine.tokens
        (waiting,) = await until_warm(engine)
        code = (
            "import os; print(os.getpid(), host.exec_id, 'CELLHOST' in str(os.environ),\n"
            "    b'CELLHOST' in open('/proc/self/environ', 'rb').read(), host.query('SELECT 1')['method'])"
        )
        exec_id = await engine.launch(code)
        answer = await engine.finish(exec_id)
        assert answer["stdout"] == f"{waiting} {exec_id} False False query\n"
        assert len(engine.tokens) == 0


async def test_an_idle_kernel_that_dies_is_not_missed(warm: Engine, gone: Any) -> None:
    (waiting,) = await until_warm(warm)
    os.kill(waiting, signal.SIGKILL)
    await gone(waiting)
    assert (await warm.run("print(1)"))["stdout"] == "1\n"
    assert await until_warm(warm) != [waiting]


async def test_a_kernel_that_is_stopped_or_stuck_delays_a_job_only_so_long(warm: Engine) -> None:
    (waiting,) = await until_warm(warm)
    os.kill(waiting, signal.SIGSTOP)
    with anyio.fail_after(20):
        assert (await warm.run("print(1)"))["stdout"] == "1\n"


async def test_packages_installed_meanwhile_are_found(bench: Bench, bare_environment: Path, tmp_path: Path) -> None:
    (site,) = (bare_environment / "lib").glob("python*/site-packages")
    (tmp_path / "editable").mkdir()
    (tmp_path / "editable" / "newly_installed.py").write_text("answer = 42")
    async with warmed(bench, python=str(bare_environment / "bin" / "python")) as engine:
        (site / "newly.pth").write_text(f"{tmp_path / 'editable'}\n")
        try:
            answer = await engine.run("import newly_installed; print(newly_installed.answer)")
        finally:
            (site / "newly.pth").unlink()
        assert (answer["stdout"], answer["error"]) == ("42\n", None)


async def test_another_interpreter_in_the_workspace_is_taken_at_once(
    warm: Engine, bare_environment: Path, gone: Any
) -> None:
    (waiting,) = await until_warm(warm)
    warm.workspace.mkdir(exist_ok=True)
    (warm.workspace / ".venv").symlink_to(bare_environment)
    code = "import sys; print(sys.prefix)"
    own = f"{warm.workspace / '.venv'}\n"
    assert (await warm.run(code))["stdout"] == own
    await gone(waiting)
    await until_warm(warm)
    assert (await warm.run(code))["stdout"] == own


async def test_the_pool_counts_in_nothing_that_is_seen(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(max_running=1, max_queued=1, warm_kernels=2)) as engine:
        await engine.jobs.kernels.prewarm()
        assert len(await until_warm(engine, 2)) == 2
        assert await engine.jobs.list(engine.owner) == []
        assert (len(engine.tokens), bench.records.rows) == (0, {})
        assert not engine.workspace.exists()
        assert (await engine.run("print(1)"))["stdout"] == "1\n"


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.002, 0.004, 0.006, 0.01, 0.02])
async def test_an_interrupt_right_after_a_warm_start_ends_in_the_right_state(warm: Engine, after_s: float) -> None:
    exec_id = await warm.launch("import time\nprint('ran')\ntime.sleep(600)")
    await anyio.sleep(after_s)
    await warm.interrupt(exec_id)
    with anyio.fail_after(5):
        answer = await warm.finish(exec_id)
    assert (answer["status"], answer["interrupted"], answer["exit"]) == ("interrupted", True, None)
    assert warm.records.rows[exec_id].ended_by in {"cancel", "sigint"}
    if answer["started_at"] is None:
        assert answer["stdout"] == ""


@pytest.mark.parametrize("team_mode", [True, False])
async def test_kernels_of_a_factory_are_not_kept_warm(bench: Bench, team_mode: bool) -> None:
    async with bench.engine(limits=WARM, team_mode=team_mode, kernel_factory=Kernel) as engine:
        await engine.jobs.kernels.prewarm()
        await engine.run("pass")
        await engine.until_idle()
        assert [path.name for path in engine.run_dir.iterdir()] == ["ipython"]


@pytest.mark.parametrize("ready", [True, False])
async def test_the_end_waits_for_no_warm_kernel_and_leaves_none(bench: Bench, gone: Any, ready: bool) -> None:
    async with bench.engine(limits=WARM) as engine:
        await engine.jobs.kernels.prewarm()
        with anyio.fail_after(PATIENCE_S):
            while not (processes := warm_processes(engine.run_dir)):  # noqa: ASYNC110 - a process gives no event
                await anyio.sleep(0.001)
        if ready:
            await until_warm(engine)
        begun = anyio.current_time()
    assert anyio.current_time() - begun < 1
    assert [path.name for path in engine.run_dir.iterdir()] == ["ipython"]
    await gone(processes[0])


async def test_an_interpreter_that_cannot_start_is_tried_ahead_once(bench: Bench, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text(f"#!/bin/sh\necho x >> {tmp_path}/tries\nexit 1\n")
    broken.chmod(0o755)
    async with bench.engine(limits=WARM, python=str(broken)) as engine:
        await engine.jobs.kernels.prewarm()
        with anyio.fail_after(PATIENCE_S):
            while not (tmp_path / "tries").exists() or list(engine.run_dir.glob("w*")):  # noqa: ASYNC110
                await anyio.sleep(0.005)
        assert (tmp_path / "tries").read_text() == "x\n"
        assert (await engine.run("pass"))["error"]["name"] == "KernelStartError"


async def test_a_warm_kernel_ends_with_its_server(tmp_path: Path, gone: Any) -> None:
    script = tmp_path / "server.py"
    script.write_text(_SERVER.format(tests=str(Path(__file__).parents[2]), root=str(tmp_path)))
    async with await anyio.open_process([sys.executable, str(script)], start_new_session=True, stderr=None) as server:
        assert server.stdout is not None
        with anyio.fail_after(30):
            line = b""
            while not line.endswith(b"\n"):
                line += await server.stdout.receive()
        (process,) = warm_processes(tmp_path / "r1")
        os.killpg(server.pid, signal.SIGKILL)
        await gone(process)
        await server.wait()


_SERVER = """
import sys
from pathlib import Path
import anyio
sys.path.insert(0, {tests!r})
from tests.kernel import conftest
from cellhost.tools.kernel.limits import JobLimits

async def main():
    bench = conftest.Bench(Path({root!r}), Path({root!r}) / "w")
    async with bench.engine(limits=JobLimits(warm_kernels=1)) as engine:
        await engine.jobs.kernels.prewarm()
        while not engine.jobs.kernels.pool.ready:
            await anyio.sleep(0.005)
        print("ready", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_an_engine_may_end_at_any_moment_of_a_warm_kernels_start(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for moments in range(0, 60, 3):
        async with bench.engine(limits=WARM) as engine:
            await engine.jobs.kernels.prewarm()
            with anyio.fail_after(PATIENCE_S):
                while not engine.jobs.kernels.pool.alive and moments > 30:  # noqa: ASYNC110 - a process gives no event
                    await anyio.sleep(0.001)
            for _ in range(moments % 30):
                await anyio.sleep(0.001)
        assert caplog.records == []
