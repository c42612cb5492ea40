"""Jobs beside stock jupyter_client and a bare interpreter, in one run, interleaved: medians, ratios, and the bounds.

python tests/bench/jobs.py [ROUNDS]
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec
from peer import Peer

from cellhost.tools.kernel.jobs import Jobs
from cellhost.tools.kernel.limits import JobLimits
from cellhost.tools.kernel.records import JobOwner, JobRecord
from cellhost.tools.kernel.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence

    from cellhost.tools.kernel.representation import Representation

OWNER = JobOwner("bench", "f-root", "f-turn")
# One clock for all processes of the machine: what is measured is when the code runs, not when somebody hears of it.
NOW = "import time; print(time.monotonic(), flush=True)"
LINES = 100_000
AT_ONCE = 16
JOBS = 100
QUIET_S = 5.0
PEEKS = 1000
KILLED = 8


class Row(msgspec.Struct, frozen=True):
    """A line of the table; `must` is the most that `ours` may be: `x` times stock, or so many milliseconds."""

    name: str
    ours: float
    stock: float | None = None
    bare: float | None = None
    unit: str = "ms"
    must: str = ""
    holds: bool | None = None


async def keep_nothing(record: JobRecord, filename: str, representation: Representation) -> str:
    """A store for outputs that costs nothing."""
    del record, representation
    return filename


class NoRecords:
    """A store that costs nothing: the engine alone is measured."""

    async def created(self, record: JobRecord) -> None:
        await anyio.lowlevel.checkpoint()

    async def updated(self, project_id: str, exec_id: str, fields: Mapping[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()

    async def find(self, project_id: str, exec_id: str) -> JobRecord | None:
        return None

    async def list(self, project_id: str, *, status: str | None, limit: int, cursor: str | None) -> Sequence[JobRecord]:
        return ()

    async def by_key(self, project_id: str, key: str) -> JobRecord | None:
        return None

    async def ran_in_session(self, project_id: str, root_frame_id: str, session: str) -> bool:
        return False


async def our_start(jobs: Jobs) -> float:
    """Seconds from the call until the code runs."""
    begun = time.monotonic()
    launched = await jobs.launch(NOW, owner=OWNER)
    answer = await jobs.wait(OWNER, launched["exec_id"])
    return float(answer["stdout"]) - begun


async def our_hit(jobs: Jobs) -> float:
    """The same, once the pool has a kernel ready."""
    await until_warm(jobs)
    await anyio.sleep(0.1)
    return await our_start(jobs)


async def our_news(jobs: Jobs) -> float:
    """Seconds from the call until the first line is in the caller's hands."""
    await until_warm(jobs)
    await anyio.sleep(0.1)
    begun = time.monotonic()
    launched = await jobs.launch("print('begun')", owner=OWNER)
    await until_it_prints(jobs, launched["exec_id"])
    took = time.monotonic() - begun
    await jobs.wait(OWNER, launched["exec_id"])
    return took


async def until_warm(jobs: Jobs) -> None:
    with anyio.fail_after(30):
        while not jobs.kernels.pool.ready:  # noqa: ASYNC110 - nobody else waits for the pool
            await anyio.sleep(0.01)


async def until_it_prints(jobs: Jobs, exec_id: str) -> str:
    answer = await jobs.wait(OWNER, exec_id, until="news", since="0")
    while not answer["stdout"]:
        answer = await jobs.wait(OWNER, exec_id, until="news", since="0")
    return str(answer["stdout"])


@asynccontextmanager
async def stock_kernel() -> AsyncGenerator[tuple[Any, Any]]:
    from jupyter_client.manager import start_new_async_kernel

    started: tuple[Any, Any] = await start_new_async_kernel(stderr=subprocess.DEVNULL)
    manager, client = started
    try:
        yield manager, client
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def stock_text(client: Any) -> str:
    while True:
        message: dict[str, Any] = await client.get_iopub_msg(timeout=30)
        if message["msg_type"] == "stream":
            return str(message["content"]["text"])


async def stock_start() -> float:
    begun = time.monotonic()
    async with stock_kernel() as (_, client):
        client.execute(NOW)
        return float(await stock_text(client)) - begun


