"""The environment of a job's process: an allow-list of the server's, the interpreter's own, and the caller's `env`.

Nothing named like a secret gets in, nothing that loads code (`LD_*`, `PYTHONSTARTUP`), and no path of the data
folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...store.errors import InvalidParams, Issue

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALLOWED = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_HOME",
        "CUDA_PATH",
        "NVIDIA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NUMEXPR_MAX_THREADS",
        "NUMBA_NUM_THREADS",
        "POLARS_MAX_THREADS",
        "RAYON_NUM_THREADS",
        "CONDA_PREFIX",
        "CONDA_DEFAULT_ENV",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NO_COLOR",
    }
)
_ALLOWED_PREFIXES = ("LC_", "MPL")
_SECRET = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|AUTH|COOKIE", re.IGNORECASE
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFUSED_PREFIXES = ("LD_", "CELLHOST_", "JPY_")
_REFUSED = frozenset({"PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONEXECUTABLE"})
_MAX_VALUE = 32_768


def build_environment(
    interpreter: str, given: Mapping[str, str] | None = None, inherited: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables a kernel starts with; `inherited` is the server's own environment by default.

    Raises `InvalidParams` with a path such as `$.env.LD_PRELOAD` for each variable in `given` that may not be set.
    """
    check_given(given or {})
    source = os.environ if inherited is None else inherited
    environment = {name: value for name, value in source.items() if _may_inherit(name)}
    _enter_environment_of(interpreter, environment)
    # A child's output is a file here, which Python would fill block by block: nothing to see until its end.
    environment["PYTHONUNBUFFERED"] = "1"
    return environment | dict(given or {})


def _may_inherit(name: str) -> bool:
    return (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)) and not _SECRET.search(name)


def _enter_environment_of(interpreter: str, environment: dict[str, str]) -> None:
    """Make `python` and `pip` in the job's subprocesses those of the interpreter itself."""
    folder = Path(interpreter).parent
    rest = [part for part in environment.get("PATH", os.defpath).split(os.pathsep) if part != str(folder)]
    environment["PATH"] = os.pathsep.join([str(folder), *rest])
    if (folder.parent / "pyvenv.cfg").is_file():
        environment["VIRTUAL_ENV"] = str(folder.parent)


def check_given(given: Mapping[str, str]) -> None:
    """Raise `InvalidParams` that lists every variable the caller may not set, and why."""
    issues = [Issue(f"$.env.{name}", problem) for name, value in given.items() if (problem := _problem(name, value))]
    if issues:
        raise InvalidParams(
            "env has variables that may not be set",
            issues,
            hint="pass secrets in a file that the code reads, not in its environment",
        )


def _problem(name: str, value: str) -> str | None:
    if not _NAME.fullmatch(name):
        return "is not a variable's name"
    if name in _REFUSED or name.upper().startswith(_REFUSED_PREFIXES):
        return "changes how processes start and may not be set"
    if _SECRET.search(name):
        return "is named like a secret"
    if "\0" in value or len(value) > _MAX_VALUE:
        return f"must be text without NUL of at most {_MAX_VALUE} characters"
    return None
