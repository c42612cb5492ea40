"""Listing files: what a pattern finds, what is left out, and what bounds the walk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from cellhost.tools import file_listing

from .checks import only_issue

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Refused


# Listing


def listed(work: Path, *paths: str) -> None:
    for path in paths:
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(path)


async def test_list_files_answers_with_path_size_and_time(dispatcher: Dispatcher, work: Path) -> None:
    listed(work, "a.txt")
    os.utime(work / "a.txt", ns=(0, 1_700_000_000_123_456_789))
    answer = await dispatcher("list_files")
    assert answer == {"files": [{"path": "a.txt", "bytes": 5, "modified_at": 1_700_000_000_123}], "truncated": False}


FILES = (
    "a.csv",
    "b.txt",
    "data/1.csv",
    "data/2.csv",
    "data/deep/er/3.csv",
    "data-old/4.csv",
    ".hidden",
    ".github/workflows/ci.yml",
    "src/.cache/x.csv",
    "src/__pycache__/x.csv",
    "node_modules/x.csv",
)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["a.csv"]),
        ("./*.csv", ["a.csv"]),
        ("**/*.csv", ["a.csv", "data-old/4.csv", "data/1.csv", "data/2.csv", "data/deep/er/3.csv"]),
        ("**/**/*.csv", ["a.csv", "data-old/4.csv", "data/1.csv", "data/2.csv", "data/deep/er/3.csv"]),
        ("data/*", ["data/1.csv", "data/2.csv"]),
        ("data/**", ["data/1.csv", "data/2.csv", "data/deep/er/3.csv"]),
        ("data/", ["data/1.csv", "data/2.csv", "data/deep/er/3.csv"]),
        ("data/**/*.csv", ["data/1.csv", "data/2.csv", "data/deep/er/3.csv"]),
        ("data/**/er/*", ["data/deep/er/3.csv"]),
        ("*/[1-3].csv", ["data/1.csv", "data/2.csv"]),
        ("data*/?.csv", ["data-old/4.csv", "data/1.csv", "data/2.csv"]),
        ("data", []),
        ("DATA/*", []),
        ("**/x.csv", []),
        ("**/ci.yml", []),
        (".github/**", [".github/workflows/ci.yml"]),
        ("**/.github/**", [".github/workflows/ci.yml"]),
        ("src/.cache/*", ["src/.cache/x.csv"]),
        ("**/__pycache__/*", ["src/__pycache__/x.csv"]),
        ("node_modules/**", ["node_modules/x.csv"]),
        (".*", [".hidden"]),
        ("**", [".hidden", "a.csv", "b.txt", "data-old/4.csv", "data/1.csv", "data/2.csv", "data/deep/er/3.csv"]),
    ],
)
async def test_a_pattern_finds_files_in_order_of_their_paths(
    dispatcher: Dispatcher, work: Path, pattern: str, expected: list[str]
) -> None:
    listed(work, *FILES)
    assert [file["path"] for file in (await dispatcher("list_files", [pattern]))["files"]] == expected


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "data/../../*"])
async def test_a_pattern_that_leads_out_of_the_workspace_is_told(
    dispatcher: Dispatcher, refused: Refused, pattern: str
) -> None:
    error = await refused(dispatcher, "list_files", [pattern])
    assert only_issue(error) == ("$.pattern", "must be relative to the workspace and stay in it")


async def test_links_special_files_and_secrets_are_not_listed(dispatcher: Dispatcher, work: Path) -> None:
    listed(work, "a.txt", ".env", "server.KEY", "keys.pem/inside.txt", ".env.example")
    listed(work, ".cellhost/v-0123456789ab/copy.txt")
    (work / "link.txt").symlink_to("a.txt")
    (work / "folder link").symlink_to("/etc")
    os.mkfifo(work / "fifo")
    listing = await dispatcher("list_files", ["**"])
    assert [file["path"] for file in listing["files"]] == [".env.example", "a.txt"]
    assert (await dispatcher("list_files", [".cellhost/**"]))["files"] == []


async def test_a_name_that_is_not_utf_8_is_listed_so_that_the_answer_can_be_sent(
    dispatcher: Dispatcher, work: Path
) -> None:
    Path(os.fsdecode(os.fsencode(work) + b"/bad\xff.txt")).write_text("x")
    (file,) = (await dispatcher("list_files"))["files"]
    assert file["path"] == "bad\ufffd.txt"


async def test_a_limit_cuts_the_list_and_says_so(dispatcher: Dispatcher, work: Path) -> None:
    listed(work, *(f"{number:03}.txt" for number in range(5)))
    for limit, truncated in ((4, True), (5, False), (6, False)):
        listing = await dispatcher("list_files", {"pattern": "*.txt", "limit": limit})
        assert (len(listing["files"]), listing["truncated"]) == (min(limit, 5), truncated)
    assert (await dispatcher("list_files", ["*.txt", 1]))["files"][0]["path"] == "000.txt"


async def test_without_a_limit_two_hundred_files_are_listed(dispatcher: Dispatcher, work: Path) -> None:
    listed(work, *(f"{number:03}.txt" for number in range(201)))
    listing = await dispatcher("list_files")
    assert (len(listing["files"]), listing["truncated"]) == (200, True)


async def test_the_walk_is_bounded_whatever_matches(
    dispatcher: Dispatcher, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "MAX_ENTRIES", 10)
    listed(work, *(f"{number}/{number}.txt" for number in range(10)))
    assert await dispatcher("list_files", ["**/no such"]) == {"files": [], "truncated": True}


async def test_a_pattern_of_many_stars_takes_no_time(dispatcher: Dispatcher, work: Path) -> None:
    (work / ("a" * 250)).write_text("")
    for pattern in ("*a" * 100 + "b", "**/" * 300 + "b", "*" * 1000, "[a-z]*" * 100 + "!"):
        with anyio.fail_after(2):
            await dispatcher("list_files", [pattern])


async def test_folders_as_deep_as_paths_can_be_are_walked(dispatcher: Dispatcher, work: Path) -> None:
    deepest = os.open(work, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=deepest)
        below = os.open("d", os.O_RDONLY, dir_fd=deepest)
        os.close(deepest)
        deepest = below
    os.close(os.open("leaf.txt", os.O_CREAT | os.O_WRONLY, dir_fd=deepest))
    os.close(deepest)
    try:
        listing = await dispatcher("list_files", ["**/leaf.txt"])
        assert [file["path"] for file in listing["files"]] == ["d/" * 1200 + "leaf.txt"]
    finally:
        subprocess.run(["rm", "-rf", str(work / "d")], check=True)  # too deep for shutil on Python 3.11
