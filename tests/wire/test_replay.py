"""Recording and replaying against a real server: what was recorded plays, and what differs is shown."""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from cellhost.rpc import transcript as transcripts
from cellhost.rpc.player import Player
from cellhost.rpc.record import Recorder, replayable
from cellhost.rpc.replay import Difference, main, replay
from cellhost.rpc.rerecord import rerecord
from cellhost.rpc.transcript import Head
from cellhost.store.errors import InvalidParams, StorageError, TimedOut

from ..processes import is_running

ECHO = (sys.executable, str(Path(__file__).with_name("echo_server.py")))
LIMIT = 10.0


def request(id_: Any, method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def reply(id_: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def script(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def sending(path: Path, *messages: Any, **head: Any) -> Path:
    return script(path, {"#": head}, *({"->": message} for message in messages))


def received(path: Path) -> list[Any]:
    return [line.message for line in transcripts.read(path).lines if line.mark == "<-"]


def marks(path: Path) -> str:
    return " ".join(line.mark for line in transcripts.read(path).lines)


CONVERSATION = (
    request(1, "echo", {"a": [1, None, "ü"]}),
    request("two", "new"),
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    request(3, "echo", ["<exec_id:1>", "<version_id:1> again"]),
    request(4, "new"),
    request(10**30, "tell", {"times": 3, "_meta": {"progressToken": "t"}}),
    request(6, "ask"),
    reply("<ask:1>", {"decision": "allow"}),
    request(7, "print", {"text": "x" * 500}),
    request(8, "nothing like it"),
    [request(9, "echo", 1), request("ten", "echo", 2)],
)


def test_a_file_of_requests_becomes_a_transcript_that_plays(tmp_path: Path) -> None:
    path = sending(tmp_path / "t.jsonl", *CONVERSATION)
    assert rerecord(path, ECHO, LIMIT)
    assert replay(path, ECHO, LIMIT) is None
    made = received(path)[1]["result"]
    assert made == {
        "exec_id": "<exec_id:1>",
        "version_id": "<version_id:1>",
        "created_at": "<ms>",
        "message": "made <version_id:1> in <workspace>",
        "table": {"columns": ["version_id", "at", "wall_s"], "rows": [["<version_id:1>", "<ms>", "<s>"]]},
        "content": [{"type": "text", "text": '{"version_id":"<version_id:1>","created_at":"<ms>"}'}],
    }


def test_recording_again_gives_the_same_bytes(tmp_path: Path) -> None:
    one = sending(tmp_path / "one.jsonl", *CONVERSATION)
    two = sending(tmp_path / "two.jsonl", *CONVERSATION)
    assert rerecord(one, ECHO, LIMIT)
    assert rerecord(two, ECHO, LIMIT)
    assert one.read_bytes() == two.read_bytes()
    assert not rerecord(one, ECHO, LIMIT)
    assert one.read_bytes() == two.read_bytes()
    assert stat.S_IMODE(one.stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.jsonl", "two.jsonl"]


def test_recording_again_keeps_the_order_of_the_file_and_its_notes(tmp_path: Path) -> None:
    path = script(
        tmp_path / "t.jsonl",
        {"#": "pipelined"},
        {"->": request(1, "later", "a")},
        {"->": request(2, "later", "b")},
        {"->": request(3, "echo", "c")},
        {"<-": reply(1, "old")},
        {"#": "the others"},
        {"<-": reply(3, "old")},
        {"<-": reply(2, "old")},
    )
    assert rerecord(path, ECHO, LIMIT)
    assert received(path) == [reply(1, "a"), reply(3, "c"), reply(2, "b")]
    assert marks(path) == "# -> -> -> <- # <- <-"
    assert not rerecord(path, ECHO, LIMIT)


def test_progress_stands_before_its_reply_and_asks_before_their_answers(tmp_path: Path) -> None:
    path = sending(tmp_path / "t.jsonl", *CONVERSATION)
    rerecord(path, ECHO, LIMIT)
    lines = [(line.mark, line.message) for line in transcripts.read(path).lines]
    told = next(at for at, (mark, message) in enumerate(lines) if mark == "<-" and message == reply(10**30, None))
    assert [message["params"]["progress"] for _, message in lines[told - 3 : told]] == [1, 2, 3]
    asked = next(at for at, (_, message) in enumerate(lines) if dict(message).get("method") == "permission/ask")
    assert lines[asked + 1] == ("->", reply("<ask:1>", {"decision": "allow"}))


def test_the_server_is_started_as_the_transcript_says(tmp_path: Path) -> None:
    head: dict[str, Any] = {
        "serve": ["--greet", "<workspace>", "--status", "3"],
        "files": {"a.csv": "x\n1\n"},
        "framing": "headers",
    }
    path = sending(tmp_path / "t.jsonl", request(1, "greet"), request(2, "where"), **head)
    assert rerecord(path, ECHO, LIMIT)
    assert received(path)[0]["result"] == "<workspace>"
    assert received(path)[1]["result"] == {"folder": "<workspace>", "files": {"a.csv": "x\n1\n"}}
    assert transcripts.read(path).head == Head(**head, exit=3)
    assert replay(path, ECHO, LIMIT) is None


def played(path: Path, *lines: dict[str, Any], limit: float = LIMIT) -> Difference:
    difference = replay(script(path, *lines), ECHO, limit)
    assert difference is not None
    return difference


def test_replies_may_come_in_any_order_and_answers_of_a_batch_too(tmp_path: Path) -> None:
    path = script(
        tmp_path / "t.jsonl",
        {"->": request(1, "later", "a")},
        {"->": request(2, "echo", "b")},
        {"<-": reply(1, "a")},
        {"<-": reply(2, "b")},
        {"->": [request(3, "echo", 1), request(4, "echo", 2)]},
        {"<-": [reply(3, 1), reply(4, 2)]},
    )
    assert replay(path, ECHO, LIMIT) is None


def test_output_may_be_cut_in_any_way(tmp_path: Path) -> None:
    def output(text: str) -> dict[str, Any]:
        params = {"exec_id": "<exec_id:1>", "stream": "stdout", "text": text, "next": "<next:1>"}
        return {"<-": {"jsonrpc": "2.0", "method": "exec/output", "params": params}}

    begin = ({"->": request(1, "print", {"text": "abcdefgh" * 50})}, {"<-": reply(1, {"exec_id": "<exec_id:1>"})})
    assert replay(script(tmp_path / "one", *begin, output("abcdefgh" * 50)), ECHO, LIMIT) is None
    wrong = played(tmp_path / "two", *begin, output("abcdefgh" * 49 + "abcdefgx"))
    assert (wrong.line, wrong.reason) == (3, "exec/output differs at $.params.text")


def test_the_first_difference_is_shown_with_its_place(tmp_path: Path) -> None:
    result = {"a": [1, {"b": "right"}]}
    difference = played(
        tmp_path / "t.jsonl",
        {"#": "note"},
        {"->": request(1, "echo", {"a": [1, {"b": "wrong"}]})},
        {"<-": reply(1, result)},
        {"->": request(2, "echo", "never sent")},
    )
    assert difference == Difference(3, "the reply to 1 differs at $.result.a[1].b", "right", "wrong")
    assert str(difference).splitlines() == [
        "line 3: the reply to 1 differs at $.result.a[1].b",
        '  expected  "right"',
        '  actual    "wrong"',
    ]


def test_a_hole_must_match_wherever_it_stands(tmp_path: Path) -> None:
    first = request(1, "new")
    again = ({"->": request(2, "echo", "<version_id:1>")}, {"<-": reply(2, "<exec_id:1>")})
    path = sending(tmp_path / "t.jsonl", first)
    rerecord(path, ECHO, LIMIT)
    with path.open("a") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in again)
    difference = replay(path, ECHO, LIMIT)
    assert difference
    assert difference.reason == "the reply to 2 differs at $.result"


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        ([{"->": request(1, "echo", "<exec_id:1>")}], 1, "<exec_id:1> is sent before any answer gave it a value"),
        ([{"->": request(1, "echo", 1)}], 0, "more came than expected"),
        ([{"->": request(1, "die")}, {"<-": reply(1, 1)}], 2, "the server has ended"),
        ([{"->": request(1, "die")}], 0, "the exit status differs"),
        ([{"#": {"serve": ["--status", "4"]}}], 0, "the exit status differs"),
        ([{"#": {"serve": ["--no-such-option"]}}, {"->": request(1, "echo")}, {"<-": 1}], 3, "unrecognized arguments"),
    ],
)
def test_a_run_that_goes_wrong_is_a_difference(tmp_path: Path, lines: list[Any], line: int, reason: str) -> None:
    difference = played(tmp_path / "t.jsonl", *lines)
    assert difference.line == line
    assert reason in str(difference)


def test_waiting_is_bounded(tmp_path: Path) -> None:
    difference = played(tmp_path / "t.jsonl", {"->": request(1, "later")}, {"<-": reply(1, None)}, limit=0.5)
    assert "nothing like it came within 0.5 s" in difference.reason


def test_a_server_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    stubborn = f"echo $$ >{mark}; (echo $BASHPID >>{mark}; exec sleep 600) & exec 0<&- >&-; sleep 600"
    with pytest.raises(TimedOut, match="did not end"), Player(Head(), ["bash", "-c", stubborn], 1.0) as player:
        player.end()
    for pid in mark.read_text().split():
        assert not is_running(int(pid))


def test_a_transcript_cannot_write_outside_its_workspace(tmp_path: Path) -> None:
    path = sending(tmp_path / "t.jsonl", files={"../../evil": "x"})
    with pytest.raises(StorageError, match="outside the workspace"):
        replay(path, ECHO, LIMIT)


def test_sending_a_hole_that_never_gets_a_value_is_refused_when_recording(tmp_path: Path) -> None:
    path = sending(tmp_path / "t.jsonl", request(1, "echo", "<version_id:9>"))
    before = path.read_bytes()
    with pytest.raises(InvalidParams, match="line 2 sends <version_id:9>"):
        rerecord(path, ECHO, LIMIT)
    assert path.read_bytes() == before


def test_a_live_recording_plays_and_holds_no_secret(tmp_path: Path) -> None:
    recording = tmp_path / "live.jsonl"
    secret = "ghp_" + "s3" * 18
    with Player(Head(framing="headers"), [*ECHO, "--record", str(recording), "--greet", "hi"], LIMIT) as player:
        player.send(request(1, "greet"))
        player.wait(("reply", "1"))
        player.send(request(2, "new"))
        made = player.wait(("reply", "2"))["result"]
        player.send(request(3, "echo", {"id": made["version_id"], "env": {"API_KEY": "hidden"}, "text": secret}))
        player.wait(("reply", "3"))
        player.send({"$blob": "e25vdCBqc29u"})
        player.wait(("reply", "None"))
        assert player.end() == 0
    text = recording.read_text()
    assert secret not in text
    assert "hidden" not in text
    assert transcripts.read(recording).head == Head(serve=["--greet", "hi"], framing="headers")
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600
    assert replay(recording, ECHO, LIMIT) is None


def test_a_recorder_never_stops_the_wire(tmp_path: Path) -> None:
    recorder = Recorder(Path("/dev/full"))
    for _ in range(1000):
        recorder.received(b'{"id":1,"method":"x"}')
    recorder.close()
    with pytest.raises(StorageError, match="transcript cannot be written"):
        Recorder(tmp_path / "missing" / "file")


def test_options_that_name_this_machine_are_not_recorded() -> None:
    given = [
        "--workspace",
        "w",
        "--allow",
        "exec_background",
        "--data-dir=d",
        "--record",
        "f",
        "--team",
        "--log-file=l",
    ]
    assert replayable(given) == ["--allow", "exec_background", "--team"]


def run_verb(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(arguments)
    return status, capsys.readouterr().out


def test_the_verb_plays_files_against_cellhost_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = sending(
        tmp_path / "good.jsonl",
        request(1, "write_file", ["a.txt", "x"]),
        request(2, "save_artifact", ["a.txt"]),
        request(3, "lineage_get", ["<version_id:1>"]),
        request(4, "exec_peek", ["exec-000000000000"]),
    )
    assert run_verb(capsys, "--update", str(good)) == (0, "good.jsonl: written\n")
    assert run_verb(capsys, "--update", str(good)) == (0, "good.jsonl: unchanged\n")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(good.read_text().replace('"bytes":1', '"bytes":2'))
    status, out = run_verb(capsys, str(good), str(bad), str(tmp_path / "none.jsonl"), "--", "--project", "other")
    assert status == 1
    assert out.splitlines() == [
        "good.jsonl: ok",
        "bad.jsonl: line 3: the reply to 1 differs at $.result.bytes",
        "  expected  2",
        "  actual    1",
        f"none.jsonl: the transcript none.jsonl cannot be read: {os.strerror(2)}.",
    ]
