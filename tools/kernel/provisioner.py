"""Where a kernel's process runs, here: on this machine, in its own session and process group.

The methods are those of `jupyter_client.provisioning.KernelProvisionerBase`, and `channels.py` registers the class
as one: a provisioner for another place is used in its stead. It is not derived from it, because importing
jupyter_client takes a tenth of a second that the process can already use to start.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """CPU seconds of a process and the children it has waited for, and its largest resident size."""

    cpu_s: float
    peak_rss_kb: int


class KernelExit(msgspec.Struct, frozen=True):
    """How a process ended: an exit code, or the number of the signal that ended it."""

    code: int | None
    signal: int | None


class LocalProvisioner:
    """Starts, signals and ends one process with its whole group; forks in the calling thread.

    PDEATHSIG refers to the forking *thread*: call `launch_kernel` from one that lives as long as the server.
    """

    kernel_spec: Any = None
    kernel_id: str | None = None

    def __init__(self, connection_info: Mapping[str, Any]) -> None:
        self.connection_info = dict(connection_info)
        self.usage_at_end: Usage | None = None
        self._process: subprocess.Popen[Any] | None = None
        self._pidfd: int | None = None
        self._exit: KernelExit | None = None

    @property
    def has_process(self) -> bool:
        """Whether a process was started and has not been waited for."""
        return self._process is not None and self._exit is None

    @property
    def pid(self) -> int | None:
        """The process id, which is the group's and the session's too."""
        return None if self._process is None else self._process.pid

    @property
    def exit(self) -> KernelExit | None:
        """How it ended, once it was waited for."""
        return self._exit

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Nothing to prepare."""
        return kwargs

    async def launch_kernel(self, cmd: Sequence[str], **kwargs: Any) -> dict[str, Any]:
        """Start the process; `kwargs` go to `Popen` (`env`, `cwd`, `pass_fds`, `stdout`, …)."""
        # Popen returns within a few milliseconds, and another thread's end would take the kernel along.
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True, **kwargs}
        process: subprocess.Popen[Any] = subprocess.Popen(list(cmd), **options)  # noqa: ASYNC220
        self._process, self._pidfd = process, os.pidfd_open(process.pid)
        return self.connection_info

    async def poll(self) -> int | None:
        """The return code as `Popen` has it, `None` while it runs."""
        return None if self._process is None else self._process.returncode

    async def wait(self) -> int | None:
        """Wait until the process is gone, end what is left of its group, and reap it; for one task at a time."""
        if self._process is None or self._pidfd is None:
            return await self.poll()
        await anyio.wait_readable(self._pidfd)
        # Before the reaping: until then the group's number cannot belong to anybody else.
        self.kill_now()
        self._reap(self._process)
        os.close(self._pidfd)
        self._pidfd = None
        return self._process.returncode

    def _reap(self, process: subprocess.Popen[Any]) -> None:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self._exit = as_exit(process.returncode)
        self.usage_at_end = Usage(round(used.ru_utime + used.ru_stime, 3), used.ru_maxrss)

    async def send_signal(self, signum: int) -> None:
        """Signal the whole group."""
        self._signal_group(signum)

    def kill_now(self) -> None:
        """As `kill`, for a server that is about to end itself."""
        self._signal_group(signal.SIGKILL)

    async def kill(self, restart: bool = False) -> None:  # noqa: ARG002 - part of the interface
        """End the whole group at once; `wait` tells when it is gone."""
        self.kill_now()

    async def terminate(self, restart: bool = False) -> None:  # noqa: ARG002 - part of the interface
        """Ask the whole group to end."""
        self._signal_group(signal.SIGTERM)

    def _signal_group(self, signum: int) -> None:
        if self._process is not None and self._exit is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signum)

    async def cleanup(self, restart: bool = False) -> None:  # noqa: ARG002 - part of the interface
        """Give up what `wait` would have closed."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def limit_memory(self, memory_bytes: int) -> None:
        """Let the process, and each it has started, add that much data to what it uses now (RLIMIT_DATA)."""
        if self._process is not None and self._exit is None:
            for pid in _family(self._process.pid):
                with contextlib.suppress(OSError):  # it may end meanwhile
                    _limit_data(pid, memory_bytes)

    def usage(self) -> Usage | None:
        """What the process has used so far; at its end, all of it. `None` where it cannot be told."""
        if self.usage_at_end is not None or self._process is None:
            return self.usage_at_end
        try:
            return _usage_of(Path("/proc", str(self._process.pid)))
        except (OSError, ValueError, IndexError):
            return None


def as_exit(returncode: int) -> KernelExit:
    """The exit that `Popen.returncode` stands for."""
    return KernelExit(None, -returncode) if returncode < 0 else KernelExit(returncode, None)


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    children: list[int] = []
    with contextlib.suppress(OSError):
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
