"""Answers to a model: within its budget, of the declared shape, and what is left out can be had as they say."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema.validators import validator_for

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Peer, Spawn

CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
BUDGET = 16_000
ESCAPED = "\x1b[31m\x01" * 3_000
"""Text that takes several times as many characters in JSON."""


class Model:
    """Calls tools, and checks every answer by what `tools/list` says of it."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._shapes: dict[str, Any] = {}

    async def call(self, name: str, **arguments: Any) -> Any:
        if not self._shapes:
            await self._peer.result("initialize", CLIENT)
            tools = (await self._peer.result("tools/list"))["tools"]
            self._shapes = {tool["name"]: tool["outputSchema"] for tool in tools}
        result = await self._peer.result("tools/call", {"name": name, "arguments": arguments})
        text = result["content"][0]["text"]
        assert len(text) <= BUDGET
        if result.get("isError"):
            return text
        shape = self._shapes[name]
        validator: Any = validator_for(shape)
        validator(shape).validate(result["structuredContent"])
        answer = result["structuredContent"]
        assert bool(answer.get("truncated")) is ("go_on_with" in answer)
        return answer


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A database of many tables, a wide one, and one with a long text in its second row."""
    path = tmp_path / "user.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    for number in range(900):
        connection.execute(f"CREATE TABLE table_number_{number} (column_a, column_b)")
    connection.execute(f"CREATE TABLE wide ({', '.join(f'a_column_with_a_long_name_{n}' for n in range(200))})")
    connection.executemany(f"INSERT INTO wide VALUES ({', '.join('?' * 200)})", [["x" * 20] * 200] * 10)
    connection.execute("CREATE TABLE texts (text)")
    connection.executemany("INSERT INTO texts VALUES (?)", [["short"], ["x" * 20_000], ["last"]])
    connection.execute("COMMIT")
    connection.close()
    return f"user={path}"


async def test_a_database_of_many_tables_shows_as_many_as_fit(spawn: Spawn, database: str) -> None:
    async with spawn("--database", database) as peer:
        answer = await Model(peer).call("query_schema", database="user")
        assert answer["truncated"]
        assert len(answer) > 50


async def test_rows_are_cut_whole_and_one_too_long_for_any_answer_says_what_to_do(spawn: Spawn, database: str) -> None:
    async with spawn("--database", database) as peer:
        model = Model(peer)
        wide = await model.call("query", sql="SELECT * FROM wide", database="user")
        assert len(wide["columns"]) == 200
        assert 0 < wide["row_count"] < 10
        assert len(wide["rows"][0]) == 200
        first = await model.call("query", sql="SELECT text FROM texts", database="user", df=True)
        assert (first["rows"], first["truncated"]) == ([["short"]], True)
        assert "LIMIT" in first["go_on_with"]
        assert "substr()" in await model.call("query", sql="SELECT text FROM texts LIMIT 1 OFFSET 1", database="user")
        part = await model.call("query", sql="SELECT substr(text, 1, 9) FROM texts LIMIT 1 OFFSET 1", database="user")
        assert part["rows"] == [["x" * 9]]


async def test_a_wide_ancestry_is_cut_to_the_nodes_that_fit(spawn: Spawn) -> None:
    async with spawn() as peer:
        model = Model(peer)
        saved: list[str] = []
        for number in range(60):
            await peer.result("write_file", ["a.txt", str(number)])
            save = {"path": "a.txt", "filename": f"{'a long name ' * 15}{number}", "input_version_ids": saved[-20:]}
            version = await peer.result("save_artifact", save)
            saved.append(version["version_id"])
        graph = await model.call("lineage_graph", version_id=saved[-1])
        assert (graph["truncated"], graph["reason"]) == (True, "max_nodes")
        assert set(graph["info"]) == set(graph["nodes"])
        assert len(graph["nodes"]) > 10
        further = await model.call("lineage_graph", version_id=graph["nodes"][-1])
        assert set(further["nodes"]) - set(graph["nodes"])


@pytest.mark.parametrize("tool", ["exec_peek", "exec_wait"])
async def test_a_log_read_on_from_answer_to_answer_is_whole(spawn: Spawn, tool: str) -> None:
    code = f"import sys\nprint({ESCAPED!r})\nprint({ESCAPED!r}, file=sys.stderr)\nraise ValueError('long ' * 10_000)"
    async with spawn("--allow", "exec_background") as peer:
        model = Model(peer)
        exec_id = (await model.call("exec_background", code=code))["exec_id"]
        view = await model.call("exec_wait", exec_id=exec_id)
        assert (view["status"], view["truncated"]) == ("failed", True)
        assert view["dropped_chars"] > 0
        stdout, stderr, page = "", "", {"next": "0", "truncated": True}
        while page["truncated"]:
            page = await model.call(tool, exec_id=exec_id, since=page["next"])
            stdout, stderr = stdout + page["stdout"], stderr + page["stderr"]
        assert stdout == stderr == ESCAPED + "\n"
        stopped = await model.call("exec_interrupt", exec_id=exec_id)
        assert (stopped["stdout"], stopped["next"]) == (view["stdout"], view["next"])


async def test_a_file_is_read_on_without_a_gap_whatever_is_in_it(spawn: Spawn) -> None:
    lines = [f"{number} \x1b\x02\t\\{'é' * 20}\n" for number in range(1_500)]
    async with spawn() as peer:
        model = Model(peer)
        await peer.result("write_file", ["a.txt", "".join(lines)])
        read: list[str] = []
        while len(read) < len(lines):
            page = await model.call("read_file", path="a.txt", offset=len(read) + 1)
            read += page["content"].splitlines(keepends=True)
            assert page["truncated"] is (len(read) < len(lines))
        assert read == lines


async def test_cells_are_paged_on_with_the_size_of_the_page_that_fitted(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background") as peer:
        model = Model(peer)
        jobs = {
            (await peer.result("exec_background", [f"{number}\n# {'long ' * 400}"]))["exec_id"] for number in range(12)
        }
        for exec_id in jobs:
            await peer.result("exec_wait", [exec_id])
        frame_id = (await peer.result("ping"))["frame_id"]
        first = await model.call("frames", frame_id=frame_id)
        assert first["truncated"]
        size, seen = first["page_size"], list(first["cells"])
        while len(seen) < first["total_cells"]:
            page = await model.call("frames", frame_id=frame_id, page=len(seen) // size, page_size=size)
            seen += page["cells"]
            assert page["cells"]
        assert len({cell["cell_id"] for cell in seen}) == first["total_cells"] == 12
