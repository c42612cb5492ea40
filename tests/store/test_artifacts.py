"""Artifacts: saved whole with their edges, or not at all."""

import io
import sqlite3
from typing import Any

import pytest

from cellhost.store.artifacts import NewVersion
from cellhost.store.errors import InvalidParams, NotFound, StorageError
from cellhost.store.filenames import clean_filename
from cellhost.store.records import Records
from cellhost.store.rows import Version
from cellhost.store.store import Store


def save(records: Records, frame_id: str, filename: str = "out.csv", content: bytes = b"1", **more: Any) -> Version:
    fields: dict[str, Any] = {"content_type": "text/csv"} | more
    new = NewVersion(frame_id=frame_id, filename=filename, **fields)
    with records.objects.stage(io.BytesIO(content)) as staged:
        return records.artifacts.save(staged, new)


def kept(records: Records) -> dict[str, Any]:
    counts = {
        table: records.database.value(f"SELECT count(*) FROM {table}")
        for table in ("artifacts", "artifact_versions", "lineage_edges")
    }
    objects = [path for path in (records.folder / "objects").rglob("*") if path.is_file()]
    return counts | {"objects": len(objects)}


def filenames(listing: Any) -> list[str]:
    return [artifact["filename"] for artifact in listing["artifacts"]]


def test_saving_a_name_again_makes_the_next_version(records: Records, frame_id: str) -> None:
    first = save(records, frame_id, content=b"1", priority=7)
    second = save(records, frame_id, content=b"22", content_type="text/plain")
    assert (first.artifact_id, first.ordinal) == (second.artifact_id, 1)
    assert (second.ordinal, second.size_bytes) == (2, 2)
    artifact = records.artifacts.get(first.artifact_id)
    assert (artifact.latest_version_id, artifact.content_type, artifact.priority) == (
        second.version_id,
        "text/plain",
        7,
    )
    assert records.artifacts.versions(first.artifact_id) == [first, second]
    assert records.artifacts.version(first.version_id) == first
    with records.objects.open(second.checksum, second.size_bytes) as opened:
        assert opened.read() == b"22"


def test_a_name_is_an_artifact_of_its_session(records: Records, frame_id: str) -> None:
    turn = records.frames.add(kind="turn", parent_id=frame_id).frame_id
    other = records.frames.add(kind="session").frame_id
    saved = [save(records, frame) for frame in (frame_id, turn, other)]
    assert saved[0].artifact_id == saved[1].artifact_id != saved[2].artifact_id
    assert saved[1].frame_id == turn


