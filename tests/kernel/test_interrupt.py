"""Stopping a job, at every moment and whatever its code does about it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.tools.kernel.limits import JobLimits

if TYPE_CHECKING:
    from .conftest import Bench, Engine

QUICK = JobLimits(interrupt_s=0.3, second_interrupt_s=0.1, terminate_s=0.3)


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(600)",
        "while True: pass",
        "import asyncio; await asyncio.sleep(600)",
        "import subprocess; subprocess.run(['sleep', '600'])",
        "import threading; threading.Event().wait()",
        "import socket; socket.create_server(('127.0.0.1', 0)).accept()",
    ],
)
async def test_an_interrupt_stops_a_waiting_or_busy_cell_at_once(engine: Engine, code: str) -> None:
    exec_id = await engine.launch(f"print('begun')\n{code}")
    await engine.until_printed(exec_id, "begun\n")
    begun = time.monotonic()
    with anyio.fail_after(1):
        answer = await engine.interrupt(exec_id)
    assert answer["interrupted"]
    answer = await engine.finish(exec_id)
    assert time.monotonic() - begun < 1.9, "the first SIGINT did not do it"
    assert (answer["status"], answer["done"], answer["error"], answer["exit"]) == ("interrupted", True, None, None)
    assert answer["stdout"] == "begun\n"
    assert engine.records.rows[exec_id].ended_by == "sigint"


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (
            "import time\nwhile True:\n    try: print('begun'); time.sleep(600)\n    except BaseException: pass",
            "sigterm",
        ),
        ("from itertools import chain, count\nsum(chain(map(lambda _: print('begun') or 0, '.'), count()))", "sigterm"),
        (
            "import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\nprint('begun')\nsum(range(10**12))",
            "sigkill",
        ),
        ("print('begun')\nimport os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "sigkill"),
    ],
)
async def test_code_that_takes_no_notice_is_ended_by_the_next_step(bench: Bench, code: str, step: str) -> None:
    async with bench.engine(limits=QUICK) as engine:
        exec_id = await engine.launch(code)  # says that it has begun once an interrupt is of no use
        await engine.until_printed(exec_id, "begun")
        with anyio.fail_after(1):
            await engine.interrupt(exec_id)
        with anyio.fail_after(10):
            answer = await engine.finish(exec_id)
        assert (answer["status"], answer["interrupted"]) == ("interrupted", True)
        assert step.upper() in answer["exit"]["reason"]
        assert engine.records.rows[exec_id].ended_by == step


async def test_a_kernel_that_became_another_program_is_stopped_too(engine: Engine) -> None:
    # The other program takes along what the kernel has not sent yet: that it has begun, for one.
    code = "import os, time\ntime.sleep(0.5)\nos.execv('/bin/sh', ['sh', '-c', 'echo begun; exec sleep 600'])"
    exec_id = await engine.launch(code)
    await engine.until_printed(exec_id, "begun")
    await engine.until(exec_id, lambda answer: answer["status"] == "running")
    with anyio.fail_after(5):
        await engine.interrupt(exec_id)
        answer = await engine.finish(exec_id)
    assert (answer["status"], answer["exit"]["signal"]) == ("interrupted", 2)


async def test_an_interrupt_at_the_first_line_of_the_code_reaches_it(engine: Engine) -> None:
    for _ in range(4):
        exec_id = await engine.launch("import time\nwhile True: time.sleep(0.01)")
        await engine.until(exec_id, lambda answer: answer["status"] == "running")
        with anyio.fail_after(5):
            await engine.interrupt(exec_id)
            answer = await engine.finish(exec_id)
        assert (answer["status"], answer["exit"]) == ("interrupted", None)
        assert answer["started_at"] is not None


async def test_stopping_code_that_resists_holds_up_no_other_call(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(interrupt_s=0.5)) as engine:
        resisting = await engine.launch("while True:\n  try: print('begun'); sum(range(10**8))\n  except: pass")
        other = await engine.launch("import time\nwhile True: print('alive'); time.sleep(0.02)")
        for exec_id, text in ((resisting, "begun"), (other, "alive")):
            await engine.until_printed(exec_id, text)
        with anyio.fail_after(1):
            await engine.interrupt(resisting)
        slowest, news = 0.0, "0"
        while not (await engine.jobs.peek(engine.owner, resisting))["done"]:
            begun = time.monotonic()
            await engine.jobs.list(engine.owner)
            answer = await engine.jobs.wait(engine.owner, other, since=news, until="news")
            news, slowest = answer["next"], max(slowest, time.monotonic() - begun)
        assert slowest < 1
        assert (await engine.finish(resisting))["status"] == "interrupted"
        await engine.interrupt(other)


async def test_code_that_tidies_up_on_the_interrupt_is_given_the_time(engine: Engine) -> None:
    exec_id = await engine.launch(
        "import time\ntry: print('begun'); time.sleep(600)\nexcept KeyboardInterrupt: time.sleep(0.2); print('tidy')"
    )
    await engine.until_printed(exec_id, "begun")
    await engine.interrupt(exec_id)
    answer = await engine.finish(exec_id)
    assert (answer["status"], answer["stdout"]) == ("interrupted", "begun\ntidy\n")


async def test_a_queued_job_is_taken_out_of_the_queue(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(max_running=1)) as engine:
        first = await engine.launch("print('begun')\nimport time; time.sleep(600)")
        queued, last = await engine.launch("print('never')"), await engine.launch("print('last')")
        answer = await engine.interrupt(queued)
        assert (answer["status"], answer["done"], answer["interrupted"]) == ("interrupted", True, True)
        assert (answer["stdout"], answer["started_at"]) == ("", None)
        assert engine.records.rows[queued].ended_by == "cancel"
        await engine.interrupt(first)
        assert (await engine.finish(last))["stdout"] == "last\n"


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.05, 0.1, 0.14, 0.16, 0.18, 0.2, 0.25])
async def test_an_interrupt_during_the_start_ends_the_job_in_the_right_state(engine: Engine, after_s: float) -> None:
    exec_id = await engine.launch("import time\nprint('ran')\ntime.sleep(600)")
    await anyio.sleep(after_s)
    await engine.interrupt(exec_id)
    with anyio.fail_after(5):
        answer = await engine.finish(exec_id)
    assert (answer["status"], answer["interrupted"], answer["exit"]) == ("interrupted", True, None)
    assert engine.records.rows[exec_id].ended_by in {"cancel", "sigint"}
    if answer["started_at"] is None:
        assert answer["stdout"] == ""


async def test_an_interrupt_right_after_launch_runs_nothing(engine: Engine) -> None:
    exec_id = await engine.launch("open('ran', 'w').close()")
    await engine.interrupt(exec_id)
    answer = await engine.finish(exec_id)
    assert (answer["status"], answer["started_at"]) == ("interrupted", None)
    assert not (engine.workspace / "ran").exists()


async def test_a_finished_job_stays_as_it_is(engine: Engine) -> None:
    exec_id = await engine.launch("print(1)")
    before = await engine.finish(exec_id)
    assert await engine.interrupt(exec_id) == before


async def test_interrupting_twice_is_interrupting(engine: Engine) -> None:
    exec_id = await engine.launch("print('begun')\nimport time; time.sleep(600)")
    await engine.until_printed(exec_id, "begun")
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(engine.interrupt, exec_id)
    assert (await engine.finish(exec_id))["status"] == "interrupted"


async def test_a_stop_goes_on_when_whoever_asked_for_it_goes_away(bench: Bench) -> None:
    async with bench.engine(limits=QUICK) as engine:
        exec_id = await engine.launch("print('begun')\nsum(range(10**12))")
        await engine.until_printed(exec_id, "begun")
        with anyio.move_on_after(0):
            await engine.interrupt(exec_id)
        await engine.interrupt(exec_id)
        assert (await engine.finish(exec_id))["status"] == "interrupted"


async def test_a_time_limit_climbs_the_same_ladder(bench: Bench) -> None:
    async with bench.engine(limits=QUICK) as engine:
        exec_id = await engine.launch("print('begun')\nsum(range(10**12))", timeout_s=0.5)
        answer = await engine.finish(exec_id)
        assert (answer["status"], answer["interrupted"]) == ("timeout", False)
        assert engine.records.rows[exec_id].ended_by == "sigterm"


async def test_input_fails_at_once_and_a_child_reads_the_end(engine: Engine) -> None:
    answer = await engine.run(
        "import subprocess, sys\nsubprocess.run(['cat'])\nprint(repr(sys.stdin.read()))\ninput('?')"
    )
    assert answer["stdout"] == "''\n"
    assert (answer["status"], answer["error"]["name"]) == ("failed", "StdinNotImplementedError")


async def test_no_grandchild_survives_an_interrupt(engine: Engine, gone: Any) -> None:
    exec_id = await engine.launch(
        "import subprocess\nsubprocess.run(['sh', '-c', 'trap \"\" INT TERM; sleep 600 & echo $! $$; wait'])"
    )
    printed = await engine.until(exec_id, lambda answer: " " in answer["stdout"])
    await engine.interrupt(exec_id)
    await engine.finish(exec_id)
    for pid in printed["stdout"].split():
        await gone(int(pid))
