"""MCP's handshake era over a real pipe, by hand and with the official client."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types
import pytest
from jsonschema.validators import validator_for
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

if TYPE_CHECKING:
    from .conftest import Peer, Spawn

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CLIENT = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def conforms(revision: str, name: str, result: Any) -> None:
    """Check a result with the protocol's types, and with its published schema where that is at hand."""
    getattr(mcp_types, name).model_validate(result)
    folder = os.environ.get("CELLHOST_MCP_SCHEMAS")
    if folder is None:
        return
    schema = json.loads((Path(folder) / f"{revision}.json").read_text())
    section = "$defs" if "$defs" in schema else "definitions"
    validator: Any = validator_for(schema)
    validator({"$ref": f"#/{section}/{name}", section: schema[section]}).validate(result)


async def shake_hands(peer: Peer, revision: str) -> dict[str, Any]:
    result: dict[str, Any] = await peer.result("initialize", {"protocolVersion": revision, **CLIENT})
    await peer.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    return result


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_handshake_and_every_method_conform_to_the_revision(spawn: Spawn, revision: str) -> None:
    async with spawn() as peer:
        initialized = await shake_hands(peer, revision)
        assert initialized["protocolVersion"] == revision
        conforms(revision, "InitializeResult", initialized)
        assert await peer.result("ping") == {}
        tools = await peer.result("tools/list")
        conforms(revision, "ListToolsResult", tools)
        await peer.result("tools/call", {"name": "write_file", "arguments": {"path": "a.txt", "content": "hello"}})
        saved = await peer.result("tools/call", {"name": "save_artifact", "arguments": {"path": "a.txt"}})
        conforms(revision, "CallToolResult", saved)
        assert json.loads(saved["content"][0]["text"]) == saved["structuredContent"]
        resources = await peer.result("resources/list")
        conforms(revision, "ListResourcesResult", resources)
        read = await peer.result("resources/read", {"uri": resources["resources"][0]["uri"]})
        conforms(revision, "ReadResourceResult", read)
        assert read["contents"][0]["text"] == "hello"
        conforms(revision, "ListResourceTemplatesResult", await peer.result("resources/templates/list"))
        assert await peer.result("logging/setLevel", {"level": "warning"}) == {}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_saved_image_comes_as_an_image_and_its_bytes_when_asked_for(
    spawn: Spawn, tmp_path: Path, revision: str
) -> None:
    async with spawn() as peer:
        await shake_hands(peer, revision)
        png = base64.b64decode(PNG)
        (tmp_path / "workspace" / "plot.png").write_bytes(png)
        saved = await peer.result("tools/call", {"name": "save_artifact", "arguments": {"path": "plot.png"}})
        version_id = saved["structuredContent"]["version_id"]
        shown = await peer.result("tools/call", {"name": "read_artifact", "arguments": {"version_id": version_id}})
        conforms(revision, "CallToolResult", shown)
        text, image = shown["content"]
        assert image == {"type": "image", "data": PNG, "mimeType": "image/png"}
        assert json.loads(text["text"]) == shown["structuredContent"]
        read = shown["structuredContent"]
        assert (read["encoding"], read["content"], read["bytes"]) == ("image", "", len(png))
        arguments = {"version_id": version_id, "offset": 1}
        asked = await peer.result("tools/call", {"name": "read_artifact", "arguments": arguments})
        assert (len(asked["content"]), asked["structuredContent"]["content"]) == (1, PNG)


async def test_a_saved_file_that_was_cut_is_told_by_the_tool_and_by_the_resource(spawn: Spawn, tmp_path: Path) -> None:
    async with spawn() as peer:
        await shake_hands(peer, REVISIONS[-1])
        (tmp_path / "workspace" / "a.txt").write_text("whole")
        saved = await peer.result("tools/call", {"name": "save_artifact", "arguments": {"path": "a.txt"}})
        version_id, checksum = (saved["structuredContent"][name] for name in ("version_id", "checksum"))
        kept = tmp_path / "data" / "projects" / "default" / "objects" / checksum[:2] / checksum
        kept.chmod(0o600)
        kept.write_text("who")
        error = await peer.error("resources/read", {"uri": f"artifact://{version_id}"})
        assert (error["code"], error["message"]) == (-31507, "the bytes of this version are missing or incomplete")
        failed = await peer.result("tools/call", {"name": "read_artifact", "arguments": {"version_id": version_id}})
        assert failed["isError"] is True
        assert "put the project's objects folder back from a copy" in failed["content"][0]["text"]


