"""`cellhost doctor` on what is well and on what is not: each failure has its line that mends it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.rpc.checkup import CHECKS, Patient
from cellhost.rpc.settings import Settings
from cellhost.store.artifacts import NewVersion
from cellhost.store.store import Store

from .conftest import COMMAND, WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Run

OF_FILES = ("data folder", "records", "locks", "workspace")


def examined(cellhost: Run, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = cellhost("doctor", "--json", *arguments)
    assert done.stderr == ""
    return done.returncode, {row["check"]: row for row in json.loads(done.stdout)}


def sick(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: row["mend"] for name, row in rows.items() if not row["ok"]}


def begin_records(data: Path) -> None:
    with Store(data) as store:
        new = NewVersion(frame_id=store.new_frame(kind="session"), filename="a.txt", content_type="text/plain")
        records = store.project("default")
        with records.objects.stage(BytesIO(b"kept")) as staged:
            records.artifacts.save(staged, new)


def test_all_is_well_and_nothing_is_made_in_folders_that_are_not_there(cellhost: Run, tmp_path: Path) -> None:
    status, rows = examined(cellhost, "--data-dir", "data", "--workspace", "work")
    assert list(rows) == list(CHECKS)
    assert (status, sick(rows)) == (0, {})
    assert "ipykernel" in rows["interpreter"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_a_person_reads_a_line_a_check_and_one_more_for_what_mends_it(cellhost: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cellhost("doctor", "--data-dir", "file/data", "--python", "no-such-python")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert [line[6:17].strip() for line in lines if not line.startswith(" ")] == list(CHECKS)
    failed = [at for at, line in enumerate(lines) if line.startswith("FAIL")]
    assert [lines[at][6:17].strip() for at in failed] == ["data folder", "interpreter", "kernel"]
    assert all(lines[at + 1].strip().startswith("-> ") for at in failed)


def locked(data: Path) -> Callable[[], None]:
    holder = sqlite3.connect(data / "control.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    return holder.close


def newer(data: Path) -> None:
    with closing(sqlite3.connect(data / "projects/default/records.db")) as database, database:
        database.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " SELECT migration_set, '9999', 'later' FROM _sqlite_migrations LIMIT 1"
        )


def damaged(data: Path) -> None:
    path = data / "projects/default/records.db"
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def not_a_database(data: Path) -> None:
    (data / "projects/default/records.db").write_bytes(b"not a database" * 1000)


def truncated(data: Path) -> None:
    (kept,) = data.glob("projects/default/objects/*/*")
    kept.chmod(0o600)
    kept.write_bytes(kept.read_bytes()[:-1])


def open_to_others(data: Path) -> None:
    data.chmod(0o755)


@pytest.mark.parametrize(
    ("harm", "check", "mend"),
    [
        (locked, "locks", "end the process that holds"),
        (newer, "records", "upgrade cellhost"),
        (damaged, "records", ""),
        (not_a_database, "records", "put a copy of it back"),
        (truncated, "records", "objects back from a copy"),
        (open_to_others, "data folder", "chmod 700"),
    ],
)
def test_what_is_amiss_with_a_data_folder_is_found(
    tmp_path: Path, harm: Callable[[Path], Callable[[], None] | None], check: str, mend: str
) -> None:
    data = tmp_path / "data"
    begin_records(data)
    undo = harm(data)
    try:
        mends = {name: CHECKS[name](Patient(Settings(), data, tmp_path)).mend for name in OF_FILES}
    finally:
        if undo:
            undo()
    assert [name for name in OF_FILES if mends[name]] == [check]
    assert mend in mends[check]


@pytest.mark.slow
def test_records_that_a_server_works_on_are_well(cellhost: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [*COMMAND, "serve", "--data-dir", str(data), "--workspace", str(tmp_path / "work")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"write_file","params":["a.txt","x"]}\n')
        server.stdin.flush()
        assert b"result" in server.stdout.readline()
        status, rows = examined(cellhost, "--data-dir", str(data))
        server.stdin.close()
        server.wait(WITHIN_S)
    assert (status, sick(rows)) == (0, {})


@pytest.mark.slow
def test_an_interpreter_without_ipykernel_is_told_of_with_what_installs_it(cellhost: Run, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([COMMAND[0], "-m", "venv", "--without-pip", str(bare)], check=True, timeout=WITHIN_S)
    status, rows = examined(cellhost, "--data-dir", "data", "--python", str(bare / "bin/python"))
    assert status == 1
    assert list(sick(rows)) == ["interpreter", "kernel"]
    assert sick(rows)["interpreter"] == f"{bare / 'bin/python'} -m pip install ipykernel"
    assert "No module named" in rows["kernel"]["found"]


@pytest.mark.slow
def test_what_prints_as_python_starts_is_caught(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello from the site')\n")
    done = subprocess.run(
        [*COMMAND, "doctor", "--data-dir", "data"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    line, mend = done.stdout.splitlines()[-2:]
    assert line.startswith("FAIL  stdout")
    assert "hello from the site" in line
    assert "sitecustomize" in mend


def test_settings_that_do_not_fit_are_a_usage_error(cellhost: Run) -> None:
    assert cellhost("doctor", TEEM="1").returncode == 2
    assert cellhost("doctor", "--jsn").returncode == 2
