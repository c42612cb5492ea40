"""The in-process door: Python that embeds the host.

async with build_dispatcher(Config(data_dir=data), workspace=folder) as dispatcher:
    await dispatcher("exec_peek", ["exec-1"])
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.errors import PermissionNeeded
from ..tools.call import Call
from ..tools.host import Host
from .kernel_door import KernelDoor

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from ..store.store import Store
    from ..tools.config import Config
    from ..tools.kernel.kernel import Kernel
    from ..tools.kernel.spec import KernelFactory


def build_dispatcher(
    config: Config, *, workspace: Path | str, kernel_factory: KernelFactory | None = None
) -> Dispatcher:
    """A host for this process. Calls that need no kernel work at once; the others inside `async with`."""
    return Dispatcher(Host(config, Path(workspace), kernel_factory))


class Dispatcher:
    """Calls methods by name: `await dispatcher(method, params)`; use it from one event loop."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._exit: AsyncExitStack | None = None

    async def __call__(self, method: str, params: Any = None) -> Any:
        """Carry out one call, any method of the contract, with params in any accepted form.

        A call the gate refuses returns `{"error": "Permission denied: …"}` and runs nothing.

        Raises:
            HostError: everything else that goes wrong.
        """
        try:
            return await self.host.call(method, params, Call(self.host, "in_process"))
        except PermissionNeeded as error:
            return {"error": error.message}

    @property
    def store(self) -> Store:
        """What the host keeps; synchronous."""
        return self.host.store.store

    @property
    def frame_id(self) -> str:
        """The frame that calls are recorded in; setting it makes another, existing frame current, in its project."""
        return self.host.session.open_now().frame_id

    @frame_id.setter
    def frame_id(self, frame_id: str) -> None:
        self.host.session.use_now(frame_id)

    @property
    def background(self) -> Any:
        """The executor of background jobs; replaceable by any object with `launch`, `list_jobs`, `peek`, `interrupt`
        and `shutdown`, synchronous or not."""
        return self.host.background.current()

    @background.setter
    def background(self, executor: Any) -> None:
        self.host.background.replace(executor)

    async def new_background_kernel(self) -> Kernel:
        """A started kernel in the workspace, of the kernel factory if there is one; the caller closes it.

        Raises:
            Closed: in team mode without a session-scoped kernel factory, or outside `async with`.
        """
        return await self.host.background.new_kernel()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.host)
            await stack.enter_async_context(KernelDoor(self.host))
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._exit is not None
        await self._exit.__aexit__(kind, error, trace)
