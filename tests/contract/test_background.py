"""Listing, looking at, waiting for and stopping jobs; with real kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.store.errors import InvalidParams, NotFound
from cellhost.tools.call import Call

from .jobs import ENDLESS, OUTCOME, end, host, launch, until_it_prints

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Finished, Refused


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


@pytest.mark.parametrize("since", ["", "nonsense", "-1.0", "1", "1.2.3.4", "1.x", "0x1.0", "9" * 30 + ".0", "٣.٣"])
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
        assert isinstance(error, InvalidParams)
        assert [issue.path for issue in error.issues] == ["$.cursor"]
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
    with anyio.fail_after(20):  # a job is done before its kernel has been put away
        while len(list(Path("/proc/self/fd").iterdir())) > before:  # noqa: ASYNC110  nobody tells of a descriptor
            await anyio.sleep(0.01)
