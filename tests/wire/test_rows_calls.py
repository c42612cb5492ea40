"""Conduct of the whole server, rows 8 to 12: calls that go wrong, wait, are many, or are cancelled."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

from cellhost.rpc.load import MAX_WAITS

from .raw_peer import ODD, line_of

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import RawSpawn
    from .raw_peer import RawPeer

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
SLEEPER = "import time; time.sleep(600)"
RAISED = ("error", "key", "group", "cancelled", "recursion", "memory")
ODD_VALUES = ("nan", "infinity", "surrogate", "object", "loop")


def answers(peer: RawPeer, count: int) -> dict[Any, Any]:
    """The next so many responses, by id."""
    found: dict[Any, Any] = {}
    while len(found) < count:
        message = peer.message()
        if "method" not in message:
            assert message["id"] not in found, "answered twice"
            found[message["id"]] = message
    return found


def test_row_8_a_handler_that_raises_is_answered_with_an_id_and_the_traceback_is_in_the_log(raw: RawSpawn) -> None:
    with raw(command=ODD, stderr=subprocess.PIPE) as peer:
        references: list[str] = []
        for what in RAISED:
            error = peer.call("odd/raise", [what])["error"]
            assert (error["code"], error["data"]["kind"]) == (-32603, "internal")
            assert "the text of the exception" not in json.dumps(error)
            references.append(error["data"]["id"])
        assert peer.call("exec_list")["result"] == []
        assert peer.end() == 0
        assert peer.process.stderr is not None
        log = peer.process.stderr.read().decode()
    assert len(set(references)) == len(RAISED)
    assert all(reference in log for reference in references)
    assert log.count("the text of the exception") >= len(RAISED)


def test_row_8_handlers_that_do_not_return_hold_up_neither_the_reader_nor_other_calls(
    raw: RawSpawn, tmp_path: Path
) -> None:
    with raw(command=ODD) as peer:
        for number in range(60):
            peer.send("odd/hold", ["go"], id=number)
        assert peer.call("query", ["SELECT 1 AS a"])["result"] == [{"a": 1}]
        assert peer.call("write_file", ["a.txt", "x"])["result"]["bytes"] == 1
        (tmp_path / "workspace" / "go").touch()
        assert set(answers(peer, 60)) == set(range(60))


def test_row_8_news_of_other_things_than_jobs_do_not_end_a_subscription_to_jobs(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background") as peer:
        peer.call("subscribe", {"events": ["exec"]})
        peer.call("frame_new", {"kind": "turn"})
        peer.call("write_file", ["a.txt", "x"])
        peer.call("save_artifact", ["a.txt"])
        peer.send("exec_background", ["print(1)"], id="job")
        while (message := peer.message()).get("params", {}).get("status") != "done":
            assert message.get("method") != "exec/update" or message["params"]["exec_id"].startswith("exec-")


def test_row_9_a_result_that_is_no_json_is_an_error_and_its_batch_keeps_the_others(raw: RawSpawn) -> None:
    with raw(command=ODD) as peer:
        for what in ODD_VALUES:
            error = peer.call("odd/value", [what])["error"]
            assert (error["code"], error["data"]["kind"]) == (-32603, "internal")
        batch: list[Any] = [
            {"jsonrpc": "2.0", "id": what, "method": "odd/value", "params": [what]} for what in ODD_VALUES
        ]
        batch.append({"jsonrpc": "2.0", "id": "good", "method": "odd/echo", "params": {"a": 1}})
        peer.write(json.dumps(batch).encode() + b"\n")
        items = {item["id"]: item for item in peer.message()}
        assert items.pop("good")["result"] == {"a": 1}
        assert {item["error"]["code"] for item in items.values()} == {-32603}
        assert set(items) == set(ODD_VALUES)


def test_row_10_ten_thousand_frames_in_one_write_are_each_answered_once(raw: RawSpawn) -> None:
    with raw() as peer:
        kinds = ("exec_list", "ping", "no_such", "resources/templates/list", "permission_list")
        peer.write(b"".join(line_of(kinds[number % 5], id=number) for number in range(10_000)))
        found = answers(peer, 10_000)
        assert set(found) == set(range(10_000))
        assert all(("error" in answer) is (number % 5 == 2) for number, answer in found.items())


def test_row_10_a_thousand_calls_that_share_a_key_run_in_order_and_none_is_refused(raw: RawSpawn) -> None:
    with raw() as peer:
        for number in range(1_000):
            peer.send("write_file", {"path": "a.txt", "content": f"{number}\n", "append": number > 0}, id=number)
        found = answers(peer, 1_000)
        assert not [answer for answer in found.values() if "error" in answer]
        written = peer.call("read_file", ["a.txt"])["result"]["content"]
        assert written == "".join(f"{number}\n" for number in range(1_000))


def test_row_10_a_thousand_queries_behind_slow_ones_are_not_refused(raw: RawSpawn) -> None:
    with raw() as peer:
        for number in range(2):
            peer.send("query", [ENDLESS], id=f"slow {number}")
        for number in range(1_000):
            peer.send("query", ["SELECT ? AS n", [number]], id=number)
        for number in range(2):
            peer.send("$/cancelRequest", {"id": f"slow {number}"})
        found = answers(peer, 1_002)
        assert [found[number]["result"] for number in range(1_000)] == [[{"n": number}] for number in range(1_000)]


def test_row_10_what_is_urgent_goes_ahead_when_every_worker_is_busy(raw: RawSpawn, tmp_path: Path) -> None:
    with raw("--allow", "exec_background", command=ODD) as peer:
        exec_id = peer.call("exec_background", [SLEEPER])["result"]["exec_id"]
        for number in range(100):
            peer.send("odd/hold", ["go"], id=number)
        peer.send("odd/echo", {}, id="queued")
        assert peer.call("ping")["result"]["version"]
        assert peer.call("exec_list")["result"][0]["exec_id"] == exec_id
        assert peer.call("exec_peek", [exec_id])["result"]["done"] is False
        peer.send("initialize", HANDSHAKE, id="hello")
        assert peer.message()["id"] == "hello"
        peer.send("tools/call", {"name": "exec_interrupt", "arguments": {"exec_id": exec_id}}, id="stop")
        assert peer.message()["id"] == "stop"
        (tmp_path / "workspace" / "go").touch()
        assert set(answers(peer, 101)) == {*range(100), "queued"}


def test_row_10_an_answer_to_us_is_read_when_every_worker_is_busy(raw: RawSpawn, tmp_path: Path) -> None:
    with raw(command=ODD) as peer:
        peer.call("subscribe", {"events": ["permission"]})
        peer.send("exec_background", ["print(1)"], id="job")
        question = peer.message()
        for number in range(100):
            peer.send("odd/hold", ["go"], id=number)
        allow = {"jsonrpc": "2.0", "id": question["id"], "result": {"decision": "allow"}}
        peer.write(json.dumps(allow).encode() + b"\n")
        assert peer.message()["result"]["exec_id"]
        (tmp_path / "workspace" / "go").touch()
        assert set(answers(peer, 100)) == set(range(100))


def test_row_10_calls_that_only_wait_hold_no_worker_and_are_bounded(raw: RawSpawn, tmp_path: Path) -> None:
    with raw(command=ODD) as peer:
        for number in range(MAX_WAITS):
            peer.send("odd/wait", [f"go {number}"], id=number)
        assert peer.call("query", ["SELECT 1 AS a"])["result"] == [{"a": 1}]
        refused = peer.call("odd/wait", ["go"])["error"]
        assert (refused["code"], refused["data"]["kind"], refused["data"]["retryable"]) == (-31429, "busy", True)
        (tmp_path / "workspace" / "go 7").touch()
        assert peer.message()["id"] == 7
        peer.send("odd/wait", ["never"], id="one more")
        peer.send("$/cancelRequest", {"id": "one more"})
        assert peer.message()["error"]["code"] == -32800
        for number in range(MAX_WAITS):
            (tmp_path / "workspace" / f"go {number}").touch()
        assert len(answers(peer, MAX_WAITS - 1)) == MAX_WAITS - 1


def test_row_11_a_cancelled_query_stops_working_and_one_that_waits_never_begins(raw: RawSpawn) -> None:
    with raw() as peer:
        started = time.monotonic()
        for number in range(6):
            peer.send("query", [ENDLESS], id=number)
        for number in range(6):
            peer.send("$/cancelRequest", {"id": number})
        found = answers(peer, 6)
        assert {answer["error"]["code"] for answer in found.values()} == {-32800}
        assert peer.call("query", ["SELECT 1 AS a"])["result"] == [{"a": 1}]
        assert time.monotonic() - started < 4, "nobody waited for a query's time limit"


def test_row_11_a_call_cancelled_before_its_turn_changes_nothing(raw: RawSpawn, tmp_path: Path) -> None:
    with raw(command=ODD) as peer:
        for number in range(64):
            peer.send("odd/hold", ["go"], id=number)
        peer.send("write_file", ["a.txt", "x"], id="write")
        peer.send("$/cancelRequest", {"id": "write"})
        assert peer.message()["error"]["code"] == -32800, "it waits for no worker"
        peer.send("write_file", ["b.txt", "x"], id="write")
        (tmp_path / "workspace" / "go").touch()
        found = answers(peer, 65)
        assert found["write"]["result"]["path"] == "b.txt", "the id is free again"
        assert not (tmp_path / "workspace" / "a.txt").exists()


def test_row_11_cancelling_what_is_not_in_flight_does_nothing(raw: RawSpawn) -> None:
    with raw() as peer:
        ids: list[Any] = [1, "x", None, [], {}, 1.5, True, 2**70]
        for id_ in ids:
            peer.send("$/cancelRequest", {"id": id_})
            peer.send("notifications/cancelled", {"requestId": id_, "reason": "x"})
        odd_params: list[Any] = [[], ["x"], {}, None]
        for params in odd_params:
            peer.send("$/cancelRequest", params)
        assert peer.call("exec_list")["result"] == []


def test_row_11_and_12_nothing_is_sent_to_an_mcp_peer_about_a_cancelled_call_with_progress(raw: RawSpawn) -> None:
    code = "import time\nfor n in range(10_000):\n    host.progress(n, 10_000)\n    time.sleep(0.01)"
    with raw("--allow", "exec_background") as peer:
        peer.call("initialize", HANDSHAKE)
        peer.send("tools/call", {"name": "exec_background", "arguments": {"code": code}}, id="job")
        exec_id = peer.answer("job")["result"]["structuredContent"]["exec_id"]
        wait = {"name": "exec_wait", "arguments": {"exec_id": exec_id, "timeout_s": 600}}
        peer.send("tools/call", wait | {"_meta": {"progressToken": "token"}}, id="wait")
        assert peer.message()["method"] == "notifications/progress"
        peer.send("notifications/cancelled", {"requestId": "wait"})
        # Whatever was on its way comes before the answer to a call that was made later.
        peer.call("ping", {}, "after")
        stop = {"name": "exec_interrupt", "arguments": {"exec_id": exec_id}}
        peer.send("tools/call", stop, id="stop")
        assert peer.message()["id"] == "stop"
        assert peer.end() == 0
        assert bytes(peer.received) == b""


def test_row_12_no_progress_comes_after_its_result(raw: RawSpawn) -> None:
    code = "for n in range(50_000):\n    host.progress(n, 50_000)"
    with raw("--allow", "exec_background") as peer:
        peer.call("initialize", HANDSHAKE)
        peer.send("tools/call", {"name": "exec_background", "arguments": {"code": code}}, id="job")
        exec_id = peer.answer("job")["result"]["structuredContent"]["exec_id"]
        for number in range(32):
            wait = {"name": "exec_wait", "arguments": {"exec_id": exec_id, "timeout_s": number / 16}}
            peer.send("tools/call", wait | {"_meta": {"progressToken": number}}, id=number)
        ended: set[int] = set()
        last = dict.fromkeys(range(32), -1.0)
        while len(ended) < 32:
            message = peer.message()
            if "method" not in message:
                ended.add(message["id"])
                continue
            params = message["params"]
            assert params["progressToken"] not in ended
            assert params["progress"] > last[params["progressToken"]]
            last[params["progressToken"]] = params["progress"]
        assert max(last.values()) >= 0, "some progress was told"
        peer.send("tools/call", {"name": "exec_interrupt", "arguments": {"exec_id": exec_id}}, id="stop")
        assert peer.message()["id"] == "stop"
