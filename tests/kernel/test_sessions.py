"""Foreground kernels: state from cell to cell, order, interrupts, deaths and restarts; with real kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from cellhost.store.errors import Busy, Closed, InvalidParams
from cellhost.tools.kernel.kernel import Kernel
from cellhost.tools.kernel.limits import JobLimits

from ..processes import is_running
from .conftest import OWNER, PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from cellhost.tools.kernel.spec import KernelSpec

    from .conftest import Bench, Door, Engine

BEGUN = "import time\nx = 5\nprint('begun')\n"
PID = "import os; os.getpid()"


async def pid(engine: Engine, session: str = "default") -> int:
    """The process of a session's kernel."""
    return int((await engine.cell(PID, session))["result"])


# State


async def test_twenty_cells_share_state_and_each_has_exactly_its_own_output(engine: Engine) -> None:
    await engine.cell("import sys\nseen = []")
    exec_ids = [
        await engine.enter(f"seen.append({n}); print({n}, flush=True); print('e', {n}, file=sys.stderr); len(seen)")
        for n in range(20)
    ]
    answers = [await engine.finish(exec_id) for exec_id in exec_ids]
    assert [(a["status"], a["result"], a["stdout"], a["stderr"]) for a in answers] == [
        ("done", str(n + 1), f"{n}\n", f"e {n}\n") for n in range(20)
    ]
    assert len(set(exec_ids)) == 20
    assert all("note" not in answer for answer in answers)
    assert [engine.records.rows[exec_id].session for exec_id in exec_ids] == ["default"] * 20


async def test_sessions_of_other_names_and_frames_have_kernels_of_their_own(engine: Engine) -> None:
    await engine.cell("x = 1")
    assert (await engine.cell("'x' in dir()", "other"))["result"] == "False"
    owner = type(OWNER)(OWNER.project_id, "f-other", "f-other")
    entered = await engine.jobs.execute("'x' in dir()", owner=owner, session="default")
    assert (await engine.finish(entered["exec_id"]))["result"] == "False"
    assert (await engine.cell("x"))["result"] == "1"


async def test_a_cell_that_fails_leaves_state_and_the_cells_behind_it_alone(engine: Engine) -> None:
    exec_ids = [await engine.enter(code) for code in ("x = 1", "x = 2; 1 / 0", "x", "import", "x")]
    answers = [await engine.finish(exec_id) for exec_id in exec_ids]
    assert [answer["status"] for answer in answers] == ["done", "failed", "done", "failed", "done"]
    assert [answer["result"] for answer in answers] == [None, None, "2", None, "2"]


async def test_usage_is_the_cells_own(engine: Engine) -> None:
    busy = await engine.cell("import time\nuntil = time.process_time() + 0.5\nwhile time.process_time() < until: pass")
    idle = await engine.cell("1")
    assert busy["usage"]["cpu_s"] >= 0.4
    assert idle["usage"]["cpu_s"] < 0.2
    assert idle["usage"]["wall_s"] < busy["usage"]["wall_s"]


# Output


async def test_every_kind_of_output_is_in_the_log_of_its_cell(engine: Engine) -> None:
    await engine.cell("import ctypes, os, subprocess\nlibc = ctypes.CDLL(None)")
    for name in ("one", "two"):
        answer = await engine.cell(
            f"print('{name}')\nlibc.puts(b'native {name}')\nos.write(1, b'raw {name}\\n')\n"
            f"done = subprocess.run(['sh', '-c', 'echo child {name}; echo e {name} >&2'])"
        )
        assert set(answer["stdout"].splitlines()) == {f"child {name}", name, f"native {name}", f"raw {name}"}
        assert answer["stderr"] == f"e {name}\n"


async def test_what_a_child_prints_after_its_cell_is_in_no_cell(engine: Engine) -> None:
    first = await engine.cell(
        "import subprocess\n"
        "child = subprocess.Popen(['sh', '-c', 'echo mine; while read line; do echo late; done; echo end'],"
        " stdin=subprocess.PIPE)\nprint('started')"
    )
    second = await engine.cell("child.stdin.write(b'x\\n' * 100); child.stdin.close(); child.wait(); print('second')")
    assert second["stdout"] == "second\n"
    again = await engine.jobs.peek(OWNER, first["exec_id"])
    assert "late" not in again["stdout"]
    assert again == first


