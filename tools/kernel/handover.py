"""How a kernel that our launcher has started comes by its job: through a private socket, with its logs' descriptors.

    with handover.opened() as descriptor:      # for the new process alone
        ...
    handover.give(spec)
    await handover.taken()

The socket keeps messages apart, so one holds all of it. The token travels here and not in the environment, where any
process of the same user could read it.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from .spec import KernelSpec


class Handover:
    """The server's end; used once."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    @contextmanager
    def opened(self) -> Generator[int]:
        """The descriptor of the other end, to be inherited by the process that is started meanwhile."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        with theirs:
            yield theirs.fileno()

    def give(self, spec: KernelSpec, *, waited: bool = False) -> None:
        """Send what belongs to the job; `OSError` if a log cannot be opened.

        A kernel that has `waited` for its job ends instead of taking it, if packages were installed meanwhile.
        """
        assert self._socket is not None
        with ExitStack() as opened:
            logs = [_opened(path, opened) for path in (spec.stdout, spec.stderr)]
            with suppress(ConnectionError):  # it has died, which shows elsewhere
                socket.send_fds(self._socket, [json.dumps(_job(spec) | {"waited": waited}).encode()], logs)

    async def taken(self) -> bool:
        """Whether the kernel has attached itself to the job; false if it died instead."""
        assert self._socket is not None
        await anyio.wait_readable(self._socket)
        try:
            return self._socket.recv(1) != b""
        except ConnectionError:
            return False

    def close(self) -> None:
        """Give the descriptor back; a kernel that still waits for a job ends."""
        if self._socket is not None:
            self._socket.close()


def _job(spec: KernelSpec) -> dict[str, Any]:
    variables = {}
    if spec.door is not None and spec.token is not None:
        variables = {
            "CELLHOST_SOCKET": str(spec.door),
            "CELLHOST_TOKEN": spec.token,
            "CELLHOST_EXEC_ID": spec.name,
        }
    return {"workspace": str(spec.workspace), "variables": variables, "memory_bytes": spec.memory_bytes}


def _opened(path: Path, opened: ExitStack) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    opened.callback(os.close, descriptor)
    return descriptor
