"""Jobs beside stock jupyter_client and a bare interpreter, in one run, interleaved, medians and ratios.

python tests/bench/jobs.py [ROUNDS]
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from cellhost.tools.kernel.jobs import Jobs
from cellhost.tools.kernel.records import JobOwner, JobRecord
from cellhost.tools.kernel.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from cellhost.tools.kernel.representation import Representation

OWNER = JobOwner("bench", "f-root", "f-turn")
FIRST_LINE = "print('begun')"
LINES = 100_000
AT_ONCE = 16


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


async def our_first_line(jobs: Jobs) -> float:
    begun = time.perf_counter()
    launched = await jobs.launch(FIRST_LINE, owner=OWNER)
    await until_it_prints(jobs, launched["exec_id"])
    took = time.perf_counter() - begun
    await jobs.wait(OWNER, launched["exec_id"])
    return took


async def until_it_prints(jobs: Jobs, exec_id: str) -> str:
    answer = await jobs.wait(OWNER, exec_id, until="news", since="0")
    while not answer["stdout"]:
        answer = await jobs.wait(OWNER, exec_id, until="news", since="0")
    return str(answer["stdout"])


async def stock_first_line() -> float:
    from jupyter_client.manager import start_new_async_kernel

    begun = time.perf_counter()
    started: tuple[Any, Any] = await start_new_async_kernel(stderr=subprocess.DEVNULL)
    manager, client = started
    client.execute(FIRST_LINE)
    while True:
        message: dict[str, Any] = await client.get_iopub_msg(timeout=30)
        if message["msg_type"] == "stream":
            break
    took = time.perf_counter() - begun
    client.stop_channels()
    await manager.shutdown_kernel(now=True)
    return took


async def bare_first_line() -> float:
    begun = time.perf_counter()
    await anyio.run_process([sys.executable, "-c", FIRST_LINE])
    return time.perf_counter() - begun


async def our_many(jobs: Jobs) -> float:
    begun = time.perf_counter()
    launched = [await jobs.launch("print('begun')\nimport time; time.sleep(60)", owner=OWNER) for _ in range(AT_ONCE)]
    for job in launched:
        await until_it_prints(jobs, job["exec_id"])
    took = time.perf_counter() - begun
    for job in launched:
        await jobs.interrupt(OWNER, job["exec_id"])
    for job in launched:
        await jobs.wait(OWNER, job["exec_id"])
    return took


async def stock_many() -> float:
    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(stock_first_line)
    return time.perf_counter() - begun


async def our_lines(jobs: Jobs) -> float:
    begun = time.perf_counter()
    launched = await jobs.launch(f"for n in range({LINES}): print(n, flush=True)", owner=OWNER)
    answer = await jobs.wait(OWNER, launched["exec_id"], timeout_s=120)
    assert answer["stdout"].count("\n") == LINES
    return time.perf_counter() - begun


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
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        code = f"for n in range({LINES}): print(n, flush=True)"
        await anyio.run_process([sys.executable, "-c", code], stdout=log, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def interrupted(code: str) -> Callable[[Jobs], Awaitable[float]]:
    async def measure(jobs: Jobs) -> float:
        launched = await jobs.launch(f"print('begun')\n{code}", owner=OWNER)
        exec_id = launched["exec_id"]
        await until_it_prints(jobs, exec_id)
        await anyio.sleep(0.05)
        begun = time.perf_counter()
        await jobs.interrupt(OWNER, exec_id)
        answer = await jobs.wait(OWNER, exec_id)
        assert answer["status"] == "interrupted"
        return time.perf_counter() - begun

    return measure


async def resident(jobs: Jobs) -> float:
    """Proportional set size of an idle kernel, MiB."""
    launched = await jobs.launch("import os, time; print(os.getpid()); time.sleep(60)", owner=OWNER)
    exec_id = launched["exec_id"]
    pid = (await until_it_prints(jobs, exec_id)).strip()
    rollup = Path("/proc", pid, "smaps_rollup").read_text()
    await jobs.interrupt(OWNER, exec_id)
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


async def listing(jobs: Jobs) -> float:
    begun = time.perf_counter()
    for _ in range(1000):
        await jobs.list(OWNER)
    return (time.perf_counter() - begun) / 1000


async def measure(jobs: Jobs, rounds: int) -> None:
    took: dict[str, list[float]] = {}
    print(f"the very first job of a server: {1000 * await our_first_line(jobs):.0f} ms")
    cases: list[tuple[str, Callable[[], Awaitable[float]]]] = [
        ("first line, python -c", bare_first_line),
        ("first line, stock", stock_first_line),
        ("first line, ours cold", lambda: our_first_line(jobs)),
    ]
    for _ in range(rounds):
        for name, case in cases:
            took.setdefault(name, []).append(await case())
    once: list[tuple[str, Callable[[], Awaitable[float]]]] = [
        (f"{AT_ONCE} at once, stock", stock_many),
        (f"{AT_ONCE} at once, ours", lambda: our_many(jobs)),
        (f"{LINES} flushed lines, python -c", bare_lines),
        (f"{LINES} flushed lines, ours", lambda: our_lines(jobs)),
        ("exec_wait wakes after news", lambda: our_wake(jobs)),
        ("interrupt sleep", lambda: interrupted("import time; time.sleep(60)")(jobs)),
        ("interrupt loop", lambda: interrupted("while True: pass")(jobs)),
        ("interrupt await", lambda: interrupted("import asyncio; await asyncio.sleep(60)")(jobs)),
    ]
    for name, case in once:
        took[name] = [await case() for _ in range(max(1, rounds // 2))]
    stock = statistics.median(took["first line, stock"])
    for name, values in took.items():
        median = statistics.median(values)
        print(f"{name:32} {1000 * median:8.1f} ms   {median / stock:5.2f} of a stock start")
    many = [statistics.median(took[f"{AT_ONCE} at once, {whose}"]) for whose in ("ours", "stock")]
    print(f"{AT_ONCE} at once, ours / stock: {many[0] / many[1]:.2f}")
    print(f"idle kernel: {await resident(jobs):.1f} MiB PSS; exec_list: {1e6 * await listing(jobs):.1f} µs")


async def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    root = Path(tempfile.mkdtemp(prefix="ch-"))
    try:
        async with Jobs(
            workspace=root / "w",
            run_dir=root,
            log_dir=lambda project: root / "data" / project,
            records=NoRecords(),
            tokens=Tokens(),
            door=lambda: None,
            keep_output=keep_nothing,
        ) as jobs:
            await measure(jobs, rounds)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    anyio.run(main)
