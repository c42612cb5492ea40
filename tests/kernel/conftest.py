"""An engine on real kernels, its records in memory, and a small server for the `host` object."""

import json
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec
import pytest

from cellhost.tools.kernel.jobs import Jobs
from cellhost.tools.kernel.limits import JobLimits
from cellhost.tools.kernel.records import JobOwner, JobRecord
from cellhost.tools.kernel.representation import Representation
from cellhost.tools.kernel.tokens import Tokens

from ..processes import is_running

OWNER = JobOwner("default", "f-root", "f-turn")
PATIENCE_S = 60


class MemoryRecords:
    """`JobRecords` as several servers would share them."""

    def __init__(self) -> None:
        self.rows: dict[str, JobRecord] = {}
        self.changes: list[tuple[str, dict[str, Any]]] = []
        self.failure: Exception | None = None
        self.kept: list[tuple[str, Representation]] = []
        self.keeping_fails: Exception | None = None
        self.keeping = anyio.Event()
        self.keeping.set()

    async def created(self, record: JobRecord) -> None:
        if self.failure is not None:
            raise self.failure
        await anyio.lowlevel.checkpoint()
        self.rows[record.exec_id] = record

    async def updated(self, project_id: str, exec_id: str, fields: Mapping[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        assert self.rows[exec_id].project_id == project_id
        self.changes.append((exec_id, dict(fields)))
        columns = {name: value for name, value in fields.items() if not name.endswith("_tail")}
        self.rows[exec_id] = msgspec.structs.replace(self.rows[exec_id], **columns)

    async def keep(self, record: JobRecord, filename: str, representation: Representation) -> str:
        if self.keeping_fails is not None:
            raise self.keeping_fails
        await self.keeping.wait()
        self.kept.append((f"{record.exec_id}-{filename}", representation))
        return f"v-{len(self.kept)}"

    async def find(self, project_id: str, exec_id: str) -> JobRecord | None:
        row = self.rows.get(exec_id)
        return row if row is not None and row.project_id == project_id else None

    async def list(self, project_id: str, *, status: str | None, limit: int, cursor: str | None) -> Sequence[JobRecord]:
        rows = [row for row in reversed(self.rows.values()) if row.project_id == project_id]
        if cursor is not None:
            rows = rows[[row.exec_id for row in rows].index(cursor) + 1 :]
        return [row for row in rows if status in {None, row.status}][:limit]

    async def by_key(self, project_id: str, key: str) -> JobRecord | None:
        return next((row for row in self.rows.values() if (row.project_id, row.key) == (project_id, key)), None)

    async def ran_in_session(self, project_id: str, root_frame_id: str, session: str) -> bool:
        await anyio.lowlevel.checkpoint()
        wanted = (project_id, root_frame_id, session)
        rows = [row for row in self.rows.values() if row.started_at is not None]
        return wanted in {(row.project_id, row.root_frame_id, row.session) for row in rows}


class Engine:
    """The jobs of one test, with what it needs to look behind them."""

    def __init__(self, jobs: Jobs, run_dir: Path, workspace: Path, records: MemoryRecords, tokens: Tokens) -> None:
        self.jobs = jobs
        self.run_dir = run_dir
        self.workspace = workspace
        self.records = records
        self.tokens = tokens
        self.owner = OWNER

    async def launch(self, code: str, **given: Any) -> str:
        launched = await self.jobs.launch(code, owner=OWNER, **given)
        return str(launched["exec_id"])

    async def run(self, code: str, **given: Any) -> dict[str, Any]:
        return await self.finish(await self.launch(code, **given))

    async def enter(self, code: str, session: str = "default", **given: Any) -> str:
        """Have a cell run in a session's kernel; its id."""
        entered = await self.jobs.execute(code, owner=OWNER, session=session, **given)
        return str(entered["exec_id"])

    async def cell(self, code: str, session: str = "default", **given: Any) -> dict[str, Any]:
        return await self.finish(await self.enter(code, session, **given))

    async def finish(self, exec_id: str) -> dict[str, Any]:
        answer = await self.jobs.wait(OWNER, exec_id, timeout_s=PATIENCE_S)
        assert answer["done"], answer
        return answer

    async def until(self, exec_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        since = "0"
        with anyio.fail_after(PATIENCE_S):
            while not condition(answer := await self.jobs.peek(OWNER, exec_id)):
                assert not answer["done"], answer
                since = (await self.jobs.wait(OWNER, exec_id, timeout_s=1, since=since, until="news"))["next"]
        return answer

    async def until_printed(self, exec_id: str, text: str) -> dict[str, Any]:
        return await self.until(exec_id, lambda answer: text in answer["stdout"])

    async def until_idle(self) -> None:
        """Until every kernel's folder is gone: the teardown comes after the answer."""
        await self.until_kernels(0)

    async def until_kernels(self, count: int) -> None:
        """Until so many kernels' folders are there."""
        with anyio.fail_after(PATIENCE_S):
            while sum(path.name.startswith("k") for path in self.run_dir.iterdir()) != count:  # noqa: ASYNC110
                await anyio.sleep(0.005)

    async def interrupt(self, exec_id: str) -> dict[str, Any]:
        return await self.jobs.interrupt(OWNER, exec_id)


class Bench:
    """Makes engines; those of one bench share records and logs, as servers of one data folder do."""

    def __init__(self, root: Path, workspace: Path, warm_kernels: int = 0) -> None:
        self.root = root
        self.warm_kernels = warm_kernels
        self.workspace = workspace
        self.records = MemoryRecords()
        self._count = 0

    def log_dir(self, project_id: str) -> Path:
        return self.root / "data" / project_id / "jobs"

    @asynccontextmanager
    async def engine(self, **given: Any) -> AsyncGenerator[Engine]:
        self._count += 1
        run_dir = self.root / f"r{self._count}"
        run_dir.mkdir()
        tokens = Tokens()
        limits = JobLimits(warm_kernels=self.warm_kernels)
        settings: dict[str, Any] = {"limits": limits, "door": lambda: None, **given}
        jobs = Jobs(
            workspace=self.workspace,
            run_dir=run_dir,
            log_dir=self.log_dir,
            records=self.records,
            tokens=tokens,
            keep_output=self.records.keep,
            **settings,
        )
        async with jobs:
            yield Engine(jobs, run_dir, self.workspace, self.records, tokens)


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    # Not under tmp_path: a socket's path must stay under 100 bytes.
    root = Path(tempfile.mkdtemp(prefix="ch-"))
    warm_kernels: Any = request.config.getoption("--warm-kernels")
    yield Bench(root, tmp_path / "workspace", warm_kernels)
    shutil.rmtree(root)


@pytest.fixture
async def engine(bench: Bench) -> AsyncIterator[Engine]:
    async with bench.engine() as engine:
        yield engine


class WireError(Exception):
    """Has the door answer with an error."""


class Door:
    """The server's side of the host socket: attaches by token and answers with `respond`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens: Tokens | None = None
        self.requests: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {}  # else a call is answered with what it asked
        self.hold = anyio.Event()
        self.open_connections = 0
        self.changed = anyio.Event()

    def _note(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        listener = await anyio.create_unix_listener(self.path, mode=0o600)
        async with listener:
            task_status.started()
            await listener.serve(self._talk)

    async def _talk(self, stream: anyio.abc.SocketStream) -> None:
        self.open_connections += 1
        attached, buffered = False, b""
        try:
            async with stream:
                while True:
                    buffered += await stream.receive(1 << 20)
                    while b"\n" in buffered:
                        line, _, buffered = buffered.partition(b"\n")
                        attached, reply = await self._answer(json.loads(line), attached)
                        await stream.send(json.dumps(reply).encode() + b"\n")
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
        finally:
            self.open_connections -= 1
            self._note()

    async def _answer(self, request: dict[str, Any], attached: bool) -> tuple[bool, dict[str, Any]]:
        if not attached:
            assert self.tokens is not None
            assert request["method"] == "attach"
            if self.tokens.identify(request["params"][0]["token"]) is None:
                error = {"code": -31403, "message": "unknown token", "data": {"kind": "denied", "hint": "ask for one"}}
                return False, {"jsonrpc": "2.0", "id": request["id"], "error": error}
            return True, {"jsonrpc": "2.0", "id": request["id"], "result": True}
        self.requests.append(request)
        self._note()
        if request["method"] == "exec_wait":
            await self.hold.wait()
        echo = {"method": request["method"], "params": request["params"]}
        kind, value = "result", self.answers.get(request["method"], echo)
        if isinstance(value, WireError):
            kind, value = "error", value.args[0]
        return True, {"jsonrpc": "2.0", "id": request["id"], kind: value}

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE_S):
            while not condition():
                await self.changed.wait()


@pytest.fixture
async def door(bench: Bench) -> AsyncIterator[Door]:
    door = Door(bench.root / "host.sock")
    async with anyio.create_task_group() as tasks:
        await tasks.start(door.serve)
        yield door
        tasks.cancel_scope.cancel()


@pytest.fixture
async def hosted(bench: Bench, door: Door) -> AsyncIterator[Engine]:
    """An engine whose jobs have a `host`."""
    async with bench.engine(door=lambda: door.path) as engine:
        door.tokens = engine.tokens
        yield engine


@pytest.fixture
def gone() -> Callable[[int], Any]:
    """Wait until a process is gone."""

    async def wait(pid: int) -> None:
        with anyio.fail_after(10):
            while is_running(pid):  # noqa: ASYNC110 - a grandchild gives no descriptor to wait on
                await anyio.sleep(0.005)

    return wait
