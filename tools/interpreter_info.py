"""What an interpreter says of itself and its packages, asked in a process of its own."""

from __future__ import annotations

import subprocess

import msgspec

from ..store.errors import StorageError, TimedOut

ANSWER_WITHIN_S = 20.0

# -I keeps the working folder, the user's site and PYTHON* variables out of the answer.
_QUESTION = """
import importlib.metadata, json, platform
packages = {}
for found in importlib.metadata.distributions():
    name = found.metadata["Name"]
    if name and name not in packages:
        packages[name] = found.version
packages = {name: packages[name] for name in sorted(packages, key=str.lower)}
print(json.dumps({"python": platform.python_version(), "packages": packages}))
"""


class InterpreterInfo(msgspec.Struct, frozen=True):
    """Version of Python, and versions of packages by name, in order of the names."""

    python: str
    packages: dict[str, str]


def ask_interpreter(executable: str, environment: dict[str, str]) -> InterpreterInfo:
    """Run the interpreter and read its answer; blocking.

    Raises:
        StorageError: it does not run, or answers nonsense.
        TimedOut: it takes too long.
    """
    try:
        done = subprocess.run(
            [executable, "-I", "-c", _QUESTION],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd="/",  # a workspace need not be there yet
            timeout=ANSWER_WITHIN_S,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=InterpreterInfo)
    except subprocess.TimeoutExpired:
        raise TimedOut(
            "the jobs' interpreter did not answer", hint="try again, or start with another --python"
        ) from None
    except (OSError, subprocess.CalledProcessError, msgspec.MsgspecError):
        raise StorageError(
            "the jobs' interpreter does not run", hint="check --python, or the workspace's .venv"
        ) from None
