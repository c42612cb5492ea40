"""The `host` object: what code in a job calls back through.

    host.query("SELECT count(*) AS n FROM artifacts")      await host.aio.exec_wait("exec-0123456789ab")
    subprocess.run([sys.executable, host.sdk, "train.py"], env={**os.environ, **host.environment()})

Stands alone with its neighbours `sdk_wire.py` and `sdk_progress.py`: standard library only, Python 3.9 syntax, loaded
by path in whatever interpreter the job uses. Run as a program it gives the script named after it the same `host`.

Each method sends one positional parameter: the bare id for `lineage_get`, `exec_peek` and `exec_interrupt`, an object
otherwise. A result whose only key is `error` raises `RuntimeError`, a wire error raises `HostError`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sdk_progress import Progress, follow_tqdm
    from .sdk_wire import HostError, Pool
else:
    from importlib.util import module_from_spec, spec_from_file_location

    def _neighbour(name: str) -> Any:
        spec = spec_from_file_location(f"cellhost_{name}", f"{__file__.rpartition('/')[0]}/{name}.py")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    _wire, _progress = _neighbour("sdk_wire"), _neighbour("sdk_progress")
    HostError, Pool = _wire.HostError, _wire.Pool
    Progress, follow_tqdm = _progress.Progress, _progress.follow_tqdm

__all__ = ["Host", "HostError", "take_host"]

SOCKET, TOKEN, EXEC_ID = "CELLHOST_SOCKET", "CELLHOST_TOKEN", "CELLHOST_EXEC_ID"


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _same(result: Any) -> Any:
    return result


def _frame_or_table(result: Any) -> Any:
    try:
        pandas = __import__("pandas")
    except ImportError:
        return result
    return pandas.DataFrame(result["rows"], columns=result["columns"])


class _Calls:
    """Every method, once; `_run` decides whether it blocks or is awaited."""

    exec_id: str | None

    def _run(self, method: str, params: list[Any], read: Callable[[Any], Any] = _same) -> Any:
        raise NotImplementedError

    def query(
        self,
        sql: str,
        params: Sequence[Any] | Mapping[str, Any] = (),
        df: bool = False,
        *,
        limit: int | None = None,
        format: str | None = None,  # noqa: A002 - the contract's name
        database: str | None = None,
        explain: bool | None = None,
    ) -> Any:
        """Rows of a read-only SELECT as `[{column: value}]`; `df`: a DataFrame, or `{columns, rows}` without pandas."""
        bound = params if isinstance(params, Mapping) else list(params)
        given = _given(sql=sql, params=bound or None, df=df or None, limit=limit, format=format)
        given.update(_given(database=database, explain=explain))
        return self._run("query", [given], _frame_or_table if df else _same)

    def query_schema(self, database: str | None = None) -> Any:
        """`{table: [column, …]}` of the records, or of a named database."""
        return self._run("query_schema", [_given(database=database)])

    def frames(
        self,
        frame_id: str | None = None,
        pattern: str | None = None,
        *,
        project_id: str | None = None,
        status: str | None = None,
        roots_only: bool | None = None,
        page: int | None = None,
        page_size: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Any:
        """One frame with its cells, a search, or the newest frames."""
        given = _given(frame_id=frame_id, pattern=pattern, project_id=project_id, status=status)
        given.update(_given(roots_only=roots_only, page=page, page_size=page_size, limit=limit, cursor=cursor))
        return self._run("frames", [given])

    def lineage_get(self, version_id: str) -> Any:
        """What made a version: file name, checksum, code, inputs."""
        return self._run("lineage_get", [version_id])

    def lineage_graph(
        self, version_id: str, direction: str = "up", max_depth: int | None = None, max_nodes: int | None = None
    ) -> Any:
        """Everything a version came from (`up`) or led to (`down`)."""
        given = _given(version_id=version_id, direction=direction, max_depth=max_depth, max_nodes=max_nodes)
        return self._run("lineage_graph", [given])

    def exec_background(
        self,
        code: str,
        label: str | None = None,
        *,
        timeout_s: float | None = None,
        memory_mb: int | None = None,
        kernel: Any = None,
        env: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Any:
        """Start another job; `{exec_id, status}`."""
        given = _given(code=code, label=label, timeout_s=timeout_s, memory_mb=memory_mb)
        given.update(_given(kernel=kernel, env=env, key=key))
        return self._run("exec_background", [given])

    def exec_list(self, status: str | None = None, limit: int | None = None, cursor: str | None = None) -> Any:
        """The project's jobs, newest first."""
        return self._run("exec_list", [_given(status=status, limit=limit, cursor=cursor)])

    def exec_peek(
        self, exec_id: str, since: str | None = None, max_chars: int | None = None, stream: str | None = None
    ) -> Any:
        """A job's state and output so far."""
        more = _given(since=since, max_chars=max_chars, stream=stream)
        return self._run("exec_peek", [{"exec_id": exec_id, **more} if more else exec_id])

    def exec_wait(self, exec_id: str, timeout_s: float = 30, since: str | None = None, until: str | None = None) -> Any:
        """A job's state when it is done, or after `timeout_s` seconds; never the own job."""
        if exec_id == self.exec_id:
            raise HostError("a job cannot wait for itself", "params", "wait for another exec_id")
        return self._run("exec_wait", [_given(exec_id=exec_id, timeout_s=timeout_s, since=since, until=until)])

    def exec_interrupt(self, exec_id: str) -> Any:
        """Stop a job."""
        return self._run("exec_interrupt", [exec_id])

    def list_files(self, pattern: str | None = None, limit: int | None = None) -> Any:
        """Files of the workspace."""
        return self._run("list_files", [_given(pattern=pattern, limit=limit)])

    def read_file(
        self, path: Any, offset: int | None = None, limit: int | None = None, encoding: str | None = None
    ) -> Any:
        """A file of the workspace: `{path, content, …}`."""
        return self._run("read_file", [_given(path=path, offset=offset, limit=limit, encoding=encoding)])

    def write_file(
        self, path: Any, content: str, append: bool | None = None, expect_checksum: str | None = None
    ) -> Any:
        """Write a text file of the workspace."""
        given = _given(path=path, content=content, append=append, expect_checksum=expect_checksum)
        return self._run("write_file", [given])

    def edit_file(self, path: Any, old: str, new: str, replace_all: bool | None = None) -> Any:
        """Replace a passage of a text file."""
        return self._run("edit_file", [_given(path=path, old=old, new=new, replace_all=replace_all)])

    def save_artifact(
        self,
        path: Any,
        filename: str | None = None,
        *,
        content_type: str | None = None,
        input_version_ids: Sequence[str] | None = None,
        priority: int | None = None,
    ) -> Any:
        """Keep a file of the workspace as an immutable version with its lineage."""
        given = _given(path=path, filename=filename, content_type=content_type, priority=priority)
        given.update(_given(input_version_ids=input_version_ids))
        return self._run("save_artifact", [given])

    def artifacts(
        self,
        search: str | None = None,
        *,
        filename: str | None = None,
        content_type: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Any:
        """The saved artifacts: `{count, artifacts, next_cursor}`."""
        given = _given(search=search, filename=filename, content_type=content_type, limit=limit, cursor=cursor)
        return self._run("artifacts", [given])

    def artifact_path(self, version_id: str) -> Any:
        """Path of a read-only copy of a version; saving later records it as an input."""
        return self._run("artifact_path", [{"version_id": version_id}], _path)

    def kernel_info(self, packages: str | None = None) -> Any:
        """The interpreter and packages that jobs run with."""
        return self._run("kernel_info", [_given(packages=packages)])


def _path(result: Any) -> Any:
    return result if isinstance(result, str) else result["path"]


class _AsyncCalls(_Calls):
    """The same methods, awaitable, for asyncio."""

    def __init__(self, pool: Pool, progress: Progress) -> None:
        self._pool = pool
        self._progress = progress
        self.exec_id = None

    async def _run(self, method: str, params: list[Any], read: Callable[[Any], Any] = _same) -> Any:
        return read(await self._pool.call_async(method, params))

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the job is."""
        self._progress.reported = True
        await self._run("progress", [_given(done=done, total=total, message=message)])


class _Lineage:
    """`host.lineage[version_id].filename`"""

    def __init__(self, calls: _Calls) -> None:
        self._calls = calls

    def __getitem__(self, version_id: str) -> Any:
        return SimpleNamespace(**self._calls.lineage_get(version_id))


class Host(_Calls):
    """What a job may ask of the server; safe from threads and forked children, at most 8 calls at once.

    A refused call raises `HostError`; one that the permission gate stopped raises `RuntimeError`.
    """

    def __init__(self, path: str | None, token: str | None, exec_id: str | None = None) -> None:
        self._pool = Pool(path, token)
        self.HostError = HostError
        self.sdk = os.path.abspath(__file__)  # noqa: PTH100 - pathlib is not loaded here
        self._progress = Progress(self._pool)
        self.aio = _AsyncCalls(self._pool, self._progress)
        self.lineage = _Lineage(self)
        self._take_name(path, token, exec_id)

    def _take_name(self, path: str | None, token: str | None, exec_id: str | None) -> None:
        self._environment = _given(**{SOCKET: path, TOKEN: token, EXEC_ID: exec_id})
        self.exec_id = self.aio.exec_id = exec_id
        if path is not None:
            follow_tqdm(self._progress)

    def speak_for(self, path: str | None, token: str | None, exec_id: str | None) -> None:
        """Call in the name of another cell from now on, wherever this object has been put meanwhile."""
        self._progress.drop()
        self._pool.speak_for(path, token)
        self._take_name(path, token, exec_id)

    def __repr__(self) -> str:
        return f"<host of {self.exec_id or 'no job'}>"

    def _run(self, method: str, params: list[Any], read: Callable[[Any], Any] = _same) -> Any:
        return read(self._pool.call(method, params))

    def environment(self) -> dict[str, str]:
        """Variables that give a subprocess this job's access; run it as `[python, host.sdk, "script.py"]`."""
        return dict(self._environment)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the job is; calls closer than 50 ms are merged, the last one is always sent."""
        self._progress.report(_given(done=done, total=total, message=message))

    def flush_progress(self) -> None:
        """Send the last report if it still waits for its time; done for you at the end of a cell or script."""
        self._progress.flush()


def take_host() -> Host:
    """The host that the environment describes; the token leaves the environment, so that no child inherits it."""
    taken = [os.environ.pop(name, None) for name in (SOCKET, TOKEN, EXEC_ID)]
    return Host(*taken)


def run_script(arguments: list[str]) -> None:
    """Run `arguments[0]` as `__main__` with `host` in its builtins, as `python script.py …` would."""
    import atexit
    import builtins
    import runpy

    if not arguments:
        raise SystemExit("usage: python sdk.py SCRIPT [ARGUMENT]…")
    host = builtins.__dict__["host"] = take_host()
    atexit.register(host.flush_progress)
    sys.argv[:] = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))  # noqa: PTH100, PTH120 - as Python does
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    run_script(sys.argv[1:])
