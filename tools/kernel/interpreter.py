"""Which Python runs the jobs: the one asked for, else the workspace's `.venv` if it has ipykernel, else ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import msgspec

from ...store.errors import InvalidParams, Issue

_VENV = ".venv"


class Interpreter(msgspec.Struct, frozen=True):
    """An executable and why it was chosen."""

    executable: str
    origin: Literal["setting", "workspace", "server"]

    @property
    def name(self) -> str:
        """What a job's record says."""
        return self.executable

    @property
    def language(self) -> str:
        """Of its kernels."""
        return "python"


def choose_interpreter(workspace: Path, python: str | None = None) -> Interpreter:
    """The interpreter of a workspace's kernels; nothing is run to find out.

    `python` is a path (a relative one is taken from the workspace) or a command on PATH; `InvalidParams` if it is
    neither.
    """
    if python is not None:
        return Interpreter(_locate(workspace, python), "setting")
    own = workspace / _VENV / "bin" / "python"
    if os.access(own, os.X_OK) and _has_ipykernel(workspace / _VENV):
        return Interpreter(str(own), "workspace")
    return Interpreter(sys.executable, "server")


def _locate(workspace: Path, python: str) -> str:
    import shutil

    # Symlinks stay: a virtual environment is known by where its link stands.
    path = os.path.normpath(workspace / python) if os.sep in python else shutil.which(python)
    if path is None or "\0" in path or not (os.access(path, os.X_OK) and Path(path).is_file()):
        name = Path(python).name[:64]
        raise InvalidParams(
            f"there is no executable interpreter {name!r}",
            [Issue("$.kernel.python", "is not an executable file")],
            hint="give the path of a python executable whose environment has ipykernel",
        )
    return path


def _has_ipykernel(environment: Path) -> bool:
    return any(environment.glob("lib*/python3*/site-packages/ipykernel/__init__.py"))
