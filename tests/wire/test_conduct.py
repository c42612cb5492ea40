"""How a server begins and ends: whatever ends it, every answer that can be given is, and no process is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from ..processes import descendants, running

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Peer, Spawn

SERVE = [sys.executable, "-P", "-m", "cellhost", "serve"]
SLEEPER = "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\nprint('up')\ntime.sleep(600)"


async def gone(pids: set[int], within_s: float) -> float:
    """Wait until all of them are gone; seconds it took."""
    started = time.monotonic()
    with anyio.fail_after(within_s):
        while running(pids):
            await anyio.lowlevel.checkpoint()
    return time.monotonic() - started


async def with_job_and_query(peer: Peer) -> set[int]:
    """Start a job that has a child, and a query worker; the processes."""
    launched = await peer.result("exec_background", [SLEEPER])
    exec_id = launched["exec_id"]
    since, printed = "0", ""
    while "up" not in printed:
        news = await peer.result("exec_wait", {"exec_id": exec_id, "until": "news", "since": since})
        since, printed = news["next"], printed + news["stdout"]
    await peer.result("query", ["SELECT 1"])
    pids = descendants(peer.process.pid)
    assert len(pids) >= 3, "a kernel, its child and a query worker"
    return pids


async def test_the_end_of_input_ends_the_server_and_everything_it_started(spawn: Spawn, tmp_path: Path) -> None:
    async with spawn("--allow", "exec_background") as peer:
        pids = await with_job_and_query(peer)
        assert await peer.end() == 0
        await gone(pids, 1)
    async with spawn() as peer:
        (job,) = await peer.result("exec_list")
        assert job["status"] == "killed"
        assert (await peer.result("exec_peek", [job["exec_id"]]))["stdout"] == "up\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_the_server_in_order_within_its_bound(spawn: Spawn, number: signal.Signals) -> None:
    async with spawn("--allow", "exec_background") as peer:
        pids = await with_job_and_query(peer)
        launched = await peer.result("exec_list")
        waiting = await peer.request("exec_wait", [launched[0]["exec_id"]])
        await peer.result("ping")
        started = time.monotonic()
        peer.process.send_signal(number)
        answer = await peer.receive()
        assert (answer["id"], answer["result"]["done"]) == (waiting, False)
        assert await peer.rest() == b""
        with anyio.fail_after(5):
            assert await peer.process.wait() == 0
        assert time.monotonic() - started < 2.0
        await gone(pids, 1)


async def test_no_kernel_and_no_query_worker_outlives_a_killed_server(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        await with_job_and_query(peer)
        below = descendants(peer.process.pid)
        peer.process.send_signal(signal.SIGKILL)
        await gone(below, 2)


async def test_jobs_of_a_killed_server_are_lost_with_their_output(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        await with_job_and_query(peer)
        peer.process.send_signal(signal.SIGKILL)
        await peer.process.wait()
    async with spawn() as peer:
        (job,) = await peer.result("exec_list")
        assert (job["status"], job["done"]) == ("lost", True)
        assert (await peer.result("exec_peek", [job["exec_id"]]))["stdout"] == "up\n"


async def test_a_second_server_on_the_folder_sees_the_firsts_job_and_leaves_it_alone(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as first, spawn() as second:
        await with_job_and_query(first)
        (job,) = await second.result("exec_list")
        assert job["status"] == "running"
        assert (await second.error("exec_interrupt", [job["exec_id"]]))["data"]["kind"] == "closed"
        assert (await first.result("exec_peek", [job["exec_id"]]))["status"] == "running"
        await first.end()


async def test_a_server_whose_output_is_closed_ends_quietly(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*SERVE, "--data-dir", str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    process.stdin.flush()
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write(b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n' * 3)
    process.stdin.flush()
    assert process.wait(10) == 0
    log = process.stderr.read().decode()
    assert "Traceback" not in log
    assert log.count("\n") <= 1
    process.stdin.close()
    process.stderr.close()


def test_requests_from_a_regular_file_are_all_answered(tmp_path: Path) -> None:
    requests = [{"jsonrpc": "2.0", "id": 1, "method": "exec_background", "params": ["import time; time.sleep(0.5)"]}]
    requests += [{"jsonrpc": "2.0", "id": number, "method": "query", "params": ["SELECT 1"]} for number in range(2, 50)]
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(json.dumps(request) for request in requests))
    with file.open("rb") as stdin:
        done = subprocess.run(
            [*SERVE, "--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path), "--allow", "exec_background"],
            stdin=stdin,
            capture_output=True,
            timeout=60,
            check=True,
        )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(answer["id"] for answer in answers) == list(range(1, 50))
    assert all("result" in answer for answer in answers)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--project", "Not/A/Project"], 2, "project_id"),
        (["--frame", "f-000000000000"], 1, "no such frame"),
        (["--database", "nonsense"], 2, "NAME=PATH"),
        (["--allow", "no_such_tool"], 2, "no such tool"),
        (["--no-such-option"], 2, "unrecognized arguments"),
        (["nonsense"], 2, "unrecognized arguments"),
        (["--frame", "f-1", "--new-session"], 2, "not allowed with"),
    ],
)
def test_a_start_that_fails_says_what_to_do_and_nothing_on_stdout(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    done = subprocess.run(
        [*SERVE, "--data-dir", str(tmp_path / "data"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, b"")
    assert words in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_standard_descriptor_at_the_start_is_no_trouble(tmp_path: Path, closed: int) -> None:
    command = f"exec {' '.join(SERVE)} --data-dir {tmp_path}/data {closed}{'<' if closed == 0 else '>'}&-"
    done = subprocess.run(
        ["bash", "-c", command],
        input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done
    if closed == 2:
        assert json.loads(done.stdout)["id"] == 1


async def test_a_data_folder_that_cannot_be_used_is_an_error_and_the_server_goes_on(
    tmp_path: Path, spawn: Spawn
) -> None:
    (tmp_path / "data").write_text("not a folder")
    async with spawn() as peer:
        for method, params in (("write_file", ["a.txt", "x"]), ("query", ["SELECT 1"]), ("exec_list", None)):
            error = await peer.error(method, params)
            assert error["data"]["kind"] == "storage", error
            assert error["data"]["hint"]
        assert (await peer.result("ping"))["project_id"] == "default"
        assert await peer.end() == 0
