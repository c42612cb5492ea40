"""One kernel: its process, its channels, the cell it runs.

    async with Kernel(spec) as kernel:
        await kernel.ready.wait()
        execution = kernel.execute("1 + 1")
        await execution.over.wait()

Leaving the block ends the process with its whole group and gives back every descriptor, file and thread. The
process begins to start before jupyter_client is even imported; that happens in a thread meanwhile.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from ...store.errors import StorageError
from .execution import Execution
from .handover import Handover
from .jupyter import load
from .provisioner import KernelExit, LocalProvisioner, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup

    from .channels import Channels, Message
    from .spec import KernelSpec

_HERE = Path(__file__).resolve().parent
LAUNCHER = _HERE / "launcher.py"
MAX_SOCKET_PATH = 100
_GONE_WITHIN_S = 2.0
_ASK_AGAIN_S = 0.05
_ATTACHED_WITHIN_S = 1.0
_STARTUP_TAIL = 16_000
_PORTS = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5}


def _ignore(_message: Message) -> None:
    """For whoever wants no outputs."""


class Kernel:
    """A kernel from its process's start to its end; one cell at a time, one or many.

    A subclass with another `provisioner_class` runs it elsewhere: the process is started, signalled and ended only
    through its provisioner.
    """

    provisioner_class = LocalProvisioner

    def __init__(self, spec: KernelSpec, *, warm: bool = False) -> None:
        self.spec = spec
        self._given = not warm  # whether it has its job, or is about to get it
        self._handover = Handover()
        self.ready = anyio.Event()
        self.dead = anyio.Event()
        self.startup_text = ""  # what it said before it was attached to its logs; final once it is dead
        self._execution: Execution | None = None
        self._channels: Channels | None = None
        self._info_replied = anyio.Event()
        self._heard = False
        self._usage_before: Usage | None = None
        self._watching: anyio.CancelScope | None = None
        self._watched = anyio.Event()
        self._watched.set()
        self._tasks: TaskGroup
        self._connection = {
            **self._address(),
            "key": secrets.token_hex(16),
            "signature_scheme": "hmac-sha256",
            "kernel_name": "",
        }
        self._provisioner = self.provisioner_class(self._connection)

    def _address(self) -> Mapping[str, Any]:
        return _PORTS | {"ip": str(self.spec.folder / "z"), "transport": "ipc"}

    @property
    def pid(self) -> int | None:
        """The process id, which names its group and session too; `None` before the start."""
        return self._provisioner.pid

    @property
    def exit(self) -> KernelExit | None:
        """How the process ended, once `dead` is set."""
        return self._provisioner.exit

    async def __aenter__(self) -> Self:
        try:
            self._make_folder()
            await self._launch()
            self._tasks = await anyio.create_task_group().__aenter__()
        except BaseException as error:
            await self._end_process()
            self._give_back()
            if isinstance(error, OSError):
                raise _cannot_start(error) from error
            raise
        try:
            self._tasks.start_soon(self._watch)
            await self._connect()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._end_process()
        finally:
            self._tasks.cancel_scope.cancel()
            try:
                await self._tasks.__aexit__(kind, error, traceback)
            finally:
                self._give_back()

    async def _end_process(self) -> None:
        """End the group and wait until the process is gone, whatever else is being cancelled."""
        with anyio.CancelScope(shield=True):
            await self._provisioner.kill()
            with anyio.move_on_after(_GONE_WITHIN_S):
                await self._provisioner.wait()
            if self._watching is not None:
                self._watching.cancel()
            await self._watched.wait()  # for what is read there is closed now
            await self._provisioner.cleanup()

    def _give_back(self) -> None:
        if self._channels is not None:
            self._channels.close()
        self._handover.close()
        shutil.rmtree(self.spec.folder, ignore_errors=True)

    def _make_folder(self) -> None:
        if len(os.fsencode(self.spec.folder / "z-1")) > MAX_SOCKET_PATH:
            raise StorageError(
                "the run folder's path is too long for sockets", hint="set XDG_RUNTIME_DIR or TMPDIR to a shorter path"
            )
        self.spec.folder.mkdir(mode=0o700)
        descriptor = os.open(self.spec.folder / "connection.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - 300 bytes in a run folder
            json.dump(self._connection, file)

    async def _launch(self) -> None:
        spec = self.spec
        with _opened(spec.folder / "startup.log") as startup, self._handover.opened() as handover:
            await self._provisioner.launch_kernel(
                [spec.interpreter, str(LAUNCHER), json.dumps(self._settings(handover))],
                env=spec.environment,
                cwd=spec.folder,
                pass_fds=(handover,),
                stdout=startup,
                stderr=startup,
            )
        if self._given:
            self._handover.give(spec)

    def _settings(self, handover: int) -> dict[str, Any]:
        return {
            "connection": str(self.spec.folder / "connection.json"),
            "profile": str(self.spec.profile),
            "file_bytes": self.spec.file_bytes,
            "handover": handover,
            "output_chars": self.spec.output_chars,
        }

    async def attach(self, spec: KernelSpec) -> bool:
        """Hand a warm kernel to a job, once; false if it cannot take it, and then it is of no use.

        Of `spec` everything but what the process was started with counts: logs, workspace, token, memory. A kernel that
        is not ready yet is from now on one that was started for the job.
        """
        self.spec = msgspec.structs.replace(spec, folder=self.spec.folder)
        self._given = True
        try:
            self._handover.give(self.spec, waited=self.ready.is_set())
        except OSError as error:
            raise _cannot_start(error) from error
        if not self.ready.is_set():
            return True
        with anyio.move_on_after(_ATTACHED_WITHIN_S):
            return await self._handover.taken() and not self.dead.is_set()
        return False

    async def _connect(self) -> None:
        module = await _channels_module()
        channels: Channels = module.Channels(self._connection, self._take_reply, self._take_publication)
        self._channels = channels
        for task in (channels.read_replies, channels.read_publications, self._greet):
            self._tasks.start_soon(task)

    async def _greet(self) -> None:
        """Ask until the kernel answers and is heard on IOPub: what it publishes before that would be lost."""
        assert self._channels is not None
        self._channels.ask_info()
        await self._info_replied.wait()
        while not self._heard:
            await anyio.sleep(_ASK_AGAIN_S)
            self._channels.ask_info()
        if await self._take_job():  # else it is about to die, and says why
            self.ready.set()

    async def _take_job(self) -> bool:
        """The last step to being ready: for a job, or to wait for one; false if it cannot take its job."""
        if not self._given:
            await self._run_in()
        return not self._given or await self._handover.taken()

    async def _run_in(self) -> None:
        """Run a cell that leaves no trace: the first is the slowest."""
        assert self._channels is not None
        execution = self._begin(self._channels.execute_request("pass", {}, silent=True), _ignore)
        await execution.over.wait()
        self._execution = None

    def _take_reply(self, message: Message) -> None:
        if message.type == "kernel_info_reply":
            self._info_replied.set()
        elif self._execution is not None:
            self._execution.take_reply(message)

    def _take_publication(self, message: Message) -> None:
        self._heard = True
        if self._execution is not None:
            self._execution.take_publication(message)

    async def _watch(self) -> None:
        self._watched = anyio.Event()  # not before: the task may never take its first step
        try:
            with anyio.CancelScope() as self._watching:
                await self._provisioner.wait()
                self._note_end()
                self.dead.set()
        finally:
            self._watched.set()

    def _note_end(self) -> None:
        self.startup_text = _tail(self.spec.folder / "startup.log")

    @property
    def busy(self) -> bool:
        """Whether a cell was started that is not over."""
        return self._execution is not None and not self._execution.over.is_set()

    def execute(
        self, code: str, on_output: Callable[[Message], None] = _ignore, cell: Mapping[str, Any] | None = None
    ) -> Execution:
        """Start a cell, once the kernel is ready and while it is not busy; `on_output` gets what it displays.

        `cell`: what the cell has of its own in a kernel that runs several: `stdout` and `stderr`, the paths of its
        logs, and `socket`, `token` and `exec_id` for its `host`.
        """
        assert self._channels is not None
        self._usage_before = self._provisioner.usage()
        return self._begin(self._channels.execute_request(code, {"cellhost": cell} if cell else {}), on_output)

    def _begin(self, request: dict[str, Any], on_output: Callable[[Message], None]) -> Execution:
        assert self._channels is not None
        execution = self._execution = Execution(request["header"]["msg_id"], on_output)
        self._channels.send(request)
        return execution

    async def interrupt(self) -> None:
        """Break the running cell off: SIGINT to the group, then a request that wakes an event loop asleep."""
        await self.signal(signal.SIGINT)
        if self._channels is not None:
            self._channels.ask_info()

    async def signal(self, signum: int) -> None:
        """Signal the process's whole group."""
        await self._provisioner.send_signal(signum)

    def kill_now(self) -> None:
        """As `kill`, for a server that is about to end itself."""
        self._provisioner.kill_now()

    async def kill(self) -> None:
        """End the whole group at once; `dead` is set when it is gone."""
        await self._provisioner.kill()

    def usage(self) -> Usage | None:
        """What the process has used since its last cell began."""
        used, before = self._provisioner.usage(), self._usage_before
        if used is None or before is None:
            return used
        return Usage(round(max(0.0, used.cpu_s - before.cpu_s), 3), used.peak_rss_kb)


_loaded: RunVar[Any] = RunVar("cellhost_channels")
_loading: RunVar[anyio.CapacityLimiter] = RunVar("cellhost_channels_loading")


async def _channels_module() -> Any:
    """`channels.py`; the first to ask has it imported in a thread, while its process starts."""
    if (module := _loaded.get(None)) is not None:
        return module
    limiter = _loading.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(1)
        _loading.set(limiter)
    module = await anyio.to_thread.run_sync(load, f"{__package__}.channels", limiter=limiter)
    _loaded.set(module)
    return module


def _cannot_start(error: OSError) -> StorageError:
    return StorageError(
        f"the kernel cannot be started: {error.strerror}",
        hint="check the interpreter (the call's kernel.python, else the setting python, else the workspace's .venv), "
        "and the disk of the data and run folders",
    )


@contextmanager
def _opened(path: Path) -> Generator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - one short read
            file.seek(max(0, file.seek(0, os.SEEK_END) - _STARTUP_TAIL))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
