"""Images that a job displays reach an MCP client as image content, over a real pipe."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from .test_mcp import REVISIONS, conforms, shake_hands

if TYPE_CHECKING:
    from .conftest import Peer, Spawn


def png(*, padding: int = 0) -> bytes:
    """A grey pixel; `padding` bytes of comment make the file larger."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    comment = chunk(b"tEXt", b"Comment\0" + b"x" * padding) if padding else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + comment
        + chunk(b"IDAT", zlib.compress(b"\0\x80"))
        + chunk(b"IEND", b"")
    )


SHOW = f"""
class Png:
    def __init__(self, name, data={png()!r}): self.name, self.data = name, data
    def __repr__(self): return self.name
    def _repr_png_(self): return self.data
"""


async def call(peer: Peer, name: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = await peer.result("tools/call", {"name": name, "arguments": arguments})
    return result


async def launched(peer: Peer, code: str) -> str:
    exec_id: str = (await call(peer, "exec_background", code=code))["structuredContent"]["exec_id"]
    return exec_id


def images(result: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(block["data"]) for block in result["content"] if block["type"] == "image"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_image_stands_beside_the_text_of_the_answer(spawn: Spawn, revision: str) -> None:
    async with spawn("--allow", "exec_background") as peer:
        await shake_hands(peer, revision)
        exec_id = await launched(peer, SHOW + "print('x')\nPng('figure')")
        for result in (await call(peer, "exec_wait", exec_id=exec_id), await call(peer, "exec_peek", exec_id=exec_id)):
            conforms(revision, "CallToolResult", result)
            text, image = result["content"]
            assert json.loads(text["text"]) == result["structuredContent"]
            assert image == {"type": "image", "data": base64.b64encode(png()).decode(), "mimeType": "image/png"}
            (output,) = result["structuredContent"]["outputs"]
        read = await peer.result("resources/read", {"uri": f"artifact://{output['artifact_version_id']}"})
        assert base64.b64decode(read["contents"][0]["blob"]) == png()


@pytest.mark.parametrize("revision", REVISIONS)
async def test_each_cell_of_a_session_answers_with_its_own_images(spawn: Spawn, revision: str) -> None:
    async with spawn("--allow", "exec") as peer:
        await shake_hands(peer, revision)
        codes = [SHOW + f"Png('first', {png(padding=1)!r})", f"display(Png('second', {png(padding=2)!r}))", "1"]
        results = [await call(peer, "exec", code=code) for code in codes]
        for result in results:
            conforms(revision, "CallToolResult", result)
        assert [images(result) for result in results] == [[png(padding=1)], [png(padding=2)], []]
        cells = [result["structuredContent"] for result in results]
        assert [[output["text"] for output in cell["outputs"]] for cell in cells] == [["first"], ["second"], []]
        for cell, code in zip(cells[:2], codes, strict=False):
            lineage = await call(peer, "lineage_get", version_id=cell["outputs"][0]["artifact_version_id"])
            made = lineage["structuredContent"]
            assert (made["filename"], made["code"]) == (f"{cell['exec_id']}-1.png", code)
        again = await call(peer, "exec_peek", exec_id=cells[0]["exec_id"])
        assert images(again) == [png(padding=1)]


async def test_an_image_of_a_cell_that_goes_on_comes_with_its_end(spawn: Spawn) -> None:
    async with spawn("--allow", "exec") as peer:
        await shake_hands(peer, REVISIONS[-1])
        started = await call(peer, "exec", code=SHOW + "Png('figure')", yield_after_s=0)
        assert images(started) == []
        exec_id = started["structuredContent"]["exec_id"]
        assert images(await call(peer, "exec_wait", exec_id=exec_id)) == [png()]


async def test_with_since_an_image_is_shown_once(spawn: Spawn) -> None:
    code = (
        SHOW + "import os, time\n"
        "def wait_for(name):\n    while not os.path.exists(name): time.sleep(0.01)\n"
        f"display(Png('first', {png(padding=1)!r}))\nwait_for('go')\ndisplay(Png('second', {png(padding=2)!r}))"
    )
    async with spawn("--allow", "exec_background") as peer:
        await shake_hands(peer, REVISIONS[-1])
        exec_id = await launched(peer, code)
        since, shown = "0", list[bytes]()
        while not shown:
            news = await call(peer, "exec_wait", exec_id=exec_id, since=since, until="news")
            since, shown = news["structuredContent"]["next"], images(news)
        assert shown == [png(padding=1)]
        assert images(await call(peer, "exec_peek", exec_id=exec_id, since=since)) == []
        await call(peer, "write_file", path="go", content="")
        end = await call(peer, "exec_wait", exec_id=exec_id, since=since)
        assert images(end) == [png(padding=2)]
        assert len(end["structuredContent"]["outputs"]) == 2
        assert images(await call(peer, "exec_peek", exec_id=exec_id)) == [png(padding=2), png(padding=1)]


async def test_images_beyond_the_room_are_named_instead(spawn: Spawn) -> None:
    code = SHOW + f"for n in range(3): display(Png(str(n), {png()[:-12]!r} + bytes([n]) * 400_000))"
    async with spawn("--allow", "exec_background") as peer:
        await shake_hands(peer, REVISIONS[-1])
        result = await call(peer, "exec_wait", exec_id=await launched(peer, code))
        assert [image[-1] for image in images(result)] == [2, 1]
        first = result["structuredContent"]["outputs"][0]["artifact_version_id"]
        assert result["content"][-1]["text"] == f"An image too large for this answer: read artifact://{first}"


async def test_of_many_outputs_the_newest_are_listed(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        await shake_hands(peer, REVISIONS[-1])
        exec_id = await launched(peer, "print('x' * 100_000)\nfor n in range(90): display(f'number {n} ' + 'y' * 900)")
        result = await call(peer, "exec_wait", exec_id=exec_id)
        assert len(result["content"][0]["text"]) <= 16_000
        note, *outputs = result["structuredContent"]["outputs"]
        assert note["text"] == f"[{90 - len(outputs)} earlier outputs: list_artifacts with search {exec_id!r}]"
        assert len(outputs) >= 3
        assert outputs[-1]["text"].startswith("'number 89 yyy")
        assert result["structuredContent"]["stdout"].startswith("xxx")


async def test_the_progress_of_a_bar_reaches_a_client(spawn: Spawn) -> None:
    code = "import time\nfrom tqdm import tqdm\nfor n in tqdm(range(30), desc='load'): time.sleep(0.02)"
    async with spawn("--allow", "exec_background") as peer:
        await shake_hands(peer, REVISIONS[-1])
        exec_id = await launched(peer, code)
        params = {"name": "exec_wait", "arguments": {"exec_id": exec_id}, "_meta": {"progressToken": "bar"}}
        waiting = await peer.request("tools/call", params)
        told: list[dict[str, Any]] = []
        while (message := await peer.receive()).get("id") != waiting:
            assert message["method"] == "notifications/progress"
            told.append(message["params"])
        assert told[-1] == {"progressToken": "bar", "progress": 30, "total": 30, "message": "load"}
        assert [each["progress"] for each in told] == sorted({each["progress"] for each in told})
        done = message["result"]["structuredContent"]["progress"]
        assert done == {"done": 30, "total": 30, "message": "load"}
        (row,) = (await call(peer, "exec_list"))["structuredContent"]["result"]
        assert row["progress"] == done
