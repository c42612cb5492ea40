"""Removing what has been kept long enough, while the server does other things."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from ..store.errors import HostError
from ..store.retention import Retention, remove_expired

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from .config import Kept
    from .store_thread import StoreThread

_FIRST_AFTER_S = 1.0  # the first job's start comes first
_EVERY_S = 600.0
_PAUSE_S = 0.2  # between two calls that hold the store's lock
_CALLS = 20
_LOG = logging.getLogger(__name__)


@asynccontextmanager
async def removing_expired(
    store: StoreThread, kept: Kept, on_removed: Callable[[Iterable[str]], None]
) -> AsyncGenerator[None]:
    """Have ended jobs that are over removed, soon and every ten minutes, so many at a time; `on_removed` is told."""
    retention = Retention(age_s=kept.job_age_s, log_bytes=kept.job_log_bytes)

    async def run() -> None:
        await anyio.sleep(_FIRST_AFTER_S)
        while True:
            try:
                await _remove(store, retention, on_removed)
            except HostError as error:
                _LOG.warning("old jobs cannot be removed: %s", error)
            await anyio.sleep(_EVERY_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield
        tasks.cancel_scope.cancel()


async def _remove(store: StoreThread, retention: Retention, on_removed: Callable[[Iterable[str]], None]) -> None:
    for _ in range(_CALLS):
        removed = await store.run(lambda: remove_expired(store.store, retention))
        if not removed:
            return
        on_removed(removed)
        await anyio.sleep(_PAUSE_S)
