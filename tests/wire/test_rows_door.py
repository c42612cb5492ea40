"""The kernel door withstands what code in a job does to its socket: rows 3, 8, 10, 13 and 16, from the other side."""

from __future__ import annotations

import resource
import subprocess
from typing import TYPE_CHECKING

import pytest

from cellhost.rpc.kernel_door import CONNECTIONS

if TYPE_CHECKING:
    from .conftest import RawSpawn
    from .raw_peer import RawPeer

ATTACHED = """
import json, socket
environment = host.environment()
def line(method, params, id=1):
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\\n"
def attached():
    s = socket.socket(socket.AF_UNIX)
    s.connect(environment["CELLHOST_SOCKET"])
    s.sendall(line("attach", [{"token": environment["CELLHOST_TOKEN"]}]))
    assert b"exec_id" in s.recv(1000)
    return s
"""
FAULTS = {
    "goes in the middle of answers": """
for _ in range(5):
    s = attached()
    s.sendall(line("query", ["SELECT 1"]) * 2000)
    s.recv(10)
    s.close()
""",
    "never attaches": """
for data in (b"", b"x\\n", b"{}\\n", b"[" * 300 + b"\\n", line("attach", []), line("attach", [{"token": "x"}])):
    s = socket.socket(socket.AF_UNIX)
    s.connect(environment["CELLHOST_SOCKET"])
    s.sendall(data)
    s.close()
""",
    "sends no requests": """
s = attached()
s.sendall(b"nonsense\\n" + b'"\\xff"\\n' + b"[1, {}, []]\\n" + b"Content-Length: x\\r\\n\\r\\n")
s.sendall(b'{"id": 1, "result": 2}\\n')
s.sendall(line("ping", [], 2) + line("permission_set", ["global", "*", "*", "allow"], 3))
answers = s.makefile("rb")
seen = [json.loads(answers.readline()) for _ in range(6)]
codes = [answer["error"]["code"] for answer in seen if isinstance(answer, dict)]
assert codes == [-32700, -32700, -32600, -32601, -32601], codes
""",
    "closes its half and reads on": """
s = attached()
s.sendall(line("query", ["SELECT 1"]))
s.shutdown(socket.SHUT_WR)
while s.recv(1000):
    pass
""",
}
FLOOD = (
    ATTACHED
    + """
import select
s = attached()
s.setblocking(False)
request = line("read_file", ["big.txt"])
sent = 0
while sent < 200_000_000 and select.select([], [s], [], 1)[1]:
    try:
        sent += s.send(request * 1000)
    except BlockingIOError:
        pass
print(sent)
"""
)


CROWD = (
    ATTACHED
    + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
crowd, refused = [], []
while len(crowd) < 400 and not refused:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(2)
    try:
        s.connect(environment["CELLHOST_SOCKET"])
        s.sendall(line("attach", [{"token": environment["CELLHOST_TOKEN"]}]))
        answer = s.recv(1000)
    except OSError as error:
        refused.append(repr(error))
    else:
        refused += [] if b"exec_id" in answer else [answer]
    crowd.append(s)
for s in crowd: s.close()
print(len(crowd), refused)
"""
)


def run(peer: RawPeer, code: str) -> str:
    """What a job printed that ended well."""
    exec_id = peer.call("exec_background", [code])["result"]["exec_id"]
    outcome = peer.call("exec_wait", [exec_id])["result"]
    assert outcome["status"] == "done", outcome
    return str(outcome["stdout"])


def test_a_job_that_misuses_its_socket_harms_nobody_and_is_not_worth_a_line_of_log(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background", stderr=subprocess.PIPE) as peer:
        for fault, code in FAULTS.items():
            run(peer, ATTACHED + code)
            assert run(peer, "print(host.query('SELECT 1 AS a'))") == "[{'a': 1}]\n", fault
        assert peer.end() == 0
        assert peer.process.stderr is not None
        assert peer.process.stderr.read() == b""


@pytest.mark.parametrize("ending", ["os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_a_kernel_that_dies_with_calls_in_flight_leaves_the_door_open(raw: RawSpawn, ending: str) -> None:
    code = ATTACHED + f"import os\ns = attached()\ns.sendall(line('query', ['SELECT 1']) * 5000)\ns.recv(10)\n{ending}"
    with raw("--allow", "exec_background", stderr=subprocess.PIPE) as peer:
        exec_id = peer.call("exec_background", [code])["result"]["exec_id"]
        assert peer.call("exec_wait", [exec_id])["result"]["status"] == "died"
        assert run(peer, "print(host.query('SELECT 1 AS a'))") == "[{'a': 1}]\n"
        assert peer.end() == 0
        assert peer.process.stderr is not None
        assert b"Traceback" not in peer.process.stderr.read()


def test_a_job_that_sends_requests_and_reads_no_answers_is_not_read_on(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background") as peer:
        peer.call("write_file", ["big.txt", "x" * 1_000_000])
        idle = peer.peak_memory()
        assert int(run(peer, FLOOD)) < 200_000_000
        assert peer.peak_memory() - idle < 200 * 2**20
        assert peer.call("ping")["result"]["version"]


def test_a_job_with_more_connections_than_there_may_be_is_told_so(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background") as peer:
        count, answer = run(peer, CROWD).split(maxsplit=1)
        assert int(count) == CONNECTIONS + 1
        assert '"kind":"busy"' in answer
        assert "256 connections to the host" in answer
        assert run(peer, "print(host.query('SELECT 1 AS a'))") == "[{'a': 1}]\n"


def test_a_server_without_descriptors_for_a_jobs_connections_goes_on(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background", stderr=subprocess.PIPE) as peer:
        assert run(peer, "print(1)") == "1\n"
        resource.prlimit(peer.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        count, _ = run(peer, CROWD).split(maxsplit=1)
        assert int(count) < 100
        assert run(peer, "print(host.query('SELECT 1 AS a'))") == "[{'a': 1}]\n"
        assert peer.end() == 0
        assert peer.process.stderr is not None
        assert b"Traceback" not in peer.process.stderr.read()
