"""Where an engine's kernels come from: our own, or those of a factory; in team mode only the latter.

A factory gets a frozen `KernelSpec` and returns (or awaits to) an unstarted `Kernel`.
"""

from __future__ import annotations

import inspect
import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from ...store.errors import Closed, InvalidParams, Issue, StorageError
from .environment import build_environment
from .interpreter import choose_interpreter
from .log import JobLog
from .spec import KernelSpec
from .tokens import JobIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .interpreter import Interpreter
    from .job import Job
    from .kernel import Kernel
    from .limits import JobLimits
    from .spec import KernelFactory
    from .tokens import Tokens

_OURS = frozenset({"python", "python3"})
_MEBIBYTE = 1 << 20


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
    ) -> None:
        self.factory = factory
        self._workspace = workspace
        self._run_dir = run_dir
        self._tokens = tokens
        self._door = door
        self._limits = limits
        self._python = python
        self._team_mode = team_mode

    @property
    def allowed(self) -> bool:
        """Whether there may be kernels: in team mode only those of a factory."""
        return self.factory is not None or not self._team_mode

    def require_allowed(self) -> None:
        """Raise `Closed` where team mode wants a factory and there is none."""
        if not self.allowed:
            raise Closed(
                "team mode: a background kernel may only come from a session-scoped kernel factory",
                hint="give build_dispatcher a kernel_factory, or run without team mode",
            )

    def choose(self, kernel: str | Mapping[str, Any] | None = None) -> Interpreter:
        """The interpreter for a job's `kernel`: nothing, `"python3"` or `{"python": path}`."""
        if kernel is None or (isinstance(kernel, str) and kernel in _OURS):
            return choose_interpreter(self._workspace, self._python)
        if isinstance(kernel, str) or set(kernel) != {"python"} or not isinstance(kernel["python"], str):
            raise InvalidParams(
                "kernel names no interpreter",
                [Issue("$.kernel", 'must be {"python": path}; other kernels are not supported yet')],
                hint='leave kernel out, or pass {"python": "path/to/python"}',
            )
        return choose_interpreter(self._workspace, kernel["python"])

    def environment(self, interpreter: Interpreter, env: Mapping[str, str] | None) -> dict[str, str]:
        """The variables of a job's process, without its token."""
        return build_environment(interpreter.executable, env)

    def prepare(self) -> None:
        """Make the workspace, if it is missing, and IPython's folder: kernels that start at once would race."""
        try:
            self._workspace.mkdir(parents=True, exist_ok=True)
            for name in ("log", "pid", "security", "startup"):
                (self._run_dir / "ipython" / "profile_default" / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"the workspace or the run folder cannot be made: {error.strerror}", hint="check that it is writable"
            ) from error

    async def make_for(self, job: Job) -> Kernel:
        """A kernel for a job, with a token of its own."""
        record = job.record
        identity = JobIdentity(record.exec_id, record.cell_id, record.project_id, record.frame_id, record.root_frame_id)
        job.token = self._tokens.issue(identity)
        memory = None if record.memory_mb is None else record.memory_mb * _MEBIBYTE
        spec = self._spec(record.exec_id, job.log, job.interpreter, job.environment)
        return await self._make(msgspec.structs.replace(spec, token=job.token, memory_bytes=memory))

    async def make(self) -> Kernel:
        """A kernel that belongs to no job: its logs lie in the run folder, its `host` has no access."""
        interpreter = self.choose()
        log = JobLog(self._run_dir / f"logs-{secrets.token_hex(3)}")
        spec = self._spec("kernel", log, interpreter.executable, self.environment(interpreter, None))
        return await self._make(spec)

    def _spec(self, name: str, log: JobLog, interpreter: str, environment: dict[str, str]) -> KernelSpec:
        self.prepare()
        try:
            log.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"the logs cannot be written: {error.strerror}", hint="check the data folder and its disk"
            ) from error
        return KernelSpec(
            name=name,
            workspace=self._workspace.resolve(),
            interpreter=interpreter,
            environment=environment,
            folder=self._run_dir / f"k{secrets.token_hex(4)}",
            profile=self._run_dir / "ipython",
            stdout=log.stdout,
            stderr=log.stderr,
            door=self._door(),
            file_bytes=self._limits.file_bytes,
        )

    async def _make(self, spec: KernelSpec) -> Kernel:
        self.require_allowed()
        if self.factory is None:
            from .kernel import Kernel

            return Kernel(spec)
        made = self.factory(spec)
        return await made if inspect.isawaitable(made) else made
