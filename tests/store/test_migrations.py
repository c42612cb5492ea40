"""A file of an earlier version, brought up to the declarations."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from cellhost.store.browsing import VIEWS
from cellhost.store.store import Store
from cellhost.store.tables import RECORDS

if TYPE_CHECKING:
    from pathlib import Path

LATER = [step.name for step in RECORDS.steps[1:]]
LACKING = [steps for size in range(1, len(LATER) + 1) for steps in combinations(LATER, size)]
COLUMNS = {
    "cell_outputs": (("cells", "outputs"),),
    "job_sessions": (("jobs", "session"), ("jobs", "note")),
    "paths_of_versions": (("artifact_versions", "path"),),
}


def take_back(path: Path, steps: set[str]) -> None:
    """Makes the file as if these steps had never been."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for view in VIEWS if "views" in steps else ():
            connection.execute(f"DROP VIEW {view}")
        if "roots_by_status" in steps:
            connection.execute("DROP INDEX idx_frames_parent_id_status")
        for table, column in (pair for step in sorted(steps & COLUMNS.keys()) for pair in COLUMNS[step]):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        if "cells_in_order_of_frames" in steps:
            connection.execute("UPDATE cells SET rowid = rowid % 1000")
            connection.execute("INSERT INTO cells_fts (cells_fts) VALUES ('rebuild')")
        for step in steps:
            connection.execute("DELETE FROM _sqlite_migrations WHERE name = ?", [step])


def contents(path: Path) -> dict[str, list[str]]:
    """Columns of every table and view there is, the indexes, and the places of the cells."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type IN ('table','view')")
        ]
        columns = {
            name: sorted(column[0] for column in connection.execute(f"SELECT * FROM {name}").description)
            for name in names
        }
        indexes = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")
        columns["indexes"] = sorted(name for (name,) in indexes)
        return columns | {"places": [str(place) for (place,) in connection.execute("SELECT rowid FROM cells")]}


@pytest.mark.parametrize("steps", LACKING, ids="+".join)
def test_whichever_steps_a_file_lacks_they_bring_it_up_to_date(tmp_path: Path, steps: tuple[str, ...]) -> None:
    with Store(tmp_path) as store:
        records = store.project("p")
        frame = records.frames.add(kind="session", name="first")
        records.cells.add(frame_id=frame.frame_id, code="plot()")
        path = records.path()
    today = contents(path)
    take_back(path, set(steps))
    assert contents(path) != today
    with Store(tmp_path) as store:
        assert [found["name"] for found in store.project("p").frames.search("plot")["frames"]] == ["first"]
    assert contents(path) == today
    assert today.keys() >= VIEWS.keys()
