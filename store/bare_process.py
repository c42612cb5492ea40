"""A child that inherits one socket and nothing else."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from pathlib import Path


def start_bare(python: str, program: Path, theirs: socket.socket, *options: str) -> subprocess.Popen[bytes]:
    """Run a program of ours with `theirs` as its standard input, and close that end here.

    It has an empty environment, the root as its folder, a session of its own and only the standard library. Raises
    `OSError` when it cannot be started.
    """
    with theirs:
        return subprocess.Popen(
            [python, "-I", "-S", *options, str(program)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
