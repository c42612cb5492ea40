"""A job's way through the engine: queue, slots, records, listing, its end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.store.errors import Busy, Closed, InvalidParams, NotFound, StorageError
from cellhost.tools.kernel.limits import JobLimits
from cellhost.tools.kernel.records import JobOwner, JobRecord

if TYPE_CHECKING:
    from .conftest import Bench, Engine


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


ENDLESS = "import time\nprint('begun')\nwhile True: time.sleep(0.05)"


async def test_a_job_runs_and_its_answer_has_every_field(engine: Engine) -> None:
    answer = await engine.run("print('hello')\n6 * 7", label="sum")
    assert answer["stdout"] == "hello\n"
    assert (answer["status"], answer["done"], answer["result"], answer["error"]) == ("done", True, "42", None)
    assert (answer["label"], answer["interrupted"], answer["exit"], answer["outputs"]) == ("sum", False, None, [])
    assert answer["started_at"] <= answer["ended_at"]
    assert answer["usage"]["wall_s"] >= 0
    assert answer["usage"]["cpu_s"] >= 0
    assert answer["usage"]["peak_rss_kb"] > 10_000
    assert set(answer) == {
        *("exec_id", "status", "done", "stdout", "stderr", "interrupted", "error", "result", "outputs", "progress"),
        *("exit", "started_at", "ended_at", "label", "next", "truncated", "dropped_chars", "usage"),
    }


async def test_an_error_is_a_failure_with_its_traceback(engine: Engine) -> None:
    answer = await engine.run("print('before')\n1 / 0")
    assert answer["status"] == "failed"
    assert answer["stdout"] == "before\n"
    assert answer["error"]["name"] == "ZeroDivisionError"
    assert answer["error"]["value"] == "division by zero"
    assert "1 / 0" in answer["error"]["traceback"]
    assert "\x1b[" not in answer["error"]["traceback"]


async def test_an_error_of_fifty_megabytes_is_told_by_its_ends(engine: Engine) -> None:
    answer = await engine.run("raise ValueError('start' + 'x' * 50_000_000 + 'end')")
    assert (answer["status"], answer["error"]["name"]) == ("failed", "ValueError")
    assert answer["error"]["value"].startswith("startxxx")
    assert answer["error"]["value"].endswith("xxxend")
    assert "characters left out" in answer["error"]["value"]
    assert len(answer["error"]["value"]) < 5_000
    assert len(answer["error"]["traceback"]) < 10_000
    assert answer["stderr"] == ""


async def test_a_long_result_is_told_by_its_ends(engine: Engine) -> None:
    answer = await engine.run("class Long:\n    def __repr__(self): return 'start' + 'x' * 1_000_000 + 'end'\nLong()")
    assert len(answer["result"]) < 100_100
    assert (answer["result"][:5], answer["result"][-3:]) == ("start", "end")
    assert "900008 characters left out" in answer["result"]
    assert answer["outputs"] == []


async def test_a_recursion_error_keeps_the_first_and_the_last_frames(engine: Engine) -> None:
    answer = await engine.run("def deeper(): deeper()\ndeeper()")
    traceback = answer["error"]["traceback"]
    assert answer["error"]["name"] == "RecursionError"
    assert traceback.count("in deeper()") < 20
    assert "frames left out" in traceback
    assert len(traceback) < 10_000


@pytest.mark.parametrize(
    ("code", "status"), [("sys.exit()", "done"), ("sys.exit(0)", "done"), ("sys.exit(3)", "failed")]
)
async def test_leaving_through_sys_exit_is_a_failure_only_with_a_code(engine: Engine, code: str, status: str) -> None:
    answer = await engine.run(f"import sys\n{code}")
    assert answer["status"] == status
    assert answer["stderr"] == ""
    assert (answer["error"] is None) == (status == "done")


async def test_the_record_is_there_before_launch_returns_and_final_when_the_job_is_done(engine: Engine) -> None:
    exec_id = await engine.launch("print('x')\nraise ValueError('no')", label="l", key="k")
    assert engine.records.rows[exec_id].label == "l"
    await engine.finish(exec_id)
    row = engine.records.rows[exec_id]
    assert (row.status, row.ended_by, row.stdout_bytes, row.error_name) == ("failed", "code", 2, "ValueError")
    statuses = [fields["status"] for changed, fields in engine.records.changes if changed == exec_id]
    assert statuses[-1] == "failed"
    assert statuses[:-1] == [status for status in ("starting", "running") if status in statuses]
    final = engine.records.changes[-1][1]
    assert (final["stdout_tail"], final["stderr_tail"]) == ("x\n", "")


async def test_a_job_that_cannot_be_recorded_is_not_launched(engine: Engine) -> None:
    engine.records.failure = StorageError("the disk is full")
    with pytest.raises(StorageError):
        await engine.launch("print(1)")
    engine.records.failure = None
    assert await engine.jobs.list(engine.owner) == []


async def test_a_store_that_fails_at_the_end_delays_the_answer_only_so_long(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(record_s=0.1, shutdown_s=0.1)) as engine:
        exec_id = await engine.launch("print(1)")
        engine.records.failure = StorageError("locked")
        answer = await engine.finish(exec_id)
        assert answer["status"] == "done"
        engine.records.failure = None


async def test_the_sixteen_first_run_and_the_others_wait_in_order(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(max_running=2)) as engine:
        jobs = [await engine.launch(ENDLESS) for _ in range(2)]
        waiting = [await engine.launch(f"print({n})") for n in range(2)]
        for exec_id in jobs:
            await engine.until(exec_id, lambda answer: answer["status"] == "running")
        rows = await engine.jobs.list(engine.owner)
        assert [row["exec_id"] for row in rows] == [*reversed(waiting), *reversed(jobs)]
        assert [row["status"] for row in rows] == ["queued", "queued", "running", "running"]
        await engine.interrupt(jobs[0])
        first, second = [await engine.finish(exec_id) for exec_id in waiting]
        assert (first["stdout"], second["stdout"]) == ("0\n", "1\n")
        assert first["started_at"] <= second["started_at"]


async def test_a_full_queue_is_busy(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(max_running=1, max_queued=1)) as engine:
        await engine.launch(ENDLESS)
        await engine.launch("print(1)")
        with pytest.raises(Busy) as refusal:
            await engine.launch("print(2)")
        assert refusal.value.retryable
        assert len(engine.records.rows) == 2


async def test_the_same_key_gives_the_same_job_even_at_once_and_in_a_later_server(bench: Bench) -> None:
    found: list[str] = []

    async def launch(engine: Engine) -> None:
        found.append(await engine.launch("print(1)", key="once"))

    async with bench.engine() as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(launch, engine)
        await engine.finish(found[0])
    async with bench.engine() as later:
        await launch(later)
    assert len(set(found)) == 1
    assert len(bench.records.rows) == 1


async def test_time_over_ends_a_job_as_timeout(engine: Engine) -> None:
    answer = await engine.run(ENDLESS, timeout_s=0.3)
    assert (answer["status"], answer["interrupted"]) == ("timeout", False)
    assert answer["stdout"] == "begun\n"
    assert answer["usage"]["wall_s"] < 2


async def test_a_job_of_another_project_is_absent(engine: Engine) -> None:
    stranger = JobOwner("other", "f-1", "f-1")
    exec_id = await engine.launch("print(1)")
    messages: list[str] = []
    for asked in (exec_id, "exec-000000000000", "../../etc", ""):
        for call in (engine.jobs.peek, engine.jobs.interrupt, engine.jobs.wait):
            with pytest.raises(NotFound) as refusal:
                await call(stranger, asked)
            messages.append(str(refusal.value).replace(repr(asked), "ID"))
    assert len(set(messages)) == 1
    assert await engine.jobs.list(stranger) == []
    await engine.finish(exec_id)


async def test_a_later_server_tells_of_the_jobs_of_an_earlier_one(bench: Bench) -> None:
    async with bench.engine() as engine:
        exec_id = await engine.launch("print('kept')\nraise KeyError('x')")
        before = await engine.finish(exec_id)
    async with bench.engine() as later:
        assert await later.jobs.peek(later.owner, exec_id) == before
        assert [row["exec_id"] for row in await later.jobs.list(later.owner)] == [exec_id]
        assert await later.jobs.interrupt(later.owner, exec_id) == before
        assert await later.jobs.wait(later.owner, exec_id, since="0") == {**before}


async def test_a_lost_job_keeps_all_its_output(bench: Bench) -> None:
    record = JobRecord(
        exec_id="exec-0123456789ab",
        cell_id="c-1",
        project_id="default",
        root_frame_id="f-root",
        frame_id="f-turn",
        code="print(1)",
        status="lost",
        created_at=1,
    )
    bench.records.rows[record.exec_id] = record
    folder = bench.log_dir("default") / record.exec_id
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("all of it\n")
    async with bench.engine() as engine:
        answer = await engine.jobs.peek(engine.owner, record.exec_id)
        assert (answer["status"], answer["done"], answer["stdout"]) == ("lost", True, "all of it\n")
        assert (await engine.jobs.list(engine.owner))[0]["stdout_bytes"] == 10


async def test_a_running_job_of_another_server_can_be_watched_but_not_stopped(bench: Bench) -> None:
    async with bench.engine() as one, bench.engine() as other:
        exec_id = await one.launch("print('begun')\ninput_file = open('go').read() if False else None\n" + ENDLESS)
        await one.until_printed(exec_id, "begun")
        assert (await other.jobs.peek(other.owner, exec_id))["stdout"].startswith("begun")
        with pytest.raises(Closed, match="another server"):
            await other.interrupt(exec_id)
        await one.interrupt(exec_id)
        answer = await other.jobs.wait(other.owner, exec_id, timeout_s=30)
        assert answer["status"] == "interrupted"


async def test_the_list_is_paged_by_the_last_row(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(max_running=4, kept_finished=2)) as engine:
        launched = [await engine.launch("pass") for _ in range(5)]
        for exec_id in launched:
            await engine.finish(exec_id)
        seen: list[str] = []
        cursor = None
        while page := await engine.jobs.list(engine.owner, limit=2, cursor=cursor):
            seen += [row["exec_id"] for row in page]
            cursor = seen[-1]
        assert seen == launched[::-1]
        assert await engine.jobs.list(engine.owner, status="failed") == []
        assert len(await engine.jobs.list(engine.owner, status="done")) == 5


async def test_a_list_row_has_no_output_text(engine: Engine) -> None:
    exec_id = await engine.launch("print('secret' * 3)" + " " * 500)
    await engine.finish(exec_id)
    (row,) = await engine.jobs.list(engine.owner)
    assert set(row) == {
        *("exec_id", "label", "status", "done", "started_at", "ended_at"),
        *("stdout_bytes", "stderr_bytes", "progress", "code_preview"),
    }
    assert (row["stdout_bytes"], row["stderr_bytes"]) == (19, 0)
    assert len(row["code_preview"]) == 200


async def test_progress_is_on_the_job_and_in_the_record(engine: Engine) -> None:
    exec_id = await engine.launch(ENDLESS)
    await engine.until_printed(exec_id, "begun")
    engine.jobs.set_progress(exec_id, 3, 10, "third")
    expected = {"done": 3, "total": 10, "message": "third"}
    assert (await engine.jobs.peek(engine.owner, exec_id))["progress"] == expected
    assert (await engine.jobs.list(engine.owner))[0]["progress"] == expected
    await engine.interrupt(exec_id)
    assert (await engine.finish(exec_id))["progress"] == expected
    assert engine.records.rows[exec_id].progress_done == 3


async def test_a_subscriber_hears_of_status_progress_and_output(engine: Engine) -> None:
    heard: set[str] = set()
    async with engine.jobs.subscribe("default", output=True) as news:
        exec_id = await engine.launch("print('x')\nimport time; time.sleep(0.1)")
        engine.jobs.set_progress(exec_id, 1)
        with anyio.fail_after(30):
            while heard != {"status", "progress", "output"}:
                items = await news.take()
                assert {item.exec_id for item in items} == {exec_id}
                heard |= {item.kind for item in items}
    await engine.finish(exec_id)


async def test_waiting_for_news_returns_with_the_output_that_is_new(engine: Engine) -> None:
    code = "import os, time\nprint('one')\nwhile not os.path.exists('go'): time.sleep(0.005)\nprint('two')\n" + ENDLESS
    exec_id = await engine.launch(code)
    first = await engine.until_printed(exec_id, "one")
    (engine.workspace / "go").touch()
    with anyio.fail_after(20):
        second = await engine.jobs.wait(engine.owner, exec_id, timeout_s=20, since=first["next"], until="news")
    assert second["stdout"].startswith("two")
    assert not second["done"]
    await engine.interrupt(exec_id)


async def test_a_wait_ends_with_what_there_is_at_its_time_or_when_waits_are_ended(engine: Engine) -> None:
    exec_id = await engine.launch(ENDLESS)
    await engine.until_printed(exec_id, "begun")
    answer = await engine.jobs.wait(engine.owner, exec_id, timeout_s=0.05)
    assert answer["status"] == "running"
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.jobs.wait, engine.owner, exec_id)
            await anyio.wait_all_tasks_blocked()
            engine.jobs.end_waits()


async def test_a_job_cannot_wait_for_itself(engine: Engine) -> None:
    exec_id = await engine.launch("pass")
    with pytest.raises(InvalidParams, match="cannot wait for itself"):
        await engine.jobs.wait(engine.owner, exec_id, caller=exec_id)


async def test_ending_the_engine_kills_and_records_everything(bench: Bench, gone: Any) -> None:
    async with bench.engine(limits=JobLimits(max_running=2)) as engine:
        code = "import os, subprocess\nchild = subprocess.Popen(['sleep', '600'])\nprint(os.getpid(), child.pid)\n"
        running = [await engine.launch(code + "child.wait()") for _ in range(2)]
        queued = await engine.launch("print(1)")
        pids = [
            int(word)
            for exec_id in running
            for word in (await engine.until(exec_id, lambda answer: " " in answer["stdout"]))["stdout"].split()
        ]
        with anyio.fail_after(1):
            await engine.jobs.shutdown()
        with pytest.raises(Closed):
            await engine.launch("print(2)")
    for exec_id in (*running, queued):
        row = bench.records.rows[exec_id]
        assert (row.status, row.ended_by) == ("killed", "shutdown")
    for pid in pids:
        await gone(pid)


async def test_an_engine_that_is_not_open_launches_nothing(bench: Bench) -> None:
    async with bench.engine() as engine:
        jobs = engine.jobs
    with pytest.raises(Closed):
        await jobs.launch("print(1)", owner=engine.owner)


async def test_jobs_leave_no_descriptor_thread_process_or_file(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(warm_kernels=0)) as engine:
        await engine.run("print(1)")
        await engine.until_idle()
        before = (open_descriptors(), threading.active_count())
        exec_ids = [await engine.launch("print(1)") for _ in range(5)]
        for exec_id in exec_ids:
            await engine.finish(exec_id)
        await engine.until_idle()
        assert (open_descriptors(), threading.active_count()) == before
        assert [path.name for path in engine.run_dir.iterdir()] == ["ipython"]
        assert len(engine.tokens) == 0


@pytest.mark.parametrize("given", [{"timeout_s": 0}, {"memory_mb": -1}, {"kernel": "no-such"}, {"kernel": {"x": 1}}])
async def test_impossible_parameters_are_refused_before_anything_is_written(engine: Engine, given: Any) -> None:
    with pytest.raises(InvalidParams):
        await engine.launch("print(1)", **given)
    assert engine.records.rows == {}


async def test_the_workspace_is_made_if_it_is_missing(bench: Bench) -> None:
    bench.workspace = bench.workspace / "deep" / "er"
    async with bench.engine() as engine:
        await engine.run("open('made', 'w').close()")
    assert (bench.workspace / "made").is_file()
