"""The five commonest tasks of an agent, done with nothing but the texts that the server sends it.

A step names the words that lead to its tool, and whatever is passed on from an earlier answer must be named in the
texts too. The calls are real: a text that promises what does not work fails here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

if TYPE_CHECKING:
    from .conftest import Peer, Spawn

CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Earlier(msgspec.Struct, frozen=True):
    """A value that an earlier answer gave under this name."""

    name: str


class Step(msgspec.Struct, frozen=True):
    """One call, and the words of the texts that lead to it."""

    words: str
    tool: str
    arguments: dict[str, Any] = {}
    finds: str = ""


RUN = Step(
    "exec_background starts a job", "exec_background", {"code": "open('out.csv', 'w').write('a\\n1')\nprint('made')"}
)
WAIT = Step("Then exec_wait until it is done", "exec_wait", {"exec_id": Earlier("exec_id")}, finds="made")
ENDLESS = {"code": "print('begun', flush=True)\nwhile True: pass"}
NEWS = {"exec_id": Earlier("exec_id"), "until": "news"}
SAVE = Step("save_artifact stores a file of the workspace", "save_artifact", {"path": "out.csv"}, finds="out.csv")
WROTE = Step(
    "Write longer code to a module with write_file", "write_file", {"path": "sums.py", "content": "TOTAL = 41"}
)
CHANGE = {"path": "sums.py", "old": "41", "new": "42"}
IMPORT = Step("import it in the job", "exec_background", {"code": "import sums\nprint('total', sums.TOTAL)"})
RECORDS = {"sql": "SELECT exec_id, status FROM jobs ORDER BY created_at DESC LIMIT 10"}

TASKS = {
    "run code and see what it printed": [RUN, WAIT],
    "stop a job that does not end": [
        Step("exec_background starts a job", "exec_background", ENDLESS),
        Step("until it starts, prints, progresses or ends", "exec_wait", NEWS, finds='"done":false'),
        Step("exec_interrupt stops a job", "exec_interrupt", {"exec_id": Earlier("exec_id")}),
        Step("Then exec_wait until it is done", "exec_wait", {"exec_id": Earlier("exec_id")}, finds="interrupted"),
    ],
    "write a module, correct it and use it": [
        WROTE,
        Step("Replace an exact piece of text", "edit_file", CHANGE),
        IMPORT,
        msgspec.structs.replace(WAIT, finds="total 42"),
    ],
    "keep a file and tell where it came from": [
        RUN,
        WAIT,
        SAVE,
        Step("how one saved version was made", "lineage_get", {"version_id": Earlier("version_id")}, finds="out.csv"),
    ],
    "ask what ran before": [
        RUN,
        WAIT,
        Step("query_schema lists the tables", "query_schema", finds="exec_id"),
        Step("query runs one read-only SELECT", "query", RECORDS, finds="done"),
    ],
}


async def call(peer: Peer, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    result = await peer.result("tools/call", {"name": tool, "arguments": arguments})
    assert not result.get("isError"), result
    answer: dict[str, Any] = result
    return answer


@pytest.mark.parametrize("task", TASKS)
async def test_the_texts_alone_lead_through_a_task(spawn: Spawn, task: str) -> None:
    async with spawn("--allow", "exec_background") as peer:
        instructions = (await peer.result("initialize", CLIENT))["instructions"]
        tools = {tool["name"]: tool for tool in (await peer.result("tools/list"))["tools"]}
        known: dict[str, Any] = {}
        for step in TASKS[task]:
            tool = tools[step.tool]
            parameters = tool["inputSchema"]["properties"]
            texts = " ".join(
                [instructions, tool["description"], *(each["description"] for each in parameters.values())]
            )
            assert step.words.lower() in texts.lower()
            passed_on = {name: value for name, value in step.arguments.items() if isinstance(value, Earlier)}
            for value in passed_on.values():
                assert any(value.name in text for text in (texts, *(each["description"] for each in tools.values())))
            arguments = step.arguments | {name: known[value.name] for name, value in passed_on.items()}
            answer = await call(peer, step.tool, arguments)
            assert step.finds in answer["content"][0]["text"]
            known |= answer.get("structuredContent", {})