async def test_an_image_that_no_model_takes_is_told(spawn: Spawn, tmp_path: Path) -> None:
    async with spawn() as peer:
        await shake_hands(peer, REVISIONS[-1])
        (tmp_path / "workspace" / "plot.png").write_bytes(b"x" * 4_000_000)
        saved = await peer.result("tools/call", {"name": "save_artifact", "arguments": {"path": "plot.png"}})
        arguments = {"version_id": saved["structuredContent"]["version_id"]}
        failed = await peer.result("tools/call", {"name": "read_artifact", "arguments": arguments})
        assert failed["isError"] is True
        assert "the image has 4000000 bytes" in failed["content"][0]["text"]


async def test_an_unknown_revision_is_answered_with_the_newest(spawn: Spawn) -> None:
    async with spawn() as peer:
        assert (await shake_hands(peer, "1999-01-01"))["protocolVersion"] == REVISIONS[-1]


async def test_everything_there_is_to_read_is_listed_once_by_names_that_explain_themselves(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        await shake_hands(peer, REVISIONS[-1])
        for number in range(51):
            await peer.result("write_file", [f"{number}.txt", str(number)])
            await peer.result("save_artifact", [f"{number}.txt"])
        code = "\n\n# count birds\nprint(1)"
        bare = await peer.result("exec_background", {"code": code})
        labelled = await peer.result("exec_background", {"code": code, "label": "bird count"})
        turn = await peer.result("frame_new", {"kind": "turn", "name": "birds"})
        session = (await peer.result("frames", {}))["frames"][0]["frame_id"]
        first = await peer.result("resources/list")
        assert len(first["resources"]) == 50
        await peer.result("write_file", ["late.txt", "late"])
        await peer.result("save_artifact", ["late.txt"])
        second = await peer.result("resources/list", {"cursor": first["nextCursor"]})
        conforms(REVISIONS[-1], "ListResourcesResult", second)
        assert "nextCursor" not in second
        files = [each["name"] for each in first["resources"] + second["resources"][:1]]
        assert files == [f"{number}.txt" for number in reversed(range(51))]
        assert {name: first["resources"][0][name] for name in ("description", "mimeType", "size")} == {
            "description": "Saved file, version 1",
            "mimeType": "text/plain",
            "size": 2,
        }
        assert [(each["uri"], each["name"]) for each in second["resources"][1:]] == [
            (f"job://{labelled['exec_id']}/log", "Log of job: bird count"),
            (f"job://{bare['exec_id']}/log", "Log of job: # count birds"),
            (f"frame://{turn['frame_id']}", "Turn: birds"),
            (f"frame://{session}", f"Session: {session}"),
        ]
        for each in second["resources"]:
            conforms(REVISIONS[-1], "ReadResourceResult", await peer.result("resources/read", {"uri": each["uri"]}))
        for cursor in ("x", "", (await peer.result("list_artifacts", {"limit": 1}))["next_cursor"]):
            error = await peer.error("resources/list", {"cursor": cursor})
            assert (error["code"], error["data"]["issues"][0]["path"]) == (-32602, "$.cursor")


async def test_tools_say_all_about_themselves(spawn: Spawn) -> None:
    async with spawn() as peer:
        tools = {tool["name"]: tool for tool in (await peer.result("tools/list"))["tools"]}
        assert len(tools) == 25
        assert list(tools) == [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]
        for tool in tools.values():
            validator: Any = validator_for(tool["inputSchema"])
            validator.check_schema(tool["inputSchema"])
            assert tool["inputSchema"]["additionalProperties"] is False
            assert tool["outputSchema"]["type"] == "object"
            assert tool["annotations"]["openWorldHint"] is False
        assert tools["query"]["annotations"]["readOnlyHint"] is True
        assert tools["write_file"]["annotations"]["destructiveHint"] is True


async def test_a_failed_call_is_a_result_that_a_model_can_read(spawn: Spawn) -> None:
    async with spawn() as peer:
        await shake_hands(peer, REVISIONS[-1])
        for name, arguments, words in (
            ("query", {"sql": "DROP TABLE jobs"}, "only allows read-only"),
            ("query", {"sql": "SELECT filname FROM artifacts"}, "filename"),
            ("query", {}, "$.sql: required"),
            ("exec_background", {"code": "1"}, "needs approval"),
            ("read_file", {"path": "absent"}, "list_files"),
        ):
            failed = await peer.result("tools/call", {"name": name, "arguments": arguments})
            conforms(REVISIONS[-1], "CallToolResult", failed)
            assert failed["isError"] is True
            assert words in failed["content"][0]["text"], failed


@pytest.mark.parametrize(
    "params", [{"name": "no_such_tool"}, {"name": "ping"}, {}, {"name": 5}, {"name": "query", "arguments": "x"}]
)
async def test_an_unknown_tool_and_malformed_params_are_protocol_errors(spawn: Spawn, params: dict[str, Any]) -> None:
    async with spawn() as peer:
        await shake_hands(peer, REVISIONS[-1])
        assert (await peer.error("tools/call", params))["code"] == -32602


async def test_errors_without_a_known_id_carry_none(spawn: Spawn) -> None:
    async with spawn() as peer:
        await shake_hands(peer, REVISIONS[-1])
        await peer.send(b"{\n")
        answer = await peer.receive()
        assert answer["error"]["code"] == -32700
        assert "id" not in answer


async def test_nothing_more_is_sent_for_a_cancelled_call(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        await shake_hands(peer, REVISIONS[-1])
        launched = await peer.result(
            "tools/call", {"name": "exec_background", "arguments": {"code": "import time; time.sleep(60)"}}
        )
        exec_id = launched["structuredContent"]["exec_id"]
        waiting = await peer.request("tools/call", {"name": "exec_wait", "arguments": {"exec_id": exec_id}})
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting}}
        await peer.send(json.dumps(cancel).encode() + b"\n")
        pinged = await peer.request("ping")
        assert (await peer.receive())["id"] == pinged


