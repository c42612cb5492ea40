"""Conduct of the whole server, rows 1, 2, 18 and 19: whatever its descriptors are, the wire has frames only."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import time
import tty
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ..processes import command_of, descendants, is_running, running
from .raw_peer import CELLHOST, ODD, RawPeer, line_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from .conftest import RawSpawn

LIMIT = 30
PING = line_of("ping", id=1)


def command(folder: Path, *arguments: str) -> list[str]:
    return [*CELLHOST, "serve", "--data-dir", str(folder / "data"), "--workspace", str(folder), *arguments]


@contextmanager
def served_on(folder: Path, theirs: int, ours: int, *arguments: str) -> Generator[RawPeer]:
    """A server with one descriptor for both directions, and the other end of it."""
    with subprocess.Popen(command(folder, *arguments), stdin=theirs, stdout=theirs) as process:
        os.close(theirs)
        try:
            yield RawPeer(process, ours, ours)
        finally:
            process.kill()


# Four fit into the pipe: the library holds the interpreter's lock, and the thread that empties it may be late.
@pytest.mark.parametrize("times", [1, 4])
def test_row_1_a_library_that_prints_from_c_with_nobody_draining_stderr_blocks_nobody(
    raw: RawSpawn, times: int
) -> None:
    with raw(command=ODD, stderr=subprocess.PIPE) as peer:
        for number in range(times):
            assert peer.call("odd/print", [200_000], number)["result"] == 200_000
        assert peer.call("exec_list")["result"] == []
        assert peer.process.stderr is not None
        assert peer.end() == 0
        peer.process.stderr.close()


def test_row_1_a_child_that_inherits_the_descriptors_neither_writes_to_the_wire_nor_keeps_it_open(
    raw: RawSpawn,
) -> None:
    with raw(command=ODD, stderr=subprocess.PIPE) as peer:
        child = peer.call("odd/child")["result"]
        try:
            assert "result" in peer.call("ping")
            peer.close_input()
            assert peer.rest() == b"", "the output is at its end although the child lives"
            assert peer.process.wait(LIMIT) == 0
            assert peer.process.stderr is not None
            assert peer.process.stderr.read() in (b"noise\nmore noise\n", b"more noise\nnoise\n")
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_row_1_the_flags_of_inherited_descriptions_stay_as_they_are(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    log_read, log_write = os.pipe()
    with closing(ours), closing(theirs):
        before = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (theirs.fileno(), log_write)]
        fd = theirs.fileno()
        with subprocess.Popen(command(tmp_path), stdin=fd, stdout=fd, stderr=log_write) as process:
            ours.sendall(PING)
            ours.settimeout(LIMIT)
            assert ours.recv(4096)
            assert [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (theirs.fileno(), log_write)] == before
            ours.shutdown(socket.SHUT_WR)
            assert process.wait(LIMIT) == 0
        os.close(log_read)
        os.close(log_write)


def test_row_2_a_socket_serves_as_both_descriptors(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with closing(ours), served_on(tmp_path, theirs.detach(), ours.fileno()) as peer:
        big = "x" * 1_000_000
        assert peer.call("write_file", ["a.txt", big])["result"]["bytes"] == len(big)
        assert peer.call("read_file", ["a.txt"])["result"]["content"] == big
        ours.shutdown(socket.SHUT_WR)
        assert peer.rest() == b""
        assert peer.process.wait(LIMIT) == 0


def test_row_2_a_terminal_serves_as_both_descriptors(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    with served_on(tmp_path, theirs, ours) as peer:
        assert peer.call("ping")["result"]["project_id"] == "default"
        peer.send("exit")
        assert peer.process.wait(LIMIT) == 0
    os.close(ours)


def test_row_2_the_null_device_is_the_end_of_input(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_row_2_answers_go_into_a_regular_file(tmp_path: Path) -> None:
    requests, answers = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    requests.write_bytes(b"".join(line_of("exec_list", id=number) for number in range(2_000)))
    with requests.open("rb") as stdin, answers.open("wb") as stdout:
        subprocess.run(command(tmp_path), stdin=stdin, stdout=stdout, timeout=LIMIT, check=True)
    ids = [json.loads(line)["id"] for line in answers.read_bytes().splitlines()]
    assert sorted(ids) == list(range(2_000))


def test_row_18_a_conversation_without_faults_says_nothing_on_stderr(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background", stderr=subprocess.PIPE) as peer:
        exec_id = peer.call("exec_background", ["print(host.query('select 1'))"])["result"]["exec_id"]
        assert peer.call("exec_wait", [exec_id])["result"]["status"] == "done"
        assert peer.call("query", ["nonsense"])["error"]["code"] == -31400
        peer.write(b"nonsense\n")
        assert peer.end() == 0
        assert peer.process.stderr is not None
        assert peer.process.stderr.read() == b""


@pytest.mark.parametrize("where", ["stderr", "file"])
def test_row_18_the_log_of_a_fault_is_one_object_a_line_where_it_was_sent(
    raw: RawSpawn, tmp_path: Path, where: str
) -> None:
    file = tmp_path / "log"
    options = ["--log-format", "json", *(["--log-file", str(file)] if where == "file" else [])]
    with raw(*options, command=ODD, stderr=subprocess.PIPE) as peer:
        reference = peer.call("odd/raise", ["error"])["error"]["data"]["id"]
        assert peer.end() == 0
        assert peer.process.stderr is not None
        log = file.read_bytes() if where == "file" else peer.process.stderr.read()
    (line,) = log.splitlines()
    record: dict[str, Any] = json.loads(line)
    assert record["level"] == "error"
    assert reference in record["message"]
    assert "Traceback" in record["traceback"]


def test_row_18_a_flood_of_log_with_nobody_draining_stderr_delays_no_answer(raw: RawSpawn) -> None:
    with raw(command=ODD, stderr=subprocess.PIPE) as peer:
        peer.write(b"".join(line_of("odd/raise", ["error"], id=number) for number in range(3_000)))
        ids = {peer.message()["id"] for _ in range(3_000)}
        assert ids == set(range(3_000))
        assert peer.end() == 0
        assert peer.process.stderr is not None
        peer.process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--log-file", "/absent/folder/log"], "--log-file"),
        (["--record", "/absent/folder/record"], "--record"),
        (["--workspace", "/dev/null"], "--workspace"),
        (["--no-such-option"], "--help"),
        (["--log-level", "loud"], "--log-level"),
        (["--frame", "f-000000000000"], "frame"),
    ],
)
def test_row_19_a_start_that_fails_says_in_one_line_what_to_do(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    done = subprocess.run(
        command(tmp_path, *arguments), input=PING, capture_output=True, timeout=LIMIT, check=False, cwd=tmp_path
    )
    assert done.returncode != 0
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1, done.stderr
    assert words in done.stderr.decode()


def test_prewarm_answers_first_and_then_has_a_kernel_that_ends_with_the_server(raw: RawSpawn) -> None:
    with raw("--prewarm", "--allow", "exec_background") as peer:
        assert "result" in peer.call("ping")
        deadline = time.monotonic() + LIMIT
        while not (kernels := kernels_below(peer.process.pid)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert peer.call("exec_list")["result"] == []
        exec_id = peer.call("exec_background", ["import os; print(os.getpid())"])["result"]["exec_id"]
        assert int(peer.call("exec_wait", [exec_id])["result"]["stdout"]) in kernels
        assert peer.end() == 0
        assert not running(kernels)


def kernels_below(pid: int) -> set[int]:
    return {process for process in descendants(pid) if b"launcher.py" in command_of(process)}


def test_an_mcp_peer_is_sent_the_log_from_the_level_it_asked_for_and_stderr_is_as_quiet_as_before(
    raw: RawSpawn,
) -> None:
    levels = ("debug", "info", "warning", "error")
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with raw(command=ODD, stderr=subprocess.PIPE) as peer:
        peer.call("initialize", hello)
        for asked in (None, *levels, "emergency", "debug"):
            if asked is not None:
                peer.call("logging/setLevel", {"level": asked})
            sent: list[str] = []
            for level in levels:
                peer.send("odd/log", {"level": level}, id=level)
                while "method" in (message := peer.message()):
                    assert message["method"] == "notifications/message"
                    assert message["params"]["logger"] == "cellhost.odd"
                    sent.append(message["params"]["level"])
            assert sent == [level for level in levels if asked in levels and levels.index(level) >= levels.index(asked)]
        assert peer.end() == 0
        assert peer.process.stderr is not None
        stderr = peer.process.stderr.read()
        assert b"level error" in stderr
        assert b"level info" not in stderr
