"""`exec` and `exec_restart` as callers see them, with real kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, Dispatcher, build_dispatcher
from cellhost.store.errors import Closed, InvalidParams
from cellhost.tools.budget import size
from cellhost.tools.call import Call
from cellhost.tools.config import Limits
from cellhost.tools.registry import REGISTRY

from .conftest import WITHIN_S
from .jobs import OUTCOME, until_it_prints
from .test_results import problems

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from .conftest import Refused, SetRule

SLOW = "import time\nx = 5\nprint('begun')\ntime.sleep(600)"
ALLOWED: Any = tuple((tool, "*", "allow") for tool in ("exec", "exec_restart", "exec_background"))


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Dispatcher]:
    """A host that may run cells and jobs."""
    with anyio.fail_after(WITHIN_S):
        config = Config(data_dir=tmp_path / "data", rules=ALLOWED)
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            yield made


async def test_exec_answers_with_the_whole_outcome_of_the_cell(host: Dispatcher) -> None:
    outcome = await host("exec", ["import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7"])
    assert set(outcome) == OUTCOME | {"session"}
    assert (outcome["status"], outcome["done"], outcome["session"]) == ("done", True, "default")
    assert (outcome["stdout"], outcome["stderr"], outcome["result"]) == ("out\n", "err\n", "42")
    assert await host("exec_peek", [outcome["exec_id"]]) == outcome
    row = (await host("exec_list"))[0]
    assert (row["exec_id"], row["session"]) == (outcome["exec_id"], "default")


async def test_exec_list_says_that_cells_are_among_the_jobs_and_they_are(host: Dispatcher) -> None:
    cell = await host("exec", ["1", "named"])
    job = await host("exec_background", ["2"])
    rows = await host("exec_list")
    assert [(row["exec_id"], row.get("session")) for row in rows] == [
        (job["exec_id"], None),
        (cell["exec_id"], "named"),
    ]
    text = REGISTRY.tools["exec_list"].description
    assert "jobs and exec's cells" in text
    assert "background" not in text


@pytest.mark.parametrize(
    "params",
    [
        ["x = 1; x", "named", 30],
        [{"code": "x = 1; x", "session": "named", "yieldAfterS": 30}],
        {"code": "x = 1; x", "session": "named", "yield_after_s": 30},
    ],
)
async def test_every_form_of_the_call_is_the_same_cell(host: Dispatcher, params: Any) -> None:
    outcome = await host("exec", params)
    assert (outcome["result"], outcome["session"]) == ("1", "named")
    rows = await host("query", ["SELECT session, status FROM jobs"])
    assert rows == [{"session": "named", "status": "done"}]


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"code": ""}, "$.code"),
        ({}, "$.code"),
        ({"code": "1", "session": ""}, "$.session"),
        ({"code": "1", "yield_after_s": 601}, "$.yield_after_s"),
        ({"code": "1", "timeout_s": 3}, "$.timeout_s"),
    ],
)
async def test_a_wrong_argument_is_named_and_nothing_runs(
    host: Dispatcher, refused: Refused, params: Any, path: str
) -> None:
    error = await refused(host, "exec", params)
    assert isinstance(error, InvalidParams)
    assert path in [issue.path for issue in error.issues]
    assert await host("exec_list") == []


async def test_a_long_cell_goes_on_as_a_job_and_the_next_one_says_that_it_waits(host: Dispatcher) -> None:
    await host("exec", ["'the kernel is there'"])
    long = await host("exec", {"code": SLOW, "yield_after_s": 0.5})
    assert (long["status"], long["done"]) == ("running", False)
    waiting = await host("exec", {"code": "x", "yield_after_s": 0})
    assert (waiting["status"], waiting["done"], waiting["started_at"]) == ("queued", False, None)
    assert (await until_it_prints(host, long["exec_id"]))["stdout"] == "begun\n"
    stopped = await host("exec_interrupt", [long["exec_id"]])
    assert stopped["interrupted"]
    assert (await host("exec_wait", [long["exec_id"]]))["status"] == "interrupted"
    assert (await host("exec_wait", [waiting["exec_id"]]))["result"] == "5"


async def test_calls_made_at_once_run_in_their_order_and_wait_for_each_other(host: Dispatcher) -> None:
    results: dict[int, Any] = {}

    async def run(number: int) -> None:
        results[number] = await host("exec", [f"seen = globals().get('seen', [])\nseen.append({number}); seen"])

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(run, number)
    assert [results[number]["result"] for number in range(6)] == [str([*range(n + 1)]) for n in range(6)]


async def test_a_restart_does_not_wait_for_the_cell_that_it_ends(host: Dispatcher) -> None:
    answers: dict[str, Any] = {}

    async def run(method: str, *params: Any) -> None:
        answers[method] = await host(method, list(params))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, "exec", SLOW)
        while not any(row["stdout_bytes"] for row in await host("exec_list")):  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(0.01)
        tasks.start_soon(run, "exec_restart")
    ended = answers["exec"]
    assert answers["exec_restart"]["ended"] == [ended["exec_id"]]
    assert (ended["status"], ended["stdout"]) == ("interrupted", "begun\n")
    after = await host("exec", ["'x' in dir()"])
    assert after["result"] == "False"
    assert "exec_restart" in after["note"]


async def test_every_answer_is_as_the_output_schema_says(host: Dispatcher) -> None:
    for code in ("import os", "1 / 0", "os._exit(3)", "print(1); 7"):
        assert problems("exec", await host("exec", [code])) == []
    assert problems("exec", await host("exec", {"code": "1", "yield_after_s": 0})) == []
    assert problems("exec_list", await host("exec_list")) == []
    for _ in range(2):
        assert problems("exec_restart", await host("exec_restart")) == []


async def test_a_note_is_part_of_the_record(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data", rules=ALLOWED)
    with anyio.fail_after(WITHIN_S):
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            await made("exec", ["import os; os._exit(3)"])
            noted = await made("exec", ["1"])
            assert "exited with code 3" in noted["note"]
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            assert await made("exec_peek", [noted["exec_id"]]) == noted
            assert "another server" in (await made("exec", ["1"]))["note"]


async def test_how_many_sessions_have_a_kernel_is_a_setting(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data", rules=ALLOWED, limits=Limits(session_kernels=1))
    with anyio.fail_after(WITHIN_S):
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            for name in ("first", "second"):
                await made("exec", ["1", name])
            assert "make room" in (await made("exec", ["1", "first"]))["note"]


async def test_a_cancelled_call_interrupts_its_cell_and_keeps_the_kernel(host: Dispatcher) -> None:
    process = (await host("exec", ["import os; os.getpid()"]))["result"]
    with anyio.move_on_after(0.5) as scope:
        await host("exec", [SLOW])
    assert scope.cancelled_caught
    row = (await host("exec_list", {"limit": 1}))[0]
    assert (await host("exec_wait", [row["exec_id"]]))["status"] == "interrupted"
    after = await host("exec", ["(x, os.getpid())"])
    assert after["result"] == f"(5, {process})"


async def test_exec_is_asked_for_and_a_remembered_approval_is_the_hash_of_its_code(
    running: Dispatcher, rule: SetRule
) -> None:
    refused = await running("exec", ["print(1)"])
    assert set(refused) == {"error"}
    assert "Permission denied" in refused["error"]
    assert set(await running("exec_restart")) == {"error"}
    assert await running("exec_list") == []
    asked = next(each for each in await running("permission_pending") if each["tool"] == "exec")
    await running("permission_resolve", [asked["request_id"], "allow", "conversation"])
    rules = [each for each in await running("permission_list") if each["tool"] == "exec"]
    assert [each["pattern"].partition(":")[0] for each in rules] == ["sha256"]
    assert (await running("exec", ["print(1)"]))["stdout"] == "1\n"
    assert set(await running("exec", ["print(2)"])) == {"error"}
    rule(running, "exec", "deny")
    assert set(await running("exec", ["print(1)"])) == {"error"}


async def test_an_answer_keeps_within_the_budget_of_its_door_and_can_be_gone_on_with(host: Dispatcher) -> None:
    call = Call(host.host, "in_process", budget=2000)
    outcome = await host.host.call("exec", ["print('word ' * 10_000)"], call)
    assert outcome["truncated"]
    assert size(outcome) <= 2000
    whole = await host("exec_peek", {"exec_id": outcome["exec_id"], "since": "0"})
    assert whole["stdout"] == "word " * 10_000 + "\n"


async def test_progress_of_a_cell_is_reported_while_it_is_waited_for(host: Dispatcher) -> None:
    reports: list[Any] = []

    def report(done: float, total: float | None, message: str | None) -> None:
        reports.append((done, total, message))

    code = "import time\nfor n in range(3): host.progress(n, 2, 'rows'); time.sleep(0.1)"
    await host.host.call("exec", [code], Call(host.host, "in_process", progress=report))
    assert (2.0, 2.0, "rows") in reports


async def test_a_file_that_a_cell_saves_has_that_cell_as_its_maker(host: Dispatcher) -> None:
    await host("exec", ["open('a.txt', 'w').write('first')"])
    saved = await host("exec", ["saved = host.save_artifact('a.txt'); print(saved['version_id'])"])
    version_id = saved["stdout"].strip()
    lineage = await host("lineage_get", [version_id])
    assert lineage["code"].startswith("saved = host.save_artifact")


async def test_a_replaced_executor_without_foreground_kernels_says_so(host: Dispatcher, refused: Refused) -> None:
    class Background:
        def launch(self, code: str, origin: str = "agent") -> dict[str, Any]:
            return {"exec_id": "exec-1", "status": origin + code}

    host.background = Background()
    for method, params in (("exec", ["1"]), ("exec_restart", [])):
        error = await refused(host, method, params)
        assert isinstance(error, Closed)
        assert "foreground" in str(error)


async def test_in_team_mode_a_foreground_kernel_comes_first_and_background_kernels_follow(
    tmp_path: Path, refused: Refused
) -> None:
    config = Config(data_dir=tmp_path / "data", rules=ALLOWED, team_mode=True)
    with anyio.fail_after(WITHIN_S):
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            with pytest.raises(RuntimeError, match="session-scoped kernel factory"):
                await made.new_background_kernel()
            assert "session-scoped kernel factory" in str(await refused(made, "exec_background", ["1"]))
            assert (await made("exec", ["6 * 7"]))["result"] == "42"
            launched = await made("exec_background", ["import os; os.getcwd()"])
            outcome = await made("exec_wait", [launched["exec_id"]])
            assert outcome["result"] == repr(str((tmp_path / "work").resolve()))
            assert (await made.new_background_kernel()).pid is None


async def test_a_cell_may_run_cells_of_another_session_but_not_wait_for_its_own(host: Dispatcher) -> None:
    code = (
        "pool = host._pool\n"
        "print(pool.call('exec', [{'code': '6 * 7', 'session': 'inner'}])['result'])\n"
        "try: pool.call('exec', [{'code': '1'}])\n"
        "except host.HostError as error: print(error.kind, error)"
    )
    outcome = await host("exec", [code])
    assert outcome["stdout"].startswith("42\nparams a cell cannot wait for its own session")
