"""The query guard's readers: one per file, opened on first use, closed with the host."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ..store.guard import GuardedReader


class Readers:
    """Opens readers in one long-lived task, since what is entered in a task must be left in it."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[GuardedReader, anyio.Event]] = {}
        self._wanted: list[tuple[GuardedReader, anyio.Event]] = []
        self._more: anyio.Event | None = None

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the readers until cancelled."""
        self._more = anyio.Event()
        async with AsyncExitStack() as stack:
            task_status.started()
            try:
                while True:
                    await self._more.wait()
                    self._more = anyio.Event()
                    while self._wanted:
                        reader, opened = self._wanted.pop(0)
                        await stack.enter_async_context(reader)
                        opened.set()
            finally:
                self._more = None

    @asynccontextmanager
    async def use(self, key: str, make: Callable[[], GuardedReader]) -> AsyncIterator[GuardedReader]:
        """The reader of `key`. Outside `serve` it lives for this one use."""
        if self._more is None:
            async with make() as reader:
                yield reader
            return
        if key not in self._open:
            self._open[key] = (make(), anyio.Event())
            self._wanted.append(self._open[key])
            self._more.set()
        reader, opened = self._open[key]
        await opened.wait()
        yield reader
