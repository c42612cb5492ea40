"""An editor's conduct over a real pipe: headers, life cycle, progress, cancel."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

if TYPE_CHECKING:
    from .conftest import Peer, Spawn

INITIALIZE: dict[str, Any] = {"processId": None, "rootUri": None, "capabilities": {}}


async def open_editor(peer: Peer, **changed: Any) -> dict[str, Any]:
    result: dict[str, Any] = await peer.result("initialize", INITIALIZE | changed)
    await peer.send(b'{"jsonrpc":"2.0","method":"initialized","params":{}}\n')
    return result


@pytest.mark.parametrize(("shut_down", "code"), [(True, 0), (False, 1)])
async def test_the_exit_code_tells_whether_a_shutdown_came_first(spawn: Spawn, shut_down: bool, code: int) -> None:
    async with spawn() as peer:
        assert (await open_editor(peer))["serverInfo"]["name"] == "cellhost"
        assert "version" in await peer.result("ping")
        if shut_down:
            assert await peer.result("shutdown") is None
            for method, params in (("exec_list", None), ("initialize", INITIALIZE), ("shutdown", None)):
                assert (await peer.error(method, params))["code"] == -32600
        await peer.send(b'{"jsonrpc":"2.0","method":"exit"}\n')
        with anyio.fail_after(10):
            assert await peer.process.wait() == code


async def test_unknown_dollar_notifications_are_ignored_and_requests_unknown(spawn: Spawn) -> None:
    async with spawn() as peer:
        await open_editor(peer)
        await peer.send(b'{"jsonrpc":"2.0","method":"$/setTrace","params":{"value":"off"}}\n')
        assert (await peer.error("$/unknown"))["code"] == -32601


async def test_a_cancelled_request_is_answered_as_the_protocol_says(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        await open_editor(peer)
        launched = await peer.result("exec_background", ["import time; time.sleep(60)"])
        waiting = await peer.request("exec_wait", [launched["exec_id"]])
        cancel = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": waiting}}
        await peer.send(json.dumps(cancel).encode() + b"\n")
        answer = await peer.receive()
        assert (answer["id"], answer["error"]["code"]) == (waiting, -32800)


async def test_progress_has_a_beginning_reports_and_an_end_before_the_result(spawn: Spawn) -> None:
    code = "import time\nfor n in range(1, 4):\n    host.progress(n, 3, f'step {n}')\n    time.sleep(0.2)"
    async with spawn("--allow", "exec_background") as peer:
        await open_editor(peer)
        launched = await peer.result("exec_background", {"code": code})
        params = {"exec_id": launched["exec_id"], "workDoneToken": "token"}
        waiting = await peer.request("exec_wait", params)
        values: list[dict[str, Any]] = []
        while (message := await peer.receive()).get("id") != waiting:
            assert (message["method"], message["params"]["token"]) == ("$/progress", "token")
            values.append(message["params"]["value"])
        assert [values[0]["kind"], values[-1]["kind"]] == ["begin", "end"]
        percentages = [value["percentage"] for value in values[1:-1]]
        assert percentages == sorted(set(percentages))
        assert percentages[-1] == 100


async def test_replies_have_the_framing_of_the_first_frame(spawn: Spawn) -> None:
    async with spawn() as peer:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()
        await peer.send(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert peer.process.stdout is not None
        received = b""
        with anyio.fail_after(10):
            while b"\r\n\r\n" not in received or not received.endswith(b"}"):
                received += await peer.process.stdout.receive()
        header, _, rest = received.partition(b"\r\n\r\n")
        assert header == b"Content-Length: %d" % len(rest)
        assert json.loads(rest)["result"]["serverInfo"]["name"] == "cellhost"


async def test_the_server_ends_with_the_process_that_initialize_named(spawn: Spawn) -> None:
    with subprocess.Popen([sys.executable, "-P", "-c", "input()"], stdin=subprocess.PIPE) as editor:
        async with spawn() as peer:
            await open_editor(peer, processId=editor.pid)
            assert "version" in await peer.result("ping")
            editor.kill()
            with anyio.fail_after(10):
                assert await peer.process.wait() == 0
