"""Waiting for the same thing again and again, as cheaply as the event loop can.

    watch = Watch(fd, take)
    await watch.arrival()    # `take` has been called once or more, and has said True

To begin and to end watching a descriptor for every arrival, as `anyio.wait_readable` does, takes longer than most
arrivals do, and a new `anyio.Event` for every wait longer than most waits. So this, and only this, is asyncio itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Wakeup:
    """What one task at a time waits for; it is over once waited for, and set anew for the next time."""

    __slots__ = ("_future", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._future: asyncio.Future[None] | None = None

    def is_set(self) -> bool:
        """Whether the next wait is over at once."""
        return self._is_set

    def set(self) -> None:
        """End the wait, or the next one."""
        self._is_set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Return once it is set."""
        if not self._is_set:
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            finally:
                self._future = None
        self._is_set = False


class Watch:
    """Calls `take` while `fd` is readable and somebody waits; `close` before the descriptor is."""

    def __init__(self, fd: int, take: Callable[[], bool]) -> None:
        self._fd = fd
        self._take = take
        self._waited_for = False
        self._arrived = Wakeup()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def arrival(self) -> None:
        """Return once `take` says that something has arrived; nothing is taken for who gives up waiting."""
        self._arrived = Wakeup()  # the last one may have been set for somebody who gave up
        self._waited_for = True
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._fd, self._on_readable)
        try:
            await self._arrived.wait()
        finally:
            self._waited_for = False

    def close(self) -> None:
        """Watch no longer; `arrival` begins it anew."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop = None

    def _on_readable(self) -> None:
        if not self._waited_for:
            self.close()
        elif self._take():
            self._waited_for = False
            self._arrived.set()
