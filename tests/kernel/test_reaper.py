"""Nothing that descends from a job outlives it, wherever it went; and nothing of another job is touched."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.tools.kernel import reaper
from cellhost.tools.kernel.limits import JobLimits
from cellhost.tools.kernel.provisioner import LocalProvisioner
from cellhost.tools.kernel.reaper_process import reaper_held, reaper_pid

from ..processes import is_running, parent_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Bench, Engine

# A daemon as the textbooks make one, with nothing left to tell whose it was: session, parents, environment, name.
DAEMON = """
import subprocess, sys
program = '''
import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
print("daemon", os.getpid(), flush=True)
os.chdir("/")
os.execve("/bin/sleep", ["init", "600"], {})
'''
starter = subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdout=subprocess.PIPE, text=True)
print(starter.stdout.readline(), end="")
starter.wait()
"""
OWN_SESSION = """
import os, subprocess
print("session", subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
print("group", subprocess.Popen(["sh", "-c", "sleep 600 & wait"], process_group=0).pid)
"""
FAMILY = f"import os\nprint('kernel', os.getpid())\n{DAEMON}{OWN_SESSION}print('all')\n"
WAITING = FAMILY + "import time; time.sleep(600)"


async def begin(engine: Engine, code: str = WAITING, **given: Any) -> tuple[str, dict[str, int]]:
    """A job and the processes that it says it has."""
    exec_id = await engine.launch(code, **given)
    answer = await engine.until_printed(exec_id, "all\n")
    return exec_id, members(answer["stdout"])


def members(stdout: str) -> dict[str, int]:
    return {name: int(pid) for name, _, pid in (line.partition(" ") for line in stdout.splitlines()) if pid}


async def all_gone(processes: dict[str, int], gone: Any) -> None:
    assert set(processes) == {"kernel", "daemon", "session", "group"}
    for pid in processes.values():
        await gone(pid)


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("", "done"),
        ("1 / 0", "failed"),
        ("os._exit(3)", "died"),
        ("os.kill(os.getpid(), 9)", "died"),
        ("import ctypes; ctypes.string_at(0)", "died"),
        ("exit()", "died"),
    ],
)
async def test_whatever_left_its_group_or_session_ends_with_its_job(
    engine: Engine, gone: Any, ending: str, status: str
) -> None:
    answer = await engine.run(FAMILY + ending)
    assert answer["status"] == status
    await all_gone(members(answer["stdout"]), gone)


async def test_an_interrupted_job_leaves_nothing(engine: Engine, gone: Any) -> None:
    exec_id, processes = await begin(engine)
    await engine.interrupt(exec_id)
    assert (await engine.finish(exec_id))["status"] == "interrupted"
    await all_gone(processes, gone)


async def test_a_job_that_is_killed_or_out_of_time_leaves_nothing(bench: Bench, gone: Any) -> None:
    limits = JobLimits(interrupt_s=0.1, second_interrupt_s=0.1, terminate_s=0.1)
    ignoring = FAMILY + "import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\nsum(range(10**12))"
    async with bench.engine(limits=limits) as engine:
        exec_id, processes = await begin(engine, ignoring, timeout_s=2)
        assert (await engine.finish(exec_id))["status"] == "timeout"
        assert engine.records.rows[exec_id].ended_by == "sigkill"
        await all_gone(processes, gone)


async def test_the_end_of_the_engine_leaves_nothing_and_no_reaper(bench: Bench, gone: Any) -> None:
    async with bench.engine() as engine:
        _, processes = await begin(engine)
        process = reaper_pid()
        assert process is not None
    assert reaper_pid() is None
    await gone(process)
    await all_gone(processes, gone)


async def test_another_jobs_daemons_are_not_touched(engine: Engine, gone: Any) -> None:
    one, other = await begin(engine), await begin(engine)
    for code in ("print(1)", "import os; os._exit(1)"):
        await engine.run(code)
    await engine.until_kernels(2)
    assert all(is_running(pid) for _, processes in (one, other) for pid in processes.values())
    await engine.interrupt(one[0])
    await engine.finish(one[0])
    await all_gone(one[1], gone)
    assert all(is_running(pid) for pid in other[1].values())
    await engine.interrupt(other[0])


async def test_children_that_start_others_as_fast_as_they_end_are_caught(engine: Engine) -> None:
    marker = "cellhost-test-chain"
    answer = await engine.run(
        "import os, signal\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        f"        open('/proc/self/comm', 'w').write({marker[:15]!r})\n"
        "        while True:\n"
        "            if os.fork(): os._exit(0)\n"
    )
    assert answer["status"] == "done"
    await engine.until_idle()
    with anyio.fail_after(10):
        while any(_named(pid, marker[:15]) for pid in Path("/proc").glob("[0-9]*")):  # noqa: ASYNC110
            await anyio.sleep(0.01)


def _named(process: Path, name: str) -> bool:
    try:
        return (process / "comm").read_text().strip() == name
    except OSError:
        return False


async def test_orphans_that_end_during_the_job_are_reaped(engine: Engine) -> None:
    answer = await engine.run(
        "import os, subprocess, time\n"
        "for _ in range(20): subprocess.run(['sh', '-c', 'true &'])\n"
        "time.sleep(0.2)\n"
        "print(open(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read().split() == [str(os.getpid())])"
    )
    assert answer["stdout"] == "True\n"


async def test_a_job_sees_no_children_but_its_own(engine: Engine) -> None:
    answer = await engine.run(DAEMON + "import os\ntry: print(os.wait())\nexcept ChildProcessError: print('none')")
    assert answer["stdout"].splitlines()[1:] == ["none"]


async def test_when_the_reaper_is_killed_jobs_go_on_and_the_next_launch_starts_another(
    engine: Engine, gone: Any
) -> None:
    exec_id, processes = await begin(engine)
    first = reaper_pid()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert (await engine.run("print('next')"))["stdout"] == "next\n"
    assert reaper_pid() not in {None, first}
    assert (await engine.jobs.peek(engine.owner, exec_id))["status"] == "running"
    await engine.interrupt(exec_id)
    assert (await engine.finish(exec_id))["status"] == "interrupted"
    await all_gone(processes, gone)


async def test_a_kernel_whose_parent_is_killed_is_a_death_that_says_so(engine: Engine, gone: Any) -> None:
    exec_id, processes = await begin(engine)
    other, others = await begin(engine)
    os.kill(parent_of(processes["kernel"]), signal.SIGKILL)
    answer = await engine.finish(exec_id)
    assert (answer["status"], answer["exit"]["signal"]) == ("died", signal.SIGKILL)
    assert "looked after" in answer["exit"]["reason"]
    assert engine.records.rows[exec_id].ended_by == "orphaned"
    await all_gone(processes, gone)
    assert all(is_running(pid) for pid in others.values())
    await engine.interrupt(other)


async def test_a_reaper_that_is_stopped_does_not_hold_up_other_calls(engine: Engine) -> None:
    exec_id, _ = await begin(engine)
    process = reaper_pid()
    assert process is not None
    os.kill(process, signal.SIGSTOP)
    try:
        waiting = await engine.launch("print('late')")
        with anyio.fail_after(5):
            await engine.interrupt(exec_id)
            assert (await engine.finish(exec_id))["status"] == "interrupted"
    finally:
        os.kill(process, signal.SIGCONT)
    assert (await engine.finish(waiting))["stdout"] == "late\n"


def test_children_are_found_where_the_system_does_not_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_without_list(path: str) -> Any:
        if path == "/proc/thread-self/children":
            raise FileNotFoundError
        return Path(path).open()

    with subprocess.Popen(["sleep", "600"]) as child:
        listed = reaper.children()
        monkeypatch.setattr(reaper, "open", open_without_list, raising=False)
        found = reaper.children()
        child.kill()
    assert child.pid in listed
    assert child.pid in found


@pytest.fixture
def deaf() -> Iterator[None]:
    """Ignores and blocks some signals, as a server that was started so; a program started meanwhile inherits that."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGQUIT)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("deaf")
async def test_no_signal_or_mask_of_the_servers_reaches_a_job(bench: Bench) -> None:
    async with bench.engine() as engine:
        answer = await engine.run(
            "import subprocess\n"
            "print(subprocess.run(['cat', '/proc/self/status'], capture_output=True, text=True).stdout)"
        )
    status = dict(line.partition(":")[::2] for line in answer["stdout"].splitlines() if ":" in line)
    assert {int(status[name], 16) for name in ("SigBlk", "SigIgn")} == {0}


async def test_an_environment_larger_than_a_socket_holds_reaches_the_kernel(engine: Engine) -> None:
    variables = {f"V{number}": "\xfc\n" * 15_000 for number in range(16)}
    answer = await engine.run("import os; print(sum(len(os.environ[f'V{n}']) for n in range(16)))", env=variables)
    assert answer["stdout"] == "480000\n"


async def test_sixteen_launches_at_once_leave_the_loop_free(engine: Engine) -> None:
    launched = [await engine.launch("pass") for _ in range(16)]
    slowest, before = 0.0, anyio.current_time()
    with anyio.fail_after(60):
        while any(engine.records.rows[exec_id].started_at is None for exec_id in launched):
            await anyio.sleep(0.001)
            slowest, before = max(slowest, anyio.current_time() - before), anyio.current_time()
    assert slowest < 0.5


async def test_no_descriptor_but_the_three_is_inherited_by_what_a_job_starts(engine: Engine) -> None:
    answer = await engine.run(
        "import subprocess, sys\n"
        "program = 'import os; print(len(os.listdir(\"/proc/self/fd\")))'\n"
        "subprocess.run([sys.executable, '-I', '-S', '-c', program], close_fds=False)"
    )
    assert answer["stdout"] == "4\n"  # and the one that lists them


async def test_any_number_of_tasks_may_wait_for_one_process(tmp_path: Path) -> None:
    """One that watches a kernel and one that ends it, whichever of them is first."""
    ended: list[int | None] = []
    provisioner = LocalProvisioner({})

    async def wait() -> None:
        ended.append(await provisioner.wait())

    with anyio.fail_after(20), (tmp_path / "log").open("wb") as log:
        async with reaper_held(), anyio.create_task_group() as tasks:
            given: dict[str, Any] = {"env": {}, "cwd": tmp_path, "stdout": log.fileno(), "stderr": log.fileno()}
            await provisioner.launch_kernel(["/bin/sleep", "600"], **given)
            for _ in range(3):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await provisioner.kill()
    assert ended == [-signal.SIGKILL] * 3
