"""The job tools: launching, listing, looking, waiting, stopping; with real kernels."""

from __future__ import annotations

import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.errors import Busy, InvalidParams, NotFound, StorageError
from cellhost.tools.call import Call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from cellhost import Dispatcher

    from .conftest import Finished, Refused

OUTCOME = {
    "exec_id",
    "status",
    "done",
    "stdout",
    "stderr",
    "interrupted",
    "error",
    "result",
    "outputs",
    "progress",
    "exit",
    "started_at",
    "ended_at",
    "label",
    "next",
    "truncated",
    "dropped_chars",
    "usage",
}
ENDLESS = "import time\nprint('begun')\nwhile True: time.sleep(0.05)"


@asynccontextmanager
async def host(tmp_path: Path, **limits: Any) -> AsyncGenerator[Dispatcher]:
    """A host of its own, for tests that fill its slots."""
    config = Config(data_dir=tmp_path / "data", rules=(("exec_background", "*", "allow"),))
    for name, value in limits.items():
        setattr(config.limits, name, value)
    with anyio.fail_after(60):
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            yield made


async def launch(dispatcher: Dispatcher, code: str, /, **given: Any) -> str:
    launched = await dispatcher("exec_background", {"code": code, **given})
    exec_id: str = launched["exec_id"]
    return exec_id


async def until_it_prints(dispatcher: Dispatcher, exec_id: str) -> dict[str, Any]:
    with anyio.fail_after(30):
        while True:
            seen: dict[str, Any] = await dispatcher("exec_wait", {"exec_id": exec_id, "since": "0", "until": "news"})
            if seen["stdout"] or seen["done"]:
                return seen


async def end(dispatcher: Dispatcher, exec_id: str) -> dict[str, Any]:
    await dispatcher("exec_interrupt", [exec_id])
    outcome: dict[str, Any] = await dispatcher("exec_wait", [exec_id])
    assert outcome["done"]
    return outcome


# exec_background


async def test_a_launch_answers_at_once_with_id_and_status(shared: Dispatcher) -> None:
    launched = await shared("exec_background", ["1 + 1"])
    assert set(launched) == {"exec_id", "status"}
    assert launched["status"] in ("queued", "starting", "running")
    assert launched["exec_id"].startswith("exec-")
    assert (await shared("exec_wait", [launched["exec_id"]]))["result"] == "2"


@pytest.mark.parametrize(
    "params",
    [
        ["print(7)", "seven", 50, 2000, None, {"A": "1"}, None],
        [{"code": "print(7)", "label": "seven", "timeoutS": 50.0, "memoryMb": 2000, "env": {"A": "1"}}],
        {"code": "print(7)", "label": "seven", "timeout_s": 50, "memory_mb": 2000, "env": {"A": "1"}, "kernel": None},
    ],
)
async def test_every_form_of_a_launch_is_the_same_job(shared: Dispatcher, params: Any) -> None:
    exec_id = (await shared("exec_background", params))["exec_id"]
    outcome = await shared("exec_wait", [exec_id])
    assert (outcome["stdout"], outcome["label"], outcome["status"]) == ("7\n", "seven", "done")
    recorded = await shared("query", ["SELECT label, timeout_s, memory_mb, key FROM jobs WHERE exec_id = ?", [exec_id]])
    assert recorded == [{"label": "seven", "timeout_s": 50.0, "memory_mb": 2000, "key": None}]


async def test_the_outcome_of_a_job_has_every_field_of_the_contract(shared: Dispatcher, finished: Finished) -> None:
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nhost.progress(1, 2, 'half')\n{'a': 1}"
    outcome = await finished(shared, code, label="all")
    assert set(outcome) == OUTCOME
    usage = outcome.pop("usage")
    assert usage.keys() == {"wall_s", "cpu_s", "peak_rss_kb"}
    assert all(value >= 0 for value in usage.values())
    assert 0 < outcome.pop("started_at") <= outcome.pop("ended_at")
    assert outcome == {
        "exec_id": outcome["exec_id"],
        "status": "done",
        "done": True,
        "stdout": "out\n",
        "stderr": "err\n",
        "interrupted": False,
        "error": None,
        "result": "{'a': 1}",
        "outputs": [],
        "progress": {"done": 1.0, "total": 2.0, "message": "half"},
        "exit": None,
        "label": "all",
        "next": "4.4",
        "truncated": False,
        "dropped_chars": 0,
    }
    assert await shared("exec_peek", [outcome["exec_id"]]) == await shared("exec_wait", [outcome["exec_id"]])


