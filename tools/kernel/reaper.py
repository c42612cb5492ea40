"""Starts a server's kernels and leaves nothing of them; run by path: `python -I -S reaper.py`, a socket as stdin.

    server ── reaper ─┬─ shim ── kernel ── whatever it starts
                      └─ shim ── kernel ── …

Each kernel has a shim of its own, and each shim is a child subreaper (prctl(2)): what leaves its group, its session or
its parents stays below the shim of its kernel, so a job's end takes along all of that job and nothing of another. A
shim needs nobody but the server: it ends its kernel when its socket to the server closes, for whatever reason. The
reaper is there to fork shims quickly, and ends what is below a shim that was killed.

For each kernel the server sends the reaper one message with descriptors: the shim's socket, then those for the kernel.
On that socket lines of JSON follow. From the server: `{command, environment, folder, targets}`, where `targets` are
the numbers that the descriptors get in the kernel, then `{signal}` for its group as often as wanted. From the shim:
`{pid}` or `{errno}`, `{signalled}` once a signal is sent, and at the kernel's end `{status, cpu_s, peak_rss_kb}`; when
that comes all of it is gone.

Stands alone: standard library only, and little of it, because every shim is a copy of this process.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import time
from contextlib import suppress

TYPE_CHECKING = False  # importing typing would be a sixth of our start
if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from typing import Any, NoReturn

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MOST_DESCRIPTORS = 32
_CHUNK = 1 << 16
_LOOK_AGAIN_S = 0.02  # for those who came between a look at the children and the end of their parents
_REPORT_WITHIN_S = 1.0  # what cannot be killed (it waits for a disk) does not hold up the news of the end
_GIVE_UP_S = 10.0


def main() -> None:
    """Fork a shim for each message on descriptor 0; at its end see them gone."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    control, news = socket.socket(fileno=0), ChildNews()
    shims: set[int] = set()
    gc.freeze()  # a shim's collections would copy what it shares with us
    served = True
    while served:
        ready = news.wait(control.fileno())
        tidy(shims)
        served = not ready or fork_shim(control, shims)
    deadline = time.monotonic() + _GIVE_UP_S
    while tidy(shims) and time.monotonic() < deadline:
        news.wait(timeout_s=_LOOK_AGAIN_S)


def tidy(shims: set[int]) -> bool:
    """Reap who has ended, and end what is left of a shim that was killed; whether anybody is there."""
    shims -= reap_all()
    return kill_children(spare=shims) or bool(shims)


def fork_shim(control: socket.socket, shims: set[int]) -> bool:
    """Fork a shim with what the next message brings; False if there is none any more."""
    message, received, _, _ = socket.recv_fds(control, 1, _MOST_DESCRIPTORS)
    if not message:
        return False
    for descriptor in received:
        os.set_inheritable(descriptor, False)  # recv_fds takes flags, and some versions drop them
    with suppress(OSError):  # then the server finds the shim's socket closed
        pid = os.fork()
        if pid == 0:
            become_shim(control, received)
        shims.add(pid)
    for descriptor in received:
        os.close(descriptor)
    return True


