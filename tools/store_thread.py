"""The store as the event loop sees it: one thread of its own, so that a locked file never stops the wire."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from ..store.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..store.records import Records
    from ..store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class StoreThread:
    """Runs the store's blocking functions one after the other, each to its end."""

    def __init__(self, data_folder: Callable[[], Path], workspace: Path) -> None:
        self._data_folder = data_folder
        self._workspace = workspace
        self._store: Store | None = None
        self._limiter = anyio.CapacityLimiter(1)
        self._projects: dict[str, Records] = {}

    @property
    def store(self) -> Store:
        """The store itself, for code that runs in its thread."""
        if self._store is None:
            from ..store.store import Store

            self._store = Store(self._data_folder())
        return self._store

    def exists(self) -> bool:
        """Whether the data folder holds anything yet; asking makes and imports nothing."""
        return (self._data_folder() / "control.db").exists()

    def close(self) -> None:
        """Close the files; a store that was never used has none."""
        if self._store is not None:
            self._store.close()

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
            records = self._projects[project_id] = await self.run(self._open, project_id)
        return records

    def _open(self, project_id: str) -> Records:
        if not self._projects and self.exists():  # nobody is to see jobs run whose server was killed
            try:
                self.store.mark_dead_servers()
            except StorageError as error:
                _LOG.warning("jobs of killed servers could not be marked lost: %s", error)
        return self._settled(self.store.project(project_id))

    def _settled(self, records: Records) -> Records:
        """The records, without what killed servers have begun to restore in this workspace."""
        try:
            if records.database.path.exists() and records.artifacts.lately_restored():
                from .restoring import settle

                settle(records, self._workspace)
        except (OSError, StorageError) as error:
            _LOG.warning("what a killed server restored could not be taken back: %s", error)
        return records