async def bare_start() -> float:
    begun = time.monotonic()
    done = await anyio.run_process([sys.executable, "-c", NOW])
    return float(done.stdout) - begun


async def our_many(jobs: Jobs) -> float:
    begun = time.monotonic()
    launched = [await jobs.launch(f"{NOW}; time.sleep(60)", owner=OWNER) for _ in range(AT_ONCE)]
    last = max([float(await until_it_prints(jobs, job["exec_id"])) for job in launched])
    for job in launched:
        await jobs.interrupt(OWNER, job["exec_id"])
    for job in launched:
        await jobs.wait(OWNER, job["exec_id"])
    return last - begun


async def stock_many() -> float:
    begun = time.monotonic()
    took: list[float] = []

    async def start() -> None:
        async with stock_kernel() as (_, client):
            client.execute(NOW)
            took.append(float(await stock_text(client)) - begun)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(start)
    return max(took)


FLOOD = f"for n in range({LINES}): print(n, flush=True)"


async def our_lines(jobs: Jobs) -> float:
    begun = time.monotonic()
    launched = await jobs.launch(FLOOD, owner=OWNER)
    answer = await jobs.wait(OWNER, launched["exec_id"], timeout_s=120)
    assert answer["stdout"].count("\n") == LINES
    return time.monotonic() - begun


async def stock_lines() -> float:
    """Until the kernel is idle, or as it loses messages, says no more."""
    begun = last = time.monotonic()
    async with stock_kernel() as (_, client):
        asked = client.execute(FLOOD)
        while True:
            try:
                message: dict[str, Any] = await client.get_iopub_msg(timeout=QUIET_S)
            except Empty:
                return last - begun
            last = time.monotonic()
            idle = message["content"].get("execution_state") == "idle"
            if idle and message["parent_header"].get("msg_id") == asked:
                return last - begun


async def our_wake(jobs: Jobs) -> float:
    """From a line's writing to the answer of whoever waits for it; both ends read one clock."""
    code = "import time\nfor n in range(40):\n    print(time.monotonic_ns())\n    time.sleep(0.03 + n / 4_000)"
    exec_id = (await jobs.launch(code, owner=OWNER))["exec_id"]
    took: list[float] = []
    answer = await jobs.wait(OWNER, exec_id, since="0", until="news")
    while not answer["done"]:
        answer = await jobs.wait(OWNER, exec_id, since=answer["next"], until="news")
        took += [(time.monotonic_ns() - int(line)) / 1e9 for line in answer["stdout"].split()[-1:]]
    return statistics.median(took)


async def bare_lines() -> float:
    begun = time.monotonic()
    with tempfile.TemporaryFile() as log:
        await anyio.run_process([sys.executable, "-c", FLOOD], stdout=log, stderr=subprocess.DEVNULL)
    return time.monotonic() - begun


def interrupted(code: str) -> Callable[[Jobs], Awaitable[float]]:
    async def measure(jobs: Jobs) -> float:
        launched = await jobs.launch(f"print('begun')\n{code}", owner=OWNER)
        exec_id = launched["exec_id"]
        await until_it_prints(jobs, exec_id)
        await anyio.sleep(0.05)
        begun = time.monotonic()
        await jobs.interrupt(OWNER, exec_id)
        answer = await jobs.wait(OWNER, exec_id)
        assert answer["status"] == "interrupted"
        return time.monotonic() - begun

    return measure


def proportional(pid: int) -> float:
    """Proportional set size, MiB."""
    rollup = Path("/proc", str(pid), "smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


def parent(pid: int) -> int:
    """The shim of a kernel of ours."""
    return int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])


async def resident(jobs: Jobs) -> tuple[float, float]:
    """An idle kernel of ours with its shim and a stock one, at the same time: what they share counts for both alike."""
    launched = await jobs.launch("import os, time; print(os.getpid()); time.sleep(60)", owner=OWNER)
    ours = int(await until_it_prints(jobs, launched["exec_id"]))
    async with stock_kernel() as (_, client):
        client.execute("import os; print(os.getpid())")
        stock = int(await stock_text(client))
        found = proportional(ours) + proportional(parent(ours)), proportional(stock)
    await jobs.interrupt(OWNER, launched["exec_id"])
    await jobs.wait(OWNER, launched["exec_id"])
    return found


