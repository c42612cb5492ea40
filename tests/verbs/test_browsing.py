"""Records browsed by hand: the views for people, and datasette on the file as the README shows it."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from cellhost.store.browsing import VIEWS

from ..clients.environments import needed, python
from .conftest import WITHIN_S

if TYPE_CHECKING:
    from .conftest import Worked

README = Path(__file__).parents[2] / "README.md"


def records(worked: Worked) -> Path:
    return worked.data / "projects" / "default" / "records.db"


def test_views_tell_people_of_sessions_jobs_and_files(worked: Worked) -> None:
    with closing(sqlite3.connect(f"{records(worked).as_uri()}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row

        def rows(view: str) -> list[dict[str, Any]]:
            return [dict(row) for row in database.execute(f"SELECT * FROM {view}")]

        assert {view for view in VIEWS if rows(view)} == set(VIEWS)
        assert {(row["label"], row["status"]) for row in rows("job_history")} == {
            ("plot", "done"),
            ("failing", "failed"),
        }
        assert [(row["file"], row["made_from"]) for row in rows("made_from")] == [("dot.png", "raw.csv")]
        (picture,) = [row for row in rows("saved_files") if row["filename"] == "dot.png"]
        assert (picture["made_by_job"], picture["version"]) == ("plot", 1)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", picture["saved"])
        (session,) = rows("sessions")
        assert (session["workspace"], session["cells"]) == (str(worked.workspace), 2)


@pytest.mark.slow
def test_datasette_shows_the_records_and_cannot_change_them(worked: Worked) -> None:
    (shown,) = re.findall(r"datasette (?:serve )?(.*records\.db.*)", README.read_text())
    with needed("datasette"):
        interpreter = python("datasette")
    options = [str(records(worked)) if word.endswith("records.db") else word for word in shown.split()]
    command = [str(interpreter), "-m", "datasette", *options, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stderr is not None
            address = next(
                found[1] for line in process.stderr if (found := re.search(r"running on (http://[\d.]+:\d+)", line))
            )

            def page(path: str) -> str:
                with urlopen(f"{address}/records{path}", timeout=WITHIN_S) as answer:
                    return str(answer.read().decode())

            front = page("")
            assert all(f"/records/{name}" in front for name in (*VIEWS, "frames", "cells", "jobs", "artifacts"))
            assert "raw.csv" in page("/saved_files")
            assert "no good &lt;b&gt;" in page("/job_history")
            assert json.loads(page("/made_from.json?_shape=array"))[0]["file"] == "dot.png"
            assert "1 row where search matches" in page("/cells?_search=commas")
            with pytest.raises(HTTPError):
                page("?sql=delete+from+frames")
        finally:
            process.terminate()
            process.wait(WITHIN_S)