async def test_a_thread_that_goes_on_prints_into_the_cell_that_runs_then_or_nowhere(engine: Engine) -> None:
    first = await engine.cell(
        "import threading\ngo, gone = threading.Event(), threading.Event()\n"
        "def later():\n    print('between'); go.wait(); print('thread'); gone.set()\n"
        "def begin(): threading.Timer(0.1, later).start()\nbegin()"
    )
    assert first["stdout"] == ""
    second = await engine.cell("import time; time.sleep(0.5); go.set(); gone.wait(); print('second')")
    assert second["stdout"].splitlines()[-2:] == ["thread", "second"]
    assert (await engine.jobs.peek(OWNER, first["exec_id"]))["stdout"] == ""


async def test_descriptors_that_a_cell_turns_elsewhere_are_the_next_cells_own_again(engine: Engine) -> None:
    await engine.cell("import os\nnull = os.open(os.devnull, os.O_WRONLY)\nos.dup2(null, 1); os.dup2(null, 2)")
    assert (await engine.cell("print('here')"))["stdout"] == "here\n"


async def test_a_hundred_cells_leave_no_descriptor_in_the_kernel(engine: Engine) -> None:
    await engine.cell("import os")
    count = "len(os.listdir('/proc/self/fd'))"
    before = (await engine.cell(count))["result"]
    for _ in range(100):
        await engine.cell("print('x')")
    after = await engine.cell(count)
    assert after["result"] == before, after["error"]


async def test_a_cell_that_takes_all_descriptors_costs_the_next_one_nothing(engine: Engine) -> None:
    taking = (
        "import os, resource\n_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, most))\ntaken = []\n"
        "while True: taken.append(os.open('/dev/null', 0))"
    )
    assert "Too many open files" in (await engine.cell(taking))["error"]["value"]
    for _ in range(2):
        answer = await engine.cell("os.write(2, b'e'); print(len(taken) > 100)")
        assert (answer["stdout"], answer["stderr"], answer["error"]) == ("True\n", "e", None)
    assert (await engine.cell("for each in taken: os.close(each)"))["status"] == "done"


# Order and interrupts


async def test_the_next_cell_waits_for_a_long_one_and_sees_its_state(engine: Engine) -> None:
    long = await engine.enter(BEGUN + "time.sleep(0.5)\nx = 6")
    following = await engine.enter("x")
    await engine.until_printed(long, "begun")
    waiting = await engine.jobs.peek(OWNER, following)
    assert (waiting["status"], waiting["done"], waiting["started_at"]) == ("queued", False, None)
    assert (await engine.finish(following))["result"] == "6"


@pytest.mark.parametrize("code", ["time.sleep(600)", "while True: pass", "import asyncio; await asyncio.sleep(600)"])
async def test_an_interrupted_cell_leaves_the_kernel_and_its_state(engine: Engine, code: str) -> None:
    process = await pid(engine)
    exec_id = await engine.enter(BEGUN + code)
    await engine.until_printed(exec_id, "begun")
    following = await engine.enter("x")
    await engine.interrupt(exec_id)
    stopped = await engine.finish(exec_id)
    assert (stopped["status"], stopped["interrupted"]) == ("interrupted", True)
    after = await engine.finish(following)
    assert (after["result"], after.get("note")) == ("5", None)
    assert await pid(engine) == process


async def test_a_cell_that_ignores_interrupts_ends_with_its_kernel_and_the_next_says_so(bench: Bench) -> None:
    limits = JobLimits(interrupt_s=0.1, second_interrupt_s=0.1, terminate_s=0.1)
    async with bench.engine(limits=limits) as engine:
        exec_id = await engine.enter(
            BEGUN + "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "while True:\n    try:\n        while True: time.sleep(0.01)\n    except BaseException: pass"
        )
        await engine.until_printed(exec_id, "begun")
        await engine.interrupt(exec_id)
        stopped = await engine.finish(exec_id)
        assert (stopped["status"], stopped["exit"]["signal"]) == ("interrupted", 9)
        after = await engine.cell("'x' in dir()")
        assert after["result"] == "False"
        assert "stopped by SIGKILL" in after["note"]


