"""Killed at every line of a save, a restore, its taking back and a copy: the old state is left or the new one.

What a killed restore leaves is looked at as the next server does, which takes it back first.

The process is forked for every line, so that a kill costs milliseconds, and the fork kills itself at that line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Run with: data folder, workspace, operation, first line to kill at, step. Prints one line a kill: where, and what was
# left of the file.
PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from cellhost.store.artifacts import NewVersion
from cellhost.store.ids import new_id
from cellhost.store.store import Store
from cellhost.tools import restoring
from cellhost.tools.workspace import temporary_name

data, work, operation, first, step = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:6])
OLD, NEW = b"old" * 50_000, b"new" * 50_000
file, copy = work / "a.txt", work / "copy.txt"


def save(records, frame_id):
    new = NewVersion(frame_id=frame_id, filename="a.txt", content_type="text/plain", path="a.txt")
    with records.objects.stage(file) as staged:
        return records.artifacts.save(staged, new)


with Store(data) as store:
    records = store.project("p")
    frame_id = store.new_frame(kind="session", project_id="p")
    file.write_bytes(NEW)
    earlier = save(records, frame_id)
    file.write_bytes(OLD)
    save(records, frame_id)
    file.write_bytes(b"third" if operation == "save" else OLD)


def run(records):
    if operation == "save":
        save(records, frame_id)
    elif operation == "restore":
        restoring.restore(records, earlier, file, restored())
    elif operation == "settle":
        restoring.settle(records, work)
    else:
        restoring.materialise(records, earlier, copy)


def restored(version_id=None):
    return NewVersion(
        frame_id=frame_id,
        filename="a.txt",
        content_type="text/plain",
        source="restore",
        input_version_ids=(earlier.version_id,),
        path="a.txt",
        version_id=version_id,
    )


def killed_at(line):
    left = line

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_globals.get("__name__", "").startswith("cellhost."):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    store = Store(data)
    records = store.project("p")
    records.path()
    if operation == "settle":  # as it is after a kill between the record and the file
        waiting = records.artifacts.save_again(earlier.version_id, restored(new_id("v")))
        (work / temporary_name(waiting.version_id)).write_bytes(NEW)
    sys.settrace(trace)
    run(records)
    sys.settrace(None)
    store.close()
    os._exit(0)


line = first
while True:
    child = os.fork()
    if child == 0:
        killed_at(line)
    _, status = os.waitpid(child, 0)
    ended = not os.WIFSIGNALED(status)
    if ended and os.waitstatus_to_exitcode(status):
        sys.exit("the operation failed")
    with Store(data) as store:
        records = store.project("p")
        restoring.settle(records, work)
        versions = records.artifacts.versions(earlier.artifact_id)
        assert [version.ordinal for version in versions] == list(range(1, len(versions) + 1))
        assert records.artifacts.get(earlier.artifact_id).latest_version_id == versions[-1].version_id
        for version in versions:
            records.objects.copy(version.checksum, version.size_bytes, len)
        edges = records.database.value("SELECT count(*) FROM lineage_edges")
        assert edges == sum(version.source == "restore" for version in versions)
        assert records.database.rows("PRAGMA integrity_check") == [("ok",)]
        assert records.database.rows("PRAGMA foreign_key_check") == []
    left = {"versions": len(versions), "ended": ended, "line": line}
    left["file"] = {OLD: "old", NEW: "new", b"third": "third"}[file.read_bytes()]
    left["copy"] = {NEW: "new"}[copy.read_bytes()] if copy.exists() else None
    print(json.dumps(left), flush=True)
    copy.unlink(missing_ok=True)
    for half in work.glob(".cellhost-*.tmp"):  # each would be looked at by the next, whose lines are counted
        half.unlink()
    if operation == "restore":
        file.write_bytes(OLD)
    if ended:
        break
    line += step
"""

STEPS = {"save": 37, "restore": 43, "settle": 11, "materialise": 9}


def kill(tmp_path: Path, operation: str, step: int) -> list[dict[str, object]]:
    """What was left after a kill at each `step`th line, and at the end after none."""
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, tmp_path / "data", work, operation, "1", str(step)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(operation: str, states: list[dict[str, object]]) -> None:
    versions = 2
    for state in states:
        added = int(str(state["versions"])) - versions
        versions += added
        if operation == "save":
            assert (added in (0, 1), state["file"], state["copy"]) == (True, "third", None), state
        elif operation == "restore":
            assert (added, state["file"]) in ((0, "old"), (1, "new")), state
        else:
            assert (added, state["file"]) == (0, "old"), state
    last = states[-1]
    assert last["ended"]
    new = {"save": {}, "restore": {"file": "new"}, "settle": {}, "materialise": {"copy": "new"}}
    assert last == last | new[operation]
    assert len(states) > 5


@pytest.mark.parametrize("operation", STEPS)
def test_killed_at_many_lines_the_old_state_is_left_or_the_new_one(tmp_path: Path, operation: str) -> None:
    check(operation, kill(tmp_path, operation, STEPS[operation]))


@pytest.mark.slow
@pytest.mark.parametrize("operation", STEPS)
def test_killed_at_every_line_the_old_state_is_left_or_the_new_one(tmp_path: Path, operation: str) -> None:
    check(operation, kill(tmp_path, operation, 1))
