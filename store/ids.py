"""Identifiers: a prefix that says the kind, then 12 hex digits; and the name of a project."""

from __future__ import annotations

import os
import re
import time
from typing import Literal

from .checks import invalid

# "s" names a server; the rest are the contract's.
Prefix = Literal["f", "c", "a", "v", "exec", "perm", "s"]

FRAME_ID = re.compile(r"f-[0-9a-f]{12}")
CELL_ID = re.compile(r"c-[0-9a-f]{12}")
ARTIFACT_ID = re.compile(r"a-[0-9a-f]{12}")
VERSION_ID = re.compile(r"v-[0-9a-f]{12}")
EXEC_ID = re.compile(r"exec-[0-9a-f]{12}")
PERMISSION_ID = re.compile(r"perm-[0-9a-f]{12}")
SERVER_ID = re.compile(r"s-[0-9a-f]{12}")
PROJECT_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def new_id(prefix: Prefix) -> str:
    """A fresh identifier such as `v-3f0c51b2a9de`."""
    return f"{prefix}-{os.urandom(6).hex()}"


def now_ms() -> int:
    """The time as every record keeps it: milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def check_project_id(project_id: str) -> str:
    """The name itself, or `InvalidParams`: it becomes the name of a folder."""
    if not PROJECT_ID.fullmatch(project_id):
        raise invalid("$.project_id", "must be 1-64 of a-z, 0-9, '.', '_', '-' and start with a letter or digit")
    return project_id
