"""The MCP inspector's command line as a client: one process for one request."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from . import environments
from .story import ALLOWED, EXIT_STATUS, STORY, run_bounded

if TYPE_CHECKING:
    from pathlib import Path

ENDS_WITHIN_S = 60.0
ERAS = ("legacy", "auto", "modern")

pytestmark = pytest.mark.slow


class Inspection(msgspec.Struct, frozen=True):
    """What the inspector found: its result, its complaints, and the server's exit status."""

    result: dict[str, Any]
    complaints: str
    status: str


def inspect(folder: Path, *arguments: str) -> Inspection:
    """Let the inspector make one request of a fresh server."""
    with environments.needed("the inspector"):
        packages = environments.node_modules("inspector")
        node = str(environments.node().executable)
    program = packages / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
    workspace, status = folder / "workspace", folder / "status"
    workspace.mkdir()
    server = [sys.executable, "-P", "-m", "cellhost", "serve", "--workspace", str(workspace)]
    server += ["--data-dir", str(folder / "data"), "--allow", ALLOWED]
    command = [node, str(program), "--cli", *arguments, "--format", "json"]
    env = environments.environment_with_node() | {"HOME": str(folder)}
    target = ["--", "/bin/sh", "-c", EXIT_STATUS, str(status), *server]
    output, complaints = run_bounded([*command, *target], ENDS_WITHIN_S, env, folder)
    result: dict[str, Any] = json.loads(output)["result"] if output.strip() else {}
    return Inspection(result, complaints, status.read_text().strip() if status.exists() else "none")


def calls(tool: str, arguments: dict[str, Any]) -> tuple[str, ...]:
    return ("--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))


@pytest.mark.parametrize("era", ERAS)
def test_strict_inspection_of_the_tools_reports_nothing(tmp_path: Path, era: str) -> None:
    found = inspect(tmp_path, "--method", "tools/list", "--strict", "--protocol-era", era)
    assert "query" in {tool["name"] for tool in found.result["tools"]}, found
    assert found.complaints == ""
    assert found.status == "0"


@pytest.mark.parametrize("era", ERAS)
def test_a_query_answers_the_inspector(tmp_path: Path, era: str) -> None:
    found = inspect(tmp_path, *calls("query", {"sql": STORY["sql"]}), "--protocol-era", era)
    assert found.result["structuredContent"]["rows"] == [[1]], found
    assert found.complaints == ""
    assert found.status == "0"


@pytest.mark.parametrize("era", ERAS)
def test_a_refused_query_is_shown_as_the_tools_error(tmp_path: Path, era: str) -> None:
    found = inspect(tmp_path, *calls("query", {"sql": STORY["wrong_sql"]}), "--protocol-era", era)
    assert found.result["isError"] is True, found
    assert "tool_is_error" in found.complaints


def test_an_inspector_that_knows_tasks_gets_the_result_of_a_job(tmp_path: Path) -> None:
    code = "import threading; print('from a task')"
    found = inspect(tmp_path, *calls("exec_background", {"code": code}), "--protocol-era", "modern")
    assert found.result["structuredContent"]["stdout"] == "from a task\n", found
    assert found.status == "0"
