"""Read-only SQL on one SQLite file, whatever the statement: it changes nothing, sees nothing else, and ends.

    async with GuardedReader("sales.db", timeout_s=1.0) as reader:
        table = await reader.query("select id, body from notes where id = ?", [2])

What may not be read must not be in the file: the file is the boundary. Statements run in worker processes that can
be killed (`guard_worker.py`), under the policy of `guard_policy.py`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from . import guard_hints, guard_schema
from .errors import HostError, InvalidParams, Issue, QueryError, TooLarge
from .guard_faults import error_of
from .guard_gate import check_verb, plan_of
from .guard_params import check_sql, encode_params
from .guard_policy import MAX_COLUMNS, Policy
from .guard_pool import WorkerPool
from .guard_results import Encoded, Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from .guard_params import Params
    from .guard_process import Head
    from .guard_results import TableShape

MAX_REQUEST_BYTES = 16 << 20
_OWN_ROWS, _OWN_BYTES = 100_000, 16 << 20  # for our own look at the catalogue
_HINT_S = 0.2
QUICK_MS = 2.0
QUICK_STATEMENTS, QUICK_CHARS = 256, 2000  # remembered

_encode = msgspec.json.Encoder().encode
_decode_rows = msgspec.json.Decoder(list[list[Any]]).decode


class GuardedReader:
    """Queries on the file at `path` by at most `workers` processes, in order of arrival.

    `timeout_s` is a query's own time; it is over within half a second more. `max_rows` and `max_bytes` bound a
    result, `max_length` one value in bytes. `session_views` maps a name to the SELECT of a temporary view, in which
    `caller_session()` is the `session` of the running query. Calls raise `Closed` outside `async with`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout_s: float = 1.0,
        max_rows: int = 1000,
        max_bytes: int = 1_000_000,
        max_length: int = 1_000_000,
        workers: int = 2,
        session_views: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        location = os.path.abspath(path)  # noqa: PTH100  links stay: a file may be swapped behind one
        if "\0" in location:
            raise InvalidParams("the path has a NUL character", [Issue("$.path", "has a NUL character")])
        self._name = os.path.basename(location)  # noqa: PTH119  no other use of a Path here
        self._timeout_s, self._max_rows, self._max_bytes = timeout_s, max_rows, max_bytes
        config = {
            "path": os.fsencode(location).decode("latin-1"),
            "parent": os.getpid(),
            "timeout_s": timeout_s,
            "max_length": max_length,
            "views": dict(session_views or {}),
            "policy": Policy(),
        }
        self._pool = WorkerPool(python, _encode(config), workers)
        self._quick: set[str] = set()

    async def __aenter__(self) -> Self:
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.__aexit__(kind, error, trace)

    @property
    def engine(self) -> str:
        """The workers' SQLite version, empty until one has started."""
        return self._pool.engine

    @property
    def pids(self) -> list[int]:
        """The worker processes' ids."""
        return self._pool.pids

    def prewarm(self) -> None:
        """Start a worker in the background, so that the first query does not wait for one."""
        self._pool.prewarm()

    async def query(
        self,
        sql: str,
        params: Params | None = None,
        *,
        limit: int | None = None,
        session: str | None = None,
        explain: bool = False,
        cut: bool = False,
        timeout_s: float | None = None,
        max_bytes: int | None = None,
    ) -> Table:
        """Run one statement that reads; rows over `limit`, or over the cap without one, set `truncated`.

        Raises as `fetch` does.
        """
        result = await self.fetch(
            sql,
            params,
            limit=limit,
            session=session,
            explain=explain,
            cut=cut,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
        )
        return Table(
            columns=result.columns,
            types=result.types,
            rows=_decode_rows(result.body),
            row_count=result.row_count,
            truncated=result.truncated,
            elapsed_ms=result.elapsed_ms,
        )

    async def fetch(
        self,
        sql: str,
        params: Params | None = None,
        *,
        form: Literal["table", "records"] = "table",
        limit: int | None = None,
        session: str | None = None,
        explain: bool = False,
        cut: bool = False,
        timeout_s: float | None = None,
        max_bytes: int | None = None,
    ) -> Encoded:
        """As `query`, with the rows as the JSON bytes the worker made.

        `form="records"` gives objects (repeated names become `a`, `a_2`), and without `limit` more rows than the cap
        are an error. `explain` answers with the query plan. `cut` gives the rows that fit instead of `TooLarge`.
        Raises `NotReadOnly`, `Denied`, `QueryError`, `TimedOut`, `TooLarge`, `InvalidParams`, `StorageError`.
        """
        text = check_sql(sql)
        verb = check_verb(text)
        request = {
            "sql": plan_of(text, verb) if explain else text,
            "params": encode_params(params),
            "session": session,
            "form": form,
            "rows": self._rows(limit),
            "whole": form == "records" and limit is None,
            "bytes": self._max_bytes if max_bytes is None else max_bytes,
            "cut": cut,
        }
        head, body = await self._run(request, timeout_s)
        if head.name is None:
            return _encoded(head, body)
        error = error_of(head, self._name, self._timeout_s if timeout_s is None else timeout_s)
        if isinstance(error, QueryError) and head.name == "SQLITE_ERROR":
            fixed = guard_hints.dialect_hint(verb) or guard_hints.function_hint(error.message)
            error.hint = fixed or await self._name_hint(text, error.message)
        raise error

    async def schema(self) -> dict[str, TableShape]:
        """Tables, views and virtual tables with their columns, keys and row estimates, by name.

        Raises `TimedOut`, `TooLarge`, `StorageError`.
        """
        return await guard_schema.read_schema(self._own_query)

    def _rows(self, limit: int | None) -> int:
        if limit is None:
            return self._max_rows
        if type(limit) is not int or not 1 <= limit <= self._max_rows:
            raise InvalidParams("limit is out of range", [Issue("$.limit", f"an integer from 1 to {self._max_rows}")])
        return limit

    async def _run(self, request: dict[str, Any], timeout_s: float | None) -> tuple[Head, bytes]:
        timeout = self._timeout_s if timeout_s is None else timeout_s
        request["timeout_s"], request["columns"] = timeout, MAX_COLUMNS
        encoded = _encode(request)
        if len(encoded) > MAX_REQUEST_BYTES:
            raise TooLarge(f"the call is larger than {MAX_REQUEST_BYTES} bytes", hint="send fewer or shorter params")
        sql: str = request["sql"]
        answer = await self._pool.ask(encoded, timeout, quick=sql in self._quick)
        self._note(sql, answer[0].elapsed_ms)
        return answer

    def _note(self, sql: str, elapsed_ms: float) -> None:
        """Remember whether a statement was quick, for the next time."""
        if elapsed_ms > QUICK_MS:
            self._quick.discard(sql)
        elif sql not in self._quick and len(sql) <= QUICK_CHARS:
            if len(self._quick) >= QUICK_STATEMENTS:
                self._quick.clear()
            self._quick.add(sql)

    async def _own_query(self, sql: str, params: list[Any], timeout_s: float | None = None) -> list[list[Any]]:
        """A query of ours on the catalogue, through the same guard."""
        request: dict[str, Any] = {"sql": sql, "params": params, "session": None, "form": "table", "cut": False}
        request |= {"rows": _OWN_ROWS, "bytes": _OWN_BYTES, "whole": True}
        head, body = await self._run(request, timeout_s)
        if head.name is not None:
            raise error_of(head, self._name, self._timeout_s)
        return _decode_rows(body)

    async def _name_hint(self, sql: str, message: str) -> str | None:
        missing = guard_hints.missing_name(message)
        if missing is None:
            return None

        async def run(sql: str, params: list[Any]) -> list[list[Any]]:
            return await self._own_query(sql, params, _HINT_S)

        kind, name = missing
        try:
            schemas = await guard_schema.table_names(run)
            if kind == "table":
                return guard_hints.nearest_table(name, list(schemas))
            columns = {
                table: [column.name for column in await guard_schema.columns_of(run, schemas[table], table)]
                for table in guard_hints.mentioned(sql, list(schemas))
            }
            return guard_hints.nearest_column(name, columns)
        except HostError:
            return None  # the error itself must not wait for a hint


def _encoded(head: Head, body: bytes) -> Encoded:
    return Encoded(
        columns=head.columns,
        types=head.types,
        body=body,
        row_count=head.row_count,
        truncated=head.truncated,
        elapsed_ms=head.elapsed_ms,
    )
