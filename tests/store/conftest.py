"""An open store, and the query guard's fixture database with the cases that are judged on it; anew for each test."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellhost.store.records import Records

CASES = Path(__file__).parent / "cases"


@pytest.fixture(scope="session")
def sql_cases() -> list[dict[str, Any]]:
    """Statements with the right answer: `sql`, `params`, `expect`, and `rows` where they are known."""
    with (CASES / "sql_cases.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture
def guard_file(tmp_path: Path) -> Path:
    """A fresh copy of the database the cases are judged on, in a folder of its own."""
    folder = tmp_path / "guarded"
    folder.mkdir()
    path = folder / "fixture.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((CASES / "sql_fixture.sql").read_text(encoding="utf-8"))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a folder of its own."""
    with Store(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def records(store: Store) -> Records:
    """The records of a project without anything in it."""
    return store.project("p")


@pytest.fixture
def frame_id(records: Records) -> str:
    """A session's frame in that project."""
    return records.frames.add(kind="session").frame_id
