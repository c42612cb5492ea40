"""Real clients over real pipes: each goes through the whole story, and its conversation is kept as a transcript."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from cellhost import Config, build_dispatcher
from cellhost.rpc import transcript as transcripts
from cellhost.rpc.discover import openrpc_document
from cellhost.rpc.holes import Names
from cellhost.rpc.instructions import INSTRUCTIONS
from cellhost.rpc.mcp_tools import tool_list
from cellhost.rpc.replay import replay

from . import environments
from .conforming import conforms
from .story import CLIENTS, STEPS, STORY, Client, act

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
FOLDER = Path(__file__).parents[1] / "transcripts" / "clients"
QUICK = ("mcp2-legacy", "mcp2-stateless")
"""Those whose transcript is played in every run, one of each era."""

TOLD_IN_OTHER_PIECES = ("jsonrpcclient", "agent-client-protocol")
"""Subscribers to `exec`: how many updates tell of a job's start is a matter of milliseconds, no two runs are alike."""

Seen = dict[str, Any]


def named_clients(quick: Collection[str], without: Collection[str] = ()) -> list[Any]:
    names = [name for name in CLIENTS if name not in without]
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


def sees_every_tool(client: Client, seen: Seen) -> None:
    assert {"query", "exec_background", "exec_wait", "save_artifact"} <= set(seen["tools"])
    assert seen.get("version") == client.version


def gets_rows(client: Client, seen: Seen) -> None:
    assert seen["rows"] == [[1]]


def follows_a_job(client: Client, seen: Seen) -> None:
    assert seen["outcome"] == {"status": "done", "done": True, "stdout": "made\n"}
    if client.dialect == "mcp":
        assert seen["progress"] == [1, 2, 3]
    elif client.dialect == "editor":
        assert seen["kinds"] == ["begin", "report", "report", "report", "end"]
        assert [report["message"] for report in seen["progress"]] == ["step 1", "step 2", "step 3"]
    else:
        assert seen["progress"] == [3]
        assert seen["output"] == "made\n"


def gives_up_waiting(client: Client, seen: Seen) -> None:
    assert seen["cancelled"] is True
    assert seen["outcome"]["status"] == "interrupted"


def is_asked(client: Client, seen: Seen) -> None:
    assert seen["outcome"] == {"status": "done", "done": True, "stdout": "approved\n"}
    assert seen["refused"] is True
    asked, refused = seen["asked"]
    assert STORY["asked"] in asked
    assert STORY["refused"] in refused
    if client.dialect != "plain":  # a plain client gets these as members of their own
        assert "Allow exec_background?" in asked
        assert "in this conversation" in asked


def is_asked_no_more(client: Client, seen: Seen) -> None:
    """Each code is run twice: only an approval of this one call is asked for again."""
    assert seen["asks"] == {"once": 2, "conversation": 1, "project": 1, "always": 1}


def reads_errors(client: Client, seen: Seen) -> None:
    assert seen["failed"] is True
    assert "only allows read-only" in seen["text"]
    assert seen["code"] == (-32602 if client.dialect == "mcp" else -32601)


CHECKS: dict[str, Callable[[Client, Seen], None]] = {
    "list": sees_every_tool,
    "query": gets_rows,
    "job": follows_a_job,
    "cancel": gives_up_waiting,
    "approval": is_asked,
    "remember": is_asked_no_more,
    "error": reads_errors,
}


@pytest.mark.parametrize("name", named_clients(("mcp2-stateless",)))
def test_a_real_client_goes_through_the_whole_story(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    client = CLIENTS[name]
    with environments.needed(name):
        run = act(client, tmp_path)
    assert tuple(run.steps) == STEPS, run.stderr
    for step, report in run.steps.items():
        assert report["failure"] is None, (step, report["failure"])
    for step, check in CHECKS.items():
        check(client, run.steps[step]["saw"])
    assert run.status == "0", run.stderr
    is_answered_as_its_dialect_has_it(client, run.transcript)
    if request.config.getoption("--update-transcripts"):
        FOLDER.mkdir(exist_ok=True)
        shutil.copyfile(run.transcript, FOLDER / f"{name}.jsonl")


def is_answered_as_its_dialect_has_it(client: Client, transcript: Path) -> None:
    """Messages of MCP conform to the revision; a cancelled request gets no answer there, and -32800 elsewhere."""
    lines = [line for line in transcripts.read(transcript).lines if isinstance(line.message, dict)]
    cancels = [line.message["params"] for line in lines if "cancel" in str(line.message.get("method")).lower()]
    (cancelled,) = [params.get("requestId", params.get("id")) for params in cancels]
    answers = [line.message for line in lines if line.mark == "<-" and line.message.get("id") == cancelled]
    codes = [answer["error"]["code"] for answer in answers if "method" not in answer]
    if client.dialect == "mcp":
        assert codes == []
        assert client.version is not None
        assert conforms(client.version, lines) > len(STEPS)
    else:
        assert codes == [-32800]


def test_every_client_has_a_transcript_and_every_transcript_a_client() -> None:
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(CLIENTS)


@pytest.mark.parametrize("name", named_clients(QUICK, TOLD_IN_OTHER_PIECES))
def test_a_fresh_server_answers_a_client_as_its_transcript_says(name: str) -> None:
    assert replay(FOLDER / f"{name}.jsonl") is None


async def test_every_transcript_lists_what_the_registry_has_today(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """So a changed text shows in a second, and in those transcripts too that are not replayed."""
    dispatcher = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
    document = openrpc_document(dispatcher.host.methods)
    await dispatcher.host.aclose()
    today = {"methods": document["methods"], "components": document["components"]}
    today |= {"tools": json.loads(bytes(tool_list())), "instructions": INSTRUCTIONS}
    today = Names().name(today, "<-")
    for path in FOLDER.glob("*.jsonl"):
        transcript = transcripts.read(path)
        results = [result for line in transcript.lines if (result := result_of(line.message)).keys() & today.keys()]
        if request.config.getoption("--update-transcripts"):
            for result in results:
                result.update((name, today[name]) for name in result.keys() & today.keys())
            path.write_bytes(transcripts.render(transcript))
        assert results, path.name
        for result in results:
            assert all(result[name] == today[name] for name in result.keys() & today.keys()), path.name


def result_of(message: Any) -> dict[str, Any]:
    """A response's result if it is an object; else an empty one."""
    response = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
    result = response.get("result")
    return cast("dict[str, Any]", result) if isinstance(result, dict) else {}
