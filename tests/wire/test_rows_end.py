"""Conduct of the whole server, rows 14 to 17: however it ends, what can be answered is, and nothing is left."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ..processes import is_running
from .raw_peer import CELLHOST, ODD, WITHIN_S, line_of

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import RawSpawn
    from .raw_peer import RawPeer

SIGNALLED_S = 1.9
"""A signal's 1.5 s, and what a busy machine takes to start and reap processes; SIGKILL would come after 2 s."""
MIB = 2**20
SLEEPER = "import time; time.sleep(600)"


def responses(data: bytes) -> dict[Any, Any]:
    """Responses by id; every line must be a whole frame."""
    messages = [json.loads(line) for line in data.splitlines()]
    found = {message["id"]: message for message in messages if "method" not in message}
    assert len(found) == sum("method" not in message for message in messages), "answered twice"
    return found


def in_flight(peer: RawPeer) -> set[str]:
    """Two hundred calls: waits for a job, questions, queries and writes; their ids."""
    peer.call("subscribe", {"events": ["permission"]})
    peer.call("permission_set", ["global", "exec_background", "*", "allow"])
    exec_id = peer.call("exec_background", [SLEEPER])["result"]["exec_id"]
    peer.call("permission_set", ["global", "exec_background", "*", "ask"])
    for number in range(50):
        peer.send("exec_wait", [exec_id, 600], id=f"wait {number}")
        peer.send("exec_background", [f"print({number})"], id=f"ask {number}")
        peer.send("query", ["SELECT ? AS n", [number]], id=f"query {number}")
        peer.send("write_file", ["a.txt", str(number)], id=f"write {number}")
    return {f"{kind} {number}" for kind in ("wait", "ask", "query", "write") for number in range(50)}


def check(found: dict[Any, Any]) -> None:
    """Waits say what there is, questions are withdrawn, the rest was carried out."""
    for number in range(50):
        assert found[f"wait {number}"]["result"]["done"] is False
        assert found[f"ask {number}"]["error"]["code"] == -31401
        assert found[f"query {number}"]["result"] == [{"n": number}]
        assert found[f"write {number}"]["result"]["path"] == "a.txt"


def test_row_14_at_the_end_of_input_two_hundred_calls_in_flight_are_answered(raw: RawSpawn) -> None:
    with raw() as peer:
        ids = in_flight(peer)
        started = time.monotonic()
        peer.close_input()
        found = responses(peer.rest())
        assert peer.process.wait(WITHIN_S) == 0
        assert time.monotonic() - started < 15, "waits of ten minutes ended at once"
        assert ids <= found.keys()
        check(found)


def test_row_14_calls_that_take_their_time_are_carried_out_after_the_end_of_input(
    raw: RawSpawn, tmp_path: Path
) -> None:
    with raw(command=ODD) as peer:
        for number in range(200):
            peer.send("odd/hold", ["go"], id=number)
        peer.close_input()
        (tmp_path / "workspace" / "go").touch()
        assert responses(peer.rest()).keys() == set(range(200))
        assert peer.process.wait(WITHIN_S) == 0


