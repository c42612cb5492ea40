"""What saved versions hold: text by lines, bytes as base64, and how two of them differ."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.errors import StorageError
from cellhost.tools import text_diff
from cellhost.tools.budget import size
from cellhost.tools.call import Call

from .checks import sha256

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost import Dispatcher

    from .conftest import Refused

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def save(dispatcher: Dispatcher, data: bytes, name: str = "a.txt") -> str:
    (dispatcher.host.workspace.make() / name).write_bytes(data)
    version_id: str = (await dispatcher("save_artifact", [name]))["version_id"]
    return version_id


def object_of(dispatcher: Dispatcher, data: bytes) -> Path:
    folder: Path = dispatcher.host.config.data_folder() / "projects" / "default" / "objects"
    return folder / sha256(data)[:2] / sha256(data)


def spoil(path: Path, content: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(content)


async def test_a_text_is_read_by_lines(dispatcher: Dispatcher) -> None:
    version_id = await save(dispatcher, "één\ntwo\r\nthree".encode())
    whole = await dispatcher("read_artifact", [version_id])
    assert whole == {
        "version_id": version_id,
        "artifact_id": whole["artifact_id"],
        "filename": "a.txt",
        "content_type": "text/plain",
        "encoding": "utf-8",
        "content": "één\ntwo\r\nthree",
        "bytes": 16,
        "lines": 3,
        "checksum": sha256("één\ntwo\r\nthree".encode()),
        "truncated": False,
        "next_offset": None,
    }
    middle = await dispatcher("read_artifact", {"versionId": version_id, "offset": 2, "limit": 1})
    assert (middle["content"], middle["truncated"], middle["next_offset"]) == ("two\r\n", True, 3)
    last = await dispatcher("read_artifact", [version_id, 3])
    assert (last["content"], last["truncated"]) == ("three", False)
    beyond = await dispatcher("read_artifact", [version_id, 4])
    assert (beyond["content"], beyond["truncated"]) == ("", False)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\x00b", b"abc\xc3", PNG], ids=["odd", "nul", "cut", "png"])
async def test_what_is_not_text_is_read_as_base64(dispatcher: Dispatcher, data: bytes) -> None:
    version_id = await save(dispatcher, data)
    read = await dispatcher("read_artifact", [version_id])
    assert (read["encoding"], base64.b64decode(read["content"])) == ("base64", data)
    assert (read["bytes"], read["lines"], read["truncated"]) == (len(data), None, False)
    pieces, offset = b"", 1
    while offset is not None:
        piece = await dispatcher("read_artifact", {"version_id": version_id, "offset": offset, "limit": 2})
        pieces, offset = pieces + base64.b64decode(piece["content"]), piece["next_offset"]
    assert pieces == data


async def test_an_empty_version_is_an_empty_text(dispatcher: Dispatcher) -> None:
    read = await dispatcher("read_artifact", [await save(dispatcher, b"")])
    assert (read["encoding"], read["content"], read["lines"], read["truncated"]) == ("utf-8", "", 0, False)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"line {number} é\n" for number in range(5000)),
        "é🙂" * 10_000,
        "short\n" + "x" * 30_000 + "\nshort\n",
        "x" * 2_000 + "\n" + "\x01\x1b\n" * 9_000,
        "x" * 1_999 + "\n" + "\x01" * 1_999 + "\n" + "y" * 9_000,
    ],
    ids=["lines", "one line", "a long line", "escapes", "escapes on one line"],
)
async def test_pages_within_a_budget_are_together_the_whole_text(dispatcher: Dispatcher, text: str) -> None:
    version_id = await save(dispatcher, text.encode())
    pieces, offset = "", 1
    while offset is not None:
        call = Call(dispatcher.host, "mcp", budget=16_000)
        page = await dispatcher.host.call("read_artifact", {"version_id": version_id, "offset": offset}, call)
        assert size(page) <= 15_800
        pieces, offset = pieces + page["content"], page["next_offset"]
    assert pieces == text


async def test_a_long_line_is_read_by_whole_characters_wherever_the_reading_begins(dispatcher: Dispatcher) -> None:
    dispatcher.host.config.limits.read_bytes = 6
    version_id = await save(dispatcher, "aé🙂é🙂".encode())
    read: list[tuple[str, int | None]] = []
    for offset in (1, 3, 5, 8, 12, 14, 99):
        piece = await dispatcher("read_artifact", {"version_id": version_id, "offset": offset, "limit": 1})
        assert piece["lines"] is None
        read.append((piece["content"], piece["next_offset"]))
    assert read == [("aé", 4), ("🙂", 8), ("é", 10), ("é", 10), ("", None), ("", None), ("", None)]


async def test_bytes_that_are_not_those_that_were_saved_are_never_shown(
    dispatcher: Dispatcher, refused: Refused
) -> None:
    version_id = await save(dispatcher, b"as saved")
    other = await save(dispatcher, b"other", "b.txt")
    for content, message in (
        (b"as forged", "the bytes of this version are missing or incomplete"),
        (b"as save", "the bytes of this version are missing or incomplete"),
        (b"as Saved", "the bytes of this version are not those that were saved"),
    ):
        spoil(object_of(dispatcher, b"as saved"), content)
        for method, params in (("read_artifact", [version_id]), ("diff_artifact", [version_id, other])):
            error = await refused(dispatcher, method, params)
            assert isinstance(error, StorageError)
            assert str(error) == message
            assert error.hint is not None
            assert error.hint.startswith("put the project's objects folder back")
    object_of(dispatcher, b"as saved").unlink()
    assert isinstance(await refused(dispatcher, "read_artifact", [version_id]), StorageError)
    assert (await dispatcher("read_artifact", [other]))["content"] == "other"
    await save(dispatcher, b"as saved", "again.txt")
    assert (await dispatcher("read_artifact", [version_id]))["content"] == "as saved"


# Comparing


def side(version_id: str, data: bytes, name: str = "a.txt") -> dict[str, Any]:
    return {
        "version_id": version_id,
        "filename": name,
        "content_type": "text/plain",
        "size_bytes": len(data),
        "checksum": sha256(data),
    }


async def test_two_texts_are_compared_line_by_line(dispatcher: Dispatcher) -> None:
    before, after = await save(dispatcher, b"one\ntwo\nthree\n"), await save(dispatcher, b"one\n2\nthree\nfour\n")
    assert await dispatcher("diff_artifact", [before, after]) == {
        "from": side(before, b"one\ntwo\nthree\n"),
        "to": side(after, b"one\n2\nthree\nfour\n"),
        "same": False,
        "diff": f"--- a.txt ({before})\n+++ a.txt ({after})\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four",
        "reason": None,
        "truncated": False,
    }


async def test_versions_of_two_artifacts_can_be_the_same(dispatcher: Dispatcher) -> None:
    before, after = await save(dispatcher, b"x"), await save(dispatcher, b"x", "b.txt")
    compared = await dispatcher("diff_artifact", {"fromVersionId": before, "toVersionId": after})
    assert (compared["same"], compared["diff"], compared["to"]) == (True, "", side(after, b"x", "b.txt"))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b"text", b"\xff", "not both are UTF-8 text"),
        (b"a\x00", b"text", "not both are UTF-8 text"),
        (b"a" * 600_000, b"b" * 600_000, "more than 1000000 bytes in all: compare them in a job"),
        (b"a\n" * 30_000, b"b\n" * 30_000, "too many lines to compare: compare them in a job"),
    ],
    ids=["bytes", "nul", "large", "lines"],
)
async def test_what_cannot_be_compared_has_sizes_checksums_and_the_reason(
    dispatcher: Dispatcher, before: bytes, after: bytes, reason: str
) -> None:
    one, two = await save(dispatcher, before), await save(dispatcher, after)
    compared = await dispatcher("diff_artifact", [one, two])
    assert (compared["diff"], compared["reason"], compared["same"]) == (None, reason, False)
    assert (compared["from"], compared["to"]) == (side(one, before), side(two, after))


async def test_a_change_of_line_ends_alone_is_said(dispatcher: Dispatcher) -> None:
    compared = await dispatcher("diff_artifact", [await save(dispatcher, b"a\n"), await save(dispatcher, b"a\r\n")])
    assert (compared["diff"], compared["reason"], compared["same"]) == ("", "only the ends of lines differ", False)


async def test_texts_made_to_take_for_ever_are_given_up_in_time(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_diff, "WITHIN_S", 0.2)
    lines = [b"%d" % (number % 199) for number in range(9000)]
    one, two = await save(dispatcher, b"\n".join(lines)), await save(dispatcher, b"\n".join(lines[::-1]))
    begun = time.monotonic()
    assert (await dispatcher("diff_artifact", [one, two]))["reason"] is not None
    assert time.monotonic() - begun < 5


async def test_a_long_diff_is_cut_at_a_line_and_says_so(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data")
    config.limits.read_bytes = 1000
    made = build_dispatcher(config, workspace=tmp_path / "work")
    numbers = [b"%d\n" % number for number in range(500)]
    one, two = await save(made, b"".join(numbers)), await save(made, b"".join(numbers[::-1]))
    compared = await made("diff_artifact", [one, two])
    assert compared["truncated"] is True
    assert 900 < len(compared["diff"]) <= 1000
    assert compared["diff"].endswith("\n")
    await made.host.aclose()


async def test_a_diff_that_json_makes_longer_fits_the_budget_too(dispatcher: Dispatcher) -> None:
    one, two = await save(dispatcher, b"\x01a\n" * 900), await save(dispatcher, b"\x01b\n" * 900)
    call = Call(dispatcher.host, "mcp", budget=16_000)
    compared = await dispatcher.host.call("diff_artifact", [one, two], call)
    assert 15_000 < size(compared) <= 15_800
    assert compared["truncated"] is True
    assert compared["diff"].endswith("\x01b\n")
