"""What is opened on first use and closed with the host.

What is entered in a task must be left in it, so one long-lived task enters everything that calls ask for.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from ..store.errors import Closed

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import TaskStatus

T = TypeVar("T")


class _Wish:
    """Somebody's request to have a manager entered, and how it went."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self.manager = manager
        self.done = anyio.Event()
        self.entered: Any = None
        self.error: BaseException | None = None


class Keeper:
    """Owns lazily entered context managers; `serve` runs in the host's task group."""

    def __init__(self) -> None:
        self._wishes: list[_Wish] = []
        self._more: anyio.Event | None = None
        self._stopping = False

    @property
    def serving(self) -> bool:
        """True while managers can be entered."""
        return self._more is not None

    async def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter a manager, to be left when the host ends.

        Raises:
            Closed: outside `serve`. Whatever entering raises is raised here too.
        """
        if self._more is None:
            raise Closed("not open", hint="use `async with build_dispatcher(...) as dispatcher`")
        wish = _Wish(manager)
        self._wishes.append(wish)
        self._more.set()
        await wish.done.wait()
        if wish.error is not None:
            raise wish.error
        return cast("T", wish.entered)

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Enter what is asked for until `stop`; then leave all of it, last first."""
        self._more = anyio.Event()
        self._stopping = False
        async with AsyncExitStack() as stack:
            task_status.started()
            while not self._stopping:
                await self._more.wait()
                self._more = anyio.Event()
                while self._wishes:
                    await _grant(self._wishes.pop(0), stack)
            self._more = None

    def stop(self) -> None:
        """Let `serve` end. Cancelling it instead would cancel what the managers still have to do."""
        self._stopping = True
        if self._more is not None:
            self._more.set()


async def _grant(wish: _Wish, stack: AsyncExitStack) -> None:
    try:
        wish.entered = await stack.enter_async_context(wish.manager)
    except Exception as error:  # noqa: BLE001 (it is raised where it was asked for)
        wish.error = error
    finally:
        wish.done.set()