async def test_code_that_raises_fails_with_the_error(shared: Dispatcher, finished: Finished) -> None:
    outcome = await finished(shared, "print('before')\n1 / 0")
    assert (outcome["status"], outcome["stdout"], outcome["result"]) == ("failed", "before\n", None)
    assert (outcome["error"]["name"], outcome["error"]["value"]) == ("ZeroDivisionError", "division by zero")
    assert "1 / 0" in outcome["error"]["traceback"]
    assert "SyntaxError" in (await finished(shared, "def"))["error"]["name"]


async def test_the_same_key_is_the_same_job_even_for_other_code(shared: Dispatcher) -> None:
    first = await shared("exec_background", {"code": "print(1)", "key": "the key"})
    again = await shared("exec_background", {"code": "print(2)", "key": "the key"})
    other = await shared("exec_background", {"code": "print(2)", "key": "another key"})
    assert first["exec_id"] == again["exec_id"] != other["exec_id"]
    assert (await shared("exec_wait", [first["exec_id"]]))["stdout"] == "1\n"
    late = await shared("exec_background", {"code": "print(3)", "key": "the key"})
    assert late == {"exec_id": first["exec_id"], "status": "done"}


async def test_eight_launches_with_one_key_at_once_are_one_job(shared: Dispatcher) -> None:
    launched: list[str] = []

    async def launch_it() -> None:
        launched.append(await launch(shared, "print(1)", key="racing"))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(launch_it)
    assert len(set(launched)) == 1
    assert await shared("query", ["SELECT count(*) AS n FROM jobs WHERE key = 'racing'"]) == [{"n": 1}]


async def test_a_time_limit_ends_the_job_as_timeout_with_its_output(shared: Dispatcher, finished: Finished) -> None:
    outcome = await finished(shared, ENDLESS, timeout_s=0.3)
    assert (outcome["status"], outcome["done"], outcome["stdout"]) == ("timeout", True, "begun\n")


async def test_a_memory_limit_fails_the_allocation_and_not_the_host(shared: Dispatcher, finished: Finished) -> None:
    code = "try:\n    held = bytearray(800 << 20)\nexcept MemoryError:\n    print('refused')"
    assert (await finished(shared, code, memory_mb=400))["stdout"] == "refused\n"
    assert (await finished(shared, "print('well')"))["stdout"] == "well\n"


async def test_env_is_added_and_secrets_of_the_server_are_not_passed(
    shared: Dispatcher, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_TOKEN", "hunter2")
    monkeypatch.setenv("SOME_SETTING", "of the server")
    code = "import os\nprint([os.environ.get(n) for n in ('MINE', 'HOME', 'SERVER_TOKEN', 'SOME_SETTING')])"
    outcome = await finished(shared, code, env={"MINE": "grüße\nzwei", "HOME": "/elsewhere"})
    assert outcome["stdout"] == "['grüße\\nzwei', '/elsewhere', None, None]\n"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LD_PRELOAD", "x", "changes how processes start and may not be set"),
        ("PYTHONSTARTUP", "x", "changes how processes start and may not be set"),
        ("CELLHOST_TOKEN", "x", "changes how processes start and may not be set"),
        ("MY_TOKEN", "x", "is named like a secret"),
        ("db_password", "x", "is named like a secret"),
        ("OPENAI_API_KEY", "x", "is named like a secret"),
        ("A B", "x", "is not a variable's name"),
        ("A=B", "x", "is not a variable's name"),
        ("", "x", "is not a variable's name"),
        ("1A", "x", "is not a variable's name"),
        ("A", "x\0y", "must be text without NUL of at most 32768 characters"),
        ("A", "x" * 32769, "must be text without NUL of at most 32768 characters"),
    ],
)
async def test_a_variable_that_may_not_be_set_is_told_and_nothing_starts(
    shared: Dispatcher, refused: Refused, name: str, value: str, message: str
) -> None:
    before = await shared("exec_list", [None, 1])
    error = await refused(shared, "exec_background", {"code": "1", "env": {"GOOD": "1", name: value}})
    assert isinstance(error, InvalidParams)
    assert [(issue.path, issue.message) for issue in error.issues] == [(f"$.env.{name}", message)]
    assert await shared("exec_list", [None, 1]) == before


