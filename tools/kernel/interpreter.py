"""Which Python runs the jobs: the one asked for, else the workspace's `.venv` if it has ipykernel, else ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import msgspec

from ...store.errors import InvalidParams, Issue, StorageError

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

    `python` is the setting: a path (a relative one is taken from the workspace) or a command on PATH; `StorageError` if
    it is neither.
    """
    if python is not None:
        path = _locate(workspace, python)
        if path is None:
            raise StorageError(
                f"the setting python names no executable interpreter: {_shown(python)}",
                hint="start with another --python (or CELLHOST_PYTHON, or python in the settings file): a python "
                "executable whose environment has ipykernel; or leave it out",
            )
        return Interpreter(path, "setting")
    own = workspace / _VENV / "bin" / "python"
    if _is_executable(own) and _has_ipykernel(workspace / _VENV):
        return Interpreter(str(own), "workspace")
    return Interpreter(sys.executable, "server")


def named_interpreter(workspace: Path, python: str) -> Interpreter:
    """The interpreter that a call names, as the setting would; `InvalidParams` if it is none."""
    path = _locate(workspace, python)
    if path is None:
        raise InvalidParams(
            f"there is no executable interpreter {_shown(python)}",
            [Issue("$.kernel.python", "is not an executable file")],
            hint="give the path of a python executable whose environment has ipykernel",
        )
    return Interpreter(path, "setting")


def _locate(workspace: Path, python: str) -> str | None:
    import shutil

    # Symlinks stay: a virtual environment is known by where its link stands.
    path = os.path.normpath(workspace / python) if os.sep in python else shutil.which(python)
    return path if path is not None and "\0" not in path and _is_executable(Path(path)) else None


def _is_executable(path: Path) -> bool:
    return os.access(path, os.X_OK) and path.is_file()


def _shown(python: str) -> str:
    return repr(Path(python).name[:64])


def _has_ipykernel(environment: Path) -> bool:
    return any(environment.glob("lib*/python3*/site-packages/ipykernel/__init__.py"))