async def descriptors(jobs: Jobs) -> tuple[int, int]:
    """How many the process has before and after so many jobs, the pool being ready both times."""

    async def count() -> int:
        await until_warm(jobs)
        await anyio.sleep(0.5)  # the last kernel is put away after its job's end
        return len(list(Path("/proc/self/fd").iterdir()))

    before = await count()
    for _ in range(JOBS):
        launched = await jobs.launch("pass", owner=OWNER)
        await jobs.wait(OWNER, launched["exec_id"])
    return before, await count()


async def listing(jobs: Jobs) -> float:
    begun = time.monotonic()
    for _ in range(1000):
        await jobs.list(OWNER)
    return (time.monotonic() - begun) / 1000


@contextmanager
def server(root: Path, name: str) -> Generator[Peer]:
    """A whole server, over its pipes."""
    folders = ["--data-dir", str(root / name), "--workspace", str(root / f"{name}-work")]
    (root / f"{name}-work").mkdir()
    peer = Peer([sys.executable, "-P", "-m", "cellhost", "serve", *folders, "--allow", "exec_background"])
    try:
        yield peer
    finally:
        peer.close()


def started(peer: Peer, code: str) -> str:
    return str(peer.ask("exec_background", [code])["result"]["exec_id"])


# A round trip of an answer's size to another process that does nothing else: what waking each other costs here.
ECHO = """
import socket, subprocess, sys, time
ours, theirs = socket.socketpair()
program = "import socket, sys\\ns = socket.socket(fileno=int(sys.argv[1]))\\nwhile d := s.recv(65536): s.sendall(d)"
other = subprocess.Popen([sys.executable, "-c", program, str(theirs.fileno())], pass_fds=[theirs.fileno()])
theirs.close()
def echo():
    ours.sendall(b"x" * 400)
    ours.recv(65536)
def took(call):
    begun = time.perf_counter()
    for _ in range(TIMES): call()
    return (time.perf_counter() - begun) / TIMES * 1e6
"""


def peeks(root: Path, rounds: int) -> tuple[float, float]:
    """Microseconds of a job's `host.exec_peek` of a finished job and of a bare round trip, medians of `rounds`."""
    with server(root, "peeks") as peer:
        finished = started(peer, "print('x')")
        peer.ask("exec_wait", [finished])
        loop = f"for _ in range({rounds}): print(took(lambda: host.exec_peek({finished!r})), took(echo))"
        job = started(peer, f"TIMES = {PEEKS}\n{ECHO}\n{loop}")
        printed = peer.ask("exec_wait", [job, 60])["result"]["stdout"]
    pairs = [tuple(map(float, line.split())) for line in printed.splitlines()]
    return statistics.median(peek for peek, _ in pairs), statistics.median(echo for _, echo in pairs)


def killed(root: Path) -> float:
    """Milliseconds from a server's SIGKILL until its kernels, and a child of each, are gone."""
    with server(root, "killed") as peer:
        code = (
            "import os, subprocess\n"
            "print(os.getpid(), subprocess.Popen(['sleep', '600'], start_new_session=True).pid)\n"
            "import time; time.sleep(600)"
        )
        below: list[int] = []
        for exec_id in [started(peer, code) for _ in range(KILLED)]:
            printed = ""
            while not printed:
                printed = peer.ask("exec_wait", {"exec_id": exec_id, "until": "news", "since": "0"})["result"]["stdout"]
            below += map(int, printed.split())
        os.kill(peer.pid, signal.SIGKILL)
        begun = time.monotonic()
        while any(Path("/proc", str(pid)).exists() for pid in below):
            time.sleep(0.0005)
        return 1000 * (time.monotonic() - begun)


async def interleaved(rounds: int, **cases: Callable[[], Awaitable[float]]) -> dict[str, float]:
    """Median milliseconds of each case, run in turn so that noise meets all alike."""
    took: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            took[name].append(1000 * await case())
    return {name: statistics.median(values) for name, values in took.items()}


def beside(name: str, ours: float, stock: float, share: float, words: str, *, bare: float | None = None) -> Row:
    return Row(name, ours, stock, bare, must=f"<= stock {words}", holds=ours <= stock * share)


