"""Transcripts: the file, the holes for what differs from run to run, secrets, and matching."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellhost.rpc import transcript as transcripts
from cellhost.rpc.holes import Names
from cellhost.rpc.matching import Bindings
from cellhost.rpc.redaction import REDACTED, redacted
from cellhost.rpc.transcript import Head, Line, Transcript
from cellhost.store.errors import InvalidParams, NotFound

JOB = "exec-3f0c51b2a9de"
OTHER_JOB = "exec-71b2a9de0c3f"


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_a_file_has_a_head_messages_and_notes_with_their_line_numbers(tmp_path: Path) -> None:
    head = {"serve": ["--team"], "framing": "headers", "files": {"a.csv": "x\n"}, "exit": 1}
    path = written(tmp_path / "t", {"#": head}, {"#": "a note"}, {"->": {"id": 1}}, {"<-": [None]})
    assert transcripts.read(path) == Transcript(
        Head(serve=["--team"], framing="headers", files={"a.csv": "x\n"}, exit=1),
        [Line("#", "a note", 2), Line("->", {"id": 1}, 3), Line("<-", [None], 4)],
    )


def test_reading_and_writing_are_inverse(tmp_path: Path) -> None:
    path = written(tmp_path / "t", {"->": {"id": 10**30, "x": "ü\n\u2028"}}, {"#": "end"})
    script = transcripts.read(path)
    path.write_bytes(transcripts.render(script))
    again = transcripts.read(path)
    assert [(line.mark, line.message) for line in again.lines] == [(line.mark, line.message) for line in script.lines]
    assert transcripts.render(again) == path.read_bytes()


@pytest.mark.parametrize(
    "line", ["nonsense", "[]", "{}", '{"->":1,"<-":2}', '{"=>":1}', '{"#":{"serv":[]}}', '{"#":{"framing":"udp"}}']
)
def test_a_line_of_another_form_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "t"
    path.write_text(f"\n{line}\n")
    with pytest.raises(InvalidParams, match="line 2 of the transcript"):
        transcripts.read(path)


def test_a_missing_file_is_told_without_its_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        transcripts.read(tmp_path / "none.jsonl")
    assert "none.jsonl" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_frame_that_is_not_json_keeps_its_bytes() -> None:
    message = transcripts.from_frame(b"\xffnot json")
    assert message == {"$blob": base64.b64encode(b"\xffnot json").decode()}
    assert transcripts.to_frame(message) == b"\xffnot json"
    assert transcripts.to_frame({"id": 1}) == b'{"id":1}'


def test_a_schema_s_property_is_no_volatile_value_for_its_name() -> None:
    schema = {"properties": {"packages": {"type": "string", "description": "x", "maxLength": 5}}}
    assert Names().name({"result": schema}, "<-") == {"result": schema}
    packages = {"result": {"packages": {"numpy": "2.0"}}}
    assert Names().name(packages, "<-") == {"result": {"packages": "<packages>"}}


def test_ids_that_name_members_become_holes_and_match_again() -> None:
    names = Names()
    named = names.name({"result": {"nodes": [JOB], "info": {JOB: {"depth": 0}}}}, "<-")
    assert named == {"result": {"nodes": ["<exec_id:1>"], "info": {"<exec_id:1>": {"depth": 0}}}}
    again = {"result": {"nodes": [OTHER_JOB], "info": {OTHER_JOB: {"depth": 0}}}}
    assert Bindings().match(named, again) is None
    different = {"result": {"nodes": [OTHER_JOB], "info": {JOB: {"depth": 0}}}}
    assert Bindings().match(named, different) is not None


def test_ids_become_numbered_holes_also_inside_texts() -> None:
    names = Names()
    first = names.name({"id": 1, "result": {"exec_id": JOB, "message": f"{JOB} and {OTHER_JOB}."}}, "<-")
    assert first["result"] == {"exec_id": "<exec_id:1>", "message": "<exec_id:1> and <exec_id:2>."}
    assert names.name({"params": [OTHER_JOB, f"x{JOB}", f"{JOB}0"]}, "->") == {
        "params": ["<exec_id:2>", f"x{JOB}", f"{JOB}0"]
    }
    assert names.values == {"<exec_id:1>": JOB, "<exec_id:2>": OTHER_JOB}


def test_the_id_in_a_schemas_example_is_text_and_stays() -> None:
    listing = {"result": {"tools": [{"inputSchema": {"examples": ["exec-0123456789ab"]}}]}}
    assert Names().name(listing, "<-") == listing


def test_what_the_client_made_up_stays_as_it_is() -> None:
    names = Names()
    assert names.name({"params": [JOB]}, "->") == {"params": [JOB]}
    error = {"error": {"message": f"there is no job '{JOB}'"}}
    assert names.name(error, "<-") == error


def test_times_and_measurements_become_holes_of_their_kind_and_null_stays() -> None:
    received = {
        "started_at": 5, "ended_at": None, "elapsed_ms": 0.25, "label": 5, "any": 1_790_000_000_000, "pid": 4,
        "usage": {"wall_s": 1.5, "cpu_s": 0, "peak_rss_kb": 7}, "packages": {"numpy": "2"}, "flag": True,
        "error": {"traceback": ["File x"]}, "version": 3,
    }  # fmt: skip
    assert Names().name(received, "<-") == {
        "started_at": "<ms>", "ended_at": None, "elapsed_ms": "<ms>", "label": 5, "any": "<ms>", "pid": "<pid>",
        "usage": {"wall_s": "<s>", "cpu_s": "<s>", "peak_rss_kb": "<kb>"}, "packages": "<packages>", "flag": True,
        "error": {"traceback": "<traceback>"}, "version": 3,
    }  # fmt: skip


def test_a_table_is_known_by_its_columns_and_a_text_that_is_json_by_its_members() -> None:
    table = {"columns": ["n", "started_at", "exec_id"], "rows": [[1, 5, JOB], [2, None, JOB]]}
    text = f'{{"exec_id":"{JOB}","started_at":7,"n":1.5}}'
    assert Names().name({"structured": table, "text": text}, "<-") == {
        "structured": table | {"rows": [[1, "<ms>", "<exec_id:1>"], [2, None, "<exec_id:1>"]]},
        "text": '{"exec_id":"<exec_id:1>","started_at":"<ms>","n":1.5}',
    }


def test_opaque_values_are_known_where_they_are_taken_back_and_nowhere_else() -> None:
    names = Names()
    answer = {"next": "12.0", "next_cursor": "abc", "requestState": "x" * 40, "count": "12.0"}
    assert names.name(answer, "<-") == {
        "next": "<next:1>", "next_cursor": "<cursor:1>", "requestState": "<state:1>", "count": "12.0"
    }  # fmt: skip
    sent = {"since": "12.0", "cursor": "abc", "other": "abc", "requestState": "x" * 40}
    assert names.name(sent, "->") == {
        "since": "<next:1>", "cursor": "<cursor:1>", "other": "abc", "requestState": "<state:1>"
    }  # fmt: skip


def test_folders_and_the_servers_own_request_ids_are_named() -> None:
    names = Names({"workspace": "/w", "data_dir": "/w/data"})
    assert names.name({"stdout": "/w/data/x /w/y"}, "<-") == {"stdout": "<data_dir>/x <workspace>/y"}
    asked: dict[str, Any] = {"id": "a7", "method": "permission/ask", "params": {}}
    assert names.name(asked, "<-") == asked | {"id": "<ask:1>"}
    assert names.name({"processId": 77}, "->") == {"processId": "<pid>"}
    assert names.name({"id": "s-1", "result": {}}, "<-") == {"id": "s-1", "result": {}}


def test_secrets_are_taken_out_by_name_and_by_look() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----"
    token = "ghp_" + "a1" * 18
    message = {
        "env": {"API_KEY": "v", "PATH": "/bin", "DB_PASSWORD": "p", "empty_token": ""},
        "password": {"nested": "kept: not a text of that name"},
        "code": f"use('{token}')\n{key}\nurl = 'https://me:pw@host/x'",
        "_meta": {"progressToken": "keep"},
        "max_tokens": 5,
        "authorization": "Bearer abc",
        "header": "Bearer abcdefghijklmnop",
    }
    assert redacted(message) == {
        "env": {"API_KEY": REDACTED, "PATH": "/bin", "DB_PASSWORD": REDACTED, "empty_token": ""},
        "password": {"nested": "kept: not a text of that name"},
        "code": f"use('{REDACTED}')\n{REDACTED}\nurl = 'https://{REDACTED}@host/x'",
        "_meta": {"progressToken": "keep"},
        "max_tokens": 5,
        "authorization": REDACTED,
        "header": f"Bearer {REDACTED}",
    }


def difference(expected: Any, actual: Any, bindings: Bindings | None = None) -> str | None:
    mismatch = (bindings or Bindings()).match(expected, actual)
    return mismatch.path if mismatch else None


@pytest.mark.parametrize(
    ("expected", "actual", "path"),
    [
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "x"}]}, None),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None),
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, "$.a[1].b"),
        ([1, 2], [1], "$[1]"),
        ([1], [1, 2], "$[1]"),
        ({"a": 1}, {}, "$.a"),
        ({}, {"a": 1}, "$.a"),
        (1, 1.0, "$"),
        (1, True, "$"),
        (None, 0, "$"),
        ("<ms>", 17, None),
        ("<ms>", "17", "$"),
        ("<ms>", True, "$"),
        ("<ms>", None, "$"),
        ("<path>", "/x", None),
        ("<path>", 1, "$"),
        ("<redacted>", {"any": 1}, None),
        ("<unknown>", "x", "$"),
        ("<s>", "<s>", None),
        ("<exec_id:1> made it", f"{JOB} made it", None),
        ("<exec_id:1> made it", f"{JOB} made that", "$"),
        ('{"a":"<ms>"}', '{"a":12}', None),
        ('{"a":"<ms>"}', '{"a":"x"}', "$.a"),
    ],
)
def test_matching_finds_the_first_difference(expected: Any, actual: Any, path: str | None) -> None:
    assert difference(expected, actual) == path


def test_a_numbered_hole_is_the_same_value_everywhere_and_two_are_two() -> None:
    bindings = Bindings()
    assert difference(["<exec_id:1>", "<exec_id:1>"], [JOB, JOB], bindings) is None
    assert difference(["<exec_id:1>"], [OTHER_JOB], bindings) == "$[0]"
    assert difference(["<exec_id:2>"], [JOB], bindings) == "$[0]"
    assert difference(["<exec_id:2>"], [OTHER_JOB], bindings) is None
    assert bindings.fill({"a": ["<exec_id:2>: <exec_id:1>", "<ms>", 3]}) == {"a": [f"{OTHER_JOB}: {JOB}", "<ms>", 3]}


def test_a_hole_without_a_value_cannot_be_sent_and_a_folder_always_can() -> None:
    bindings = Bindings({"<workspace>": "/w"})
    assert bindings.fill("<workspace>/a") == "/w/a"
    with pytest.raises(KeyError):
        bindings.fill(["<exec_id:1>"])
    assert isinstance(bindings.fill({"processId": "<pid>"})["processId"], int)


ids = st.sampled_from([JOB, OTHER_JOB, "v-3f0c51b2a9de", "f-71b2a9de0c3f", "perm-71b2a9de0c3f"])
texts = st.text(st.characters(exclude_characters="<"), max_size=8)  # what looks like a hole is taken for one
leaves = st.none() | st.booleans() | st.integers() | texts | ids | ids.map(lambda id_: f"the {id_}.")
members = st.sampled_from(["exec_id", "created_at", "text", "next", "cursor", "rows", "columns", "version", "x"])
messages = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(members, inner, max_size=4), max_leaves=12
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["->", "<-"]), messages), max_size=5))
def test_whatever_was_recorded_matches_itself_and_is_sent_as_it_was(conversation: list[tuple[Any, Any]]) -> None:
    names, bindings = Names(), Bindings()
    for direction, message in conversation:
        line = names.name(message, direction)
        if direction == "->":
            assert bindings.fill(line) == message
        else:
            assert bindings.match(line, message) is None
