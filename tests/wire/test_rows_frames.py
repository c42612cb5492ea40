"""Conduct of the whole server, rows 3 to 7: what comes in as raw bytes, and what is answered to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.rpc.framing import MAX_FRAME, encode

from .raw_peer import ODD, line_of

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import RawSpawn
    from .raw_peer import RawPeer

HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
WRITE = b'{"jsonrpc":"2.0","id":1,"method":"write_file","params":["a.txt",%b]}\n'
LIST = line_of("exec_list", id="last")


def padded(size: int, id_: Any = "big") -> bytes:
    """A request of that many bytes which is refused for its params."""
    frame = line_of("exec_peek", ["", "", "", "", ""], id=id_).rstrip()
    return frame.replace(b'""]', b'"' + b"x" * (size - len(frame)) + b'"]')


def test_row_2_frames_may_be_cut_anywhere_even_inside_a_character(raw: RawSpawn) -> None:
    text = "aü€\N{GRINNING FACE}"
    frame = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "write_file", "params": ["a.txt", text]}, ensure_ascii=False
    )
    with raw() as peer:
        for byte in frame.encode() + b"\n":
            peer.write(bytes([byte]))
        assert peer.message()["result"]["bytes"] == len(text.encode())
        assert peer.call("read_file", ["a.txt"])["result"]["content"] == text
        for byte in encode(frame.encode(), "headers"):
            peer.write(bytes([byte]))
        assert peer.message()["result"]["bytes"] == len(text.encode())


NOT_JSON = [
    b'"\xff"',
    b'"\xc3("',
    b'"\xed\xa0\x80"',
    b'"\xf0\x9f\x98"',
    rb'"\ud800"',
    rb'"\udc00\ud800"',
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"'x'",
    b'"x",',
    b'"\x01"',
    b"[" * 200 + b"]" * 200,
    b'{"a":' * 200 + b"1" + b"}" * 200,
    b"01",
    b"9" * 5000,
]


def test_row_3_what_is_not_json_is_refused_and_never_repaired(raw: RawSpawn, tmp_path: Path) -> None:
    with raw() as peer:
        for content in NOT_JSON:
            peer.write(WRITE % content)
            refused = peer.message()
            assert (refused["id"], refused["error"]["code"]) == (None, -32700), content
            assert peer.call("exec_list")["result"] == []
    assert not (tmp_path / "workspace" / "a.txt").exists()


def test_row_3_a_bomb_of_brackets_as_large_as_a_frame_is_refused_soon(raw: RawSpawn) -> None:
    with raw() as peer:
        for bomb in (b"[" * MAX_FRAME, b'{"a":' * (MAX_FRAME // 5), b"[]," * (MAX_FRAME // 3)):
            peer.write(bomb + b"\n")
            assert peer.message()["error"]["code"] == -32700
        assert peer.call("exec_list")["result"] == []


@pytest.mark.parametrize("style", ["lines", "headers"])
def test_row_4_a_frame_at_the_cap_is_served_and_one_over_it_is_refused_by_its_id(raw: RawSpawn, style: str) -> None:
    def framed(payload: bytes) -> bytes:
        return encode(payload, "headers" if style == "headers" else "lines")

    with raw() as peer:
        peer.write(LIST)
        peer.message()
        peer.write(framed(padded(MAX_FRAME)))
        assert peer.message()["error"]["code"] == -32602, "it came through whole"
        peer.write(framed(padded(MAX_FRAME + 1)) + framed(LIST.rstrip()))
        refused = peer.message()
        assert (refused["id"], refused["error"]["code"]) == ("big", -32600)
        assert str(MAX_FRAME + 1) in refused["error"]["message"]
        assert peer.message()["id"] == "last"


@pytest.mark.parametrize("head", [b"", b"Content-Length: 1000000000000\r\n\r\n"])
def test_row_4_memory_is_bounded_whatever_the_length(raw: RawSpawn, head: bytes) -> None:
    with raw() as peer:
        peer.write(LIST)
        peer.message()
        idle = peer.peak_memory()
        peer.write(head + b'{"jsonrpc":"2.0","id":7,"method":"x","params":["')
        for _ in range(256):
            peer.write(b"y" * 2**20)
        peer.write(b'"]}\n' + encode(LIST.rstrip(), "headers"))
        refused = peer.message()
        assert (refused["id"], refused["error"]["code"]) == (7, -32600)
        assert peer.message()["id"] == "last"
        assert peer.peak_memory() - idle < 4 * MAX_FRAME


@pytest.mark.slow
def test_row_4_a_frame_within_the_cap_may_hold_whatever_takes_most_memory_and_time(raw: RawSpawn) -> None:
    def filled(start: bytes, unit: bytes, end: bytes) -> bytes:
        start = b'{"jsonrpc":"2.0","id":1,"method":' + start
        return start + b",".join([unit] * ((MAX_FRAME - len(start) - len(end)) // (len(unit) + 1))) + end

    keys = b",".join(b'"aKey%d":1' % number for number in range(900_000))
    frames = {
        filled(b'"query","params":["SELECT 1",[', b"[]", b"]]}"): -32602,
        filled(b'"query","params":[', b"{}", b"]}"): -32602,
        filled(b'"tools/call","params":{"name":[', b"{}", b"]}}"): -32602,
        b'{"jsonrpc":"2.0","id":1,"method":"query","params":{%b}}' % keys: -32602,
        b'{"jsonrpc":"2.0","id":1,"method":"%b"}' % (b"m" * (MAX_FRAME - 100)): -32601,
    }
    with raw() as peer:
        for frame, code in frames.items():
            peer.write(frame + b"\n")
            refused = peer.message()
            assert (refused["id"], refused["error"]["code"]) == (1, code)
            assert len(json.dumps(refused)) < 5_000
        assert peer.call("exec_list")["result"] == []


IDS = ["0", "-0", "-7", "9007199254740993", "1" + "0" * 400, '""', '"0"', r'" \u0000\ud83d\ude00"']


def test_row_5_an_id_is_echoed_with_its_type_and_value_in_results_and_errors(raw: RawSpawn) -> None:
    with raw() as peer:
        for id_ in IDS:
            for method in ("ping", "no_such_method"):
                peer.write(b'{"jsonrpc":"2.0","id":%b,"method":"%b"}\n' % (id_.encode(), method.encode()))
                answered = peer.message()["id"]
                assert (answered, type(answered)) == (json.loads(id_), type(json.loads(id_)))


def test_row_5_one_and_the_text_1_are_two_ids(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background") as peer:
        exec_id = peer.call("exec_background", ["import time; time.sleep(600)"])["result"]["exec_id"]
        peer.send("exec_wait", [exec_id], id=1)
        peer.send("exec_wait", [exec_id], id="1")
        peer.send("$/cancelRequest", {"id": "1"})
        assert peer.message()["id"] == "1"
        for id_ in (True, 1.0, None, [1]):
            peer.send("$/cancelRequest", {"id": id_})
        assert peer.call("ping")["result"], "none of them is the number 1"
        peer.send("$/cancelRequest", {"id": 1})
        answered = peer.message()["id"]
        assert (answered, type(answered)) == (1, int)


def test_row_5_an_mcp_peer_gets_no_id_with_the_error_of_a_second_request_of_one_id(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background") as peer:
        peer.call("initialize", HANDSHAKE)
        launched = call_tool(peer, "exec_background", {"code": "import time; time.sleep(600)"})
        exec_id = launched["result"]["structuredContent"]["exec_id"]
        peer.send("tools/call", {"name": "exec_wait", "arguments": {"exec_id": exec_id}}, id="same")
        peer.send("tools/list", {}, id="same")
        refused = peer.message()
        assert "id" not in refused
        assert (refused["error"]["code"], refused["error"]["data"]["id"]) == (-32600, "same")
        call_tool(peer, "exec_interrupt", {"exec_id": exec_id}, until="same")


def test_row_5_a_refused_request_is_answered_in_its_own_dialect(raw: RawSpawn) -> None:
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    with raw(command=ODD) as peer:
        peer.send("odd/wait", ["never"], id="same")
        for params, has_id in ((meta, False), ({}, True)):
            for id_ in ("same", None, 1.5):
                peer.send("odd/echo", params, id=id_)
                refused = peer.message()
                assert (refused["error"]["code"], "id" in refused) == (-32600, has_id)
        peer.send("$/cancelRequest", {"id": "same"})
        assert peer.message()["id"] == "same"


def test_row_5_what_is_no_request_does_not_settle_the_call_whose_id_it_has(raw: RawSpawn) -> None:
    with raw("--allow", "exec_background") as peer:
        exec_id = peer.call("exec_background", ["import time; time.sleep(600)"])["result"]["exec_id"]
        peer.send("exec_wait", [exec_id], id="same")
        peer.write(b'{"id":"same"}\n')
        peer.write(padded(MAX_FRAME + 1, "same") + b"\n")
        for _ in range(2):
            refused = peer.message()
            assert (refused["id"], refused["error"]["code"], refused["error"]["data"]["id"]) == (None, -32600, "same")
        peer.send("$/cancelRequest", {"id": "same"})
        assert peer.message()["id"] == "same"


def call_tool(peer: RawPeer, name: str, arguments: Any, until: Any = "tool") -> Any:
    peer.send("tools/call", {"name": name, "arguments": arguments}, id="tool")
    return peer.answer(until)


RESPONSES: list[Any] = [
    {"jsonrpc": "2.0", "id": 1, "result": 1},
    {"jsonrpc": "2.0", "id": "cellhost-1", "result": {"decision": "allow"}},
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "x"}},
    {"jsonrpc": "2.0", "id": [{}], "result": None},
    {"id": True, "error": None},
    {"result": 1},
    {"jsonrpc": "2.0", "result": {}, "error": {}},
    [{"jsonrpc": "2.0", "id": 1, "result": 1}, {"jsonrpc": "2.0", "id": 2, "error": {}}],
]


def test_row_6_a_response_to_nothing_we_asked_is_dropped(raw: RawSpawn) -> None:
    with raw() as peer:
        for message in RESPONSES:
            peer.write(json.dumps(message).encode() + b"\n" + LIST)
            assert peer.message()["id"] == "last", message


def test_row_6_only_the_first_answer_to_a_question_counts(raw: RawSpawn) -> None:
    with raw() as peer:
        peer.call("subscribe", {"events": ["permission"]})
        peer.send("exec_background", ["1"], id="job")
        question = peer.message()
        answers = [
            {"jsonrpc": "2.0", "id": question["id"], "result": {"decision": decision}} for decision in ("deny", "allow")
        ]
        peer.write(b"".join(json.dumps(each).encode() + b"\n" for each in answers))
        assert peer.message()["error"]["code"] == -31401
        assert peer.call("exec_list")["result"] == []


def test_row_6_an_answer_to_us_that_is_over_the_cap_is_not_answered_and_decides_nothing(raw: RawSpawn) -> None:
    with raw() as peer:
        peer.call("subscribe", {"events": ["permission"]})
        peer.send("exec_background", ["1"], id="asks")
        asked = peer.message()
        peer.write(b'{"jsonrpc":"2.0","id":"%b","result":"%b"}\n' % (asked["id"].encode(), b"x" * MAX_FRAME))
        refused = peer.message()
        assert (refused["id"], refused["error"]["code"]) == ("asks", -31401)


def test_row_7_members_nobody_knows_and_params_null_are_accepted_in_every_dialect(raw: RawSpawn) -> None:
    with raw() as peer:
        for method, params in (("exec_list", None), ("tools/list", {}), ("tools/call", {"name": "exec_list", "x": 1})):
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, "trace": {"a": [1]}, "result2": 1}
            peer.write(json.dumps(message).encode() + b"\n")
            assert "result" in peer.message()
        assert peer.call("initialize", HANDSHAKE | {"more": [None]})["result"]["protocolVersion"] == "2025-11-25"
        for method in ("ping", "tools/list", "resources/list", "resources/templates/list"):
            peer.write(b'{"jsonrpc":"2.0","id":1,"method":"%b","params":null,"x":0}\n' % method.encode())
            assert "result" in peer.message(), method
