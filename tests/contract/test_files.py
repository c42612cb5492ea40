"""Writing and editing files: whole or not at all, and nothing around a change is touched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.errors import NotFound, TooLarge

from .checks import MEBIBYTE, names_in, only_issue, sha256

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost import Dispatcher

    from .conftest import Refused

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
