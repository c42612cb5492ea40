"""Plain JSON-RPC 2.0 over a real pipe: requests, notifications, batches, errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Spawn


async def test_ping_tells_version_limits_and_the_current_frame(spawn: Spawn) -> None:
    async with spawn() as peer:
        ping = await peer.result("ping")
        assert ping["project_id"] == "default"
        assert ping["frame_id"].startswith("f-")
        assert ping["confinement"] == "none"
        assert ping["limits"]["frame_bytes"] == 16 * 1024 * 1024


@pytest.mark.parametrize("id_", [1, 0, -5, 2**70, "x", "1", ""])
async def test_an_id_is_echoed_exactly(spawn: Spawn, id_: int | str) -> None:
    async with spawn() as peer:
        await peer.send(json.dumps({"jsonrpc": "2.0", "id": id_, "method": "ping"}).encode() + b"\n")
        assert (await peer.receive())["id"] == id_


@pytest.mark.parametrize(
    ("line", "code", "id_"),
    [
        (b"{", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":NaN}', -32700, None),
        (b'"\xff"', -32700, None),
        (b"[]", -32600, None),
        (b"5", -32600, None),
        (b"null", -32600, None),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":"a","method":5}', -32600, "a"),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600, 1),
        (b'{"id":1,"method":"ping"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"no_such"}', -32601, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"query","params":{"sq":"SELECT 1"}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"query","params":["SELECT nope"]}', -31400, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"query","params":["DROP TABLE jobs"]}', -31403, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"lineage_get","params":["v-0"]}', -31404, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"exec_peek","params":["exec-0"]}', -31404, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"exec_background","params":["1"]}', -31401, 1),
    ],
)
async def test_what_cannot_be_carried_out_gets_its_error_and_the_server_goes_on(
    spawn: Spawn, line: bytes, code: int, id_: int | str | None
) -> None:
    async with spawn() as peer:
        await peer.send(line + b"\n")
        answer = await peer.receive()
        assert (answer["error"]["code"], answer["id"]) == (code, id_), answer
        assert answer["error"]["data"]["kind"]
        assert isinstance(answer["error"]["data"]["retryable"], bool)
        assert (await peer.result("ping"))["version"]


async def test_a_response_is_never_answered(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.send(
            b'{"jsonrpc":"2.0","id":9,"result":{}}\n{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"x"}}\n'
        )
        assert (await peer.call("ping"))["id"] == 1


async def test_a_notification_is_carried_out_and_not_answered(spawn: Spawn, tmp_path: Path) -> None:
    async with spawn() as peer:
        await peer.send(b'{"jsonrpc":"2.0","method":"write_file","params":["a.txt","x"]}\n')
        read = await peer.result("read_file", ["a.txt"])
        assert read["content"] == "x"


async def test_params_null_and_extra_members_are_accepted(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.send(b'{"jsonrpc":"2.0","id":1,"method":"exec_list","params":null,"trace":"x"}\n')
        assert (await peer.receive()) == {"jsonrpc": "2.0", "id": 1, "result": []}


async def test_each_item_of_a_batch_gets_its_own_answer(spawn: Spawn) -> None:
    async with spawn() as peer:
        batch = [
            {"jsonrpc": "2.0", "id": 1, "method": "query", "params": ["SELECT 1 AS a"]},
            {"jsonrpc": "2.0", "method": "ping"},
            5,
            {"jsonrpc": "2.0", "id": "two", "method": "no_such"},
        ]
        await peer.send(json.dumps(batch).encode() + b"\n")
        answers: dict[Any, Any] = {answer["id"]: answer for answer in await peer.receive()}
        assert answers[1]["result"] == [{"a": 1}]
        assert answers[None]["error"]["code"] == -32600
        assert answers["two"]["error"]["code"] == -32601
        assert len(answers) == 3


async def test_a_batch_of_notifications_gets_nothing(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.send(b'[{"jsonrpc":"2.0","method":"ping"},{"jsonrpc":"2.0","method":"$/unknown"}]\n')
        assert (await peer.call("ping"))["id"] == 1


async def test_an_id_in_flight_is_refused_without_settling_the_first_call(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        launched = await peer.result("exec_background", ["import time; time.sleep(60)"])
        await peer.request("exec_wait", [launched["exec_id"]], id_="same")
        await peer.request("ping", id_="same")
        refused = await peer.receive()
        assert (refused["id"], refused["error"]["code"], refused["error"]["data"]["id"]) == (None, -32600, "same")
        await peer.result("exec_interrupt", [launched["exec_id"]])
        assert (await peer.receive())["id"] == "same"


async def test_a_cancelled_request_is_answered_as_cancelled(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        launched = await peer.result("exec_background", ["import time; time.sleep(60)"])
        waiting = await peer.request("exec_wait", [launched["exec_id"]])
        await peer.send(
            json.dumps({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": waiting}}).encode() + b"\n"
        )
        answer = await peer.receive()
        assert (answer["id"], answer["error"]["code"]) == (waiting, -32800)


async def test_pipelined_calls_on_one_file_keep_their_order(spawn: Spawn) -> None:
    async with spawn() as peer:
        for number in range(20):
            await peer.request("write_file", ["a.txt", "x" * number], id_=f"write {number}")
            await peer.request("save_artifact", ["a.txt"], id_=f"save {number}")
        answers = {answer["id"]: answer for answer in [await peer.receive() for _ in range(40)]}
        assert [answers[f"save {number}"]["result"]["size_bytes"] for number in range(20)] == list(range(20))


async def test_ping_is_answered_while_queries_run_for_seconds(spawn: Spawn) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    async with spawn() as peer:
        queries = [await peer.request("query", [endless]) for _ in range(2)]
        pinged = await peer.request("ping")
        assert (await peer.receive())["id"] == pinged
        for _ in queries:
            assert (await peer.receive())["error"]["code"] == -31408


async def test_no_message_carries_a_path_or_a_traceback(spawn: Spawn, tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = [
        ("read_file", ["absent.txt"]),
        ("read_file", ["../x"]),
        ("write_file", ["folder", "x"]),
        ("save_artifact", ["absent.txt"]),
        ("query", ["SELECT * FROM absent"]),
        ("frames", ["f-000000000000"]),
        ("frame_use", ["f-000000000000"]),
        ("lineage_graph", ["v-000000000000"]),
        ("list_artifacts", {"cursor": "nonsense"}),
        ("query_schema", ["absent"]),
    ]
    (tmp_path / "workspace" / "folder").mkdir(parents=True)
    async with spawn() as peer:
        for method, params in calls:
            error = await peer.error(method, params)
            text = json.dumps(error)
            assert str(tmp_path) not in text, (method, text)
            assert "Traceback" not in text
            assert error["data"]["kind"] not in ("internal", "cancelled"), (method, error)