async def test_a_waiting_cell_can_be_interrupted_and_never_runs(engine: Engine) -> None:
    running = await engine.enter(BEGUN + "while True: time.sleep(0.01)")
    await engine.until_printed(running, "begun")
    waiting, last = await engine.enter("x = 6"), await engine.enter("x")
    answer = await engine.interrupt(waiting)
    assert (answer["status"], answer["started_at"]) == ("interrupted", None)
    await engine.interrupt(running)
    assert (await engine.finish(last))["result"] == "5"


async def test_a_cell_interrupted_while_its_kernel_starts_does_not_run(engine: Engine) -> None:
    exec_id = await engine.enter("open('ran', 'w')")
    await engine.interrupt(exec_id)
    assert (await engine.finish(exec_id))["status"] == "interrupted"
    assert (await engine.cell("1 + 1"))["result"] == "2"
    assert not (engine.workspace / "ran").exists()


async def test_interrupts_at_any_moment_of_short_cells_harm_neither_kernel_nor_output(engine: Engine) -> None:
    process = await pid(engine)
    for n in range(40):
        exec_id = await engine.enter(f"print({n})\nfor _ in range({n * 500}): pass")
        await anyio.sleep(0.0002 * n)
        await engine.interrupt(exec_id)
        answer = await engine.finish(exec_id)
        assert answer["status"] in {"done", "interrupted"}
        assert answer["stdout"] in {f"{n}\n", "", f"{n}"}
        assert (await engine.cell(f"'after {n}'"))["result"] == f"'after {n}'"
    assert await pid(engine) == process


# Deaths and restarts


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(7)", "exited with code 7"),
        ("exit()", "exited with code 0"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "segmentation fault"),
    ],
)
async def test_a_kernel_that_dies_is_followed_by_a_fresh_one_that_says_so(engine: Engine, code: str, said: str) -> None:
    await engine.cell("x = 1")
    dying, following, third = [await engine.enter(each) for each in (code, "'x' in dir()", "'x' in dir()")]
    assert (await engine.finish(dying))["status"] == "died"
    answer = await engine.finish(following)
    assert answer["result"] == "False"
    assert said in answer["note"]
    assert "fresh kernel" in answer["note"]
    assert "note" not in await engine.finish(third)


async def test_a_kernel_that_cannot_answer_any_more_is_followed_by_a_fresh_one_that_says_so(engine: Engine) -> None:
    await engine.cell("get_ipython().kernel.do_execute = None")
    assert (await engine.cell("1"))["error"]["value"] == "the kernel ended the cell without an answer"
    answer = await engine.cell("6 * 7")
    assert answer["result"] == "42"
    assert "did not answer any more" in answer["note"]


async def test_a_kernel_that_dies_between_cells_is_noticed_at_once(engine: Engine, gone: Callable[[int], Any]) -> None:
    process = await pid(engine)
    await engine.cell("import os, threading; threading.Timer(0.1, os._exit, [4]).start()")
    await gone(process)
    await engine.until_idle()
    assert "exited with code 4" in (await engine.cell("1"))["note"]


async def test_the_output_limit_is_each_cells_own(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(file_bytes=100_000)) as engine:
        for _ in range(3):
            assert len((await engine.cell("print('x' * 60_000)"))["stdout"]) == 60_001
        over = await engine.cell("for _ in range(10): print('x' * 60_000)")
        assert (over["status"], len(over["stdout"])) == ("killed", 100_000)
        assert "over the size limit" in (await engine.cell("1"))["note"]


async def test_a_restart_ends_what_runs_and_waits_and_the_next_cell_is_in_a_fresh_kernel(
    engine: Engine, gone: Callable[[int], Any]
) -> None:
    process = await pid(engine)
    running = await engine.enter(BEGUN + "import subprocess\nsubprocess.run(['sleep', '600'])")
    await engine.until_printed(running, "begun")
    waiting = await engine.enter("x")
    with anyio.fail_after(5):
        restarted = await engine.jobs.restart(OWNER, "default")
    assert restarted == {"session": "default", "restarted": True, "ended": [running, waiting]}
    answers = [await engine.jobs.peek(OWNER, exec_id) for exec_id in (running, waiting)]
    assert [(answer["status"], answer["done"]) for answer in answers] == [("interrupted", True)] * 2
    assert answers[0]["stdout"] == "begun\n"
    await gone(process)
    after = await engine.cell("'x' in dir()")
    assert after["result"] == "False"
    assert "exec_restart" in after["note"]


