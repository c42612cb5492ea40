"""Where a kernel's process runs, here: on this machine, in its own session and process group, below the reaper.

The methods are those of `jupyter_client.provisioning.KernelProvisionerBase`, and `channels.py` registers the class
as one: a provisioner for another place is used in its stead. It is not derived from it, because importing
jupyter_client takes a tenth of a second that the process can already use to start.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from .reaper_process import open_shim

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

_START_S = 10.0  # a fork and an exec
_SIGNALLED_WITHIN_S = 0.5  # a shim that was stopped holds up nobody
_CHUNK = 1 << 16
_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """CPU seconds of a process and the children it has waited for, and its largest resident size."""

    cpu_s: float
    peak_rss_kb: int


class KernelExit(msgspec.Struct, frozen=True):
    """How a process ended: an exit code, or the number of the signal that ended it.

    `orphaned`: by the end of the process that looked after it, which somebody else had killed.
    """

    code: int | None
    signal: int | None
    orphaned: bool = False


class LocalProvisioner:
    """Starts, signals and ends one process with all that descends from it, through the server's reaper."""

    kernel_spec: Any = None
    kernel_id: str | None = None

    def __init__(self, connection_info: Mapping[str, Any]) -> None:
        self.connection_info = dict(connection_info)
        self.pid: int | None = None
        """The process id, which is the group's and the session's too."""
        self.exit: KernelExit | None = None
        """How it ended, once it was waited for."""
        self.usage_at_end: Usage | None = None
        self._shim: socket.socket | None = None
        self._reading = anyio.Lock()
        self._lines = b""
        self._unsignalled: deque[anyio.Event] = deque()

    @property
    def has_process(self) -> bool:
        """Whether a process was started and has not been waited for."""
        return self.pid is not None and self.exit is None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Nothing to prepare."""
        return kwargs

    async def launch_kernel(self, cmd: Sequence[str], **kwargs: Any) -> dict[str, Any]:
        """Start the process, with the null device as its stdin.

        `kwargs` are `env`, `cwd`, `stdout`, `stderr` (descriptors) and `pass_fds`, as for `Popen`. Raises `OSError`.
        """
        targets = {1: kwargs["stdout"], 2: kwargs["stderr"]} | {number: number for number in kwargs.get("pass_fds", ())}
        order: dict[str, Any] = {
            "command": [os.fspath(word) for word in cmd],
            "environment": dict(kwargs["env"]),
            "folder": os.fspath(kwargs["cwd"]),
            "targets": list(targets),
        }
        with anyio.move_on_after(_START_S):
            for _ in range(2):  # the reaper may be killed with our first message unread
                self._shim = open_shim(list(targets.values()))
                with suppress(ConnectionError):
                    await self._send(json.dumps(order).encode() + b"\n")
                    await self._until(lambda: self.pid is not None)
                    return self.connection_info
                self._close()
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    async def poll(self) -> int | None:
        """The return code as `Popen` has it, `None` while it runs."""
        if self.exit is None:
            return None
        return -self.exit.signal if self.exit.signal is not None else self.exit.code

    async def wait(self) -> int | None:
        """Wait until the process and all that descends from it are gone."""
        async with self._reading:
            if self._shim is not None:
                try:
                    await self._until(lambda: self.exit is not None)
                except OSError:
                    self.exit = KernelExit(None, signal.SIGKILL, orphaned=True)
                self._close()
        return await self.poll()

    async def _send(self, data: bytes) -> None:
        assert self._shim is not None
        while data:
            try:
                data = data[self._shim.send(data) :]
            except BlockingIOError:
                await anyio.wait_writable(self._shim)

    async def _until(self, told: Callable[[], bool]) -> None:
        """Take what the shim says until it has told that; raises `ConnectionError` if it is gone, `OSError` for its."""
        assert self._shim is not None
        while not told():
            await anyio.wait_readable(self._shim)
            # Nothing is awaited from here on, so whoever is cancelled loses nothing.
            try:
                data = self._shim.recv(_CHUNK)
            except BlockingIOError:
                continue
            if not data:
                raise ConnectionResetError
            *lines, self._lines = (self._lines + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, news: dict[str, int]) -> None:
        if "errno" in news:
            raise OSError(news["errno"], os.strerror(news["errno"]))
        if "pid" in news:
            self.pid = news["pid"]
        elif "signalled" in news:
            self._unsignalled.popleft().set()
        else:
            self.exit = as_exit(os.waitstatus_to_exitcode(news["status"]))
            self.usage_at_end = Usage(news["cpu_s"], news["peak_rss_kb"])

    async def send_signal(self, signum: int) -> None:
        """Signal the whole group; returns once that is done, which somebody in `wait` hears of."""
        done = self._signal(signum)
        with anyio.move_on_after(_SIGNALLED_WITHIN_S):
            await done.wait()

    def kill_now(self) -> None:
        """As `kill`, for a server that is about to end itself."""
        self._signal(signal.SIGKILL)

    async def kill(self, restart: bool = False) -> None:  # noqa: ARG002 - part of the interface
        """End the whole group at once; `wait` tells when it is gone."""
        self.kill_now()

    async def terminate(self, restart: bool = False) -> None:  # noqa: ARG002 - part of the interface
        """Ask the whole group to end."""
        self._signal(signal.SIGTERM)

    def _signal(self, signum: int) -> anyio.Event:
        """Have the group signalled; the event tells that it was, or that there is none any more."""
        done = anyio.Event()
        try:
            if self._shim is None:
                raise ProcessLookupError
            self._shim.send(b'{"signal": %d}\n' % signum)
            self._unsignalled.append(done)
        except OSError:
            done.set()
        return done

    async def cleanup(self, restart: bool = False) -> None:  # noqa: ARG002 - part of the interface
        """Give up what `wait` would have closed; what is not gone yet is ended by that."""
        self._close()

    def _close(self) -> None:
        if self._shim is not None:
            self._shim.close()
            self._shim = None
        while self._unsignalled:
            self._unsignalled.popleft().set()

    def limit_memory(self, memory_bytes: int) -> None:
        """Let the process, and each it has started, add that much data to what it uses now (RLIMIT_DATA)."""
        if self.pid is not None and self.exit is None:
            for pid in _family(self.pid):
                with suppress(OSError):  # it may end meanwhile
                    _limit_data(pid, memory_bytes)

    def usage(self) -> Usage | None:
        """What the process has used so far; at its end, all of it. `None` where it cannot be told."""
        if self.usage_at_end is not None or self.pid is None:
            return self.usage_at_end
        try:
            return _usage_of(Path("/proc", str(self.pid)))
        except (OSError, ValueError, IndexError):
            return None


def as_exit(returncode: int) -> KernelExit:
    """The exit that `Popen.returncode` stands for."""
    return KernelExit(None, -returncode) if returncode < 0 else KernelExit(returncode, None)


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    children: list[int] = []
    with suppress(OSError):
        for thread in Path("/proc", str(pid), "task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return [pid, *(each for child in children for each in _family(child))]


def _limit_data(pid: int, more: int) -> None:
    status = Path("/proc", str(pid), "status").read_bytes()
    used = int(status.partition(b"VmData:")[2].split(maxsplit=1)[0]) * 1024
    hard = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
    soft = used + more if hard == resource.RLIM_INFINITY else min(used + more, hard)
    resource.prlimit(pid, resource.RLIMIT_DATA, (soft, hard))


def _usage_of(process: Path) -> Usage:
    # proc(5): after the name in parentheses come fields 3…; 14 to 17 are the times, own and of waited-for children.
    times = (process / "stat").read_bytes().rpartition(b")")[2].split()[11:15]
    ticks = sum(int(time) for time in times)
    status = (process / "status").read_bytes()
    peak = status.partition(b"VmHWM:")[2].split(maxsplit=1)[0]
    return Usage(ticks / _TICKS, int(peak))
