"""All that can be read of a project, listed page by page."""

import io

import pytest

from cellhost.store.artifacts import NewVersion
from cellhost.store.catalogue import Entry, catalogue_page
from cellhost.store.cursors import encode_cursor
from cellhost.store.errors import InvalidParams
from cellhost.store.jobs import NewJob
from cellhost.store.records import Records


def save(records: Records, frame_id: str, filename: str) -> str:
    with records.objects.stage(io.BytesIO(b"bytes")) as staged:
        new = NewVersion(frame_id=frame_id, filename=filename, content_type="text/csv")
        return records.artifacts.save(staged, new).version_id


def fill(records: Records, frame_id: str, name: str) -> dict[str, str]:
    """One more of each kind; their ids by kind."""
    turn = records.frames.add(kind="turn", parent_id=frame_id, name=name)
    job, _ = records.jobs.add(NewJob(frame_id=frame_id, code=f"print('{name}')", server_id="s-1", label=name))
    return {"artifact": save(records, frame_id, name), "job": job.exec_id, "frame": turn.frame_id}


def pages(records: Records, limit: int, frame_id: str) -> list[list[Entry]]:
    """Every page, with one more of each kind added after each."""
    seen: list[list[Entry]] = []
    cursor = None
    while len(seen) < 50:
        page = catalogue_page(records.database, limit=limit, cursor=cursor)
        seen.append(page.entries)
        fill(records, frame_id, f"late {len(seen)}")
        cursor = page.next_cursor
        if cursor is None:
            break
    return seen


def test_a_project_without_anything_has_one_empty_page(records: Records) -> None:
    page = catalogue_page(records.database)
    assert (page.entries, page.next_cursor) == ([], None)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 21, 22, 50])
def test_pages_have_everything_exactly_once_while_rows_are_added(records: Records, frame_id: str, limit: int) -> None:
    made = [fill(records, frame_id, str(number)) for number in range(7)]
    whole = catalogue_page(records.database, limit=200).entries
    newest = made[::-1]
    wanted = [each[kind] for kind in ("artifact", "job", "frame") for each in newest]
    assert [entry.id for entry in whole] == [*wanted, frame_id]
    seen = pages(records, limit, frame_id)
    shown = [entry.name for page in seen for entry in page]
    # Each kind is entered once; what was added before that is in it too.
    assert [name for name in shown if not (name or "").startswith("late")] == [entry.name for entry in whole]
    ids = [entry.id for page in seen for entry in page]
    assert len(set(ids)) == len(ids)
    assert all(len(page) == limit for page in seen[:-1])


def test_an_artifact_is_listed_once_by_its_latest_version(records: Records, frame_id: str) -> None:
    save(records, frame_id, "a.csv")
    latest = save(records, frame_id, "a.csv")
    artifact, frame = catalogue_page(records.database).entries
    assert artifact == Entry(kind="artifact", id=latest, name="a.csv", ordinal=2, content_type="text/csv", size_bytes=5)
    assert frame == Entry(kind="frame", id=frame_id, name=None, frame_kind="session")


@pytest.mark.parametrize("cursor", ["", "x", "ünï", encode_cursor("artifacts", 5), encode_cursor("resource-cell", 5)])
def test_a_cursor_of_something_else_is_refused(records: Records, cursor: str) -> None:
    with pytest.raises(InvalidParams, match=r"\$.cursor: is not a cursor of this listing"):
        catalogue_page(records.database, cursor=cursor)
