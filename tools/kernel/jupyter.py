"""Loads modules that import jupyter_client, one at a time.

Its modules import each other in circles: two threads that begin at different ends of one each find the other's half.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

_LOADING = threading.Lock()


def load(name: str) -> Any:
    """The module of that full name; blocks for a tenth of a second the first time."""
    with _LOADING:
        return importlib.import_module(name)