@pytest.mark.parametrize("kernel", ["python", "python3", {"python": sys.executable}, {"python": "own/python"}])
async def test_an_interpreter_can_be_named(shared: Dispatcher, finished: Finished, kernel: Any) -> None:
    own = shared.host.workspace.make() / "own"
    own.mkdir(exist_ok=True)
    if not (own / "python").exists():
        (own / "python").write_text(f'#!/bin/sh\nCHOSEN=1 exec {sys.executable} "$@"\n')
        (own / "python").chmod(0o755)
    outcome = await finished(shared, "import os\nprint(os.environ.get('CHOSEN'))", kernel=kernel)
    assert outcome["stdout"] == ("1\n" if kernel == {"python": "own/python"} else "None\n")


@pytest.mark.parametrize(
    ("kernel", "path"),
    [
        ("bash", "$.kernel"),
        ("", "$.kernel"),
        ({}, "$.kernel"),
        ({"python": 5}, "$.kernel"),
        ({"python": None}, "$.kernel"),
        ({"python": "python3", "more": 1}, "$.kernel"),
        ({"Python": "python3"}, "$.kernel"),
        ({"python": ""}, "$.kernel.python"),
        ({"python": "no-such-python"}, "$.kernel.python"),
        ({"python": "/no/such/python"}, "$.kernel.python"),
        ({"python": "."}, "$.kernel.python"),
        ({"python": "/etc/passwd"}, "$.kernel.python"),
        ({"python": "/bin/a\0b"}, "$.kernel.python"),
        ({"python": "x" * 100_000}, "$.kernel.python"),
    ],
    ids=lambda value: ascii(value)[:40],
)
async def test_a_kernel_that_cannot_be_is_told_and_nothing_starts(
    shared: Dispatcher, refused: Refused, kernel: Any, path: str
) -> None:
    before = await shared("exec_list", [None, 1])
    error = await refused(shared, "exec_background", {"code": "1", "kernel": kernel})
    assert isinstance(error, InvalidParams)
    assert [issue.path for issue in error.issues] == [path]
    assert error.hint
    assert await shared("exec_list", [None, 1]) == before


async def test_an_interpreter_that_is_none_ends_the_job_as_died(shared: Dispatcher, finished: Finished) -> None:
    outcome = await finished(shared, "print(1)", kernel={"python": shutil.which("false")})
    assert (outcome["status"], outcome["error"]["name"]) == ("died", "KernelStartError")
    assert outcome["exit"]["code"] == 1


async def test_a_workspace_that_vanished_is_made_anew(tmp_path: Path, finished: Finished) -> None:
    async with host(tmp_path) as made:
        assert (await finished(made, "print(1)"))["stdout"] == "1\n"
        shutil.rmtree(tmp_path / "work")
        outcome = await finished(made, "import os\nprint(os.getcwd())")
        assert outcome["stdout"].strip() == str((tmp_path / "work").resolve())


async def test_a_workspace_that_is_a_file_refuses_the_launch(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "work").write_text("no folder")
    async with host(tmp_path) as made:
        error = await refused(made, "exec_background", ["1"])
        assert isinstance(error, StorageError)
        assert str(error) == "the workspace folder cannot be made"
        assert await made("exec_list") == []


# The queue


async def test_more_jobs_than_slots_wait_and_more_than_the_queue_holds_are_refused(
    tmp_path: Path, refused: Refused
) -> None:
    async with host(tmp_path, jobs_running=1, jobs_queued=2) as made:
        running = await launch(made, ENDLESS)
        await until_it_prints(made, running)
        queued = [await launch(made, f"print({number})", label=str(number)) for number in range(2)]
        assert [(await made("exec_peek", [exec_id]))["status"] for exec_id in queued] == ["queued", "queued"]
        error = await refused(made, "exec_background", ["print('too many')"])
        assert isinstance(error, Busy)
        assert (error.code, error.retryable) == (-31429, True)
        assert len(await made("exec_list")) == 3

        withdrawn = await made("exec_interrupt", [queued[0]])
        assert (withdrawn["status"], withdrawn["done"], withdrawn["started_at"]) == ("interrupted", True, None)
        late = await launch(made, "print('fits again')")
        assert (await end(made, running))["status"] == "interrupted"
        outcome = await made("exec_wait", [late])
        assert (outcome["status"], outcome["stdout"]) == ("done", "fits again\n")
        assert (await made("exec_peek", [queued[1]]))["stdout"] == "1\n"


