"""The story every real client goes through, and how its driver is run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from . import environments

if TYPE_CHECKING:
    from collections.abc import Sequence

DRIVERS = Path(__file__).parent / "drivers"
ENDS_WITHIN_S = 120.0

STEPS = ("list", "query", "job", "cancel", "approval", "remember", "error", "shutdown")
STORY: dict[str, Any] = {
    "sql": "SELECT 1 AS one",
    "wrong_sql": "DROP TABLE jobs",
    "job": "import threading; [(host.progress(n, 3, f'step {n}'), threading.Event().wait(0.3)) for n in (1, 2, 3)]; "
    "print('made')",
    "endless": "import threading; threading.Event().wait(60)",
    "asked": "print('approved')",
    "refused": "print('refused')",
    "remember": {name: f"print('{name}')" for name in ("once", "conversation", "project", "always")},
}
ALLOWED = "exec_background:import threading; *"
EXIT_STATUS = '"$@"; echo $? > "$0"'
"""A shell's script that runs the server and leaves its exit status in a file: clients keep it to themselves."""

Dialect = Literal["mcp", "plain", "editor"]


class Client(msgspec.Struct, frozen=True):
    """A real client: its driver, the environment it lives in (None: the tests' own), and what it negotiates."""

    driver: str
    environment: str | None
    dialect: Dialect
    mode: str | None = None
    version: str | None = None


class Run(msgspec.Struct, frozen=True):
    """What came of a run: the steps as they were reported, the server's exit status, and the recording."""

    steps: dict[str, dict[str, Any]]
    status: str
    transcript: Path
    stderr: str


CLIENTS: dict[str, Client] = {
    "mcp2-legacy": Client("mcp2.py", None, "mcp", "legacy", "2025-11-25"),
    "mcp2-auto": Client("mcp2.py", None, "mcp", "auto", "2026-07-28"),
    "mcp2-stateless": Client("mcp2.py", None, "mcp", "2026-07-28", "2026-07-28"),
    "mcp1": Client("mcp1.py", "mcp1", "mcp", None, "2025-11-25"),
    "fastmcp": Client("fastmcp_client.py", "fastmcp", "mcp", None, "2026-07-28"),
    "jsonrpcclient": Client("jsonrpcclient_lines.py", "jsonrpcclient", "plain"),
    "agent-client-protocol": Client("acp_connection.py", "agent-client-protocol", "plain"),
    "pygls": Client("pygls_client.py", "pygls", "editor", None, "cellhost"),
    "python-lsp-jsonrpc": Client("pylsp_endpoint.py", "python-lsp-jsonrpc", "editor", None, "cellhost"),
    "typescript-sdk1": Client("mcp_sdk_v1.mjs", "sdk", "mcp", None, "2025-11-25"),
    "typescript-client2-legacy": Client("mcp_client_v2.mjs", "client", "mcp", "legacy", "2025-11-25"),
    "typescript-client2-auto": Client("mcp_client_v2.mjs", "client", "mcp", "auto", "2026-07-28"),
    "typescript-client2-stateless": Client("mcp_client_v2.mjs", "client", "mcp", "2026-07-28", "2026-07-28"),
    "vscode-jsonrpc": Client("vscode_jsonrpc.mjs", "vscode-jsonrpc", "editor", None, "cellhost"),
}


def act(client: Client, folder: Path) -> Run:
    """Let a client go through the story with a fresh server.

    Raises:
        MissingError: its environment cannot be had here.
    """
    runtime, packages = _runtime(client)
    transcript, status = folder / "transcript.jsonl", folder / "status"
    workspace = folder / "workspace"
    workspace.mkdir()
    server = [sys.executable, "-P", "-m", "cellhost", "serve", "--workspace", str(workspace)]
    server += ["--data-dir", str(folder / "data"), "--allow", ALLOWED, "--record", str(transcript)]
    command = ["/bin/sh", "-c", EXIT_STATUS, str(status), *server]
    orders = {"command": command, "mode": client.mode, "packages": str(packages), "story": STORY}
    output, errors = run_bounded([str(runtime), str(DRIVERS / client.driver), json.dumps(orders)], ENDS_WITHIN_S)
    steps = {report["step"]: report for report in map(json.loads, output.splitlines())}
    return Run(steps, status.read_text().strip() if status.exists() else "none", transcript, errors)


def _runtime(client: Client) -> tuple[Path, Path]:
    if client.driver.endswith(".mjs"):
        assert client.environment is not None
        packages = environments.node_modules(client.environment)
        return environments.node().executable, packages / "package.json"
    if client.environment is None:
        return Path(sys.executable), Path()
    return environments.python(client.environment), Path()


def run_bounded(
    command: Sequence[str], seconds: float, env: dict[str, str] | None = None, cwd: Path | None = None
) -> tuple[str, str]:
    """What a process writes to stdout and stderr until it ends; its whole group is ended with it."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=cwd,
        start_new_session=True,
    ) as process:
        try:
            return process.communicate(timeout=seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
