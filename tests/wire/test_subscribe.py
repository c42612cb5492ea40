"""News of jobs for a plain peer, of resources for an MCP peer; and the server's description of itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jsonschema.validators import validator_for

from cellhost.tools.registry import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Peer, Spawn


async def notifications(peer: Peer, until: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything that comes up to a notification whose params contain `until`."""
    seen: list[dict[str, Any]] = []
    while not seen or not until.items() <= seen[-1]["params"].items():
        message = await peer.receive()
        if "method" in message:
            seen.append(message)
    return seen


async def test_a_plain_peer_hears_of_jobs_and_gets_their_output_whole(spawn: Spawn) -> None:
    code = "import sys\nfor n in range(300):\n    print('line', n)\nprint('oops', file=sys.stderr)\nhost.progress(1, 2)"
    async with spawn("--allow", "exec_background") as peer:
        assert await peer.result("subscribe", {"events": ["exec"]}) == {"events": ["exec"]}
        await peer.request("exec_background", [code])
        seen = await notifications(peer, {"status": "done"})
        output = [message["params"] for message in seen if message["method"] == "exec/output"]
        updates = [message["params"] for message in seen if message["method"] == "exec/update"]
        assert updates[0]["status"] in ("queued", "starting", "running")
        stdout = "".join(each["text"] for each in output if each["stream"] == "stdout")
        stderr = "".join(each["text"] for each in output if each["stream"] == "stderr")
        assert stdout == "".join(f"line {number}\n" for number in range(300))
        assert stderr == "oops\n"
        assert updates[-1]["next"] == output[-1]["next"], "word of the end has all of the output before it"


async def test_subscribing_to_what_there_is_not_is_refused(spawn: Spawn) -> None:
    async with spawn() as peer:
        assert (await peer.error("subscribe", {"events": ["weather"]}))["code"] == -32602
        assert (await peer.error("subscribe", {}))["code"] == -32602


async def test_an_mcp_peer_hears_of_resources_it_subscribed_to(spawn: Spawn) -> None:
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    async with spawn("--allow", "exec_background") as peer:
        await peer.result("initialize", client)
        assert (await peer.result("resources/list"))["resources"] == []
        launched = await peer.result("exec_background", ["import time\ntime.sleep(0.5)\nprint('x')"])
        uri = f"job://{launched['exec_id']}/log"
        assert await peer.result("resources/subscribe", {"uri": uri}) == {}
        await notifications(peer, {"uri": uri})
        assert await peer.result("resources/unsubscribe", {"uri": uri}) == {}
        assert (await peer.error("resources/subscribe", {"uri": "http://elsewhere"}))["code"] == -32002
        await peer.request("write_file", ["a.txt", "x"])
        await peer.request("save_artifact", ["a.txt"])
        while (await peer.receive()).get("method") != "notifications/resources/list_changed":
            pass
        artifact, job, session = (await peer.result("resources/list"))["resources"]
        assert artifact["name"] == "a.txt"
        assert (job["uri"], job["name"]) == (uri, "Log of job: import time")
        assert session["uri"].startswith("frame://")


async def test_an_mcp_peer_hears_that_a_frame_it_subscribed_to_has_another_cell_or_child(spawn: Spawn) -> None:
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    async with spawn("--allow", "exec_background") as peer:
        await peer.result("initialize", client)
        assert (await peer.result("resources/list"))["resources"] == []
        # Its frame is written with its first job: from then on both are listed.
        launched = await peer.result(
            "exec_background",
            ["input()"],
        )
        while (await peer.receive()).get("method") != "notifications/resources/list_changed":
            pass
        *_, session = (await peer.result("resources/list"))["resources"]
        await peer.result("resources/subscribe", {"uri": session["uri"]})
        await peer.request("exec_interrupt", [launched["exec_id"]])
        (cell,) = await cells_once(peer, session["uri"], lambda cells: cells[0]["status"] in ("interrupted", "failed"))
        assert cell["code"] == "input()"
        await peer.request("frame_new", {"kind": "turn"})
        await notifications(peer, {"uri": session["uri"]})
        read = await peer.result("resources/read", {"uri": session["uri"]})
        assert len(json.loads(read["contents"][0]["text"])["children"]) == 1


async def cells_once(peer: Peer, uri: str, wanted: Callable[[list[Any]], bool]) -> list[Any]:
    """The cells of a frame as it tells of itself, read at each word of a change until they are as wanted."""
    while True:
        await notifications(peer, {"uri": uri})
        cells: list[Any] = json.loads((await peer.result("resources/read", {"uri": uri}))["contents"][0]["text"])[
            "cells"
        ]
        if wanted(cells):
            return cells


async def test_discovery_describes_every_method_a_plain_peer_may_call(spawn: Spawn) -> None:
    async with spawn() as peer:
        document = await peer.result("rpc.discover")
        assert document["openrpc"].startswith("1.")
        methods = {method["name"]: method for method in document["methods"]}
        assert set(REGISTRY.tools) <= methods.keys()
        assert {"ping", "frame_new", "permission_set", "permission_resolve"} <= methods.keys()
        assert "progress" not in methods
        query = methods["query"]
        assert query["params"][0]["name"] == "sql"
        assert query["params"][0]["required"] is True
        for method in methods.values():
            for part in [*method["params"], method["result"]]:
                validator: Any = validator_for(part["schema"])
                validator.check_schema(part["schema"])
            for error in method["errors"]:
                assert error["$ref"].rpartition("/")[2] in document["components"]["errors"]
