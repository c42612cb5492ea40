"""A server killed with SIGKILL: row 17 of its conduct, and what the next one finds."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from ..processes import command_of, descendants, parent_of, running
from .raw_peer import WITHIN_S, raw_server

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import RawSpawn
    from .raw_peer import RawPeer

GONE_S = 0.5
BUSY_S = 1.0
"""What a busy machine takes beyond it to let forty processes end."""
JOBS = 8
LINES = 2_000

# Each has a child, one with a session of its own, and a daemon whose parents are gone.
JOB = f"""
import os, subprocess, sys, time
program = '''
import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
print(flush=True)
os.execve("/bin/sleep", ["sleep", "600"], {{}})
'''
starter = subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdout=subprocess.PIPE)
starter.stdout.readline()
starter.wait()
subprocess.Popen(["sleep", "600"])
subprocess.Popen(["sleep", "600"], start_new_session=True)
for number in range({LINES}): print(number)
print("all")
time.sleep(600)
"""
OUTPUT = "".join(f"{number}\n" for number in range(LINES)) + "all\n"


def launch(peer: RawPeer, code: str = JOB) -> str:
    exec_id: str = peer.call("exec_background", [code])["result"]["exec_id"]
    return exec_id


def until_all_is_printed(peer: RawPeer, exec_id: str) -> None:
    since, printed = "0", ""
    deadline = time.monotonic() + WITHIN_S
    while not printed.endswith("all\n"):
        assert time.monotonic() < deadline
        news = peer.call("exec_wait", {"exec_id": exec_id, "until": "news", "since": since})["result"]
        since, printed = news["next"], printed + news["stdout"]
    assert printed == OUTPUT


def kill(peer: RawPeer) -> None:
    """End a server with SIGKILL and see all that was below it gone."""
    below = descendants(peer.process.pid)
    begun = time.monotonic()
    peer.process.send_signal(signal.SIGKILL)
    peer.process.wait(WITHIN_S)
    while left := running(below):
        assert time.monotonic() - begun < GONE_S + BUSY_S, f"{len(left)} of {len(below)} processes are left"


def test_row_17_a_killed_server_leaves_no_process_and_its_jobs_are_lost_with_all_their_output(
    raw: RawSpawn, tmp_path: Path
) -> None:
    with raw("--allow", "exec_background") as neighbour:
        kept = launch(neighbour)
        until_all_is_printed(neighbour, kept)
        theirs = descendants(neighbour.process.pid)
        with raw("--allow", "exec_background") as peer:
            jobs = [launch(peer) for _ in range(JOBS)]
            assert peer.call("query", ["SELECT 1 AS n"])["result"] == [{"n": 1}]
            for exec_id in jobs:
                until_all_is_printed(peer, exec_id)
            # A reaper, a query worker, and for each job a shim, a kernel and three others; soon a warm kernel as well.
            assert len(descendants(peer.process.pid)) >= 2 + 5 * JOBS
            kill(peer)
        assert running(theirs) == theirs
        with raw_server(tmp_path) as later:
            counted = later.call("query", ["SELECT status, count(*) AS n FROM jobs GROUP BY status ORDER BY status"])
            assert counted["result"] == [{"status": "lost", "n": JOBS}, {"status": "running", "n": 1}]
            rows = later.call("exec_list")["result"]
            states = {row["exec_id"]: row["status"] for row in rows}
            assert states == dict.fromkeys(jobs, "lost") | {kept: "running"}
            assert {row["stdout_bytes"] for row in rows} == {len(OUTPUT)}
            for exec_id in jobs:
                found = later.call("exec_peek", {"exec_id": exec_id, "since": "0", "max_chars": 60_000})["result"]
                assert (found["status"], found["done"], found["stdout"]) == ("lost", True, OUTPUT)
        assert running(theirs) == theirs
        assert neighbour.call("exec_peek", [kept])["result"]["status"] == "running"
        assert neighbour.call("exec_background", ["print(1)"])["result"]["status"] in {"starting", "queued"}


def test_row_17_a_server_killed_while_its_kernels_start_leaves_no_process(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background") as peer:
        for _ in range(4):
            launch(peer)
        kill(peer)


def test_row_17_a_server_killed_after_its_reaper_leaves_no_process(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background") as peer:
        until_all_is_printed(peer, launch(peer))
        below = descendants(peer.process.pid)
        reapers = [pid for pid in below if b"reaper.py" in command_of(pid) and parent_of(pid) == peer.process.pid]
        assert len(reapers) == 1
        os.kill(reapers[0], signal.SIGKILL)
        killed = time.monotonic()
        while running({reapers[0]}):
            assert time.monotonic() - killed < GONE_S + BUSY_S
        peer.process.send_signal(signal.SIGKILL)
        peer.process.wait(WITHIN_S)
        deadline = time.monotonic() + GONE_S + BUSY_S
        while running(below):
            assert time.monotonic() < deadline


def test_no_reaper_runs_before_there_is_a_question_about_jobs(raw: RawSpawn) -> None:
    with raw() as peer:
        peer.call("ping")
        peer.call("frames", [])
        assert descendants(peer.process.pid) == set()


def lost(peer: RawPeer) -> list[Any]:
    return [row["exec_id"] for row in peer.call("exec_list", {"status": "lost"})["result"]]


def test_two_servers_that_start_at_once_find_the_same_lost_jobs(raw: RawSpawn, tmp_path: Path) -> None:
    with raw("--allow", "exec_background") as peer:
        jobs = [launch(peer) for _ in range(2)]
        kill(peer)
    with raw_server(tmp_path) as one, raw_server(tmp_path) as other:
        one.send("exec_list", id="list")
        other.send("exec_list", id="list")
        for server in (one, other):
            assert {row["status"] for row in server.answer("list")["result"]} == {"lost"}
            assert set(lost(server)) == set(jobs)
