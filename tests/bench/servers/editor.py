"""The same methods on pygls."""

from __future__ import annotations

import importlib
from typing import Any

server: Any = importlib.import_module("pygls.lsp.server").LanguageServer("bench", "1")


@server.feature("ping")
def ping(_params: Any) -> dict[str, str]:
    """Answer with nothing."""
    return {}


@server.feature("exec_list")
def exec_list(_params: Any) -> list[str]:
    """List the jobs: there are none."""
    return []


@server.feature("echo")
def echo(params: Any) -> dict[str, str]:
    """Answer with the arguments."""
    return {"text": params.text}


server.start_io()
