"""The store as the event loop sees it: one thread of its own, so that a locked file never stops the wire."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..store.records import Records
    from ..store.store import Store

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """Runs the store's blocking functions one after the other, each to its end."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._limiter = anyio.CapacityLimiter(1)
        self._projects: dict[str, Records] = {}

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` in the store's thread; a cancelled caller leaves it to finish, so nothing is half-written."""
        return await anyio.to_thread.run_sync(partial(function, *args, **kwargs), limiter=self._limiter)

    async def project(self, project_id: str) -> Records:
        """A project's records, opened on first use.

        Raises:
            InvalidParams: not a project's name.
            StorageError: the file cannot be opened.
        """
        records = self._projects.get(project_id)
        if records is None:
            records = self._projects[project_id] = await self.run(self.store.project, project_id)
        return records
