"""Foreground cells over real pipes: cancelling, order, progress, budgets, and how a server ends with them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ..processes import descendants
from .test_conduct import SERVE, gone
from .test_mcp import REVISIONS, conforms, shake_hands

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Peer, Spawn

SLOW = "import time\nx = 5\nprint('begun')\ntime.sleep(600)"
ALLOWED = ("--allow", "exec", "--allow", "exec_restart")


async def send(peer: Peer, method: str, **params: Any) -> None:
    """A notification."""
    await peer.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")


async def until_begun(peer: Peer) -> str:
    """The id of the newest cell, once it has printed."""
    while True:
        rows = await peer.result("exec_list", {"limit": 1})
        if rows and rows[0]["status"] == "running" and rows[0]["stdout_bytes"]:
            return str(rows[0]["exec_id"])


async def test_a_cancelled_call_stops_its_cell_and_the_next_has_its_state(spawn: Spawn) -> None:
    async with spawn(*ALLOWED) as peer:
        running = await peer.request("exec", [SLOW])
        exec_id = await until_begun(peer)
        await send(peer, "$/cancelRequest", id=running)
        answer = await peer.receive()
        assert (answer["id"], answer["error"]["code"]) == (running, -32800)
        assert (await peer.result("exec_wait", [exec_id]))["status"] == "interrupted"
        assert (await peer.result("exec", ["x"]))["result"] == "5"
        assert await peer.end() == 0


async def test_nothing_more_is_sent_for_a_cancelled_cell_over_mcp(spawn: Spawn) -> None:
    async with spawn(*ALLOWED) as peer:
        await shake_hands(peer, REVISIONS[-1])
        started = await peer.result("tools/call", {"name": "exec", "arguments": {"code": "x = 1"}})
        assert started["structuredContent"]["status"] == "done"
        waiting = await peer.request("tools/call", {"name": "exec", "arguments": {"code": SLOW}})
        await send(peer, "notifications/cancelled", requestId=waiting)
        result = await peer.result("tools/call", {"name": "exec", "arguments": {"code": "x in (1, 5)"}})
        conforms(REVISIONS[-1], "CallToolResult", result)
        assert result["structuredContent"]["result"] == "True"
        assert await peer.end() == 0


async def test_other_calls_are_answered_while_cells_run_and_wait(spawn: Spawn) -> None:
    async with spawn(*ALLOWED) as peer:
        await peer.request("exec", [SLOW], id_="first")
        await until_begun(peer)
        for number in range(100):
            await peer.request("exec", ["x"], id_=number + 1000)
        assert (await peer.result("ping"))["version"]
        while len(await peer.result("exec_list", {"status": "queued", "limit": 1000})) < 100:
            pass
        restarted = await peer.request("exec_restart", id_="restart")
        answers = [await peer.receive() for _ in range(102)]
        by_id = {answer["id"]: answer["result"] for answer in answers}
        assert len(by_id[restarted]["ended"]) == 101
        assert {by_id[number + 1000]["status"] for number in range(100)} == {"interrupted"}


async def test_a_cell_reports_its_progress_and_keeps_to_the_budget(spawn: Spawn) -> None:
    async with spawn(*ALLOWED) as peer:
        await shake_hands(peer, REVISIONS[-1])
        code = "import time\nfor n in range(3): host.progress(n, 2); time.sleep(0.2)\nprint('output ' * 20_000)"
        params = {"name": "exec", "arguments": {"code": code}, "_meta": {"progressToken": "token"}}
        call = await peer.request("tools/call", params)
        seen: list[Any] = []
        while (message := await peer.receive()).get("id") != call:
            seen.append(message["params"])
        assert {"progressToken", "progress", "total"} <= seen[0].keys()
        result = message["result"]
        assert len(result["content"][0]["text"]) <= 16_000
        assert result["structuredContent"]["truncated"]


async def test_the_texts_lead_from_a_cell_that_yields_to_its_end(spawn: Spawn) -> None:
    async with spawn(*ALLOWED) as peer:
        instructions = (await shake_hands(peer, REVISIONS[-1]))["instructions"]
        tools = {tool["name"]: tool for tool in (await peer.result("tools/list"))["tools"]}
        assert "exec runs a cell in a kernel that keeps its variables" in instructions
        assert "exec_wait for its exec_id" in instructions
        assert "goes on as a job" in tools["exec"]["description"]
        arguments = {"code": "import time; time.sleep(1); 'late'", "yield_after_s": 0}
        answer = await peer.result("tools/call", {"name": "exec", "arguments": arguments})
        exec_id = answer["structuredContent"]["exec_id"]
        assert answer["structuredContent"]["done"] is False
        ended = await peer.result("tools/call", {"name": "exec_wait", "arguments": {"exec_id": exec_id}})
        assert ended["structuredContent"]["result"] == "'late'"


@pytest.mark.parametrize("killed", [False, True])
async def test_no_foreground_kernel_outlives_its_server(spawn: Spawn, killed: bool) -> None:
    async with spawn(*ALLOWED) as peer:
        await peer.result("exec", ["x = 1"])
        await peer.result("exec", ["y = 1", "other"])
        await peer.request("exec", [SLOW], id_="running")
        await until_begun(peer)
        kernels = descendants(peer.process.pid)
        assert len(kernels) >= 2
        if killed:
            peer.process.send_signal(signal.SIGKILL)
        else:
            assert peer.process.stdin is not None
            await peer.process.stdin.aclose()
            answer = json.loads(await peer.rest())
            assert (answer["id"], answer["result"]["status"]) == ("running", "running")
            assert await peer.process.wait() == 0
        await gone(kernels, 2)


def test_cells_from_a_regular_file_are_run_to_their_end_in_their_order(tmp_path: Path) -> None:
    requests = [
        {"jsonrpc": "2.0", "id": number, "method": "exec", "params": [f"x = globals().get('x', '') + '{number}'; x"]}
        for number in range(5)
    ]
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(json.dumps(request) for request in requests))
    with file.open("rb") as stdin:
        done = subprocess.run(
            [*SERVE, "--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path), *ALLOWED],
            stdin=stdin,
            capture_output=True,
            timeout=60,
            check=True,
            env=os.environ,
        )
    answers = {answer["id"]: answer["result"]["result"] for answer in map(json.loads, done.stdout.splitlines())}
    assert [answers[number] for number in range(5)] == ["'0'", "'01'", "'012'", "'0123'", "'01234'"]
