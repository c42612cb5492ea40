"""What an MCP host's own settings must say to spawn this server: the same command, wrapped as each host has it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .settings import LISTS, PREFIX

if TYPE_CHECKING:
    from .settings import Resolved

# Host → the file its snippet belongs into, the member that holds servers, and what else a server's entry has there.
SNIPPETS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "claude": ("the project's .mcp.json, or claude_desktop_config.json", "mcpServers", {}),
    "vscode": ("the workspace's .vscode/mcp.json", "servers", {"type": "stdio"}),
    "cursor": ("the project's .cursor/mcp.json", "mcpServers", {}),
    "zed": ("Zed's settings.json", "context_servers", {"source": "custom"}),
}


def snippet(host: str, resolved: Resolved, file: str | None) -> tuple[str, dict[str, Any]]:
    """Where the snippet belongs, and the snippet: it spawns a server with the settings as they are resolved now.

    What came from a file stays there; flags become arguments. Hosts start servers with an environment and a working
    folder of their own, so variables go along and paths are absolute.
    """
    where, member, extra = SNIPPETS[host]
    command, *arguments = _command()
    server = extra | {"command": command, "args": [*arguments, "serve", *_arguments(resolved, file)]}
    variables = _variables(resolved)
    if variables:
        server["env"] = variables
    return where, {member: {"cellhost": server}}


def _command() -> list[str]:
    script = Path(sys.executable).with_name("cellhost")
    if os.access(script, os.X_OK):
        return [str(script)]
    return [sys.executable, "-P", "-m", "cellhost"]


def _arguments(resolved: Resolved, file: str | None) -> list[str]:
    arguments = ["--workspace", str(resolved.settings.workspace.absolute())]
    if file:
        arguments += ["--config", file]
    for name, value, origin in resolved.items():
        if not origin.startswith("--") or name == "workspace":
            continue
        if value is True:
            arguments.append(origin)
        elif name.startswith("databases."):
            arguments += [origin, f"{name.removeprefix('databases.')}={value.absolute()}"]
        elif name in LISTS or not isinstance(value, Path):
            arguments += [origin, str(value)]
        else:
            arguments += [origin, str(value.absolute())]
    return arguments


def _variables(resolved: Resolved) -> dict[str, str]:
    names = {origin for item in resolved.items() if (origin := item.origin).startswith(PREFIX)}
    if "CELLHOST_CONFIG" in os.environ:
        names.add("CELLHOST_CONFIG")
    return {name: os.environ[name] for name in sorted(names)}
