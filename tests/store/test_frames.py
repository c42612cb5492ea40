"""Frames: made, changed, browsed, searched and looked into."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cellhost.store.errors import InvalidParams, NotFound
from cellhost.store.frames import FrameListing, FrameSearch
from cellhost.store.ids import new_id
from cellhost.store.records import Records
from cellhost.store.rows import Cell, Frame
from cellhost.store.sqlite import Database
from cellhost.store.store import Store
from cellhost.store.tables import RECORDS, Schema


def names(listing: FrameListing | FrameSearch) -> list[Any]:
    return [frame["name"] for frame in listing["frames"]]


def test_a_root_frame_is_its_own_session(records: Records) -> None:
    frame = records.frames.add(kind="session", name="first", workspace="folder")
    assert records.frames.get(frame.frame_id) == frame
    assert (frame.root_frame_id, frame.parent_id, frame.depth) == (frame.frame_id, None, 0)
    assert frame.created_at == frame.updated_at > 1_700_000_000_000


def test_a_child_belongs_to_its_parents_session_and_workspace(records: Records) -> None:
    root = records.frames.add(kind="session", workspace="folder")
    turn = records.frames.add(kind="turn", parent_id=root.frame_id)
    job = records.frames.add(kind="job", parent_id=turn.frame_id, workspace="elsewhere")
    assert (turn.root_frame_id, turn.depth, turn.workspace) == (root.frame_id, 1, "folder")
    assert (job.root_frame_id, job.depth, job.workspace) == (root.frame_id, 2, "elsewhere")
    assert records.frames.children(root.frame_id) == [turn]


def test_a_given_id_is_used_once(records: Records) -> None:
    frame_id = new_id("f")
    assert records.frames.add(kind="session", frame_id=frame_id).frame_id == frame_id
    with pytest.raises(InvalidParams, match=r"\$.frame_id: is taken"):
        records.frames.add(kind="session", frame_id=frame_id)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"kind": ""}, InvalidParams, r"\$.kind"),
        ({"status": "asleep"}, InvalidParams, r"\$.status: must be one of ready, processing"),
        ({"frame_id": "f-1"}, InvalidParams, "12 hex digits"),
        ({"frame_id": "../../etc"}, InvalidParams, "12 hex digits"),
        ({"parent_id": "f-000000000000"}, NotFound, "no such frame"),
    ],
)
def test_a_bad_frame_is_refused(
    records: Records, changed: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        records.frames.add(**({"kind": "turn"} | changed))
    assert records.frames.browse()["frames"] == []


def test_an_update_changes_what_is_given(records: Records) -> None:
    frame = records.frames.add(kind="turn", name="before")
    records.database.execute("UPDATE frames SET updated_at = 1")
    changed = records.frames.update(frame.frame_id, status="done", task_summary="counted birds")
    assert (changed.name, changed.status, changed.task_summary) == ("before", "done", "counted birds")
    assert changed.updated_at > 1
    assert records.frames.get(frame.frame_id) == changed
    with pytest.raises(NotFound, match="no such frame"):
        records.frames.update("f-000000000000", status="done")
    with pytest.raises(InvalidParams, match=r"\$.status"):
        records.frames.update(frame.frame_id, status="asleep")


def test_browsing_has_roots_only_newest_first(records: Records) -> None:
    root = records.frames.add(kind="session", name="one", status="done")
    records.frames.add(kind="turn", name="child", parent_id=root.frame_id)
    records.frames.add(kind="session", name="two")
    assert names(records.frames.browse()) == ["two", "one"]
    assert names(records.frames.browse(roots_only=False)) == ["two", "child", "one"]
    assert names(records.frames.browse(status="done")) == ["one"]
    listing = records.frames.browse(limit=2)
    assert (listing["mode"], listing["next_cursor"]) == ("browse", None)
    assert set(listing["frames"][0]) >= {"frame_id", "root_frame_id", "kind", "workspace", "updated_at"}


def test_pages_have_every_frame_exactly_once_while_frames_are_added(records: Records) -> None:
    for number in range(25):
        records.frames.add(kind="session", name=str(number))
    seen: list[str] = []
    cursor = None
    for page in range(10):
        listing = records.frames.browse(limit=4, cursor=cursor)
        seen += names(listing)
        records.frames.add(kind="session", name=f"late {page}")
        cursor = listing["next_cursor"]
        if cursor is None:
            break
    assert seen == [str(number) for number in reversed(range(25))]


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "!!", "ünï", "ZnJhbWVz", "YXJ0aWZhY3RzOjE", "ZnJhbWVzOi0x", "ZnJhbWVzOjk5OTk5OTk5OTk5OTk5OTk5OTk5"],
)
def test_a_cursor_of_something_else_is_refused(records: Records, cursor: str) -> None:
    with pytest.raises(InvalidParams, match=r"\$.cursor"):
        records.frames.browse(cursor=cursor)


def test_search_finds_names_summaries_and_what_cells_contain(records: Records) -> None:
    named = records.frames.add(kind="session", name="Penguin census")
    worked = records.frames.add(kind="session", name="other")
    records.cells.add(frame_id=worked.frame_id, code="import penguins\nprint(penguins.weight.mean())")
    records.frames.add(kind="session", name="nothing of it")
    assert names(records.frames.search("penguin")) == ["other", "Penguin census"]
    assert names(records.frames.search("penguin weight")) == ["other"]
    assert names(records.frames.search("CENSUS")) == ["Penguin census"]
    records.frames.update(named.frame_id, name="Albatross census")
    assert names(records.frames.search("penguin")) == ["other"]
    found = records.frames.search("albatross", status="ready", roots_only=True)
    assert (found["mode"], found["pattern"], names(found)) == ("search", "albatross", ["Albatross census"])
    assert names(records.frames.search("albatross", status="done")) == []


def test_search_finds_what_a_job_printed(records: Records) -> None:
    frame = records.frames.add(kind="session", name="printed")
    cell = records.cells.add(frame_id=frame.frame_id, code="main()")
    records.database.execute(
        "UPDATE cells SET stdout_tail = 'converged after 12 steps' WHERE cell_id = ?", [cell.cell_id]
    )
    assert names(records.frames.search("converged")) == ["printed"]


def test_search_pages_like_browse(records: Records) -> None:
    for number in range(7):
        records.frames.add(kind="session", name=f"run {number}")
    first = records.frames.search("run", limit=4)
    second = records.frames.search("run", limit=4, cursor=first["next_cursor"])
    assert names(first) + names(second) == [f"run {number}" for number in reversed(range(7))]
    assert second["next_cursor"] is None


def test_search_has_every_frame_exactly_once_while_frames_and_cells_are_added(records: Records) -> None:
    frames = [records.frames.add(kind="session", name=f"{number}") for number in range(30)]
    for number in range(300):
        records.cells.add(frame_id=frames[number * 7 % 30].frame_id, code=f"plot({number})")
    seen: list[str] = []
    cursor = None
    for page in range(20):
        listing = records.frames.search("plot", limit=4, cursor=cursor)
        seen += names(listing)
        late = records.frames.add(kind="session", name=f"late {page}")
        records.cells.add(frame_id=late.frame_id, code="plot(late)")
        records.cells.add(frame_id=frames[page].frame_id, code="plot(again)")
        cursor = listing["next_cursor"]
        if cursor is None:
            break
    assert seen == [str(number) for number in reversed(range(30))]


def test_a_frame_with_thousands_of_matching_cells_hides_no_other(records: Records) -> None:
    first, full, last = (records.frames.add(kind="session", name=name) for name in ("first", "full", "plot last"))
    records.cells.add(frame_id=first.frame_id, code="plot()")
    with records.database.transaction():
        for _ in range(3000):
            records.cells.add(frame_id=full.frame_id, code="plot()")
    assert names(records.frames.search("plot", limit=3)) == ["plot last", "full", "first"]
    pages = [records.frames.search("plot", limit=1)]
    while pages[-1]["next_cursor"]:
        pages.append(records.frames.search("plot", limit=1, cursor=pages[-1]["next_cursor"]))
    assert [names(page) for page in pages] == [["plot last"], ["full"], ["first"]]
    assert names(records.frames.search("plot", status="done")) == []
    records.frames.update(first.frame_id, status="done")
    assert names(records.frames.search("plot", status="done")) == ["first"]
    assert last.frame_id == records.frames.search("plot", limit=1)["frames"][0]["frame_id"]


@pytest.mark.parametrize("pattern", ["plot", "pl om", "rare", "run", "plot 7", "run 1", "zug", "zügig", "v", "absent"])
def test_a_filtered_search_finds_what_passes_the_filter_of_what_an_unfiltered_one_finds(
    records: Records, pattern: str
) -> None:
    parent: str | None = None
    with records.database.transaction():
        for number in range(300):
            status = ("done", "failed", "processing")[0 if number % 50 else number // 50 % 3]
            frame = records.frames.add(kind="turn", name=f"run {number}", status=status, parent_id=parent)
            parent = frame.frame_id if number % 3 else None
            for cell in range(number % 4):
                records.cells.add(frame_id=frame.frame_id, code=f"plot({number}, v{cell * number}) # common zügig")
        last = records.frames.add(kind="session", name="last")
        records.cells.add(frame_id=last.frame_id, code="rare")
    every = records.frames.search(pattern, limit=1000)["frames"]
    for only in (None, "done", "failed", "processing", "ready"):
        for roots_only in (False, True):
            wanted = [
                each["name"]
                for each in every
                if only in (None, each["status"]) and not (roots_only and each["parent_id"])
            ]
            seen: list[str] = []
            page = records.frames.search(pattern, status=only, roots_only=roots_only, limit=7)
            seen += names(page)
            while page["next_cursor"]:
                cursor = page["next_cursor"]
                page = records.frames.search(pattern, status=only, roots_only=roots_only, limit=7, cursor=cursor)
                seen += names(page)
            assert seen == wanted, (only, roots_only)


def test_a_common_word_and_a_filter_that_hardly_a_frame_passes_cost_little(records: Records) -> None:
    with records.database.transaction():
        for number in range(500):
            status = "failed" if number in (3, 250) else "done"
            frame = records.frames.add(kind="session", name=f"run {number}", status=status)
            for _ in range(20):
                records.cells.add(frame_id=frame.frame_id, code="plot()")
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    records.database.open().set_progress_handler(count, 100)
    for pattern, found in (("plot", ["run 250", "run 3"]), ("run", ["run 250", "run 3"])):
        steps = 0
        assert names(records.frames.search(pattern, status="failed", limit=5)) == found
        assert steps * 100 < 10_000, "to look at every text takes more"


def test_browsing_roots_of_a_status_passes_over_no_other_frames(records: Records) -> None:
    root = records.frames.add(kind="session", name="root", status="done")
    with records.database.transaction():
        for _ in range(2000):
            records.frames.add(kind="turn", parent_id=root.frame_id, status="done")
            records.frames.add(kind="session", status="processing")
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    records.database.open().set_progress_handler(count, 100)
    assert names(records.frames.browse(status="done")) == ["root"]
    assert steps * 100 < 1000, "to look at every frame of the status or every root takes 10,000"


def test_the_beginning_of_a_word_finds_all_words_however_many_begin_so(records: Records) -> None:
    frame = records.frames.add(kind="session", name="many")
    with records.database.transaction():
        for number in range(250):
            records.cells.add(frame_id=frame.frame_id, code=f"value{number:03}")
    other = records.frames.add(kind="session", name="one")
    records.cells.add(frame_id=other.frame_id, code="ünder value999 Value Данные")
    for pattern, found in (
        ("val", ["one", "many"]),
        ("VALUE1", ["many"]),
        ("value00", ["many"]),
        ("value9", ["one"]),
        ("value999", ["one"]),
        ("value9999", []),
        ("under val", ["one"]),
        ("ünd value", ["one"]),
        ("val absent", []),
        ("ДАНН", ["one"]),
        ("данные ünd", ["one"]),
        ("дата", []),
    ):
        assert names(records.frames.search(pattern)) == found, pattern


def test_records_of_an_older_version_are_found_in_the_order_of_their_frames(tmp_path: Path) -> None:
    older = Schema(RECORDS.name, RECORDS.tables, RECORDS.steps[:1])
    database = Database(tmp_path / "data/projects/p/records.db", name="p", schema=older, synchronous="NORMAL")
    for number in range(6):
        frame_id = f"f-{number:012x}"
        known: dict[str, Any] = {"frame_id": frame_id, "root_frame_id": frame_id, "status": "ready"}
        database.insert(Frame(kind="session", name=str(number), depth=0, created_at=1, updated_at=1, **known))
    for number in (3, 1, 5, 1, 0, 3):
        seq = int(database.value("SELECT count(*) + 1 FROM cells WHERE frame_id = ?", [f"f-{number:012x}"]))
        frame_id = f"f-{number:012x}"
        known = dict[str, Any](frame_id=frame_id, root_frame_id=frame_id, status="done")
        cell_id = f"c-{number}{seq}"
        database.insert(
            Cell(cell_id=cell_id, seq=seq, origin="agent", language="python", code="plot()", code_hash="h", **known)
        )
    database.close()
    with Store(tmp_path / "data") as store:
        records = store.project("p")
        assert names(records.frames.search("plot")) == ["5", "3", "1", "0"]
        assert [cell["seq"] for cell in records.frames.detail("f-000000000001")["cells"]] == [1, 2]
        records.cells.add(frame_id="f-000000000002", code="plot()")
        assert names(records.frames.search("plot")) == ["5", "3", "2", "1", "0"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=st.text(max_size=60))
@example('"')
@example('" OR name:* NEAR(')
@example("a AND NOT b* -c ^d {e} f:g")
@example("\x00 null \ud800")
@example("*")
@example(" ")
@example("word " * 200)
def test_any_text_may_be_searched_for(records: Records, pattern: str) -> None:
    found = records.frames.search(pattern)
    assert found == {"mode": "search", "pattern": pattern, "frames": [], "next_cursor": None}


def test_every_word_of_a_name_finds_it(records: Records) -> None:
    name = f'Żółw "quoted" über_snake {uuid.uuid4()}'
    records.frames.add(kind="session", name=name)
    for word in [*name.split(), name]:
        assert names(records.frames.search(word)) == [name], word


def test_detail_pages_the_cells_in_order(records: Records) -> None:
    frame = records.frames.add(kind="session")
    child = records.frames.add(kind="turn", parent_id=frame.frame_id)
    for number in range(5):
        records.cells.add(frame_id=frame.frame_id, code=f"step({number})")
    first, last = (records.frames.detail(frame.frame_id, page=page, page_size=3) for page in (0, 1))
    assert [cell["code"] for cell in first["cells"]] == ["step(0)", "step(1)", "step(2)"]
    assert [cell["seq"] for cell in last["cells"]] == [4, 5]
    assert (first["n_pages"], first["total_cells"], first["last_page"], last["last_page"]) == (2, 5, False, True)
    assert first["frame"]["frame_id"] == frame.frame_id
    assert [found["frame_id"] for found in first["children"]] == [child.frame_id]
    beyond = records.frames.detail(frame.frame_id, page=9, page_size=3)
    assert (beyond["cells"], beyond["last_page"]) == ([], True)
    empty = records.frames.detail(child.frame_id)
    assert (empty["n_pages"], empty["total_cells"], empty["last_page"]) == (1, 0, True)


@pytest.mark.parametrize("frame_id", ["f-000000000000", "", "'; DROP TABLE frames", "v-000000000000"])
def test_absent_and_malformed_ids_are_the_same_answer(records: Records, frame_id: str) -> None:
    with pytest.raises(NotFound) as caught:
        records.frames.detail(frame_id)
    assert str(caught.value) == "no such frame"
