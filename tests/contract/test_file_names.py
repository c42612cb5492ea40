"""Names and kinds of files: any name will do, and what is no file is refused and left alone."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from cellhost.store.errors import Denied, NotFound

from .checks import names_in, only_issue

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost import Dispatcher

    from .conftest import Refused


# Names and kinds of files

NAMES = [
    "a b.txt",
    "prüfung.txt",
    "名前.txt",
    "a:b.txt",
    "a\nb.txt",
    "a\tb\x7f.txt",
    "emoji 😀.txt",
    "e\u0301.txt",
    "quo'te\".txt",
    "back\\slash.txt",
    "-rf",
    " x ",
    "...",
    "%41.txt",
    "*?[a].txt",
    "n" * 255,
    "é" * 127,
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_any_name_can_be_written_read_edited_listed_and_saved(dispatcher: Dispatcher, name: str) -> None:
    for path in (name, f"in a folder/{name}"):
        written = await dispatcher("write_file", {"path": path, "content": "old"})
        assert written["path"] == path
        assert (await dispatcher("edit_file", [path, "old", "new"]))["path"] == path
        read = await dispatcher("read_file", [path])
        assert (read["path"], read["content"]) == (path, "new")
        saved = await dispatcher("save_artifact", [path])
        assert (saved["path"], saved["checksum"]) == (path, read["checksum"])
    listed = await dispatcher("list_files", ["**"])
    assert [file["path"] for file in listed["files"]] == sorted([name, f"in a folder/{name}"])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x" * 256, "has a name that is too long"),
        ("é" * 128, "has a name that is too long"),
        ("x" * 256 + "/a", "has a name that is too long"),
        ("a\0b", "must be a non-empty path without NUL"),
        ("folder/", "names a folder"),
        ("folder", "names something that is not a regular file"),
        (".", "names something that is not a regular file"),
        ("file/below", "names a folder, or goes through a file"),
        ("file/far/below", "names a folder, or goes through a file"),
        ("circle", "cannot be resolved"),
        ("circle/below", "cannot be resolved"),
        ("fifo", "names something that is not a regular file"),
        ("socket", "names something that is not a regular file"),
        ("link to fifo", "names something that is not a regular file"),
    ],
    ids=ascii,
)
async def test_what_is_no_file_is_refused_by_all_at_once_and_left_alone(
    dispatcher: Dispatcher, work: Path, refused: Refused, path: str, message: str
) -> None:
    (work / "folder").mkdir()
    (work / "file").write_text("x")
    (work / "circle").symlink_to("other circle")
    (work / "other circle").symlink_to("circle")
    os.mkfifo(work / "fifo")
    (work / "link to fifo").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(work / "socket"))
        there = names_in(work)
        for tool, params in (
            ("read_file", {"path": path}),
            ("read_file", {"path": path, "encoding": "base64"}),
            ("write_file", {"path": path, "content": "y"}),
            ("write_file", {"path": path, "content": "y", "append": True}),
            ("edit_file", {"path": path, "old": "x", "new": "y"}),
        ):
            with anyio.fail_after(5):
                error = await refused(dispatcher, tool, params)
            if sys.version_info >= (3, 13) and "circle" in path:
                message = "goes round in a circle of links"
            assert only_issue(error) == ("$.path", message), (tool, params)
        with anyio.fail_after(5):
            assert (await refused(dispatcher, "save_artifact", [path])).kind in ("params", "not_found")
    assert names_in(work) == there
    assert (work / "file").read_text() == "x"
    assert (await dispatcher("list_artifacts"))["count"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
@pytest.mark.parametrize("device", [(1, 3), (1, 5), (5, 0)], ids=["null", "zero", "tty"])
async def test_a_device_is_no_file(
    dispatcher: Dispatcher, work: Path, refused: Refused, device: tuple[int, int]
) -> None:
    try:
        os.mknod(work / "device", 0o20666, os.makedev(*device))
    except PermissionError:
        pytest.skip("this container makes no devices")
    for tool, params in (
        ("read_file", ["device"]),
        ("write_file", ["device", "x"]),
        ("edit_file", ["device", "x", "y"]),
        ("save_artifact", ["device"]),
    ):
        assert only_issue(await refused(dispatcher, tool, params))[0] == "$.path"
    assert (work / "device").is_char_device()


async def test_a_link_inside_the_workspace_stands_for_its_target(dispatcher: Dispatcher, work: Path) -> None:
    (work / "link").symlink_to("later.txt")
    assert (await dispatcher("write_file", ["link", "x"]))["path"] == "later.txt"
    assert (work / "link").is_symlink()
    assert (await dispatcher("read_file", ["link"]))["path"] == "later.txt"
    saved = await dispatcher("save_artifact", ["link"])
    assert (saved["filename"], saved["path"]) == ("link", "later.txt")


async def test_a_path_is_the_same_however_it_is_written(dispatcher: Dispatcher, work: Path) -> None:
    await dispatcher("write_file", ["folder/a.txt", "x"])
    (work / "door").symlink_to("folder")
    for path in ("./folder/a.txt", "folder/../folder//a.txt", "door/a.txt", str(work / "folder" / "a.txt")):
        assert (await dispatcher("read_file", [path]))["path"] == "folder/a.txt"


async def test_an_absent_file_is_told_in_the_same_words_by_every_way_to_name_it(
    dispatcher: Dispatcher, work: Path, refused: Refused
) -> None:
    (work / "dangling").symlink_to("nowhere")
    for path in ("absent", "no/such/folder/absent", "dangling"):
        for tool, params in (("read_file", [path]), ("edit_file", [path, "x", "y"])):
            error = await refused(dispatcher, tool, params)
            assert isinstance(error, NotFound)
            assert str(error) == "no such file in the workspace"


async def test_what_is_outside_or_secret_is_denied_before_it_is_looked_at(
    dispatcher: Dispatcher, work: Path, refused: Refused
) -> None:
    (work / "way out").symlink_to("/etc")
    for path in ("../absent", "/etc/passwd", "way out/passwd", "~/../../../etc/passwd", "absent/../../x"):
        for tool, params in (("read_file", [path]), ("write_file", [path, "x"]), ("edit_file", [path, "x", "y"])):
            error = await refused(dispatcher, tool, params)
            assert isinstance(error, Denied)
            assert str(error) == "the path is outside the workspace"
    for path in (".env", "a/.ENV", "key.pem/x", "id_rsa"):
        assert isinstance(await refused(dispatcher, "read_file", [path]), Denied)
