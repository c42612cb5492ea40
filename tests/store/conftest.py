"""The query guard's fixture database, made anew for each test, and the cases that are judged on it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

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