# exec_list


async def test_exec_list_has_rows_without_output_newest_first(shared: Dispatcher, finished: Finished) -> None:
    outcome = await finished(shared, "print('x' * 10)\nhost.progress(3)", label="listed")
    row = (await shared("exec_list"))[0]
    assert row == {
        "exec_id": outcome["exec_id"],
        "label": "listed",
        "status": "done",
        "done": True,
        "started_at": outcome["started_at"],
        "ended_at": outcome["ended_at"],
        "stdout_bytes": 11,
        "stderr_bytes": 0,
        "progress": {"done": 3.0, "total": None, "message": None},
        "code_preview": "print('x' * 10)\nhost.progress(3)",
    }


async def test_pages_of_jobs_have_each_exactly_once_while_others_are_added(tmp_path: Path, finished: Finished) -> None:
    async with host(tmp_path) as made:
        exec_ids = [(await finished(made, f"{number}"))["exec_id"] for number in range(4)]
        failed = (await finished(made, "1 / 0"))["exec_id"]
        everything = [*exec_ids, failed][::-1]
        assert [row["exec_id"] for row in await made("exec_list")] == everything
        seen: list[str] = []
        cursor = None
        while page := await made("exec_list", {"limit": 2, "cursor": cursor}):
            assert len(page) <= 2
            seen += [row["exec_id"] for row in page]
            cursor = seen[-1]
            await finished(made, "'newer'")
        assert seen == everything
        assert [row["exec_id"] for row in await made("exec_list", {"status": "failed"})] == [failed]
        assert await made("exec_list", ["running"]) == []
        assert [row["exec_id"] for row in await made("exec_list", ["done", 2, failed])] == exec_ids[:1:-1]


async def test_a_later_host_lists_and_shows_earlier_jobs(tmp_path: Path, finished: Finished) -> None:
    async with host(tmp_path) as made:
        before = await finished(made, "print('kept')\n42", label="earlier", key="k")
        failed = await finished(made, "1 / 0")
    async with host(tmp_path) as made:
        assert await made("exec_peek", [before["exec_id"]]) == before
        assert await made("exec_peek", [failed["exec_id"]]) == failed
        assert await made("exec_interrupt", [before["exec_id"]]) == before
        assert (await made("exec_wait", [before["exec_id"]]))["done"] is True
        assert [row["label"] for row in await made("exec_list")] == [None, "earlier"]
        assert await launch(made, "'again'", key="k") == before["exec_id"]


# exec_peek and exec_wait


@pytest.mark.parametrize("max_chars", [4, 7, 1000, 1_000_000])
async def test_pages_since_put_together_are_exactly_the_log(
    shared: Dispatcher, finished: Finished, max_chars: int
) -> None:
    text = "line 1\r\nbar 10%\rbar 100%\n😀é\u2028x\n" * (5 if max_chars < 10 else 300)
    outcome = await finished(shared, f"import sys\nsys.stdout.write({text!r})\nsys.stderr.write({text[::-1]!r})")
    stdout = stderr = ""
    since = "0"
    more = True
    while more:
        params = {"exec_id": outcome["exec_id"], "since": since, "max_chars": max_chars}
        page = await shared("exec_peek", params)
        assert len(page["stdout"]) + len(page["stderr"]) <= max_chars
        stdout, stderr, since, more = stdout + page["stdout"], stderr + page["stderr"], page["next"], page["truncated"]
    assert (stdout, stderr) == (text, text[::-1])
    nothing = await shared("exec_peek", [outcome["exec_id"], since])
    assert (nothing["stdout"], nothing["stderr"], nothing["next"]) == ("", "", since)


async def test_the_text_view_folds_redrawn_lines_and_cuts_the_middle(shared: Dispatcher, finished: Finished) -> None:
    code = "for i in range(101): print(f'\\r{i}%', end='')\nprint()\nprint('x' * 5000)"
    outcome = await finished(shared, code)
    assert outcome["stdout"] == "100%\n" + "x" * 5000 + "\n"
    cut = await shared("exec_peek", {"exec_id": outcome["exec_id"], "max_chars": 1000})
    assert len(cut["stdout"]) <= 1000
    assert cut["stdout"].startswith("100%\nx")
    assert cut["stdout"].endswith("x\n")
    assert cut["truncated"]
    assert cut["dropped_chars"] > 4000


