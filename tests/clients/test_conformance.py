"""The MCP conformance suite against cellhost's wire: an HTTP client, so a bridge stands between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from . import environments
from .story import run_bounded

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).parents[2]
EXPECTED_FAILURES = Path(__file__).with_name("expected-failures.yaml")
ENDS_WITHIN_S = 240.0
BRIDGE_ENDS_WITHIN_S = 20.0

RUNS = {
    "2025-11-25": ("--suite", "all", "--spec-version", "2025-11-25"),
    "2026-07-28": ("--suite", "all", "--spec-version", "2026-07-28"),
    "extensions": ("--suite", "all"),
}
"""Every scenario of each revision, then all there are, those of extensions too, at the newest revision they have."""


@contextmanager
def bridge(folder: Path) -> Generator[str]:
    """The URL of a bridge to the server under test."""
    workspace = folder / "workspace"
    workspace.mkdir()
    server = [sys.executable, "-m", "tests.clients.conformance_server", str(workspace), str(folder / "data")]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.clients.bridge", *server],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
            process.terminate()
            process.wait(BRIDGE_ENDS_WITHIN_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_the_conformance_suite_finds_nothing_that_is_not_explained(run: str, tmp_path: Path) -> None:
    with environments.needed("the conformance suite"):
        packages = environments.node_modules("conformance")
        node = str(environments.node().executable)
    program = packages / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with bridge(tmp_path) as url:
        command = [node, str(program), "server", "--url", url, *RUNS[run]]
        command += ["--expected-failures", str(EXPECTED_FAILURES), "--output-dir", str(tmp_path / "results")]
        output, errors = run_bounded(command, ENDS_WITHIN_S, cwd=tmp_path)
    assert "Baseline check passed" in output, output[-6000:] + errors
