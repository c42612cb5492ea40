"""Killed in the middle of a save: the old state is left, or the new one."""

import hashlib
import io
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cellhost.store.store import Store

PROGRAM = """
import io, sys
from cellhost.store.artifacts import NewVersion
from cellhost.store.store import Store

store = Store(sys.argv[1])
records = store.project("p")
frame_id = store.new_frame(kind="session", project_id="p")
inputs = ()
for number in range(100_000):
    content = io.BytesIO(b"%d" % number * 20_000)
    cell = records.cells.add(frame_id=frame_id, code=f"step({number})")
    with records.objects.stage(content) as staged:
        new = NewVersion(
            frame_id=frame_id,
            filename=f"out{number % 3}.bin",
            content_type="application/octet-stream",
            producing_cell_id=cell.cell_id,
            input_version_ids=inputs,
        )
        inputs = (records.artifacts.save(staged, new).version_id,)
    print(inputs[0], flush=True)
"""


def save_until_killed(data_dir: Path, lines: int) -> list[str]:
    """The versions whose saving was answered for before the kill, which comes while the next is under way."""
    with subprocess.Popen([sys.executable, "-P", "-c", PROGRAM, data_dir], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        answered = [server.stdout.readline().strip() for _ in range(lines)]
        server.kill()
        answered += server.stdout.read().split("\n")[:-1]
    return answered


def check(data_dir: Path, answered: list[str]) -> None:
    with Store(data_dir) as store:
        records = store.project("p")
        for version_id in answered:
            version = records.artifacts.version(version_id)
            with records.objects.open(version.checksum, version.size_bytes) as opened:
                assert hashlib.sha256(opened.read()).hexdigest() == version.checksum
        for (artifact_id,) in records.database.rows("SELECT artifact_id FROM artifacts"):
            versions = records.artifacts.versions(artifact_id)
            assert [version.ordinal for version in versions] == list(range(1, len(versions) + 1))
            assert records.artifacts.get(artifact_id).latest_version_id == versions[-1].version_id
            assert all(records.objects.path(version.checksum).exists() for version in versions)
        with records.objects.stage(io.BytesIO()):
            left = list((records.folder / "objects").glob(".incoming-*"))
            assert len(left) == 1  # our own
    with closing(sqlite3.connect(data_dir / "projects" / "p" / "records.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for name in ("frames_fts", "cells_fts"):
            connection.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)")
        # One edge for every version but the first of each run, its rows written in one piece with it.
        counts = "SELECT (SELECT count(*) FROM artifact_versions), (SELECT count(*) FROM lineage_edges)"
        versions_kept, edges = connection.execute(counts).fetchone()
        runs = connection.execute("SELECT count(DISTINCT frame_id) FROM artifact_versions").fetchone()[0]
        assert versions_kept - edges == runs


def test_a_server_killed_while_saving_leaves_whole_versions(tmp_path: Path) -> None:
    answered: list[str] = []
    for lines in (1, 4, 9):
        answered += save_until_killed(tmp_path / "data", lines)
        check(tmp_path / "data", answered)


@pytest.mark.slow
def test_forty_servers_killed_while_saving_leave_whole_versions(tmp_path: Path) -> None:
    answered: list[str] = []
    for lines in range(1, 41):
        answered += save_until_killed(tmp_path / "data", lines)
    check(tmp_path / "data", answered)
