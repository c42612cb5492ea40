"""What a peer's calls hold: bounds on the requests that were taken and not yet answered, and on the waits among them.

A request counts with its bytes and what a call costs beside them, so that many small ones are bounded too. Calls that
wait for a job, for news or for a person are counted apart: what ends them may be the next thing to read.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from ..store.errors import Busy

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

MAX_BYTES = 64 * 1024 * 1024
MAX_WAITS = 256
CALL_COST = 4 * 1024
"""What a call holds beside its frame: its objects and its task."""


class Load:
    """The sums of one connection; sizes are bytes."""

    def __init__(self) -> None:
        self.taken = 0
        """Of requests that are queued or carried out, without those that wait."""
        self._waits = 0
        self._waiting = 0
        self._less = anyio.Event()

    @property
    def full(self) -> bool:
        """More was taken than should be."""
        return self.taken > MAX_BYTES

    def take(self, size: int) -> None:
        """Count a request."""
        self.taken += size

    def drop(self, size: int) -> None:
        """A request has its answer."""
        self.taken -= size
        self.look_again()

    def look_again(self) -> None:
        """Let `room` see whether what it waits for has come."""
        if not self._less.is_set():
            self._less.set()

    @contextmanager
    def waiting(self, size: int) -> Generator[None]:
        """Entered around a wait that only other messages or time can end.

        Raises:
            Busy: too many calls wait already.
        """
        if self._waits >= MAX_WAITS or self._waiting + size > MAX_BYTES:
            raise Busy("too many calls are waiting", hint="let some end, or cancel them")
        self._waits += 1
        self._waiting += size
        self.drop(size)
        try:
            yield
        finally:
            self.take(size)
            self._waiting -= size
            self._waits -= 1

    async def room(self, else_if: Callable[[], object]) -> None:
        """Return when no more was taken than should be, or when `else_if` holds."""
        while self.full and not else_if():
            self._less = anyio.Event()
            await self._less.wait()
