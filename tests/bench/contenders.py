"""The servers of the wire's table: the raw loop, this one, and those that others would build it on."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from peer import EDITOR, HEADERS, MCP, PLAIN, Speech

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
SERVERS = HERE / "servers"
BASE = "raw loop"

# Clients and servers of other makers share the tests' environments.
sys.path.insert(0, str(HERE.parent / "clients"))
environments: Any = importlib.import_module("environments")


class Contender(msgspec.Struct, frozen=True):
    """A column of the table.

    `echo` is the command that has the echo tool, where that is another one; `echoes` is False where answers are cut.
    """

    name: str
    command: tuple[str, ...]
    speech: Speech
    echo: tuple[str, ...] | None = None
    echoes: bool = True
    queries: bool = False


def raw() -> list[Contender]:
    """The raw pipe loop, and the same made of our wire's parts."""
    return [
        Contender(BASE, (sys.executable, str(SERVERS / "raw.py")), PLAIN, queries=True),
        Contender("our parts", (sys.executable, "-P", str(SERVERS / "parts.py")), PLAIN),
    ]


def ours(folder: str, database: str) -> list[Contender]:
    """This server over fresh data, as a plain peer and as an MCP peer."""
    options = ("--data-dir", f"{folder}/data", "--workspace", folder, "--database", f"bench={database}")
    serve = (sys.executable, "-P", "-m", "cellhost", "serve", *options)
    echo = (sys.executable, "-P", str(SERVERS / "ours.py"), *options)
    return [
        Contender("cellhost", serve, PLAIN, echo, queries=True),
        Contender("cellhost, MCP", serve, MCP, echoes=False),
    ]


def others() -> tuple[list[Contender], list[str]]:
    """Those that are installed here, and a note for each that is not."""
    found: list[Contender] = []
    notes: list[str] = []
    for name, make in _OTHERS.items():
        try:
            found.append(make(name))
        except environments.MissingError as missing:
            notes.append(f"{name} is left out: {missing}")
    return found, notes


def _mcp(python: str, module: str, server: str) -> Callable[[str], Contender]:
    def make(name: str) -> Contender:
        executable = environments.python(python) if python else sys.executable
        return Contender(name, (str(executable), str(SERVERS / "decorated.py"), module, server), MCP)

    return make


def _pygls(name: str) -> Contender:
    return Contender(name, (str(environments.python("pygls")), str(SERVERS / "editor.py")), EDITOR)


def _vscode(name: str) -> Contender:
    node, modules = environments.node(), environments.node_modules("vscode-jsonrpc")
    return Contender(name, (str(node.executable), str(SERVERS / "connection.mjs"), str(modules)), HEADERS)


_OTHERS: dict[str, Callable[[str], Contender]] = {
    "MCP SDK 2.3": _mcp("", "mcp.server.mcpserver", "MCPServer"),
    "MCP SDK 1.30": _mcp("mcp1", "mcp.server.fastmcp", "FastMCP"),
    "FastMCP": _mcp("fastmcp", "fastmcp", "FastMCP"),
    "pygls": _pygls,
    "vscode-jsonrpc": _vscode,
}