def test_row_14_from_a_regular_file_waits_run_to_their_own_limit(raw: RawSpawn, tmp_path: Path) -> None:
    with raw("--allow", "exec_background") as first:
        exec_id = first.call("exec_background", [SLEEPER])["result"]["exec_id"]
        requests = tmp_path / "requests.jsonl"
        requests.write_bytes(line_of("exec_wait", [exec_id, 1], id="wait"))
        folders = ["--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path / "workspace")]
        started = time.monotonic()
        with requests.open("rb") as stdin:
            done = subprocess.run(
                [*CELLHOST, "serve", *folders], stdin=stdin, capture_output=True, timeout=WITHIN_S, check=True
            )
        assert time.monotonic() - started >= 1
        assert responses(done.stdout)["wait"]["result"]["done"] is False


def test_row_15_a_signal_with_two_hundred_calls_in_flight_ends_them_in_time(raw: RawSpawn) -> None:
    with raw() as peer:
        in_flight(peer)
        peer.answer("write 49")
        started = time.monotonic()
        peer.process.terminate()
        assert peer.rest().endswith(b"\n")
        assert peer.process.wait(WITHIN_S) == 0
        assert time.monotonic() - started < SIGNALLED_S
        found = responses(bytes(peer.received))
        assert all(f"wait {number}" in found for number in range(50))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_row_15_a_signal_in_the_middle_of_a_reply_of_five_megabytes_lets_it_become_whole(
    raw: RawSpawn, number: signal.Signals
) -> None:
    text = "x" * 5_000_000
    with raw(command=ODD) as peer:
        peer.send("odd/echo", {"text": text}, id=1)
        peer.send("odd/echo", {"text": text}, id=2)
        assert select.select([peer.read_fd], [], [], WITHIN_S)[0]
        peer.received += os.read(peer.read_fd, 1)
        started = time.monotonic()
        peer.process.send_signal(number)
        peer.rest()
        assert peer.process.wait(WITHIN_S) == 0
        assert time.monotonic() - started < SIGNALLED_S
        assert peer.received.endswith(b"\n"), "the last frame is whole"
        assert responses(bytes(peer.received))[1]["result"]["text"] == text


def test_row_15_a_signal_while_nobody_reads_ends_the_server_all_the_same(raw: RawSpawn) -> None:
    with raw(command=ODD) as peer:
        peer.write(b"".join(line_of("odd/echo", {"text": "x" * MIB}, id=number) for number in range(8)))
        started = time.monotonic()
        peer.process.terminate()
        assert peer.process.wait(WITHIN_S) == 0
        assert time.monotonic() - started < SIGNALLED_S


@pytest.mark.parametrize("undone", ["a call", "the writing"])
def test_row_15_a_signal_during_the_drain_after_the_end_of_input_shortens_it(raw: RawSpawn, undone: str) -> None:
    with raw(command=ODD) as peer:
        peer.write(b"".join(line_of("odd/echo", {"text": "x" * MIB}, id=number) for number in range(8)))
        if undone == "a call":
            peer.send("odd/hold", ["never"], id="never")
        peer.close_input()
        with pytest.raises(subprocess.TimeoutExpired):
            peer.process.wait(1)
        started = time.monotonic()
        peer.process.terminate()
        assert peer.process.wait(WITHIN_S) == 0
        assert time.monotonic() - started < SIGNALLED_S


def test_row_15_a_second_signal_ends_it_now_and_its_jobs_too(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background", command=ODD) as peer:
        _, kernel = with_job(peer)
        peer.send("odd/hold", ["never"], id="never")
        peer.call("ping")
        started = time.monotonic()
        peer.process.terminate()
        while peer.process.poll() is None:
            assert time.monotonic() - started < SIGNALLED_S
            peer.process.terminate()
            with suppress(subprocess.TimeoutExpired):  # signals without a pause would be all that the server does
                peer.process.wait(0.02)
        until_gone(kernel)


def with_job(peer: RawPeer) -> tuple[str, int]:
    """Start a job and return its id and its kernel's process."""
    code = "import os; print(os.getpid(), flush=True)\n" + SLEEPER
    exec_id = peer.call("exec_background", [code])["result"]["exec_id"]
    since, printed = "0", ""
    while not printed:
        news = peer.call("exec_wait", {"exec_id": exec_id, "until": "news", "since": since})["result"]
        since, printed = news["next"], news["stdout"]
    return exec_id, int(printed)


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 2
    while is_running(pid):
        assert time.monotonic() < deadline, "a process is left"


@pytest.mark.parametrize("process_id", [2**22 + 1, 2**40, 2**70])
def test_row_15_a_process_that_cannot_be_there_ends_an_editors_server_as_one_that_has_gone(
    raw: RawSpawn, process_id: int
) -> None:
    with raw(stderr=subprocess.PIPE) as peer:
        peer.send("initialize", {"processId": process_id, "rootUri": None, "capabilities": {}}, id=1)
        assert peer.rest()
        assert peer.process.wait(WITHIN_S) == 0
        assert peer.process.stderr is not None
        assert peer.process.stderr.read() == b""


def test_row_15_an_editors_server_ends_with_its_parent_although_its_input_is_held_open(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
        "sibling = subprocess.Popen(['sleep', '600'], stdout=server.stdin)\n"
        'hello = \'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"processId":%d}}\\n\'\n'
        "os.write(server.stdin.fileno(), (hello % os.getpid()).encode())\n"
        "print(server.pid, sibling.pid, file=sys.stderr, flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-P", "-c", code, *CELLHOST, "serve", "--data-dir", str(tmp_path / "data")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path) as editor:
        assert editor.stdout is not None
        assert editor.stderr is not None
        server, sibling = (int(pid) for pid in editor.stderr.readline().split())
        try:
            assert b"serverInfo" in editor.stdout.readline()
            assert is_running(server)
            editor.kill()
            until_gone(server)
        finally:
            os.kill(sibling, signal.SIGKILL)


def test_row_16_a_closed_stdout_ends_the_server_and_its_job_with_one_line_of_log(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background", command=ODD, stderr=subprocess.PIPE) as peer:
        exec_id, kernel = with_job(peer)
        peer.send("exec_wait", [exec_id, 600], id="wait")
        peer.send("odd/hold", ["never"], id="never")
        peer.send("odd/echo", {"text": "x" * MIB}, id="big")
        peer.close_output()
        for number in range(10):
            try:
                os.write(peer.write_fd, line_of("ping", id=number))
            except BrokenPipeError:
                break
        assert peer.process.wait(WITHIN_S) == 0
        until_gone(kernel)
        assert peer.process.stderr is not None
        log = peer.process.stderr.read().decode()
        assert log.count("\n") == 1
        assert "Traceback" not in log


def test_row_17_when_the_parent_is_killed_the_server_and_its_job_end(tmp_path: Path) -> None:
    folders = ["--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path)]
    parent = f"""
import json, subprocess, sys
server = subprocess.Popen({[*CELLHOST, "serve", "--allow", "exec_background", *folders]!r},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
for method, params in (("exec_background", [code]), ("exec_list", None)):
    request = {{"jsonrpc": "2.0", "id": method, "method": method, "params": params}}
    server.stdin.write(json.dumps(request).encode() + b"\\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
exec_id = answer["result"][0]["exec_id"]
since, printed = "0", ""
while not printed:
    wait = {{"exec_id": exec_id, "until": "news", "since": since}}
    request = {{"jsonrpc": "2.0", "id": 1, "method": "exec_wait", "params": wait}}
    server.stdin.write(json.dumps(request).encode() + b"\\n")
    server.stdin.flush()
    news = json.loads(server.stdout.readline())["result"]
    since, printed = news["next"], news["stdout"]
print(server.pid, printed, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        process.kill()
    for pid in pids:
        until_gone(pid)
