"""Where an engine's kernels come from: our own, or those of a factory; in team mode only the latter.

A factory gets a frozen `KernelSpec` and returns (or awaits to) an unstarted `Kernel`. Once a session has had a
foreground kernel, what made that one makes its background kernels too, in team mode as well.
"""

from __future__ import annotations

import inspect
import os
import secrets
from pathlib import Path
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

    from .interpreter import Interpreter
    from .job import Job
    from .kernel import Kernel
    from .limits import JobLimits
    from .spec import KernelFactory
    from .tokens import Tokens

_OURS = frozenset({"python", "python3"})
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

    def note_foreground(self, root_frame_id: str) -> None:
        """A foreground kernel of that session has started: from here on its background kernels are allowed too."""
        self._with_foreground.add(root_frame_id)

    def require_allowed(self, root_frame_id: str | None) -> None:
        """Raise `Closed` where team mode wants a session-scoped factory and that session has none."""
        if self._team_mode and self.factory is None and root_frame_id not in self._with_foreground:
            raise Closed(
                "team mode: a background kernel may only come from a session-scoped kernel factory",
                hint="give build_dispatcher a kernel_factory, call exec first, or run without team mode",
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
        self.require_allowed(record.root_frame_id)
        _make_folder(job.log)
        memory = None if record.memory_mb is None else record.memory_mb * _MEBIBYTE
        spec = self._spec(record.exec_id, job.log, job.interpreter, job.environment)
        return await self._make(msgspec.structs.replace(spec, token=self._issue_token(job), memory_bytes=memory))

    async def make(self, root_frame_id: str | None = None) -> Kernel:
        """A kernel that belongs to no job: its logs lie in the run folder, its `host` has no access."""
        self.require_allowed(root_frame_id)
        interpreter = self.choose()
        log = JobLog(self._run_dir / f"logs-{secrets.token_hex(3)}")
        _make_folder(log)
        return await self._make(self._spec("kernel", log, interpreter.executable, self.environment(interpreter, None)))

    async def make_foreground(self) -> Kernel:
        """A kernel for many cells; each brings its logs and its token along (`cell`), between them it has none."""
        interpreter = self.choose()
        return await self._make(
            self._spec("foreground", None, interpreter.executable, self.environment(interpreter, None))
        )

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

    def _spec(self, name: str, log: JobLog | None, interpreter: str, environment: dict[str, str]) -> KernelSpec:
        self.prepare()
        return KernelSpec(
            name=name,
            workspace=self._workspace.resolve(),
            interpreter=interpreter,
            environment=environment,
            folder=self._run_dir / f"k{secrets.token_hex(4)}",
            profile=self._run_dir / "ipython",
            stdout=log.stdout if log else _NOWHERE,
            stderr=log.stderr if log else _NOWHERE,
            door=self._door(),
            file_bytes=self._limits.file_bytes,
        )

    async def _make(self, spec: KernelSpec) -> Kernel:
        if self.factory is None:
            from .kernel import Kernel

            return Kernel(spec)
        made = self.factory(spec)
        return await made if inspect.isawaitable(made) else made


def _make_folder(log: JobLog) -> None:
    try:
        log.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the logs cannot be written: {error.strerror}", hint="check the data folder and its disk"
        ) from error