@pytest.mark.parametrize("since", [None, "0"])
async def test_a_stream_can_be_looked_at_alone(shared: Dispatcher, finished: Finished, since: str | None) -> None:
    outcome = await finished(shared, "import sys\nprint('out')\nprint('err', file=sys.stderr)")
    seen = {
        stream: await shared("exec_peek", {"exec_id": outcome["exec_id"], "stream": stream, "since": since})
        for stream in ("stdout", "stderr", "both")
    }
    assert {stream: (page["stdout"], page["stderr"]) for stream, page in seen.items()} == {
        "stdout": ("out\n", ""),
        "stderr": ("", "err\n"),
        "both": ("out\n", "err\n"),
    }


async def test_every_form_of_exec_peek_is_the_same_call(shared: Dispatcher, finished: Finished) -> None:
    exec_id = (await finished(shared, "print('out')"))["exec_id"]
    expected = await shared("exec_peek", {"exec_id": exec_id, "since": "0", "max_chars": 10, "stream": "stdout"})
    for params in (
        [exec_id, "0", 10, "stdout"],
        [{"execId": exec_id, "since": "0", "maxChars": 10, "stream": "stdout"}],
        {"execId": exec_id, "since": "0", "maxChars": 10, "stream": "stdout"},
    ):
        assert await shared("exec_peek", params) == expected


async def test_waiting_answers_at_the_end_or_when_the_time_is_up(shared: Dispatcher) -> None:
    exec_id = await launch(shared, ENDLESS)
    await until_it_prints(shared, exec_id)
    for timeout_s in (0, 0.1):
        with anyio.fail_after(5):
            waiting = await shared("exec_wait", {"exec_id": exec_id, "timeout_s": timeout_s})
        assert (waiting["status"], waiting["done"], waiting["ended_at"]) == ("running", False, None)
        assert set(waiting) == OUTCOME
    assert (await end(shared, exec_id))["status"] == "interrupted"
    with anyio.fail_after(5):
        assert (await shared("exec_wait", [exec_id, 600]))["done"] is True


async def test_waiting_for_news_answers_with_only_what_is_new(shared: Dispatcher) -> None:
    workspace = shared.host.workspace.make()
    (workspace / "go").unlink(missing_ok=True)
    code = (
        "import os, time\nprint('first')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "print('second')\nhost.progress(1, 2)\nwhile True: time.sleep(0.05)"
    )
    exec_id = await launch(shared, code)
    seen = await until_it_prints(shared, exec_id)
    assert seen["stdout"] == "first\n"
    (workspace / "go").touch()
    text = ""
    with anyio.fail_after(30):
        while "second\n" not in text or seen["progress"] is None:
            seen = await shared("exec_wait", [exec_id, 30, seen["next"], "news"])
            text += seen["stdout"]
    assert text == "second\n"
    assert not seen["done"]
    await end(shared, exec_id)
    last = await shared("exec_wait", {"exec_id": exec_id, "since": seen["next"], "until": "news"})
    assert (last["stdout"], last["done"]) == ("", True)


@pytest.mark.parametrize("since", ["", "nonsense", "-1.0", "1", "1.2.3", "1.x", "0x1.0", "9" * 30 + ".0", "٣.٣"])
async def test_a_since_that_was_never_given_is_told(
    shared: Dispatcher, finished: Finished, refused: Refused, since: str
) -> None:
    exec_id = (await shared("exec_list", [None, 1]) or [await finished(shared, "1")])[0]["exec_id"]
    for tool, more in (("exec_peek", {}), ("exec_wait", {}), ("exec_wait", {"until": "news", "timeout_s": 1})):
        error = await refused(shared, tool, {"exec_id": exec_id, "since": since} | more)
        assert isinstance(error, InvalidParams)
        assert [(issue.path, issue.message) for issue in error.issues] == [
            ("$.since", "must be the `next` of an earlier answer")
        ]


async def test_a_since_beyond_the_end_has_nothing_new(shared: Dispatcher, finished: Finished) -> None:
    exec_id = (await finished(shared, "print('x')"))["exec_id"]
    page = await shared("exec_peek", [exec_id, "999999.999999"])
    assert (page["stdout"], page["stderr"], page["done"]) == ("", "", True)


