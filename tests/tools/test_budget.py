"""Answers cut to a door's budget."""

from __future__ import annotations

from typing import Any

import pytest

from cellhost.tools.budget import fit, size

ROOM = 2_000
NAMES = [f"name_{number}" for number in range(500)]

RESULTS: dict[str, dict[str, Any]] = {
    "a long list": {"count": 500, "items": NAMES, "next_cursor": "c"},
    "a long text": {"path": "a.txt", "content": "x" * 9_000, "bytes": 9_000},
    "a large object": {"python": "3.11", "packages": dict.fromkeys(NAMES, "1.0")},
    "a list and an object": {"root": "v-1", "nodes": NAMES, "info": {name: {"depth": 1} for name in NAMES}},
    "a list of long texts": {"cells": [{"code": "y" * 3_000} for _ in range(3)]},
}


@pytest.mark.parametrize("what", RESULTS)
def test_an_answer_over_the_budget_keeps_something_of_every_member_and_says_how_to_go_on(what: str) -> None:
    result = RESULTS[what]
    cut = fit(result, ROOM, "offset: the next line")
    assert size(cut) <= ROOM
    assert (cut["truncated"], cut["go_on_with"]) == (True, "offset: the next line")
    for name, value in result.items():
        assert cut[name] == value or 0 < len(cut[name]) < len(value), name


def test_of_a_collection_by_names_the_first_members_are_whole() -> None:
    tables = {name: {"columns": ["id", "body"], "rows_estimate": 3} for name in NAMES}
    cut = fit(tables, ROOM, "query", keyed=True)
    assert size(cut) <= ROOM
    kept = [name for name in cut if name not in {"truncated", "go_on_with"}]
    assert kept == NAMES[: len(kept)]
    assert len(kept) > 20
    assert all(cut[name] == tables[name] for name in kept)


def test_one_member_that_alone_is_over_the_budget_is_cut_in_its_list() -> None:
    tables = {"wide": {"columns": NAMES, "rows_estimate": 3}, "narrow": {"columns": ["a"], "rows_estimate": 1}}
    cut = fit(tables, ROOM, "query", keyed=True)
    assert size(cut) <= ROOM
    assert cut["wide"]["columns"] == NAMES[: len(cut["wide"]["columns"])] != []
    assert cut["narrow"] == tables["narrow"]
    cut = fit({"wide": NAMES, "narrow": ["a"]}, ROOM, "query", keyed=True)
    assert cut["wide"] == NAMES[: len(cut["wide"])] != []
    assert cut["narrow"] == ["a"]


def test_an_answer_within_the_budget_is_left_alone() -> None:
    assert fit({"a": 1}, ROOM, "offset") == {"a": 1}
