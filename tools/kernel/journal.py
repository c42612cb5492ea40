"""The order in which changes of jobs reach the store, off the path of the jobs themselves.

Changes of a job that wait for their turn are merged, so a store that is locked for seconds costs memory for one
entry a job and stops nothing. A few jobs are written at a time, so that the store can commit them together; one job's
changes never overtake each other.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio

from ...store.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .records import JobRecord, JobRecords

_LOG = logging.getLogger(__name__)
_WRITERS = 4
_TRIES = 20
_TRY_AGAIN_S = 0.5


class Journal:
    """Writes what it is told, oldest job first; `run` is its task."""

    def __init__(self, records: JobRecords) -> None:
        self._records = records
        self._waiting: dict[tuple[str, str], dict[str, Any]] = {}
        self._writing: set[tuple[str, str]] = set()
        self._came = anyio.Event()
        self._went = anyio.Event()

    def note(self, record: JobRecord, fields: Mapping[str, Any]) -> None:
        """Have columns of a job set in the store, soon."""
        self._waiting.setdefault((record.project_id, record.exec_id), {}).update(fields)
        self._came.set()

    async def settle(self, record: JobRecord | None = None) -> None:
        """Return once nothing waits to be written, of one job or of any; give it a bound."""
        key = None if record is None else (record.project_id, record.exec_id)
        while self._busy_with(key):
            await self._went.wait()

    def _busy_with(self, key: tuple[str, str] | None) -> bool:
        if key is None:
            return bool(self._waiting or self._writing)
        return key in self._waiting or key in self._writing

    async def run(self) -> None:
        """Write for ever."""
        async with anyio.create_task_group() as tasks:
            for _ in range(_WRITERS):
                tasks.start_soon(self._write_each)

    async def _write_each(self) -> None:
        while True:
            key = next((key for key in self._waiting if key not in self._writing), None)
            if key is None:
                self._came = anyio.Event() if self._came.is_set() else self._came
                await self._came.wait()
                continue
            self._writing.add(key)
            await self._write(*key, self._waiting.pop(key))
            self._writing.discard(key)
            self._went.set()
            self._went = anyio.Event()
            self._came.set()

    async def _write(self, project_id: str, exec_id: str, fields: dict[str, Any]) -> None:
        for _ in range(_TRIES):
            try:
                await self._records.updated(project_id, exec_id, fields)
                return
            except HostError as error:
                _LOG.warning("the store did not take a change of %s: %s", exec_id, error)
            except Exception:  # noqa: BLE001
                _LOG.exception("a change of %s cannot be written", exec_id)
                return
            await anyio.sleep(_TRY_AGAIN_S)
            fields |= self._waiting.pop((project_id, exec_id), {})
