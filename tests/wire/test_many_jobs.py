"""Five hundred jobs through one server leave it as it was."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from ..processes import descendants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import RawSpawn
    from .raw_peer import RawPeer

JOBS = 500
WITHIN_S = 900.0
WITHIN_S_OF_END = 20.0
LOOKS = 25
MOST_GROWTH = 12 << 20
"""Bytes: the hundred newest jobs stay in memory, and an allocator keeps some of what it has had."""

Held: TypeAlias = tuple[int, int, int, list[str]]


@pytest.fixture
def run_base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where run folders are made; a short path, because sockets are in them."""
    base = Path(tempfile.mkdtemp(prefix="ch-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    yield base
    shutil.rmtree(base)


def held(peer: RawPeer, run_base: Path) -> Held:
    """Descriptors, threads, processes below, and what is in the run folder."""
    process = Path(f"/proc/{peer.process.pid}")
    (folder,) = run_base.iterdir()
    return (
        len(os.listdir(process / "fd")),  # noqa: PTH208
        len(os.listdir(process / "task")),  # noqa: PTH208
        len(descendants(peer.process.pid)),
        sorted(path.name for path in folder.iterdir()),
    )


def resident(peer: RawPeer) -> int:
    status = Path(f"/proc/{peer.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def run(peer: RawPeer, count: int) -> None:
    """Run jobs, some of which leave daemons, die or are interrupted, and wait for them all."""
    codes = [
        "print('x' * 1000)",
        "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)",
        "import os; os._exit(1)",
        "1 / 0",
        "import time; time.sleep(600)",
    ]
    jobs = [peer.call("exec_background", [codes[n % 5]])["result"]["exec_id"] for n in range(count)]
    deadline = time.monotonic() + WITHIN_S
    for number, exec_id in enumerate(jobs):
        if number % 5 == 4:
            peer.call("exec_interrupt", [exec_id])
        while not peer.call("exec_wait", {"exec_id": exec_id, "timeout_s": 10})["result"]["done"]:
            assert time.monotonic() < deadline


@pytest.mark.slow
def test_five_hundred_jobs_leave_the_server_as_it_was(raw: RawSpawn, run_base: Path) -> None:
    # Without a warm kernel, which is there or not at any moment: its descriptors have a line in tests/bench/jobs.py.
    with raw("--allow", "exec_background", "--warm-kernels", "0") as peer:
        run(peer, 100)  # so many stay in memory
        before, memory = settled(peer, run_base), resident(peer)
        run(peer, JOBS)
        assert settled(peer, run_base, before) == before
        assert resident(peer) - memory < MOST_GROWTH
        rows = peer.call("query", ["SELECT count(*) AS n FROM jobs WHERE ended_at IS NOT NULL"])["result"]
        assert rows == [{"n": 100 + JOBS}]


def settled(peer: RawPeer, run_base: Path, like: Held | None = None) -> Held:
    """What it holds once the last kernel is put away: its reaper and its query worker are below it, and nothing else.

    ZeroMQ closes a kernel's sockets in a thread of its own, so what is held is looked at until it is as expected, or
    without an expectation, until it stays as it is.
    """
    deadline = time.monotonic() + WITHIN_S_OF_END
    for _ in range(2):
        peer.call("query", ["SELECT 1 AS n"])
    now, same = held(peer, run_base), 0
    while not (now == like if like else same >= LOOKS and now[2] <= 3):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
        before, now = now, held(peer, run_base)
        same = same + 1 if now == before else 0
    return now