async def test_a_restart_of_an_idle_or_unknown_session_ends_no_cell(engine: Engine) -> None:
    assert await engine.jobs.restart(OWNER, "never") == {"session": "never", "restarted": False, "ended": []}
    await engine.cell("x = 1")
    assert await engine.jobs.restart(OWNER, "default") == {"session": "default", "restarted": True, "ended": []}
    await engine.until_idle()


async def test_a_restart_while_the_kernel_starts_ends_it(engine: Engine) -> None:
    exec_id = await engine.enter("x = 1")
    with anyio.fail_after(5):
        await engine.jobs.restart(OWNER, "default")
    assert (await engine.finish(exec_id))["status"] == "interrupted"
    assert (await engine.cell("'x' in dir()"))["result"] == "False"


async def test_a_kernel_that_cannot_start_fails_its_cell_and_not_the_session(bench: Bench) -> None:
    broken = True

    def factory(spec: KernelSpec) -> Kernel:
        if broken:
            raise ZeroDivisionError
        return Kernel(spec)

    async with bench.engine(kernel_factory=factory) as engine:
        answer = await engine.cell("1")
        assert (answer["status"], answer["error"]["name"]) == ("died", "InternalError")
        broken = False
        assert (await engine.cell("1 + 1"))["result"] == "2"


async def test_an_interpreter_without_a_kernel_is_said_by_each_cell(bench: Bench) -> None:
    async with bench.engine(python="/bin/false") as engine:
        for _ in range(2):
            answer = await engine.cell("1")
            assert (answer["status"], answer["exit"]["reason"]) == ("died", "the kernel did not start")
            assert "note" not in answer


# Bounds


async def test_the_longest_idle_session_makes_room_and_a_busy_one_does_not(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(max_sessions=2)) as engine:
        first, second = await pid(engine, "first"), await pid(engine, "second")
        await engine.cell("1", "first")
        third = await pid(engine, "third")
        assert [is_running(process) for process in (first, second, third)] == [True, False, True]
        running = [await engine.enter(BEGUN + "time.sleep(600)", name) for name in ("first", "third")]
        for exec_id in running:
            await engine.until_printed(exec_id, "begun")
        with pytest.raises(Busy, match="no more than 2 sessions may run cells"):
            await engine.enter("1", "second")
        await engine.interrupt(running[0])
        await engine.finish(running[0])
        assert "make room" in (await engine.cell("1", "second"))["note"]


async def test_a_session_takes_only_so_many_waiting_cells(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(max_queued=2)) as engine:
        running = await engine.enter(BEGUN + "time.sleep(600)")
        await engine.until_printed(running, "begun")
        waiting = [await engine.enter("1") for _ in range(2)]
        with pytest.raises(Busy, match="it has 2 cells"):
            await engine.enter("1")
        await engine.interrupt(waiting[0])
        await engine.enter("1")
        assert len(bench.records.rows) == 4


async def test_foreground_cells_take_no_slot_from_jobs(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(max_running=1)) as engine:
        job = await engine.launch("import time; time.sleep(600)")
        assert (await engine.cell("1 + 1"))["result"] == "2"
        assert not (await engine.jobs.peek(OWNER, job))["done"]


async def test_the_end_of_the_engine_ends_kernels_and_cells(bench: Bench, gone: Callable[[int], Any]) -> None:
    async with bench.engine() as engine:
        idle, busy = await pid(engine, "idle"), await pid(engine, "busy")
        running = await engine.enter(BEGUN + "time.sleep(600)", "busy")
        await engine.until_printed(running, "begun")
        waiting = await engine.enter("1", "busy")
    await gone(idle)
    await gone(busy)
    assert [bench.records.rows[exec_id].status for exec_id in (running, waiting)] == ["killed", "killed"]
    assert not any(path.name.startswith("k") for path in engine.run_dir.iterdir())
    with pytest.raises(Closed):
        await engine.enter("1")
    async with bench.engine() as later:
        assert "another server" in (await later.cell("1", "busy"))["note"]
        assert "note" not in await later.cell("1", "new")


