"""Running guarded SQL for the `query` tools: which file, under which limits, in which form."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import anyio
import msgspec

from ..store.errors import InvalidParams, Issue, NotFound, TooLarge
from ..store.guard import GuardedReader
from ..store.tables import query_schema, session_views
from .budget import page_within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from .call import Call, Caller
    from .config import Config
    from .data import QueryParams
    from .keeper import Keeper
    from .store_thread import StoreThread

BUDGET_SHARE = 0.8
"""What of a door's budget the rows may take; the rest is for columns, types and counts."""


class Queries:
    """Guarded readers on the caller's own project and on the user's databases."""

    def __init__(self, store: StoreThread, config: Config, keeper: Keeper) -> None:
        self._store = store
        self._config = config
        self._keeper = keeper
        self._readers: dict[str, GuardedReader] = {}
        self._opening = anyio.Lock()

    async def schema(self, caller: Caller, database: str | None) -> dict[str, Any]:
        """`{table: [column]}` of the records, or the detailed form of a user database."""
        if database is None:
            return query_schema()
        async with self._reader(caller, database) as reader:
            tables: dict[str, Any] = msgspec.to_builtins(await reader.schema())
            return tables

    async def run(self, params: QueryParams, call: Call) -> Any:
        """Run one statement and answer in the form asked for; over a door with a budget always as a cut table."""
        if params.df and params.format is not None:
            raise InvalidParams(
                "df and format exclude each other", [Issue("$.df", "leave it out when format is given")]
            )
        if call.budget is None:
            form = "table" if params.df else params.format or "records"
            return await self._fetch(params, call, form)

        async def table(max_bytes: int) -> Any:
            return await self._fetch(params, call, "table", cut=True, max_bytes=max_bytes)

        return await page_within(call, int(call.budget * BUDGET_SHARE), table)

    async def _fetch(self, params: QueryParams, call: Call, form: Literal["table", "records"], **options: Any) -> Any:
        options |= {"limit": params.limit, "explain": bool(params.explain)}
        if params.database is None:
            options["session"] = call.caller.root_frame_id
        async with self._reader(call.caller, params.database) as reader:
            answer = await reader.fetch(params.sql, params.params, form=form, **options)
        if answer.truncated and not answer.row_count:
            raise TooLarge(
                "the first row is too long for an answer", hint="choose fewer columns, or parts of texts with substr()"
            )
        rows: Any = msgspec.Raw(answer.body) if call.encoded else msgspec.json.decode(answer.body)
        if form == "records":
            return rows
        if params.df and call.budget is None:
            return {"columns": answer.columns, "rows": rows}
        return {
            "columns": answer.columns,
            "types": answer.types,
            "rows": rows,
            "row_count": answer.row_count,
            "truncated": answer.truncated,
            "elapsed_ms": answer.elapsed_ms,
        }

    def _reader(self, caller: Caller, database: str | None) -> AbstractAsyncContextManager[GuardedReader]:
        """The reader of a file: kept while the host is open, else for this one use."""
        key = f"project:{caller.project_id}" if database is None else f"database:{database}"
        kept = self._readers.get(key)
        return self._opened(key, caller, database) if kept is None else nullcontext(kept)

    @asynccontextmanager
    async def _opened(self, key: str, caller: Caller, database: str | None) -> AsyncGenerator[GuardedReader]:
        if not self._keeper.serving:
            async with await self._made(caller, database) as reader:
                yield reader
        else:
            async with self._opening:
                if key not in self._readers:
                    self._readers[key] = await self._keeper.enter(await self._made(caller, database))
            yield self._readers[key]

    async def _made(self, caller: Caller, database: str | None) -> GuardedReader:
        limits = self._config.limits
        options: dict[str, Any] = {
            "timeout_s": limits.query_timeout_s,
            "max_rows": limits.query_rows,
            "max_bytes": limits.query_bytes,
            "max_length": limits.query_value_bytes,
            "workers": limits.query_workers,
        }
        if database is not None:
            return GuardedReader(self._database_path(database), **options)
        return GuardedReader(await self._records_path(caller.project_id), session_views=session_views(), **options)

    def _database_path(self, database: str) -> Path:
        path = self._config.databases.get(database)
        if path is None:
            known = ", ".join(sorted(self._config.databases)) or "none"
            raise NotFound(
                "no such database", hint=f"known: {known}; the server is given one with --database NAME=PATH"
            )
        return path

    async def _records_path(self, project_id: str) -> Path:
        records = await self._store.project(project_id)
        return await self._store.run(records.path)