def test_inputs_become_edges_once(records: Records, frame_id: str) -> None:
    cell = records.cells.add(frame_id=frame_id, code="work()")
    inputs = [save(records, frame_id, f"in{number}.csv").version_id for number in range(2)]
    output = save(records, frame_id, input_version_ids=(*inputs, inputs[0]), producing_cell_id=cell.cell_id)
    rows = records.database.rows("SELECT input_version_id, output_version_id, producing_cell_id FROM lineage_edges")
    assert rows == [(found, output.version_id, cell.cell_id) for found in inputs]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"input_version_ids": ("v-000000000000",)}, NotFound, "no such version"),
        ({"producing_cell_id": "c-000000000000"}, NotFound, "no such cell"),
        ({"frame_id": "f-000000000000"}, NotFound, "no such frame"),
        ({"input_version_ids": tuple(f"v-{n:012x}" for n in range(501))}, InvalidParams, "at most 500"),
        ({"filename": "../.."}, InvalidParams, "must name a file"),
    ],
)
def test_a_refused_save_leaves_no_file_row_or_edge(
    records: Records, frame_id: str, changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    source = save(records, frame_id, "source.csv", b"source")
    before = kept(records)
    fields: dict[str, Any] = {"frame_id": frame_id, "input_version_ids": (source.version_id,)} | changed
    with pytest.raises(error, match=message):
        save(records, content=b"refused", **fields)
    assert kept(records) == before


def test_another_projects_version_is_no_input(store: Store, records: Records, frame_id: str) -> None:
    theirs = store.project("q")
    foreign = save(theirs, theirs.frames.add(kind="session").frame_id)
    with pytest.raises(NotFound, match="no such version"):
        save(records, frame_id, input_version_ids=(foreign.version_id,))
    with pytest.raises(NotFound, match="no such version"):
        records.artifacts.version(foreign.version_id)
    assert kept(records)["objects"] == 0


def test_a_save_that_fails_at_its_commit_takes_its_bytes_back(records: Records, frame_id: str) -> None:
    save(records, frame_id, "kept.csv", b"kept")
    before = kept(records)
    # A trigger that refuses at the end stands for a disk that fills up between the rows and the commit.
    records.database.execute(
        "CREATE TEMP TABLE later (version_id TEXT REFERENCES later_still (version_id) DEFERRABLE INITIALLY DEFERRED)"
    )
    records.database.execute("CREATE TEMP TABLE later_still (version_id TEXT PRIMARY KEY)")
    records.database.execute(
        "CREATE TEMP TRIGGER refuse AFTER INSERT ON main.artifact_versions"
        " BEGIN INSERT INTO later VALUES (new.version_id); END"
    )
    for content in (b"new", b"kept"):
        with pytest.raises(sqlite3.IntegrityError):
            save(records, frame_id, content=content)
        assert kept(records) == before
    records.database.execute("DROP TRIGGER refuse")
    assert save(records, frame_id, content=b"new").ordinal == 1


def save_many(records: Records, frame_id: str) -> None:
    for number in range(500):
        save(records, frame_id, f"{number}.csv", f"{number}".encode())


def test_a_full_disk_keeps_nothing_of_a_save(records: Records, frame_id: str) -> None:
    pages = records.database.value("PRAGMA page_count")
    records.database.value(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="full"):
        save_many(records, frame_id)
    after = kept(records)
    assert after["objects"] == after["artifact_versions"] == after["artifacts"] < 500


def test_the_listing_is_newest_first_with_the_latest_version(records: Records, frame_id: str) -> None:
    save(records, frame_id, "a.csv")
    latest = save(records, frame_id, "b.png", b"22", content_type="image/png")
    save(records, frame_id, "a.csv", b"333")
    listing = records.artifacts.list()
    assert (listing["count"], filenames(listing), listing["next_cursor"]) == (2, ["b.png", "a.csv"], None)
    assert (
        listing["artifacts"][0]
        | {
            "latest_version_id": latest.version_id,
            "checksum": latest.checksum,
            "size_bytes": 2,
            "ordinal": 1,
        }
        == listing["artifacts"][0]
    )
    assert (listing["artifacts"][1]["ordinal"], listing["artifacts"][1]["size_bytes"]) == (2, 3)


def test_the_listing_is_searched_and_filtered(records: Records, frame_id: str) -> None:
    for name in ("Birds.csv", "birds.png", "100%_done.txt", "100 done.txt"):
        save(records, frame_id, name, content_type="image/png" if name.endswith("png") else "text/csv")
    artifacts = records.artifacts
    assert filenames(artifacts.list(search="bird")) == ["birds.png", "Birds.csv"]
    assert filenames(artifacts.list(search="0%_d")) == ["100%_done.txt"]
    assert filenames(artifacts.list(search="' OR 1=1")) == []
    assert filenames(artifacts.list(filename="birds.png")) == ["birds.png"]
    assert filenames(artifacts.list(content_type="image/png")) == ["birds.png"]
    assert filenames(artifacts.list(root_frame_id="f-000000000000")) == []


def test_pages_have_every_artifact_exactly_once_while_they_change(records: Records, frame_id: str) -> None:
    for number in range(9):
        save(records, frame_id, f"{number}.csv")
    seen: list[str] = []
    cursor = None
    while True:
        listing = records.artifacts.list(limit=4, cursor=cursor)
        seen += filenames(listing)
        cursor = listing["next_cursor"]
        if cursor is None:
            break
        save(records, frame_id, f"late {len(seen)}.csv")
        save(records, frame_id, "0.csv", b"changed")
    assert seen == [f"{number}.csv" for number in reversed(range(9))]
    with pytest.raises(InvalidParams, match=r"\$.cursor"):
        records.artifacts.list(cursor=records.frames.browse(limit=1)["next_cursor"] or "x")


def test_an_absent_artifact_is_not_found(records: Records) -> None:
    with pytest.raises(NotFound, match="no such artifact"):
        records.artifacts.get("a-000000000000")


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("plot.png", "plot.png"),
        ("out/figures/plot.png", "plot.png"),
        ("..\\..\\evil.exe", "evil.exe"),
        ("  tab\there\n.txt ", "tabhere.txt"),
        ("photo\u202egnp.exe", "photognp.exe"),
        ("e\u0301te\u0301.csv", "été.csv"),
        ("half \ud800.csv", "half .csv"),
        ("ü" * 200 + ".csv", "ü" * 125 + ".csv"),
        ("x" * 300, "x" * 255),
        ("folder/", "folder"),
    ],
)
def test_names_are_cleaned_of_what_deceives_or_breaks(name: str, cleaned: str) -> None:
    assert clean_filename(name) == cleaned
    assert len(cleaned.encode()) <= 255


@pytest.mark.parametrize("name", ["", "..", ".", "/", "a/..", "\u202e", " \t"])
def test_a_name_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(InvalidParams, match="must name a file"):
        clean_filename(name)
