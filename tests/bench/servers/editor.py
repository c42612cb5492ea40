"""The same methods on pygls."""

from __future__ import annotations

import importlib
from typing import Any

server: Any = importlib.import_module("pygls.lsp.server").LanguageServer("bench", "1")


def ping(_params: Any) -> dict[str, str]:
    """Answer with nothing."""
    return {}


def exec_list(_params: Any) -> list[str]:
    """List the jobs: there are none."""
    return []


def echo(params: Any) -> dict[str, str]:
    """Answer with the arguments."""
    return {"text": params.text}


for method in (ping, exec_list, echo):
    server.feature(method.__name__)(method)
server.start_io()
