"""The same two tools on an MCP server with decorators: `python decorated.py MODULE CLASS`."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

module, name = sys.argv[1:]
fast = module == "fastmcp"
os.environ["FASTMCP_LOG_LEVEL"] = "WARNING"  # a line for every request is not what is measured
server: Any = getattr(importlib.import_module(module), name)("bench", **({} if fast else {"log_level": "WARNING"}))


def exec_list() -> list[str]:
    """List the jobs: there are none."""
    return []


def echo(text: str) -> dict[str, str]:
    """Answer with the arguments."""
    return {"text": text}


for tool in (exec_list, echo):
    server.tool()(tool)
server.run(**({"show_banner": False} if fast else {}))
