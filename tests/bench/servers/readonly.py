"""The tool that most would write: SQL on a file opened with `mode=ro`, in a FastMCP server."""

from __future__ import annotations

import importlib
import sqlite3
import sys
from typing import Any

server: Any = importlib.import_module("fastmcp").FastMCP("readonly")


def query(sql: str, params: list[Any] | None = None) -> dict[str, Any]:
    """Run SQL."""
    cursor = connection.execute(sql, params or [])
    return {"columns": [column[0] for column in cursor.description], "rows": cursor.fetchall()}


if __name__ == "__main__":
    connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, check_same_thread=False)
    server.tool()(query)
    server.run(show_banner=False)