class ChildNews:
    """Tells when a child has ended; a process's own, not to be shared with its forks."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, _ignored)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wait(self, other: int | None = None, timeout_s: float | None = None) -> bool:
        """Return when a child has ended or `other` is readable, and whether that is."""
        poll = select.poll()
        for descriptor in (self._reader, other):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)}
        if self._reader in ready:
            os.read(self._reader, _CHUNK)
        return other in ready


def _ignored(number: int, frame: object) -> None:
    """What matters is the byte in the pipe."""


def reap_all() -> set[int]:
    """Reap the children that have ended; which those are."""
    reaped: set[int] = set()
    with suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            reaped.add(pid)
    return reaped


def kill_children(spare: Container[int] = ()) -> bool:
    """Kill every child; whether there is one."""
    found = [pid for pid in children() if pid not in spare]
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def children() -> list[int]:
    """The children there are now, those that have ended and are not reaped included."""
    try:
        with open("/proc/thread-self/children") as file:  # noqa: PTH123 - pathlib is not loaded
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a system built without it
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()]  # noqa: PTH208


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def become_shim(control: socket.socket, received: Sequence[int]) -> NoReturn:
    """Look after one kernel to its end, in a new fork of the reaper."""
    try:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, control.detach(), inheritable=False)  # the reaper's own; open in us it would seem to live on
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        Shim(socket.socket(fileno=received[0]), received[1:]).run()
        sweep(_GIVE_UP_S)
    finally:
        os._exit(0)  # whatever goes wrong, the reaper ends what is left of us


class Shim:
    """The parent of one kernel."""

    def __init__(self, server: socket.socket, descriptors: Sequence[int]) -> None:
        self._server = server
        self._descriptors = descriptors
        self._news = ChildNews()
        self._kernel: int | None = None
        self._lines = b""

    def run(self) -> None:
        """Start it, pass signals on, and once it or the server has ended, end what is left and tell."""
        while not self._kernel_has_ended():
            if self._news.wait(self._server.fileno()) and not self._obey():
                break
        if self._kernel is not None:
            self._end(self._kernel)

    def _kernel_has_ended(self) -> bool:
        """Look, and reap those who lost their parents in the kernel's tree, as init would."""
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid == self._kernel:
                    return True
                os.waitpid(found.si_pid, 0)
        return False

    def _obey(self) -> bool:
        """Do what the server says; False when it says nothing more."""
        try:
            data = self._server.recv(_CHUNK)
        except OSError:
            return False
        *lines, self._lines = (self._lines + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "signal" in order:
                self._signal(order["signal"])
                self._tell({"signalled": order["signal"]})
            elif not self._start(order):
                return False
        return bool(data)

    def _start(self, order: dict[str, Any]) -> bool:
        pid, error = spawn(order, self._descriptors)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._tell({"errno": error} if error else {"pid": pid})
        if not error:
            self._kernel = pid
        return not error

    def _signal(self, number: int) -> None:
        # The kernel is reaped by us and only at the end, so its number is nobody else's.
        if self._kernel is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._kernel, number)

    def _end(self, kernel: int) -> None:
        self._signal(signal.SIGKILL)
        _, status, used = os.wait4(kernel, 0)
        sweep(_REPORT_WITHIN_S)
        cpu_s = round(used.ru_utime + used.ru_stime, 3)
        self._tell({"status": status, "cpu_s": cpu_s, "peak_rss_kb": used.ru_maxrss})

    def _tell(self, news: dict[str, Any]) -> None:
        with suppress(OSError):  # the server is gone
            self._server.sendall(json.dumps(news).encode() + b"\n")


def sweep(within_s: float) -> None:
    """Kill children, and theirs as they become ours, until none is left."""
    deadline = time.monotonic() + within_s
    news = ChildNews()
    while kill_children() and time.monotonic() < deadline:
        news.wait(timeout_s=_LOOK_AGAIN_S)
        reap_all()


def spawn(order: dict[str, Any], descriptors: Sequence[int]) -> tuple[int, int]:
    """Start a kernel in a session of its own: its process id, and the `errno` that kept it from running or 0."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    shim = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        return 0, error.errno or 1
    if pid == 0:
        become_kernel(order, descriptors, writer, shim)
    os.close(writer)
    failure = os.read(reader, 16)  # nothing: the program runs, and its copy of the pipe was closed by that
    os.close(reader)
    return pid, int(failure or 0)


def become_kernel(order: dict[str, Any], descriptors: Sequence[int], failed: int, shim: int) -> NoReturn:
    """Turn a new fork of the shim into the kernel, or write to `failed` why not."""
    try:
        os.setsid()
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:
            os._exit(1)
        restore_signals()
        volunteer_for_oom_killer()
        os.chdir(order["folder"])
        failed = move_descriptors(descriptors, order["targets"], failed)
        command = order["command"]
        os.execvpe(command[0], command, order["environment"])  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(failed, str(error.errno or 1).encode())
    finally:
        os._exit(127)


def restore_signals() -> None:
    """As in a shell: what is ignored is inherited, from Python and from whoever started the server (nohup, say)."""
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def move_descriptors(descriptors: Sequence[int], targets: Sequence[int], failed: int) -> int:
    """Give each descriptor its number in the kernel, and `failed` one that is none of those: which."""
    free = max(targets, default=0) + 1
    copies = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, free) for number in (failed, *descriptors)]
    for copy, target in zip(copies[1:], targets, strict=True):
        os.dup2(copy, target, inheritable=True)
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0, inheritable=True)
    return copies[0]


def volunteer_for_oom_killer() -> None:
    """Rather a job than its server; what it starts inherits that."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - some containers forbid it
        score.write("500")


if __name__ == "__main__":
    main()
    os._exit(0)  # there is nothing to tidy up, and somebody waits
