"""Conduct of the whole server, rows 10 and 13: it takes no more than it can hold, whoever does not read or answer."""

from __future__ import annotations

import json
import select
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.rpc.load import MAX_BYTES
from cellhost.rpc.server import MAX_UNSENT
from cellhost.rpc.workers import ACTIVE

from .raw_peer import ODD, line_of

if TYPE_CHECKING:
    from .conftest import RawSpawn
    from .raw_peer import RawPeer

MIB = 2**20
BIG = "x" * (8 * MIB)
ROOM = 24 * MIB
"""What pipes, chunks and one more frame take beside the bound."""


def holds(count: int, text: str = BIG) -> list[bytes]:
    """Requests that stay until a file `go` appears."""
    return [line_of("odd/hold", {"until": "go", "text": text}, id=number) for number in range(count)]


def idle_memory(peer: RawPeer) -> int:
    peer.call("exec_list")
    return peer.peak_memory()


def test_row_10_the_reader_stops_while_too_much_is_not_carried_out_and_goes_on_afterwards(
    raw: RawSpawn, tmp_path: Path
) -> None:
    with raw(command=ODD) as peer:
        idle = idle_memory(peer)
        data = b"".join(holds(20))
        taken = peer.write_without_reading(data)
        assert MAX_BYTES <= taken <= MAX_BYTES + ROOM
        assert peer.peak_memory() - idle < 3 * (MAX_BYTES + ROOM)
        (tmp_path / "workspace" / "go").touch()
        peer.write(data[taken:])
        assert {peer.message()["id"] for _ in range(20)} == set(range(20))
        assert peer.call("exec_list")["result"] == []


def test_row_10_many_small_requests_are_bounded_too(raw: RawSpawn, tmp_path: Path) -> None:
    with raw(command=ODD) as peer:
        idle = idle_memory(peer)
        data = b"".join(holds(100_000, ""))
        taken = peer.write_without_reading(data)
        assert taken < len(data), "the reader stopped"
        assert peer.peak_memory() - idle < 2 * MAX_BYTES
        (tmp_path / "workspace" / "go").touch()
        peer.write(data[taken:])
        assert {peer.message()["id"] for _ in range(100_000)} == set(range(100_000))