class SlowToEnd(Kernel):
    """Its teardown takes longer than its cell's end, as on a machine with much to do."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        await anyio.sleep(PATIENCE_S)


async def test_a_restart_is_answered_when_the_engine_ends_meanwhile(bench: Bench) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks, bench.engine(kernel_factory=SlowToEnd) as engine:
            running = await engine.enter(BEGUN + "time.sleep(600)")
            await engine.until_printed(running, "begun")
            tasks.start_soon(engine.jobs.restart, OWNER, "default")
            await anyio.lowlevel.checkpoint()
    assert [record.status for record in bench.records.rows.values()] == ["killed"]


# Team mode and `host`


async def test_in_team_mode_a_sessions_foreground_kernel_allows_its_background_kernels(bench: Bench) -> None:
    async with bench.engine(team_mode=True) as engine:
        with pytest.raises(RuntimeError, match="session-scoped kernel factory"):
            await engine.launch("1")
        await engine.cell("1")
        assert (await engine.run("import os; os.getcwd()"))["result"] == repr(str(bench.workspace.resolve()))
        stranger = type(OWNER)(OWNER.project_id, "f-other", "f-other")
        with pytest.raises(RuntimeError, match="session-scoped kernel factory"):
            await engine.jobs.launch("1", owner=stranger)


async def test_a_factory_makes_foreground_and_background_kernels(bench: Bench) -> None:
    asked: list[KernelSpec] = []

    def factory(spec: KernelSpec) -> Kernel:
        asked.append(spec)
        return Kernel(spec)

    async with bench.engine(team_mode=True, kernel_factory=factory) as engine:
        await engine.cell("1")
        await engine.cell("2")
        await engine.run("3")
    assert len(asked) == 2
    assert {spec.workspace for spec in asked} == {bench.workspace.resolve()}


async def test_each_cell_calls_the_host_in_its_own_name_and_a_kept_host_goes_along(hosted: Engine, door: Door) -> None:
    first = await hosted.cell("kept = host\ncall = host.exec_peek\nprint(host.exec_id, host.exec_list()['method'])")
    second = await hosted.cell(
        "import asyncio, os\nprint(kept.exec_id, call('exec-1')['method'], (await kept.aio.exec_list())['method'])\n"
        "print(host.environment()['CELLHOST_TOKEN'], [name for name in os.environ if 'CELLHOST' in name])"
    )
    assert first["stdout"] == f"{first['exec_id']} exec_list\n"
    shown, tokens = second["stdout"].splitlines()
    assert shown == f"{second['exec_id']} exec_peek exec_list"
    token, left = tokens.split(maxsplit=1)
    assert left == "[]"
    assert hosted.tokens.identify(token) is None
    assert len(hosted.tokens) == 0
    assert door.tokens is hosted.tokens


async def test_a_thread_that_calls_the_host_over_a_cells_end_disturbs_no_other_cell(hosted: Engine, door: Door) -> None:
    thread = "import threading\nheld = threading.Thread(target=lambda: host.exec_wait('exec-1'))\nheld.start()"
    await hosted.cell(thread + "\nimport time; time.sleep(0.5)")  # its name ends with it: the call must be under way
    await door.until(lambda: len(door.requests) == 1)
    assert (await hosted.cell("host.exec_list()['method']"))["result"] == "'exec_list'"
    door.hold.set()
    assert (await hosted.cell("held.join(); [host.exec_list()['method'] for _ in range(3)]"))["status"] == "done"
    assert len(door.requests) == 5


async def test_a_cell_cannot_wait_for_its_own_session(engine: Engine) -> None:
    running = await engine.enter(BEGUN + "time.sleep(600)")
    await engine.until_printed(running, "begun")
    with pytest.raises(InvalidParams, match="own session"):
        await engine.enter("1", caller=running)
    with anyio.fail_after(PATIENCE_S):
        assert (await engine.cell("1 + 1", "other", caller=running))["result"] == "2"
