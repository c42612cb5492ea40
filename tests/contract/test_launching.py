"""Launching jobs: what a launch takes, refuses and limits; with real kernels."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.errors import Busy, InvalidParams, StorageError

from .conftest import WITHIN_S
from .jobs import ENDLESS, OUTCOME, end, host, launch, until_it_prints

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost import Dispatcher

    from .conftest import Finished, Refused


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
    before = [row["exec_id"] for row in await shared("exec_list", [None, 1])]
    error = await refused(shared, "exec_background", {"code": "1", "env": {"GOOD": "1", name: value}})
    assert isinstance(error, InvalidParams)
    assert [(issue.path, issue.message) for issue in error.issues] == [(f"$.env.{name}", message)]
    assert [row["exec_id"] for row in await shared("exec_list", [None, 1])] == before


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
        ("no-such-kernel", "$.kernel"),
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
    before = [row["exec_id"] for row in await shared("exec_list", [None, 1])]
    error = await refused(shared, "exec_background", {"code": "1", "kernel": kernel})
    assert isinstance(error, InvalidParams)
    assert [issue.path for issue in error.issues] == [path]
    assert error.hint
    assert [row["exec_id"] for row in await shared("exec_list", [None, 1])] == before


@pytest.mark.parametrize("call", [("exec_background", {}), ("exec_background", {"kernel": "bash"}), ("exec", {})])
async def test_a_bad_interpreter_of_the_settings_is_told_as_the_settings_and_not_as_an_argument(
    tmp_path: Path, refused: Refused, call: tuple[str, dict[str, Any]]
) -> None:
    tool, given = call
    config = Config(data_dir=tmp_path / "data", python="/no/such/python", rules=(("*", "*", "allow"),))
    with anyio.fail_after(WITHIN_S):
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            error = await refused(made, tool, {"code": "1"} | given)
            assert isinstance(error, StorageError)
            assert str(error) == "the setting python names no executable interpreter: 'python'"
            assert "--python" in (error.hint or "")
            assert "issues" not in error.as_data()
            assert await made("exec_list") == []
            other = await made("exec_background", {"code": "print(1)", "kernel": {"python": sys.executable}})
            assert (await made("exec_wait", [other["exec_id"]]))["stdout"] == "1\n"


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
