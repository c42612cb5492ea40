"""The warm pool: kernels that were started before there is a job for them, each for one job.

    pool.expect(place)                      # whenever a job runs that another like it may follow
    lease = await pool.take(place, spec)    # `None`: there is none for this place, start cold
    async with lease as kernel:
        ...

Nobody waits for the pool: it starts kernels only while no job is starting, and one that dies or does not fit is simply
dropped. `run` is its task, and owns the kernels until the end of their lease.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from ...store.errors import HostError
from .waiting import wait_for_any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from anyio.abc import TaskGroup

    from .kernel import Kernel
    from .limits import JobLimits
    from .spec import KernelSpec, Place

_LOG = logging.getLogger(__name__)
_QUIET_S = 0.05  # after a job's first message: its first lines come before the next kernel's start


class WarmPool:
    """Keeps `limits.warm_kernels` kernels ready for the place that was last expected."""

    def __init__(self, limits: JobLimits, make: Callable[[Place], Kernel], quiet: Callable[[], bool]) -> None:
        self._limits = limits
        self._make = make
        self._quiet = quiet
        self._place: Place | None = None
        self._held: list[Lease] = []
        self._changed = anyio.Event()
        self._closed = limits.warm_kernels == 0

    @property
    def alive(self) -> int:
        """How many kernels a job can have, some of them while they start."""
        return sum(lease.free for lease in self._held)

    @property
    def ready(self) -> int:
        """How many kernels could run code at once."""
        return sum(lease.free and lease.ready for lease in self._held)

    def expect(self, place: Place) -> None:
        """Have kernels for this place, soon, and none for any other."""
        self._place = place
        self.look()

    def look(self) -> None:
        """Consider whether a kernel is missing, and whether now is the time."""
        self._changed.set()

    async def take(self, place: Place, spec: KernelSpec) -> Lease | None:
        """A kernel of this place, attached to the job of `spec`; `None` if there is none that can be.

        One that is still starting is taken too: it is ahead of any other.
        """
        fitting = [lease for lease in self._held if lease.free and lease.place == place]
        if not fitting:
            return None
        lease = next((lease for lease in fitting if lease.ready), fitting[0])
        self._held.remove(lease)
        return lease if await lease.attach(spec) else None

    def close(self) -> None:
        """End every kernel at once and start no more; those with a job are their jobs' business."""
        self._closed = True
        for lease in self._held:
            lease.kill()

    async def run(self) -> None:
        """Start what is missing, for ever."""
        async with anyio.create_task_group() as tasks:
            while True:
                await self._changed.wait()
                await anyio.sleep(_QUIET_S)
                self._changed = anyio.Event()
                if not self._closed and self._place is not None and self._quiet():
                    self._fill(self._place, tasks)

    def _fill(self, place: Place, tasks: TaskGroup) -> None:
        for lease in self._held:
            if lease.place != place:
                lease.end()
        missing = self._limits.warm_kernels - sum(lease.place == place for lease in self._held)
        for _ in range(missing):
            lease = Lease(place)
            self._held.append(lease)
            tasks.start_soon(self._keep, lease)

    async def _keep(self, lease: Lease) -> None:
        try:
            await lease.keep(self._make, self._limits.start_timeout_s)
        except HostError as error:
            _LOG.warning("a kernel cannot be started ahead of its job: %s", error)
        except Exception:  # noqa: BLE001 - as for a job: its fault is not the engine's
            _LOG.exception("a warm kernel failed")
        finally:
            if lease in self._held:
                self._held.remove(lease)


class Lease:
    """One kernel of the pool; an `async with` block in which a job has it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._taken = False
        self._kernel: Kernel | None = None
        self._ended = anyio.Event()
        self._gone = anyio.Event()

    @property
    def free(self) -> bool:
        """Whether there is a process that a job can have."""
        kernel = self._kernel
        if self._taken or self._ended.is_set() or kernel is None:
            return False
        return kernel.pid is not None and not kernel.dead.is_set()

    @property
    def ready(self) -> bool:
        """Whether it can run code at once."""
        return self._kernel is not None and self._kernel.ready.is_set()

    def end(self) -> None:
        """Have the kernel put away."""
        self._ended.set()

    def kill(self) -> None:
        """End it at once."""
        if self._kernel is not None:
            self._kernel.kill_now()
        self.end()

    async def keep(self, make: Callable[[Place], Kernel], start_timeout_s: float) -> None:
        """Start a kernel and have it until the lease ends; one without a job only as long as it lives."""
        kernel = self._kernel = make(self.place)
        try:
            async with kernel:
                with anyio.move_on_after(start_timeout_s):
                    await wait_for_any(kernel.ready, kernel.dead, self._ended)
                if kernel.ready.is_set():
                    await wait_for_any(kernel.dead, self._ended)
                if self._taken:  # by a job, which looks after it
                    await self._ended.wait()
        finally:
            kernel.dead.set()  # also if it was given up: whoever has it must not wait for it
            self._gone.set()

    async def attach(self, spec: KernelSpec) -> bool:
        """Give the kernel to the job of `spec`; if it does not take it, that is the end of it."""
        self._taken = True
        attached = False
        try:
            attached = self._kernel is not None and await self._kernel.attach(spec)
        finally:
            if not attached:
                self.end()
        return attached

    async def __aenter__(self) -> Kernel:
        assert self._kernel is not None
        return self._kernel

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        await self._gone.wait()
