"""Browsing, searching and showing frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.errors import NotFound

from .checks import only_issue

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Refused


# frames


def add_cell(dispatcher: Dispatcher, frame_id: str, code: str) -> str:
    return dispatcher.store.project("default").cells.add(frame_id=frame_id, code=code, status="done").cell_id


async def test_browsing_answers_with_the_newest_sessions(dispatcher: Dispatcher) -> None:
    assert await dispatcher("frames") == {"mode": "browse", "frames": [], "next_cursor": None}
    root = (await dispatcher("frame_new", ["session", "first"]))["frame_id"]
    listing = await dispatcher("frames", {"roots_only": False})
    assert [frame["frame_id"] for frame in listing["frames"]] == [root, dispatcher.frame_id]
    assert listing["frames"][0] == {
        "frame_id": root,
        "parent_id": dispatcher.frame_id,
        "root_frame_id": dispatcher.frame_id,
        "kind": "session",
        "name": "first",
        "task_summary": None,
        "model": None,
        "status": "ready",
        "depth": 1,
        "workspace": str(dispatcher.host.workspace.root),
        "created_at": listing["frames"][0]["created_at"],
        "updated_at": listing["frames"][0]["created_at"],
    }
    assert [frame["frame_id"] for frame in (await dispatcher("frames"))["frames"]] == [dispatcher.frame_id]
    assert await dispatcher("frames", {"status": "failed"}) == {"mode": "browse", "frames": [], "next_cursor": None}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("penguins", {"named"}),
        ("PENG", {"named"}),
        ("analysis penguins", {"named"}),
        ("read_csv", {"coded"}),
        ("summary", {"summarised"}),
        ("no such thing", set[str]()),
        ('"', set[str]()),
        ("*", set[str]()),
        ("a AND OR NOT (", set[str]()),
        ("'; DROP TABLE frames; --", set[str]()),
        ("\x00", set[str]()),
        ("é" * 1000, set[str]()),
    ],
    ids=ascii,
)
async def test_searching_finds_names_summaries_and_code_and_takes_any_text(
    shared: Dispatcher, pattern: str, found: set[str]
) -> None:
    shared.frame_id = shared.store.new_frame(kind="session")
    frames = {name: (await shared("frame_new", ["turn"]))["frame_id"] for name in ("named", "coded", "summarised")}
    await shared("frame_update", {"frame_id": frames["named"], "name": "analysis of penguins"})
    await shared("frame_update", {"frame_id": frames["summarised"], "task_summary": "a summary"})
    add_cell(shared, frames["coded"], "pd.read_csv('x')")
    answer = await shared("frames", {"pattern": pattern})
    assert (answer["mode"], answer["pattern"], answer["next_cursor"]) == ("search", pattern, None)
    ids = {frame["frame_id"] for frame in answer["frames"]}
    assert {name for name, frame_id in frames.items() if frame_id in ids} == found
    roots = await shared("frames", {"pattern": pattern, "rootsOnly": True})
    assert not {frame["frame_id"] for frame in roots["frames"]} & set(frames.values())


async def test_a_frame_is_shown_with_a_page_of_its_cells_and_its_children(dispatcher: Dispatcher) -> None:
    frame_id = (await dispatcher("frame_new", ["turn"]))["frame_id"]
    child = dispatcher.store.new_frame(kind="turn", parent_id=frame_id)
    empty = await dispatcher("frames", [frame_id])
    assert {name: empty[name] for name in ("cells", "page", "page_size", "n_pages", "total_cells", "last_page")} == {
        "cells": [],
        "page": 0,
        "page_size": 50,
        "n_pages": 1,
        "total_cells": 0,
        "last_page": True,
    }
    assert set(empty) == {*("frame", "cells", "children", "page", "page_size", "n_pages", "total_cells", "last_page")}
    assert [each["frame_id"] for each in empty["children"]] == [child]
    cells = [add_cell(dispatcher, frame_id, f"print({number})") for number in range(5)]
    seen: list[str] = []
    for number in range(3):
        page = await dispatcher("frames", {"frame_id": frame_id, "page": number, "page_size": 2})
        seen += [cell["cell_id"] for cell in page["cells"]]
        assert (page["page"], page["n_pages"], page["total_cells"], page["last_page"]) == (number, 3, 5, number == 2)
        assert page["frame"]["frame_id"] == frame_id
    assert seen == cells
    beyond = await dispatcher("frames", {"frame_id": frame_id, "page": 2**53 - 1, "page_size": 200})
    assert (beyond["cells"], beyond["last_page"]) == ([], True)


async def test_the_forms_of_frames_are_the_same(dispatcher: Dispatcher) -> None:
    frame_id = (await dispatcher("frame_new", ["turn"]))["frame_id"]
    named = {"frame_id": frame_id, "page": 0, "page_size": 10}
    answer = await dispatcher("frames", named)
    for params in ([named], {"frameId": frame_id, "page": 0, "pageSize": 10}, [frame_id, *[None] * 4, 0, 10]):
        assert await dispatcher("frames", params) == answer


@pytest.mark.parametrize("search", [None, "word"])
async def test_pages_of_frames_have_each_exactly_once_while_others_are_added(
    dispatcher: Dispatcher, search: str | None
) -> None:
    before = [(await dispatcher("frame_new", ["turn", f"word {number}"]))["frame_id"] for number in range(7)]
    params: dict[str, Any] = {"limit": 2, "roots_only": False, "pattern": search}
    seen: list[str] = []
    cursor = None
    while True:
        page = await dispatcher("frames", params | {"cursor": cursor})
        assert len(page["frames"]) <= 2
        seen += [frame["frame_id"] for frame in page["frames"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        await dispatcher("frame_new", ["turn", "word new"])
    assert [frame_id for frame_id in seen if frame_id != dispatcher.frame_id] == before[::-1]


async def test_frames_that_are_absent_foreign_or_malformed_are_told_in_the_same_words(
    dispatcher: Dispatcher, refused: Refused
) -> None:
    foreign = dispatcher.store.new_frame(kind="turn", project_id="other")
    said = set[tuple[str, str, str | None]]()
    for frame_id in ("f-000000000000", foreign, "nonsense", "", "../..", "f-" + "0" * 200):
        for method in ("frames", "frame_update"):
            if frame_id or method == "frames":
                error = await refused(dispatcher, method, [frame_id])
                assert isinstance(error, NotFound)
                said.add((error.kind, str(error), error.hint))
    assert said == {("not_found", "no such frame", "call frames without arguments to list them")}


async def test_a_project_that_is_not_there_is_not_begun_by_looking(dispatcher: Dispatcher, refused: Refused) -> None:
    projects = dispatcher.host.config.data_folder() / "projects"
    await dispatcher("frames")
    for project_id in ("absent", "NOT A NAME", "../default", ".."):
        for more in ({}, {"pattern": "x"}, {"frame_id": "f-000000000000"}):
            error = await refused(dispatcher, "frames", {"project_id": project_id} | more)
            assert isinstance(error, NotFound)
            assert str(error) == "no such project"
    assert [folder.name for folder in projects.iterdir()] == ["default"]


@pytest.mark.parametrize("cursor", ["", "nonsense", "YXJ0aWZhY3RzOjE", "ZnJhbWVzOi0x", "ZnJhbWVzOjEx!", "é"])
async def test_a_cursor_that_frames_did_not_give_is_told(shared: Dispatcher, refused: Refused, cursor: str) -> None:
    for params in ({"cursor": cursor}, {"pattern": "word", "cursor": cursor}):
        path, message = only_issue(await refused(shared, "frames", params))
        assert path == "$.cursor"
        assert message.startswith("is not a cursor of this listing")