async def test_a_long_answer_is_cut_to_the_budget_and_says_how_to_go_on(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        await shake_hands(peer, REVISIONS[-1])
        for name, arguments in (
            ("write_file", {"path": "big.txt", "content": "line of text\n" * 20_000}),
            ("exec_background", {"code": "print('output ' * 20_000)"}),
        ):
            await peer.result("tools/call", {"name": name, "arguments": arguments})
        (job,) = (await peer.result("tools/call", {"name": "exec_list"}))["structuredContent"]["result"]
        await peer.result("tools/call", {"name": "exec_wait", "arguments": {"exec_id": job["exec_id"]}})
        rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 5000) SELECT x, 'text' FROM c"
        for name, arguments in (
            ("read_file", {"path": "big.txt"}),
            ("query", {"sql": rows}),
            ("exec_peek", {"exec_id": job["exec_id"]}),
        ):
            result = await peer.result("tools/call", {"name": name, "arguments": arguments})
            conforms(REVISIONS[-1], "CallToolResult", result)
            assert len(result["content"][0]["text"]) <= 16_000
            assert result["structuredContent"]["truncated"] is True, name


async def test_a_graph_over_the_budget_has_fewer_nodes_and_says_why(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("write_file", ["a.txt", "x"])
        versions: list[str] = []
        for number in range(120):
            given = {"path": "a.txt", "filename": f"step_{number}.txt", "input_version_ids": versions[-1:]}
            versions.append((await peer.result("save_artifact", given))["version_id"])
        call = {"name": "lineage_graph", "arguments": {"version_id": versions[-1], "max_depth": 100}}
        result = await peer.result("tools/call", call)
        assert len(result["content"][0]["text"]) <= 16_000
        graph = result["structuredContent"]
        assert graph["truncated"] is True
        assert graph["reason"]
        assert 50 < len(graph["nodes"]) < 120
        assert set(graph["info"]) == set(graph["nodes"])
        assert len(graph["edges"]) == len(graph["nodes"]) - 1


async def test_a_job_of_another_project_is_absent(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("frame_new", {"kind": "turn", "project_id": "other"})
        failed = await peer.result("tools/call", {"name": "frames", "arguments": {"project_id": "other"}})
        assert failed["isError"] is True
        assert "not_found" in failed["content"][0]["text"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_lists_and_calls_tools(tmp_path: Path, mode: Any) -> None:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "cellhost", "serve", "--data-dir", str(tmp_path / "data"), "--allow", "exec_background"],
        cwd=tmp_path,
    )
    with anyio.fail_after(60):
        async with Client(stdio_client(parameters), mode=mode) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {"query", "exec_background", "save_artifact"} <= tools
            launched = await client.call_tool("exec_background", {"code": "print('hello from a job')"})
            assert launched.structured_content is not None
            exec_id = launched.structured_content["exec_id"]
            waited = await client.call_tool("exec_wait", {"exec_id": exec_id})
            assert waited.structured_content is not None
            assert waited.structured_content["stdout"] == "hello from a job\n"
            queried = await client.call_tool("query", {"sql": "SELECT status FROM jobs"})
            assert queried.structured_content is not None
            assert queried.structured_content["rows"] == [["done"]]
            refused = await client.call_tool("query", {"sql": "DELETE FROM jobs"})
            assert refused.is_error
            job, session = (await client.list_resources()).resources
            assert (job.uri, job.name) == (f"job://{exec_id}/log", "Log of job: print('hello from a job')")
            assert session.name.startswith("Session: f-")
