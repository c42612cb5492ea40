"""The verbs that show records: schema, audit, frames, rules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.rpc.client import Client
from cellhost.tools.harness import HARNESS_METHODS
from cellhost.tools.registry import REGISTRY

from .conftest import COMMAND, WITHIN_S

if TYPE_CHECKING:
    from .conftest import Run, Worked


def shown(cellhost: Run, *arguments: str) -> str:
    done = cellhost(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def objects(cellhost: Run, *arguments: str) -> list[Any]:
    return [json.loads(line) for line in shown(cellhost, *arguments, "--json").splitlines()]


def test_the_schema_is_what_rpc_discover_answers(cellhost: Run, tmp_path: Path) -> None:
    with Client(["--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path)]) as client:
        answered = client.call("rpc.discover")["result"]
        client.close()
    assert json.loads(shown(cellhost, "schema")) == answered


def test_the_reference_has_every_method_parameter_and_error(cellhost: Run) -> None:
    text = shown(cellhost, "schema", "--markdown")
    for method in (*REGISTRY.tools.values(), *HARNESS_METHODS):
        chapter = text.partition(f"\n### `{method.name}`\n")[2].partition("\n### ")[0]
        assert method.description in chapter
        for name, schema in method.input_schema()["properties"].items():
            (row,) = [line for line in chapter.splitlines() if line.startswith(f"| `{name}`")]
            assert " ".join(schema.get("description", "").split()).replace("|", "\\|") in row
            assert row.replace("\\|", "").count("|") == 4
    assert "| `not_found` | -31404 |" in text
    assert "*runtime_mutation, needs approval*" in text
    assert "at least 1 character," in text
    assert "at least 1 characters" not in text


def test_the_audit_shows_each_call_newest_first(cellhost: Run, worked: Worked) -> None:
    rows = objects(cellhost, *worked.place("audit"))
    assert {row["method"] for row in rows} >= {"write_file", "save_artifact", "exec_background", "exec_wait", "query"}
    assert [row["call_id"] for row in rows] == sorted((row["call_id"] for row in rows), reverse=True)
    assert {row["exec_id"] for row in rows} == {None, worked.done}
    table = shown(cellhost, *worked.place("audit")).splitlines()
    assert table[0].split() == ["time", "door", "job", "method", "outcome", "ms", "arguments"]
    assert len(table) == len(rows) + 1


def test_the_audit_can_be_narrowed(cellhost: Run, worked: Worked) -> None:
    def methods(*arguments: str) -> list[str]:
        return [row["method"] for row in objects(cellhost, *worked.place("audit", *arguments))]

    assert methods("--denied") == ["write_file"]
    assert set(methods("--tool", "save_artifact")) == {"save_artifact"}
    assert methods("--tool", "artifacts") == []
    assert methods("--since", "2999-01-01") == []
    assert len(methods("--since", "1h")) == len(methods()) == len(methods("--since", "2020-01-01T00:00"))
    assert len(methods("--limit", "2")) == 2


def test_frames_are_browsed_searched_and_looked_into(cellhost: Run, worked: Worked) -> None:
    (frame,) = objects(cellhost, *worked.place("frames"))
    assert frame["kind"] == "session"
    assert [each["frame_id"] for each in objects(cellhost, *worked.place("frames", "commas reading"))] == [
        frame["frame_id"]
    ]
    assert objects(cellhost, *worked.place("frames", 'nothing "like( it')) == []
    (detail,) = objects(cellhost, *worked.place("frames", frame["frame_id"]))
    assert [cell["status"] for cell in detail["cells"]] == ["done", "failed"]
    assert frame["frame_id"] in shown(cellhost, *worked.place("frames"))
    text = shown(cellhost, *worked.place("frames", frame["frame_id"]))
    assert "raise ValueError" in text
    assert f"workspace      {worked.workspace}" in text


def test_rules_are_set_listed_and_removed(cellhost: Run, tmp_path: Path) -> None:
    place = ("rules", "--data-dir", str(tmp_path / "data"))
    rule_id = shown(cellhost, *place, "allow", "exec_background", "print(\n*", "--project", "demo").strip()
    assert shown(cellhost, *place, "deny", "exec_background", "print(\n*", "--project", "demo").strip() == rule_id
    everything = shown(cellhost, *place, "ask", "*").strip()
    rules = {rule["rule_id"]: rule for rule in objects(cellhost, *place, "list")}
    assert (rules[rule_id]["decision"], rules[rule_id]["scope"], rules[rule_id]["scope_id"]) == (
        "deny",
        "project",
        "demo",
    )
    assert (rules[everything]["tool"], rules[everything]["pattern"]) == ("*", "*")
    assert {rule["tool"] for rule in rules.values() if rule["decision"] == "allow"} == {
        "write_file",
        "edit_file",
        "save_artifact",
    }
    table = shown(cellhost, *place).splitlines()
    assert len(table) == len(rules) + 1
    assert shown(cellhost, *place, "remove", rule_id) == "removed\n"
    again = cellhost(*place, "remove", rule_id)
    assert (again.returncode, again.stdout) == (1, "")
    assert "no such rule" in again.stderr


def test_the_data_folder_of_the_rules_is_named_before_the_verb_or_after_it(cellhost: Run, tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path / "data"))
    rule_id = shown(cellhost, "rules", "allow", "exec_background", *place).strip()
    before, after = shown(cellhost, "rules", *place, "list"), shown(cellhost, "rules", "list", *place)
    assert before == after
    assert rule_id in before
    assert shown(cellhost, "rules", "remove", rule_id, *place) == "removed\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("audit", "--tool", "write_fil"), 2, "did you mean write_file?"),
        (("audit", "--since", "yesterday"), 2, "write 30s, 15m, 2h"),
        (("audit", "--limit", "0"), 2, "--limit"),
        (("frames", "f-000000000000"), 1, "no such frame"),
        (("frames", "--status", "odd"), 2, "--status"),
        (("frames", "--project", "other"), 1, "projects/other/records.db is not there"),
        (("frames", "--project", "../other"), 2, "cellhost frames: project_id: must be 1-64 of "),
        (("rules", "allow", "write_fil"), 2, "did you mean write_file?"),
        (("rules", "allow", "write_file", "--project", "Not One"), 2, "project"),
        (("rules", "allow"), 2, "tool"),
        (("schema", "--html"), 2, "--html"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(
    cellhost: Run, worked: Worked, arguments: tuple[str, ...], status: int, words: str
) -> None:
    verb, *rest = arguments
    place = () if verb == "schema" else ("--data-dir", str(worked.data))
    done = cellhost(verb, *place, *rest)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert done.stderr.count("must be") < 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["audit", "frames", "rules"])
def test_looking_at_a_folder_that_has_nothing_makes_nothing(cellhost: Run, tmp_path: Path, verb: str) -> None:
    done = cellhost(verb, "--data-dir", "data")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing has been recorded yet" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_had_enough_is_no_error(worked: Worked) -> None:
    command = [*COMMAND, *worked.place("schema")[:1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(WITHIN_S) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize("verb", ["schema", "audit"])
def test_a_full_disk_under_the_output_is_said_in_one_line(worked: Worked, verb: str) -> None:
    command = [*COMMAND, verb] if verb == "schema" else [*COMMAND, *worked.place(verb)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"cellhost {verb}: No space left on device (")
    assert done.stderr.count("\n") == 1
