"""The real command, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = (sys.executable, "-P", "-m", "cellhost")
WITHIN_S = 60.0

Done: TypeAlias = "subprocess.CompletedProcess[str]"
Run: TypeAlias = Callable[..., Done]


@pytest.fixture
def cellhost(tmp_path: Path) -> Run:
    """`cellhost("config", "--json", LOG="info")`: runs the verb; keywords are `CELLHOST_*` variables."""

    def run(*arguments: str, **variables: str) -> Done:
        return subprocess.run(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            cwd=tmp_path,
            env=os.environ | {f"CELLHOST_{name}": value for name, value in variables.items()},
        )

    return run
