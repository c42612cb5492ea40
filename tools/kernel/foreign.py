"""A kernel that is not started by our launcher: any that is installed with a kernelspec.

Its states, interrupts and death are those of ours. What differs: it speaks TCP on the loopback interface, as kernels in
most languages know nothing else; its text comes in `stream` messages and is written to the logs here; and what its
process writes past them is dropped, but for the last words of one that dies, which are added to stderr.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from .kernel import LAUNCHER, Kernel
from .log import read_bytes
from .provisioner import KernelExit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .channels import Message
    from .kernelspecs import InstalledKernel
    from .spec import KernelSpec

_LOG = logging.getLogger(__name__)
_HOST = "127.0.0.1"
_PORTS = range(10_000, 32_768)
_LAST_BYTES = 1 << 16


class ForeignKernel(Kernel):
    """A kernel of `spec.installed`."""

    _reserved: ClassVar[set[int]] = set()
    """Ports of all such kernels, from before they bind them: two that start at once must not be given the same."""

    def __init__(self, spec: KernelSpec) -> None:
        assert spec.installed is not None
        self._installed: InstalledKernel = spec.installed
        self._ports: dict[str, int] = {}
        self._logs: dict[str, _Log] = {}
        self._ready_at: int | None = None  # bytes that the process had written by then
        self._overrun = False
        super().__init__(spec)

    def _address(self) -> Mapping[str, Any]:
        self._ports = _free_ports(self._reserved)
        self._reserved.update(self._ports.values())
        return self._ports | {"ip": _HOST, "transport": "tcp"}

    def _give_back(self) -> None:
        super()._give_back()
        self._reserved.difference_update(self._ports.values())
        for log in self._logs.values():
            log.close()

    async def _launch(self) -> None:
        spec = self.spec
        connection = str(spec.folder / "connection.json")
        command = [part.replace("{connection_file}", connection) for part in self._installed.command]
        settings = {"file_bytes": spec.file_bytes, "command": command}
        with ExitStack() as opened:
            for name, path in (("stdout", spec.stdout), ("stderr", spec.stderr)):
                self._logs[name] = _Log(path, spec.file_bytes)
            startup = opened.enter_context((spec.folder / "startup.log").open("ab"))
            await self._provisioner.launch_kernel(
                # Our own interpreter, and nothing of its environment: it only sets limits and becomes the kernel.
                [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(settings)],
                env=spec.environment,
                cwd=spec.workspace,
                stdout=startup.fileno(),
                stderr=startup.fileno(),
            )

    async def _take_job(self) -> bool:
        self._ready_at = (self.spec.folder / "startup.log").stat().st_size
        if self.spec.memory_bytes is not None:
            self._provisioner.limit_memory(self.spec.memory_bytes)
        return True

    def _note_end(self) -> None:
        super()._note_end()
        self._append("stderr", self._last_words())

    @property
    def exit(self) -> KernelExit | None:
        """How the process ended; one whose logs grew over their bound was ended by that, whatever it made of it."""
        ended = super().exit
        return KernelExit(None, signal.SIGXFSZ) if ended is not None and self._overrun else ended

    async def interrupt(self) -> None:
        """As for any kernel, but by a message where the kernelspec wants one."""
        if self._installed.interrupt_by_message and self._channels is not None:
            self._channels.ask_interrupt()
        else:
            await super().interrupt()

    def _take_publication(self, message: Message) -> None:
        if message.type == "stream" and self._execution is not None:
            name = "stderr" if message.content.get("name") == "stderr" else "stdout"
            self._append(name, str(message.content.get("text", "")).encode(errors="replace"))
        super()._take_publication(message)

    def _last_words(self) -> bytes:
        """Lines that the process has written since it was ready and that no message brought."""
        if self._ready_at is None:
            return b""
        written = _tail(self.spec.folder / "startup.log", self._ready_at)
        told = {line for path in (self.spec.stdout, self.spec.stderr) for line in _tail(path).splitlines()}
        return b"".join(line for line in written.splitlines(keepends=True) if line.rstrip(b"\r\n") not in told)

    def _append(self, name: str, data: bytes) -> None:
        try:
            whole = self._logs[name].append(data)
        except OSError as error:
            _LOG.warning("%s: its kernel is ended, for its log cannot be written: %s", self.spec.name, error.strerror)
            self.kill_now()
            return
        if not whole and not self._overrun:
            self._overrun = True
            self.kill_now()


class _Log:
    """A file that is appended to, up to a bound."""

    def __init__(self, path: Path, bound: int | None) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._left = bound

    def append(self, data: bytes) -> bool:
        """Write it, or as much as the bound leaves room for; whether that is all of it."""
        whole = self._left is None or len(data) <= self._left
        rest = memoryview(data if whole else data[: self._left])
        if self._left is not None:
            self._left -= len(rest)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return whole

    def close(self) -> None:
        os.close(self._descriptor)


def _tail(path: Path, start: int = 0) -> bytes:
    """The last of a file, from `start` at the earliest."""
    end = path.stat().st_size
    start = max(start, end - _LAST_BYTES)
    return read_bytes(path, start, end - start)


def _free_ports(taken: set[int]) -> dict[str, int]:
    """Ports that are free now, none of them in `taken`.

    None that the system hands out by itself (ip(7), `ip_local_port_range`): the kernel binds them a second later, and
    by then another program might have been given one.
    """
    found: dict[str, int] = {}
    with ExitStack() as held:
        for name in ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"):
            while name not in found:
                port = secrets.choice(_PORTS)
                bound = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                with suppress(OSError):  # somebody has it
                    bound.bind((_HOST, port))
                    if port not in taken:
                        found[name] = port
    return found