async def rows(root: Path, cold: Jobs, warm: Jobs, rounds: int) -> AsyncGenerator[Row]:
    yield Row("the very first job of a server", 1000 * await our_start(cold))
    start = await interleaved(
        rounds,
        bare=bare_start,
        stock=stock_start,
        cold=lambda: our_start(cold),
        hit=lambda: our_hit(warm),
        news=lambda: our_news(warm),
    )
    stock, bare = start["stock"], start["bare"]
    yield beside("call -> code runs, pool hit", start["hit"], stock, 1 / 20, "/ 20", bare=bare)
    yield beside("call -> code runs, cold", start["cold"], stock, 1 / 2, "/ 2", bare=bare)
    yield Row("call -> first line read, pool hit", start["news"], stock)
    few = max(1, rounds // 2)
    many = await interleaved(few, stock=stock_many, ours=lambda: our_many(cold))
    yield beside(f"{AT_ONCE} at once, cold, all started", many["ours"], many["stock"], 0.75, "x 0.75")
    ours, theirs = await resident(cold)
    yield Row("idle kernel, PSS", ours, theirs, unit="MiB", must="<= stock x 0.85", holds=ours <= theirs * 0.85)
    lines = await interleaved(1, stock=stock_lines, bare=bare_lines, ours=lambda: our_lines(cold))
    yield beside(f"{LINES} flushed lines", lines["ours"], lines["stock"], 1 / 10, "/ 10", bare=lines["bare"])
    for what, code, most in (
        ("sleep", "import time; time.sleep(60)", 60),
        ("loop", "while True: pass", 200),
        ("await", "import asyncio; await asyncio.sleep(60)", 200),
    ):
        took = (await interleaved(few, ours=partial(interrupted(code), cold)))["ours"]
        yield Row(f"interrupt, {what}", took, must=f"<= {most} ms", holds=took <= most)
    wake = 1000 * await our_wake(cold)
    yield Row("exec_wait wakes after news", wake, must="<= 20 ms", holds=wake <= 20)
    peek, echo = peeks(root, 2 * rounds)
    yield Row("host.exec_peek (bare: a round trip)", peek, bare=echo, unit="us", must="<= 200 us", holds=peek <= 200)
    gone = killed(root)
    yield Row(f"server with {KILLED} jobs killed, all gone", gone, must="<= 500 ms", holds=gone <= 500)
    before, after = await descriptors(warm)
    yield Row(f"descriptors after {JOBS} jobs", after, unit="", must=f"<= {before}, as before", holds=after <= before)
    yield Row("exec_list", 1000 * await listing(cold))


def line_of(row: Row) -> str:
    def cell(value: float | None) -> str:
        return f"{value:9.1f}" if value is not None else " " * 9

    ratio = f"{row.ours / row.stock:6.3f}" if row.stock else " " * 6
    verdict = {None: "", True: "holds", False: "MISSED"}[row.holds]
    cells = f"{cell(row.bare)} {cell(row.stock)} {cell(row.ours)} {row.unit:3} {ratio}"
    return f"{row.name:36} {cells}   {row.must:18} {verdict}".rstrip()


@asynccontextmanager
async def engine(root: Path, name: str, warm_kernels: int) -> AsyncGenerator[Jobs]:
    run_dir = root / name
    run_dir.mkdir()
    async with Jobs(
        workspace=root / "w",
        run_dir=run_dir,
        log_dir=lambda project: root / "data" / project,
        records=NoRecords(),
        tokens=Tokens(),
        door=lambda: None,
        limits=JobLimits(warm_kernels=warm_kernels),
        keep_output=keep_nothing,
    ) as jobs:
        yield jobs


async def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    root = Path(tempfile.mkdtemp(prefix="ch-"))
    print(f"{'':36} {'python -c':>9} {'stock':>9} {'ours':>9}     ours / stock   must")
    try:
        async with engine(root, "c", 0) as cold, engine(root, "p", 1) as warm:
            await warm.kernels.prewarm()
            async for row in rows(root, cold, warm, rounds):
                print(line_of(row), flush=True)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    anyio.run(main)
