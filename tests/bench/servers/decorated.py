"""The same two tools on an MCP server with decorators: `python decorated.py MODULE CLASS`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

module, name = sys.argv[1:]
server: Any = getattr(importlib.import_module(module), name)("bench")


@server.tool()
def exec_list() -> list[str]:
    """List the jobs: there are none."""
    return []


@server.tool()
def echo(text: str) -> dict[str, str]:
    """Answer with the arguments."""
    return {"text": text}


server.run(**({"show_banner": False} if module == "fastmcp" else {}))
