"""Where an engine's kernels come from: our own, warm or cold, or those of a factory; in team mode only the latter.

A factory gets a frozen `KernelSpec` and returns (or awaits to) an unstarted `Kernel`. Once a session has had a
foreground kernel, what made that one makes its background kernels too, in team mode as well.
"""

from __future__ import annotations

import inspect
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from ...store.errors import Closed, InvalidParams, Issue, StorageError
from .environment import build_environment
from .interpreter import Interpreter, choose_interpreter, named_interpreter
from .kernelspecs import OURS, find_kernel
from .log import JobLog
from .spec import KernelSpec, Place
from .tokens import JobIdentity
from .warm import WarmPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from .job import Job
    from .kernel import Kernel
    from .limits import JobLimits
    from .spec import KernelFactory
    from .tokens import Tokens

_MEBIBYTE = 1 << 20
_NOWHERE = Path(os.devnull)


class KernelSource:
    """Makes unstarted kernels for jobs and for whoever asks for one."""

    def __init__(
        self,
        *,
        workspace: Path,
        run_dir: Path,
        tokens: Tokens,
        door: Callable[[], Path | None],
        limits: JobLimits,
        python: str | None,
        team_mode: bool,
        factory: KernelFactory | None,
        quiet: Callable[[], bool],
    ) -> None:
        self.factory = factory
        self._workspace = workspace
        self._run_dir = run_dir
        self._tokens = tokens
        self._door = door
        self._limits = limits
        self._python = python
        self._team_mode = team_mode
        self._with_foreground: set[str] = set()
        self._searches = anyio.CapacityLimiter(1)
        self.pool = WarmPool(limits, self._make_warm, quiet)

    @property
    def allowed(self) -> bool:
        """Whether there may be kernels: in team mode only those of a factory."""
        return self.factory is not None or not self._team_mode

    def note_foreground(self, root_frame_id: str) -> None:
        """A foreground kernel of that session has started: from here on its background kernels are allowed too."""
        self._with_foreground.add(root_frame_id)

    def require_allowed(self, root_frame_id: str | None) -> None:
        """Raise `Closed` where team mode wants a session-scoped factory and that session has none."""
        if not self.allowed and root_frame_id not in self._with_foreground:
            raise Closed(
                "team mode: a background kernel may only come from a session-scoped kernel factory",
                hint="give build_dispatcher a kernel_factory, call exec first, or run without team mode",
            )

    async def place(self, kernel: str | Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None) -> Place:
        """What to start for a job's `kernel` (nothing, a name, or `{"python": path}`) and `env`."""
        if kernel is None or isinstance(kernel, str):
            interpreter = choose_interpreter(self._workspace, self._python)
        else:
            interpreter = named_interpreter(self._workspace, _python_of(kernel))
        environment = build_environment(interpreter.executable, env)
        if not isinstance(kernel, str) or kernel in OURS:
            return Place(interpreter, environment)
        self._require_own_kernels()
        found = await anyio.to_thread.run_sync(find_kernel, kernel, interpreter.executable, limiter=self._searches)
        return Place(found, found.environment(environment) | dict(env or {}))

    def _require_own_kernels(self) -> None:
        if self.factory is not None:
            raise InvalidParams(
                "kernels come from a factory here",
                [Issue("$.kernel", "names a kernel that the factory does not make")],
                hint="leave kernel out",
            )

    async def prewarm(self) -> None:
        """Have warm kernels for the first jobs too."""
        if self.factory is None and not self._team_mode:
            self.pool.expect(await self.place())

    def expect_another(self, job: Job) -> None:
        """Have warm kernels for jobs like this one, unless it has variables of its own: those are for it alone."""
        program = job.place.program
        if self.factory is not None or not isinstance(program, Interpreter):
            return
        if job.place.environment == build_environment(program.executable):
            self.pool.expect(job.place)

    async def make_for(self, job: Job) -> AbstractAsyncContextManager[Kernel]:
        """A kernel for a job, with a token of its own; warm if there is one that fits."""
        record = job.record
        self.require_allowed(record.root_frame_id)
        _make_folder(job.log)
        memory = None if record.memory_mb is None else record.memory_mb * _MEBIBYTE
        spec = self._spec(record.exec_id, job.place, job.log)
        return await self._lease(
            job.place, msgspec.structs.replace(spec, token=self._issue_token(job), memory_bytes=memory)
        )

    async def make(self, root_frame_id: str | None = None) -> Kernel:
        """A kernel that belongs to no job: its logs lie in the run folder, its `host` has no access."""
        self.require_allowed(root_frame_id)
        log = JobLog(self._run_dir / f"logs-{secrets.token_hex(3)}")
        _make_folder(log)
        return await self._make(self._spec("kernel", await self.place(), log))

    async def make_foreground(self) -> AbstractAsyncContextManager[Kernel]:
        """A kernel for many cells; each brings its logs and its token along (`cell`), between them it has none."""
        place = await self.place()
        return await self._lease(place, self._spec("foreground", place))

    def cell(self, job: Job) -> dict[str, Any]:
        """What a job has of its own in a kernel that it shares with others, for `Kernel.execute`."""
        _make_folder(job.log)
        door = self._door()
        return {
            "stdout": str(job.log.stdout),
            "stderr": str(job.log.stderr),
            "socket": door and str(door),
            "token": self._issue_token(job),
            "exec_id": job.exec_id,
        }

    def _issue_token(self, job: Job) -> str:
        record = job.record
        job.token = self._tokens.issue(
            JobIdentity(record.exec_id, record.cell_id, record.project_id, record.frame_id, record.root_frame_id)
        )
        return job.token

    async def _lease(self, place: Place, spec: KernelSpec) -> AbstractAsyncContextManager[Kernel]:
        lease = None if self.factory else await self.pool.take(place, spec)
        return lease or await self._make(spec)

    def _make_warm(self, place: Place) -> Kernel:
        from .kernel import Kernel

        folder = self._run_dir / f"w{secrets.token_hex(4)}"
        startup = folder / "startup.log"  # where it writes until it has a job
        return Kernel(self._process("warm", place, folder, startup, startup), warm=True)

    def _spec(self, name: str, place: Place, log: JobLog | None = None) -> KernelSpec:
        try:
            self._workspace.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"the workspace cannot be made: {error.strerror}", hint="check that its folder is writable"
            ) from error
        folder = self._run_dir / f"k{secrets.token_hex(4)}"
        logs = (log.stdout, log.stderr) if log else (_NOWHERE, _NOWHERE)
        return msgspec.structs.replace(self._process(name, place, folder, *logs), door=self._door())

    def _process(self, name: str, place: Place, folder: Path, stdout: Path, stderr: Path) -> KernelSpec:
        program = place.program
        return KernelSpec(
            name=name,
            workspace=self._workspace.resolve(),
            interpreter=program.executable if isinstance(program, Interpreter) else "",
            installed=None if isinstance(program, Interpreter) else program,
            environment=place.environment,
            folder=folder,
            profile=self._make_profile(),
            stdout=stdout,
            stderr=stderr,
            file_bytes=self._limits.file_bytes,
            output_chars=self._limits.output_bytes * 3 // 2,  # base64 takes a third more
        )

    def _make_profile(self) -> Path:
        """IPython's folder, complete: kernels that start at once would race for it."""
        profile = self._run_dir / "ipython"
        try:
            for name in ("log", "pid", "security", "startup"):
                (profile / "profile_default" / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"the run folder cannot be written: {error.strerror}", hint="check its disk") from error
        return profile

    async def _make(self, spec: KernelSpec) -> Kernel:
        if self.factory is None:
            return _own(spec)
        made = self.factory(spec)
        return await made if inspect.isawaitable(made) else made


def _make_folder(log: JobLog) -> None:
    try:
        log.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the logs cannot be written: {error.strerror}", hint="check the data folder and its disk"
        ) from error


def _python_of(kernel: Mapping[str, Any]) -> str:
    if set(kernel) != {"python"} or not isinstance(kernel["python"], str):
        raise InvalidParams(
            "kernel names no interpreter",
            [Issue("$.kernel", 'must be {"python": path} or the name of an installed kernel')],
            hint='leave kernel out, pass {"python": "path/to/python"}, or a name that kernel_info lists',
        )
    return str(kernel["python"])


def _own(spec: KernelSpec) -> Kernel:
    if spec.installed is not None:
        from .foreign import ForeignKernel

        return ForeignKernel(spec)
    from .kernel import Kernel

    return Kernel(spec)
