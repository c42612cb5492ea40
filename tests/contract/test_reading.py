"""Reading files: text by lines, bytes as base64, in pages that put together are the file."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from .checks import MEBIBYTE, only_issue, sha256

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost import Dispatcher

    from .conftest import Refused

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