def test_row_10_while_we_ask_something_the_reader_goes_on_and_refuses_new_requests(
    raw: RawSpawn, tmp_path: Path
) -> None:
    with raw(command=ODD) as peer:
        peer.call("subscribe", {"events": ["permission"]})
        peer.send("exec_background", ["print(1)"], id="job")
        question = peer.message()
        assert question["method"] == "permission/ask"
        for frame in holds(20):
            peer.write(frame)
        peer.send("exec_list", id="small")
        refused: dict[Any, Any] = {}
        while "small" not in refused:
            message = peer.message()
            refused[message["id"]] = message["error"]
        assert {error["code"] for error in refused.values()} == {-31429}
        assert all(error["data"]["retryable"] for error in refused.values())
        assert len(refused) >= 20 - MAX_BYTES // len(BIG)
        peer.write(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": {"decision": "allow"}}).encode())
        peer.write(b"\n")
        assert peer.message()["result"]["exec_id"]
        (tmp_path / "workspace" / "go").touch()
        kept = set(range(20)) - set(refused)
        assert {peer.message()["id"] for _ in kept} == kept
        assert len(peer.call("exec_list")["result"]) == 1


def test_row_10_a_question_of_ours_starts_a_reader_that_has_stopped(raw: RawSpawn, tmp_path: Path) -> None:
    job = "import pathlib, time\nwhile not pathlib.Path('ask').exists(): time.sleep(0.01)\nhost.write_file('b.txt', '')"
    with raw("--allow", "exec_background", "--ask", "write_file", command=ODD) as peer:
        peer.call("subscribe", {"events": ["permission"]})
        exec_id = peer.call("exec_background", [job])["result"]["exec_id"]
        data = b"".join(holds(20))
        taken = peer.write_without_reading(data)
        assert taken < len(data)
        (tmp_path / "workspace" / "ask").touch()
        question = peer.message()
        assert question["method"] == "permission/ask"
        allow = {"jsonrpc": "2.0", "id": question["id"], "result": {"decision": "allow"}}
        peer.write(data[taken:] + json.dumps(allow).encode() + b"\n")
        (tmp_path / "workspace" / "go").touch()
        answered = {message["id"]: message for message in (peer.message() for _ in range(20))}
        assert set(answered) == set(range(20))
        assert peer.call("exec_wait", [exec_id])["result"]["status"] == "done"
        assert (tmp_path / "workspace" / "b.txt").exists()


def test_row_10_waits_of_many_bytes_are_bounded_as_those_of_many_calls_are(raw: RawSpawn, tmp_path: Path) -> None:
    with raw(command=ODD) as peer:
        text = BIG[: -64 * 1024]
        for number in range(12):
            peer.send("odd/wait", {"until": "go", "text": text}, id=number)
        refused = [peer.message() for _ in range(12 - MAX_BYTES // len(BIG))]
        assert {message["error"]["code"] for message in refused} == {-31429}
        assert peer.call("exec_list")["result"] == []
        (tmp_path / "workspace" / "go").touch()
        assert all("result" in peer.message() for _ in range(12 - len(refused)))


def test_row_10_a_batch_has_a_bound_and_within_it_every_item_is_answered(raw: RawSpawn) -> None:
    with raw() as peer:
        idle = idle_memory(peer)
        peer.write(b"[" + b"1," * 8_000_000 + b"1]\n")
        refused = peer.message()
        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        peer.write(b"[" + b",".join(line_of("exec_list", id=number).rstrip() for number in range(10_000)) + b"]\n")
        assert {item["id"] for item in peer.message()} == set(range(10_000))
        assert peer.peak_memory() - idle < 8 * 16 * MIB


def test_row_13_requests_of_a_client_that_does_not_read_are_not_read_either(raw: RawSpawn) -> None:
    with raw(command=ODD) as peer:
        idle = idle_memory(peer)
        data = b"".join(line_of("odd/echo", {"text": "x" * MIB}, id=number) for number in range(200))
        taken = peer.write_without_reading(data)
        assert MAX_UNSENT <= taken <= MAX_UNSENT + ROOM
        assert peer.peak_memory() - idle < 2 * (MAX_UNSENT + ROOM)
        peer.write(data[taken:])
        assert [peer.message()["id"] for _ in range(200)] == list(range(200))
        assert peer.call("exec_list")["result"] == []


def test_row_13_what_was_read_is_not_begun_while_its_answers_would_pile_up(raw: RawSpawn, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "big.txt").write_text("x" * 4 * MIB)
    with raw() as peer:
        idle = idle_memory(peer)
        data = b"".join(line_of("read_file", ["big.txt"], id=number) for number in range(200))
        assert peer.write_without_reading(data) == len(data)
        settle(peer)
        assert peer.peak_memory() - idle < 2 * MAX_UNSENT + (ACTIVE + 16) * 4 * MIB
        assert {peer.message()["id"] for _ in range(200)} == set(range(200))


def settle(peer: RawPeer) -> None:
    """Wait until the server has nothing left to do."""
    deadline = time.monotonic() + 30
    used = -1
    while used != (used := processor_time(peer)):
        assert time.monotonic() < deadline, "still busy"
        peer.process.poll()
        select.select([], [], [], 0.3)


def processor_time(peer: RawPeer) -> int:
    fields = Path(f"/proc/{peer.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.slow
def test_row_13_a_job_that_floods_goes_on_while_its_subscriber_does_not_read(raw: RawSpawn, tmp_path: Path) -> None:
    lines = 400_000
    code = f"for n in range({lines}):\n    print(n, 'x' * 200)\nopen('ended', 'w').close()"
    with raw("--allow", "exec_background") as peer:
        assert peer.call("subscribe", {"events": ["exec"]})["result"]
        idle = idle_memory(peer)
        peer.send("exec_background", [code], id="job")
        deadline = time.monotonic() + 60
        while not (tmp_path / "workspace" / "ended").exists():
            assert time.monotonic() < deadline
            assert peer.process.poll() is None
        assert peer.peak_memory() - idle < 2 * MAX_UNSENT + ROOM
        text: list[str] = []
        since, exec_id, status = "0", "", ""
        while status != "done":
            message = peer.message()
            params = message.get("params", {})
            exec_id = params.get("exec_id", exec_id)
            status = params.get("status", status)
            if message.get("method") == "exec/output":
                text.append(params["text"])
                since = params["next"]
        while (page := peer.call("exec_peek", {"exec_id": exec_id, "since": since})["result"])["stdout"]:
            text.append(page["stdout"])
            since = page["next"]
        assert "".join(text) == "".join(f"{n} {'x' * 200}\n" for n in range(lines))
