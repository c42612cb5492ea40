"""The file tools: what they return, what they leave alone, and what they do with files that are no plain text."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.errors import Denied, InvalidParams, NotFound, StorageError, TooLarge
from cellhost.tools import file_listing

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Refused

MEBIBYTE = 1 << 20


@pytest.fixture
def work(dispatcher: Dispatcher) -> Path:
    """The workspace, there and empty."""
    return dispatcher.host.workspace.make()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def only_issue(error: Exception) -> tuple[str, str]:
    assert isinstance(error, InvalidParams)
    (issue,) = error.issues
    return issue.path, issue.message


# Writing


async def test_write_file_answers_with_path_bytes_and_checksum(dispatcher: Dispatcher, work: Path) -> None:
    written = await dispatcher("write_file", {"path": "deep/er/a.txt", "content": "grüße\n"})
    data = "grüße\n".encode()
    assert written == {"path": "deep/er/a.txt", "bytes": 8, "checksum": sha256(data)}
    assert (work / "deep/er/a.txt").read_bytes() == data


@pytest.mark.parametrize(
    "params",
    [
        ["a.txt", "x"],
        ["a.txt", "x", None, None],
        {"path": "a.txt", "content": "x"},
        [{"path": "a.txt", "content": "x"}],
        {"path": "./folder/../a.txt", "content": "x", "expectChecksum": None},
    ],
)
async def test_every_form_of_write_file_writes_the_same(dispatcher: Dispatcher, work: Path, params: Any) -> None:
    assert await dispatcher("write_file", params) == {"path": "a.txt", "bytes": 1, "checksum": sha256(b"x")}
    assert (work / "a.txt").read_bytes() == b"x"


async def test_a_workspace_that_is_not_there_yet_is_empty_and_made_by_the_first_write(
    dispatcher: Dispatcher, tmp_path: Path
) -> None:
    assert await dispatcher("list_files") == {"files": [], "truncated": False}
    with pytest.raises(NotFound):
        await dispatcher("read_file", ["a.txt"])
    assert not (tmp_path / "work").exists()
    await dispatcher("write_file", ["a.txt", "x"])
    assert (tmp_path / "work" / "a.txt").read_text() == "x"


async def test_append_adds_to_what_is_there_and_begins_what_is_not(dispatcher: Dispatcher, work: Path) -> None:
    first = await dispatcher("write_file", {"path": "log", "content": "one\n", "append": True})
    second = await dispatcher("write_file", {"path": "log", "content": "two", "append": True})
    assert (first["bytes"], second["bytes"]) == (4, 7)
    assert second["checksum"] == sha256(b"one\ntwo")
    assert (work / "log").read_bytes() == b"one\ntwo"


async def test_append_keeps_bytes_that_are_no_text(dispatcher: Dispatcher, work: Path) -> None:
    (work / "bytes").write_bytes(b"\xff\x00")
    assert (await dispatcher("write_file", {"path": "bytes", "content": "x", "append": True}))["bytes"] == 3
    assert (work / "bytes").read_bytes() == b"\xff\x00x"


async def test_a_write_with_a_checksum_happens_only_while_the_file_is_as_it_was_read(
    dispatcher: Dispatcher, work: Path, refused: Refused
) -> None:
    await dispatcher("write_file", ["a.txt", "one"])
    seen = (await dispatcher("read_file", ["a.txt"]))["checksum"]
    written = await dispatcher("write_file", {"path": "a.txt", "content": "two", "expect_checksum": seen})
    for append in (False, True):
        late = {"path": "a.txt", "content": "three", "expect_checksum": seen, "append": append}
        error = await refused(dispatcher, "write_file", late)
        assert str(error) == "the file has changed"
        assert only_issue(error) == ("$.expect_checksum", "is not the checksum of the file as it is now")
    assert (work / "a.txt").read_text() == "two"
    more = {"path": "a.txt", "content": "!", "expect_checksum": written["checksum"], "append": True}
    assert (await dispatcher("write_file", more))["bytes"] == 4


async def test_an_absent_file_has_no_checksum_to_expect(dispatcher: Dispatcher, work: Path, refused: Refused) -> None:
    params = {"path": "a.txt", "content": "x", "expect_checksum": sha256(b"")}
    assert str(await refused(dispatcher, "write_file", params)) == "the file has changed"
    assert names_in(work) == []


async def test_a_file_keeps_its_rights_when_it_is_replaced(dispatcher: Dispatcher, work: Path) -> None:
    (work / "run.sh").write_text("old")
    (work / "run.sh").chmod(0o750)
    await dispatcher("write_file", ["run.sh", "new"])
    await dispatcher("edit_file", ["run.sh", "new", "newer"])
    assert (work / "run.sh").stat().st_mode & 0o777 == 0o750


async def test_a_read_only_file_stays_as_it_is(dispatcher: Dispatcher, work: Path, refused: Refused) -> None:
    (work / "a.txt").write_text("old")
    (work / "a.txt").chmod(0o444)
    if os.access(work / "a.txt", os.W_OK):
        pytest.skip("nothing is read-only for this user")
    for tool, params in (("write_file", ["a.txt", "new"]), ("edit_file", ["a.txt", "old", "new"])):
        error = await refused(dispatcher, tool, params)
        assert (error.kind, str(error)) == ("storage", "no right to write this file")
    (work / "closed").mkdir(mode=0)
    for tool, params in (("write_file", ["closed/a", "x"]), ("read_file", ["closed/a"])):
        assert (await refused(dispatcher, tool, params)).kind == "storage"
    assert (work / "a.txt").read_text() == "old"


async def test_a_reader_sees_the_old_file_or_the_new_one(dispatcher: Dispatcher, work: Path) -> None:
    (work / "a.txt").write_text("old")
    with (work / "a.txt").open() as before:
        await dispatcher("write_file", ["a.txt", "new"])
        assert before.read() == "old"
    assert (work / "a.txt").read_text() == "new"


# Editing


async def test_edit_file_answers_with_path_bytes_and_replacements(dispatcher: Dispatcher, work: Path) -> None:
    (work / "a.py").write_text("a = 1\nb = 1\n")
    edited = await dispatcher("edit_file", {"path": "a.py", "old": "a = 1", "new": "a = 22"})
    assert edited == {"path": "a.py", "bytes": 13, "replacements": 1}
    edited = await dispatcher("edit_file", {"path": "a.py", "old": " = ", "new": "=", "replaceAll": True})
    assert edited == {"path": "a.py", "bytes": 9, "replacements": 2}
    edited = await dispatcher("edit_file", ["a.py", "b=1\n", ""])
    assert edited == {"path": "a.py", "bytes": 5, "replacements": 1}
    assert (work / "a.py").read_text() == "a=22\n"


@pytest.mark.parametrize(
    ("content", "old", "message", "hint"),
    [
        ("abc", "x", "does not stand in the file", "copy the text exactly"),
        ("", "x", "does not stand in the file", "copy the text exactly"),
        ("a\r\nb\r\n", "a\nb", "does not stand in the file", r"lines end with \r\n"),
        ("one one", "one", "stands more than once in the file", "replace_all"),
        ("aaa", "aa", "stands more than once in the file", "replace_all"),  # in two places that overlap
    ],
)
async def test_an_edit_needs_exactly_one_place(
    dispatcher: Dispatcher, work: Path, refused: Refused, content: str, old: str, message: str, hint: str
) -> None:
    (work / "a.txt").write_bytes(content.encode())
    error = await refused(dispatcher, "edit_file", ["a.txt", old, "new"])
    assert only_issue(error) == ("$.old", message)
    assert hint in (error.hint or "")
    assert (work / "a.txt").read_bytes() == content.encode()
    assert names_in(work) == ["a.txt"]


async def test_an_edit_changes_nothing_around_it(dispatcher: Dispatcher, work: Path) -> None:
    before = b"\xef\xbb\xbfone\r\ntwo\r\n\x00\rthree"  # byte order mark, CRLF, NUL, lone CR, no final line end
    (work / "a.txt").write_bytes(before)
    await dispatcher("edit_file", ["a.txt", "two", "zwei"])
    assert (work / "a.txt").read_bytes() == before.replace(b"two", b"zwei")


async def test_what_is_too_large_to_edit_is_refused_before_it_is_made(
    dispatcher: Dispatcher, work: Path, refused: Refused
) -> None:
    (work / "large").write_bytes(b"x" * (8 * MEBIBYTE + 1))
    assert isinstance(await refused(dispatcher, "edit_file", ["large", "x", "y"]), TooLarge)
    (work / "many").write_bytes(b"x" * MEBIBYTE)
    bomb = {"path": "many", "old": "x", "new": "y" * MEBIBYTE, "replace_all": True}  # a tebibyte
    assert isinstance(await refused(dispatcher, "edit_file", bomb), TooLarge)
    assert names_in(work) == ["large", "many"]


# Reading


async def test_read_file_answers_with_content_and_what_the_whole_file_is(dispatcher: Dispatcher, work: Path) -> None:
    data = "eins\nzwei\ndrü".encode()
    (work / "a.txt").write_bytes(data)
    whole = {"path": "a.txt", "bytes": len(data), "lines": 3, "checksum": sha256(data)}
    assert await dispatcher("read_file", ["a.txt"]) == whole | {"content": data.decode(), "truncated": False}
    middle = await dispatcher("read_file", {"path": "a.txt", "offset": 2, "limit": 1})
    assert middle == whole | {"content": "zwei\n", "truncated": True}
    last = await dispatcher("read_file", ["a.txt", 3, 1])
    assert last == whole | {"content": "drü", "truncated": False}
    beyond = await dispatcher("read_file", [{"path": "a.txt", "offset": 2**53 - 1}])
    assert beyond == whole | {"content": "", "truncated": False}
    encoded = await dispatcher("read_file", ["a.txt", None, None, "base64"])
    assert encoded == whole | {"lines": None, "content": base64.b64encode(data).decode(), "truncated": False}


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", 0),
        (b"\n", 1),
        (b"x", 1),
        (b"x\n", 1),
        (b"a\r\nb\r\n", 2),
        (b"a\rb", 1),
        (b"\xef\xbb\xbfa\n", 1),
        (b"a\x00b\n\n\n", 3),
        ("\u2028\u0085\x0b\n".encode(), 1),
    ],
)
async def test_text_comes_back_as_it_is_byte_for_byte(
    dispatcher: Dispatcher, work: Path, data: bytes, lines: int
) -> None:
    (work / "a.txt").write_bytes(data)
    read = await dispatcher("read_file", ["a.txt"])
    assert (read["content"].encode(), read["lines"], read["truncated"]) == (data, lines, False)
    await dispatcher("write_file", ["b.txt", read["content"]])
    assert (work / "b.txt").read_bytes() == data


@pytest.mark.parametrize("limit", [1, 7, 1999, 5000])
async def test_pages_of_lines_put_together_are_the_file(dispatcher: Dispatcher, work: Path, limit: int) -> None:
    text = "".join(f"{'ä' * (number % 50)}{number}\r\n" for number in range(4000 if limit > 100 else 40)) + "the end"
    (work / "a.txt").write_bytes(text.encode())
    pages: list[str] = []
    truncated = True
    while truncated:
        offset = sum(page.count("\n") for page in pages) + 1
        page = await dispatcher("read_file", {"path": "a.txt", "offset": offset, "limit": limit})
        pages.append(page["content"])
        truncated = page["truncated"]
    assert "".join(pages) == text
    assert len(pages) == -(-(text.count("\n") + 1) // limit)


@pytest.mark.parametrize("limit", [1, 1000, 4096])
async def test_pages_of_bytes_put_together_are_the_file(dispatcher: Dispatcher, work: Path, limit: int) -> None:
    data = bytes(range(256)) * (40 if limit > 1 else 1) + b"\xff"
    (work / "bytes").write_bytes(data)
    pages: list[bytes] = []
    truncated = True
    while truncated:
        offset = sum(map(len, pages)) + 1
        page = await dispatcher("read_file", {"path": "bytes", "encoding": "base64", "offset": offset, "limit": limit})
        pages.append(base64.b64decode(page["content"], validate=True))
        truncated = page["truncated"]
        assert (page["bytes"], page["checksum"]) == (len(data), sha256(data))
    assert b"".join(pages) == data
    assert len(pages) == -(-len(data) // limit)


async def test_a_file_over_the_limit_comes_in_pages_in_either_encoding(dispatcher: Dispatcher, work: Path) -> None:
    line = "x" * 1023 + "\n"
    (work / "large").write_text(line * 9 * 1024)  # 9 MiB
    text = ""
    while len(text) < 9 * MEBIBYTE:
        params = {"path": "large", "offset": text.count("\n") + 1, "limit": 1_000_000}
        page = await dispatcher("read_file", params)
        assert 0 < len(page["content"]) <= 8 * MEBIBYTE
        text += page["content"]
        assert page["truncated"] is (len(text) < 9 * MEBIBYTE)
    assert text == line * 9 * 1024
    data = b""
    while len(data) < 9 * MEBIBYTE:
        page = await dispatcher("read_file", {"path": "large", "offset": len(data) + 1, "encoding": "base64"})
        assert 0 < len(page["content"]) <= 8 * MEBIBYTE
        assert page["checksum"] == sha256((line * 9 * 1024).encode())
        data += base64.b64decode(page["content"])
    assert data == (line * 9 * 1024).encode()


async def test_a_line_too_long_for_one_answer_is_cut_at_a_character_and_the_next_can_be_read(
    dispatcher: Dispatcher, work: Path
) -> None:
    dispatcher.host.config.limits.read_bytes = 1000
    (work / "a.txt").write_text("short\n" + "€" * 1000 + "\nlast\n")
    first = await dispatcher("read_file", ["a.txt"])
    assert (first["content"], first["truncated"]) == ("short\n", True)
    second = await dispatcher("read_file", ["a.txt", 2])
    assert (second["content"], second["truncated"]) == ("€" * 333, True)
    third = await dispatcher("read_file", ["a.txt", 3])
    assert (third["content"], third["truncated"]) == ("last\n", False)


async def test_a_file_that_is_not_utf_8_says_how_to_read_it(
    dispatcher: Dispatcher, work: Path, refused: Refused
) -> None:
    (work / "latin.txt").write_bytes("plain\nGr\xfc\xdfe\n".encode("latin-1"))
    for tool, params in (("read_file", ["latin.txt"]), ("edit_file", ["latin.txt", "plain", "x"])):
        error = await refused(dispatcher, tool, params)
        assert (str(error), only_issue(error)[0]) == ("the file is not UTF-8 text", "$.path")
        assert "base64" in (error.hint or "")
    assert (await dispatcher("read_file", ["latin.txt", 1, 1]))["content"] == "plain\n"


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
    (work / "link.txt").symlink_to("a.txt")
    (work / "folder link").symlink_to("/etc")
    os.mkfifo(work / "fifo")
    listing = await dispatcher("list_files", ["**"])
    assert [file["path"] for file in listing["files"]] == [".env.example", "a.txt"]


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


# A disk that is full, a workspace that is none


def under_file_limit(tmp_path: Path, program: str) -> str:
    """What a program prints that runs in a process whose files may not grow over 1 MiB."""
    setting = textwrap.dedent(f"""
        import anyio, os
        from pathlib import Path
        from cellhost import Config, build_dispatcher
        from cellhost.store.errors import HostError

        tmp = Path({str(tmp_path)!r})
        dispatcher = build_dispatcher(Config(data_dir=tmp / "data"), workspace=tmp / "work")

        async def refusal(method, params):
            try:
                return await dispatcher(method, params)
            except HostError as error:
                print(error.kind, "|", error, "|", error.hint)
    """)
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({MEBIBYTE}, {MEBIBYTE}))\n"
    done = subprocess.run(
        [sys.executable, "-c", limit + setting + textwrap.dedent(program) + "\nanyio.run(main)\n"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FULL = "storage | the disk of the workspace is full | free some space, then repeat the call; nothing of it was kept\n"


def test_a_full_disk_during_a_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    printed = under_file_limit(
        tmp_path,
        """
        async def main():
            large = "x" * 2_000_000
            await dispatcher("write_file", ["a.txt", "as it was"])
            await dispatcher("write_file", ["b.txt", "y" * 1_000_000])
            await refusal("write_file", ["a.txt", large])
            await refusal("write_file", ["new.txt", large])
            await refusal("write_file", {"path": "b.txt", "content": large, "append": True})
            await refusal("edit_file", ["a.txt", "was", large])
            await dispatcher("write_file", ["a.txt", "and goes on"])
            await dispatcher.host.aclose()
        """,
    )
    assert printed == FULL * 4
    work = tmp_path / "work"
    assert names_in(work) == ["a.txt", "b.txt"]
    assert (work / "a.txt").read_text() == "and goes on"
    assert (work / "b.txt").read_text() == "y" * 1_000_000


def test_a_full_disk_during_a_save_leaves_no_row_and_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "large").write_bytes(b"x" * 2 * MEBIBYTE)
    printed = under_file_limit(
        tmp_path,
        """
        async def main():
            await dispatcher("write_file", ["small", "x"])
            small = await dispatcher("save_artifact", ["small"])
            await refusal("save_artifact", {"path": "large", "input_version_ids": [small["version_id"]]})
            await refusal("save_artifact", {"path": "large", "filename": "small"})
            listing = await dispatcher("list_artifacts")
            print([(each["filename"], each["ordinal"]) for each in listing["artifacts"]])
            await dispatcher.host.aclose()
        """,
    )
    full = "storage | The disk of the data folder is full | "
    told = printed.splitlines()
    assert [line.startswith(full) for line in told[:2]] == [True, True]
    assert told[2:] == ["[('small', 1)]"]
    objects = [path for path in (tmp_path / "data" / "projects" / "default" / "objects").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in objects] == [b"x"]


async def test_a_workspace_that_is_a_file_is_told_by_every_tool(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "work").write_text("no folder")
    made = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
    error = await refused(made, "list_files")
    assert isinstance(error, StorageError)
    assert str(error) == "the workspace cannot be listed"
    for tool, params in (("read_file", ["a"]), ("write_file", ["a", "x"])):
        assert only_issue(await refused(made, tool, params))[0] == "$.path"
    await made.host.aclose()


async def test_no_descriptor_is_left_open_by_refusals(dispatcher: Dispatcher, work: Path, refused: Refused) -> None:
    (work / "folder").mkdir()
    os.mkfifo(work / "fifo")
    calls = [("read_file", [name]) for name in ("folder", "fifo", "absent", "x" * 300)]
    await refused(dispatcher, *calls[0])  # opens what stays open
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        for tool, params in calls:
            await refused(dispatcher, tool, params)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_a_large_file_is_never_held_in_memory(dispatcher: Dispatcher, work: Path) -> None:
    with (work / "large").open("wb") as file:
        file.truncate(96 * MEBIBYTE)
    tracemalloc.start()
    try:
        params = {"path": "large", "content": "x", "append": True}
        assert (await dispatcher("write_file", params))["bytes"] == 96 * MEBIBYTE + 1
        read = await dispatcher("read_file", {"path": "large", "offset": 96 * MEBIBYTE + 1, "encoding": "base64"})
        line = await dispatcher("read_file", ["large"])  # all of it is one line
        assert tracemalloc.get_traced_memory()[1] < 48 * MEBIBYTE
    finally:
        tracemalloc.stop()
    assert base64.b64decode(read["content"]) == b"x"
    assert (len(line["content"]), line["truncated"], line["lines"]) == (8 * MEBIBYTE, True, 1)