# exec_interrupt


async def test_an_interrupt_ends_a_running_job_and_a_second_one_changes_nothing(shared: Dispatcher) -> None:
    exec_id = await launch(shared, ENDLESS)
    await until_it_prints(shared, exec_id)
    for form in ([exec_id], {"exec_id": exec_id}, [{"execId": exec_id}]):
        answer = await shared("exec_interrupt", form)
        assert set(answer) == OUTCOME
        assert answer["interrupted"] is True
    outcome = await shared("exec_wait", [exec_id])
    assert (outcome["status"], outcome["interrupted"], outcome["stdout"]) == ("interrupted", True, "begun\n")
    assert await shared("exec_interrupt", [exec_id]) == outcome
    assert await shared("exec_peek", [exec_id]) == outcome


async def test_an_interrupt_after_the_end_leaves_the_job_as_it_is(shared: Dispatcher, finished: Finished) -> None:
    outcome = await finished(shared, "print('done')")
    assert await shared("exec_interrupt", [outcome["exec_id"]]) == outcome
    assert (outcome["status"], outcome["interrupted"]) == ("done", False)


async def test_a_job_that_was_just_launched_can_be_interrupted_before_it_starts(shared: Dispatcher) -> None:
    exec_id = await launch(shared, "open('never.txt', 'w')\nimport time\ntime.sleep(60)")
    outcome = await end(shared, exec_id)
    assert (outcome["status"], outcome["interrupted"]) == ("interrupted", True)


# Ids


async def test_jobs_that_are_absent_foreign_or_malformed_are_told_in_the_same_words(
    shared: Dispatcher, finished: Finished, refused: Refused
) -> None:
    here = shared.frame_id
    shared.frame_id = shared.store.new_frame(kind="session", project_id="other")
    foreign = (await finished(shared, "print('foreign')"))["exec_id"]
    shared.frame_id = here
    said = set[tuple[int, str, str, str | None]]()
    for exec_id in ("exec-000000000000", foreign, "nonsense", "/etc/passwd", "exec-" + "0" * 200, "../" + foreign):
        for method in ("exec_peek", "exec_wait", "exec_interrupt"):
            error = await refused(shared, method, [exec_id])
            assert isinstance(error, NotFound)
            said.add((error.code, error.kind, str(error), error.hint))
        error = await refused(shared, "exec_list", {"cursor": exec_id})
        said.add((error.code, error.kind, str(error), error.hint))
    assert said == {(-31404, "not_found", "there is no such job", "exec_list shows the jobs there are")}
    assert foreign not in [row["exec_id"] for row in await shared("exec_list")]


async def test_a_wait_that_reports_progress_fails_with_the_same_errors_as_any_other(shared: Dispatcher) -> None:
    reports: list[float] = []

    def report(done: float, total: float | None, message: str | None) -> None:
        reports.append(done)

    async def wait(params: Any) -> Any:
        return await shared.host.call("exec_wait", params, Call(shared.host, "in_process", progress=report))

    with pytest.raises(NotFound):
        await wait(["exec-000000000000"])
    exec_id = await launch(shared, "import time\nhost.progress(3)\nwhile True: time.sleep(0.05)")
    with pytest.raises(InvalidParams):
        await wait({"exec_id": exec_id, "since": "nonsense", "timeout_s": 0})
    with anyio.fail_after(30):
        while not reports:
            await wait([exec_id, 0.1])
    assert reports[0] == 3.0
    await end(shared, exec_id)
    assert (await wait([exec_id]))["done"]


async def test_the_key_of_another_project_is_free_here(shared: Dispatcher, finished: Finished) -> None:
    here = shared.frame_id
    shared.frame_id = shared.store.new_frame(kind="session", project_id="keys")
    foreign = (await finished(shared, "print('foreign')", key="everybody's"))["exec_id"]
    shared.frame_id = here
    own = await finished(shared, "print('own')", key="everybody's")
    assert own["exec_id"] != foreign
    assert own["stdout"] == "own\n"


async def test_no_descriptor_is_left_by_jobs(shared: Dispatcher, finished: Finished) -> None:
    await finished(shared, "print(1)")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(5):
        await finished(shared, f"print({number})")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
