"""Running guarded SQL for the `query` tools: which file, under which limits, in which form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..store.errors import InvalidParams, Issue, NotFound
from ..store.guard import GuardedReader
from ..store.tables import query_schema, session_views
from .readers import Readers

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from .call import Call, Caller
    from .config import Config
    from .data import QueryParams
    from .store_thread import StoreThread

BUDGET_SHARE = 0.8
"""What of a door's budget the rows may take; the rest is for columns, types and counts."""


class Queries:
    """Guarded readers on the caller's own project and on the user's databases."""

    def __init__(self, store: StoreThread, config: Config) -> None:
        self._store = store
        self._config = config
        self.readers = Readers()
        self._paths: dict[str, Path] = {}

    async def schema(self, caller: Caller, database: str | None) -> dict[str, Any]:
        """`{table: [column]}` of the records, or the detailed form of a user database."""
        if database is None:
            return query_schema()
        async with await self._reader(caller, database) as reader:
            return await reader.schema()

    async def run(self, params: QueryParams, call: Call) -> Any:
        """Run one statement and answer in the form asked for; over a door with a budget always as a cut table."""
        if params.df and params.format is not None:
            raise InvalidParams(
                "df and format exclude each other", [Issue("$.df", "leave it out when format is given")]
            )
        form = "table" if call.budget is not None or params.df else params.format or "records"
        options: dict[str, Any] = {"limit": params.limit, "explain": bool(params.explain)}
        if params.database is None:
            options["session"] = call.caller.root_frame_id
        if call.budget is not None:
            options |= {"cut": True, "max_bytes": int(call.budget * BUDGET_SHARE)}
        async with await self._reader(call.caller, params.database) as reader:
            with call.waiting():
                answer = await reader.fetch(params.sql, params.params, form=form, **options)
        rows: Any = msgspec.Raw(answer.body) if call.encoded else msgspec.json.decode(answer.body)
        if form == "records":
            return rows
        if params.df:
            return {"columns": answer.columns, "rows": rows}
        return {
            "columns": answer.columns,
            "types": answer.types,
            "rows": rows,
            "row_count": answer.row_count,
            "truncated": answer.truncated,
            "elapsed_ms": answer.elapsed_ms,
        }

    async def _reader(self, caller: Caller, database: str | None) -> AbstractAsyncContextManager[GuardedReader]:
        limits = self._config.limits
        options: dict[str, Any] = {
            "timeout_s": limits.query_timeout_s,
            "max_rows": limits.query_rows,
            "max_bytes": limits.query_bytes,
            "max_length": limits.query_value_bytes,
            "workers": limits.query_workers,
        }
        if database is not None:
            file = self._config.databases.get(database)
            if file is None:
                raise NotFound(
                    "no such database",
                    hint=f"known: {', '.join(sorted(self._config.databases)) or 'none'}; "
                    "the server is given one with --database NAME=PATH",
                )
            return self.readers.use(f"database:{database}", lambda: GuardedReader(file, **options))
        path = await self._records_path(caller.project_id)
        return self.readers.use(
            f"project:{caller.project_id}", lambda: GuardedReader(path, session_views=session_views(), **options)
        )

    async def _records_path(self, project_id: str) -> Path:
        if project_id not in self._paths:
            records = await self._store.project(project_id)
            self._paths[project_id] = await self._store.run(records.path)
        return self._paths[project_id]
