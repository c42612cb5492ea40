"""MCP 2026-07-28 over a real pipe: every request carries all about itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema.validators import validator_for

if TYPE_CHECKING:
    from .conftest import Peer, Spawn

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def meta(capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: capabilities or {}, **more}}


def conforms(name: str, result: Any) -> None:
    """Check a result with the published schema, where that is at hand."""
    folder = os.environ.get("CELLHOST_MCP_SCHEMAS")
    if folder is None:
        return
    schema = json.loads((Path(folder) / "2026-07-28.json").read_text())
    validator: Any = validator_for(schema)
    validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}).validate(result)


async def notified(peer: Peer, method: str) -> dict[str, Any]:
    """The params of the next notification of that method."""
    while True:
        message = await peer.receive()
        if message.get("method") == method:
            params: dict[str, Any] = message["params"]
            return params


async def test_a_probe_tells_what_is_served_and_pins_nothing(spawn: Spawn) -> None:
    async with spawn() as peer:
        found = await peer.result("server/discover", meta())
        conforms("DiscoverResult", found)
        assert found["supportedVersions"] == ["2026-07-28"]
        assert found["resultType"] == "complete"
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "cellhost"
        assert "exec_background" in found["instructions"]
        assert (await peer.result("ping"))["project_id"] == "default"
        old = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        assert (await peer.result("initialize", old))["protocolVersion"] == "2025-06-18"
        assert "resultType" not in await peer.result("tools/list")
        assert (await peer.result("tools/list", meta()))["resultType"] == "complete"


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/list", {}, "ListToolsResult"),
        ("resources/list", {}, "ListResourcesResult"),
        ("resources/templates/list", {}, "ListResourceTemplatesResult"),
        ("tools/call", {"name": "query", "arguments": {"sql": "SELECT 1"}}, "CallToolResult"),
        ("tools/call", {"name": "query", "arguments": {"sql": "DROP TABLE jobs"}}, "CallToolResult"),
    ],
)
async def test_results_conform_and_say_how_long_they_may_be_kept(
    spawn: Spawn, method: str, params: dict[str, Any], name: str
) -> None:
    async with spawn() as peer:
        result = await peer.result(method, params | meta())
        conforms(name, result)
        assert ("ttlMs" in result) is ("cacheScope" in result) is (method != "tools/call")


async def test_a_saved_file_is_read_as_a_resource(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("write_file", ["a.txt", "hello"])
        saved = await peer.result("save_artifact", ["a.txt"])
        read = await peer.result("resources/read", {"uri": f"artifact://{saved['version_id']}"} | meta())
        conforms("ReadResourceResult", read)
        assert read["contents"][0]["text"] == "hello"
        for uri in ("artifact://v-000000000000", "test://x", "nonsense"):
            absent = await peer.error("resources/read", {"uri": uri} | meta())
            assert (absent["code"], absent["data"]["uri"]) == (-32602, uri)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"_meta": {VERSION_KEY: "1999-01-01", CAPABILITIES_KEY: {}}}, -32022),
        ({"_meta": {VERSION_KEY: "2025-11-25", CAPABILITIES_KEY: {}}}, -32022),
        ({"_meta": {VERSION_KEY: "2026-07-28"}}, -32602),
        ({"_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: []}}, -32602),
        ({"_meta": {VERSION_KEY: 5, CAPABILITIES_KEY: {}}}, -32602),
    ],
)
async def test_a_request_without_what_it_must_carry_is_refused(spawn: Spawn, params: Any, code: int) -> None:
    async with spawn() as peer:
        error = await peer.error("tools/list", params)
        assert error["code"] == code
        if code == -32022:
            assert error["data"]["supported"] == ["2026-07-28"]
            assert error["data"]["requested"] == params["_meta"][VERSION_KEY]


async def test_methods_of_this_era_need_their_metadata(spawn: Spawn) -> None:
    async with spawn() as peer:
        for method in ("server/discover", "subscriptions/listen", "tasks/get"):
            assert (await peer.error(method, {}))["code"] == -32602


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe"])
async def test_methods_that_this_era_removed_are_unknown(spawn: Spawn, method: str) -> None:
    async with spawn() as peer:
        error = await peer.error(method, meta())
        assert (error["code"], error["data"]["kind"], error["data"]["retryable"]) == (-32601, "method", False)


async def test_a_listener_hears_what_it_asked_for_and_is_closed_with_a_result(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        launched = await peer.result("exec_background", ["import time\nprint('up')\ntime.sleep(60)"])
        uri = f"job://{launched['exec_id']}/log"
        wanted = {"resourcesListChanged": True, "toolsListChanged": True, "resourceSubscriptions": [uri, "x://y"]}
        listening = await peer.request("subscriptions/listen", {"notifications": wanted} | meta())
        agreed = await notified(peer, "notifications/subscriptions/acknowledged")
        assert agreed["notifications"] == {"resourcesListChanged": True, "resourceSubscriptions": [uri]}
        assert agreed["_meta"] == {SUBSCRIPTION_KEY: listening}
        updated = await notified(peer, "notifications/resources/updated")
        assert (updated["uri"], updated["_meta"][SUBSCRIPTION_KEY]) == (uri, listening)
        await peer.request("write_file", ["a.txt", "x"])
        await peer.request("save_artifact", ["a.txt"])
        await notified(peer, "notifications/resources/list_changed")
        assert peer.process.stdin is not None
        await peer.process.stdin.aclose()
        lines = [json.loads(line) for line in (await peer.rest()).splitlines()]
        (closing,) = [line for line in lines if line.get("id") == listening]
        conforms("SubscriptionsListenResult", closing["result"])


async def test_a_cancelled_listener_is_sent_nothing_more(spawn: Spawn) -> None:
    async with spawn() as peer:
        listening = await peer.request(
            "subscriptions/listen", {"notifications": {"resourcesListChanged": True}} | meta()
        )
        await notified(peer, "notifications/subscriptions/acknowledged")
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": listening}}
        await peer.send(json.dumps(cancel).encode() + b"\n")
        await peer.result("write_file", ["a.txt", "x"])
        saving = await peer.request("save_artifact", ["a.txt"])
        assert (await peer.receive())["id"] == saving


async def test_progress_increases_and_ends_before_the_result(spawn: Spawn) -> None:
    code = "import time\nfor n in range(1, 4):\n    host.progress(n, 3, f'step {n}')\n    time.sleep(0.2)"
    async with spawn("--allow", "exec_background") as peer:
        launched = await peer.result("exec_background", [code])
        wait = {"name": "exec_wait", "arguments": {"exec_id": launched["exec_id"]}} | meta(progressToken="token")
        waiting = await peer.request("tools/call", wait)
        seen: list[float] = []
        while (message := await peer.receive()).get("id") != waiting:
            assert message["params"]["progressToken"] == "token"
            conforms("ProgressNotification", message)
            seen.append(message["params"]["progress"])
        assert seen == sorted(set(seen))
        assert seen[-1] == 3
        assert message["result"]["structuredContent"]["status"] == "done"


async def test_a_client_of_the_tasks_extension_gets_a_job_as_a_task(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        start = {"name": "exec_background", "arguments": {"code": "import time\ntime.sleep(0.5)\nprint('done')"}}
        created = await peer.result("tools/call", start | meta(TASKS))
        assert (created["resultType"], created["status"]) == ("task", "working")
        task_id = created["taskId"]
        assert task_id.startswith("exec-")
        listen = {"notifications": {"taskIds": [task_id]}} | meta(TASKS)
        await peer.request("subscriptions/listen", listen)
        agreed = await notified(peer, "notifications/subscriptions/acknowledged")
        assert agreed["notifications"] == {"taskIds": [task_id]}
        task: dict[str, Any] = {}
        while task.get("status") != "completed":
            task = await notified(peer, "notifications/tasks")
        assert task["result"]["structuredContent"]["stdout"] == "done\n"
        assert task["createdAt"] == created["createdAt"] <= task["lastUpdatedAt"]
        got = await peer.result("tasks/get", {"taskId": task_id} | meta(TASKS))
        assert (got["status"], got["result"]["isError"]) == ("completed", False)
        assert await peer.result("tasks/update", {"taskId": task_id, "inputResponses": {}} | meta(TASKS))


async def test_a_task_can_be_cancelled_and_an_unknown_one_is_absent(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        start = {"name": "exec_background", "arguments": {"code": "import time\ntime.sleep(60)"}} | meta(TASKS)
        task_id = (await peer.result("tools/call", start))["taskId"]
        await peer.result("tasks/cancel", {"taskId": task_id} | meta(TASKS))
        await peer.result("exec_wait", [task_id])
        assert (await peer.result("tasks/get", {"taskId": task_id} | meta(TASKS)))["status"] == "cancelled"
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            error = await peer.error(method, {"taskId": "exec-000000000000"} | meta(TASKS))
            assert (error["code"], error["data"]["kind"]) == (-32602, "not_found")
            assert (await peer.error(method, {"taskId": task_id} | meta()))["code"] == -32021


async def test_task_news_need_the_extension(spawn: Spawn) -> None:
    async with spawn() as peer:
        error = await peer.error("subscriptions/listen", {"notifications": {"taskIds": ["exec-0"]}} | meta())
        assert error["code"] == -32021
        assert error["data"]["requiredCapabilities"] == TASKS


async def test_a_client_without_the_extension_gets_the_plain_tool(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        start = {"name": "exec_background", "arguments": {"code": "1"}} | meta()
        assert "exec_id" in (await peer.result("tools/call", start))["structuredContent"]
