"""The real command, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from cellhost.rpc.client import Client

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = (sys.executable, "-P", "-m", "cellhost")
WITHIN_S = 60.0

# A picture of one pixel, saved from the file that it was made from.
PLOTTING = """\
import base64, sys
print("reading", open("raw.csv").read().count(","), "commas")
print("a warning", file=sys.stderr)
host.progress(3, 4, "drawing")
open("dot.png", "wb").write(base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="))
host.save_artifact("dot.png", input_version_ids=["{source}"])
6 * 7
"""
FAILING = """\
from IPython.display import HTML, display
display(HTML("<i>seen</i>"))
print("before")
raise ValueError("no good <b>")
"""

Done: TypeAlias = "subprocess.CompletedProcess[str]"
Run: TypeAlias = Callable[..., Done]


@pytest.fixture
def cellhost(tmp_path: Path) -> Run:
    """`cellhost("config", "--json", LOG="info")`: runs the verb; keywords are `CELLHOST_*` variables."""

    def run(*arguments: str, **variables: str) -> Done:
        return subprocess.run(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            cwd=tmp_path,
            env=os.environ | {f"CELLHOST_{name}": value for name, value in variables.items()},
        )

    return run


class Worked(NamedTuple):
    """What a server left: folders, and ids of what was made."""

    data: Path
    workspace: Path
    done: str
    failed: str
    source: str
    output: str

    def place(self, *arguments: str) -> tuple[str, ...]:
        """Arguments with the flag that names the folder."""
        return (*arguments, "--data-dir", str(self.data))


@pytest.fixture(scope="session")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Worked:
    """Records that a real server made, with a job that made one file from another and one that failed."""
    folder = tmp_path_factory.mktemp("worked")
    data, workspace = folder / "data", folder / "work"
    serve = ["--data-dir", str(data), "--workspace", str(workspace), "--allow", "exec_background"]
    with Client(serve) as client:

        def result(method: str, params: Any) -> Any:
            return client.call(method, params)["result"]

        result("write_file", ["raw.csv", "a,b\n1,2\n"])
        source = result("save_artifact", ["raw.csv"])["version_id"]
        assert "error" in client.call("write_file", [".env", "x"])
        jobs = [
            result("exec_background", {"code": code.format(source=source), "label": label})["exec_id"]
            for label, code in (("plot", PLOTTING), ("failing", FAILING))
        ]
        ended = [result("exec_wait", {"exec_id": job, "timeout_s": WITHIN_S}) for job in jobs]
        assert [each["status"] for each in ended] == ["done", "failed"], ended
        (output,) = result("query", ["SELECT version_id FROM artifact_versions WHERE filename = 'dot.png'"])
        assert client.close() == 0
    return Worked(data, workspace, jobs[0], jobs[1], source, output["version_id"])
