"""Background jobs as the tests of their tools start, watch and end them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from cellhost import Config, build_dispatcher

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from cellhost import Dispatcher

OUTCOME = {
    "exec_id",
    "status",
    "done",
    "stdout",
    "stderr",
    "interrupted",
    "error",
    "result",
    "outputs",
    "progress",
    "exit",
    "started_at",
    "ended_at",
    "label",
    "next",
    "truncated",
    "dropped_chars",
    "usage",
}
ENDLESS = "import time\nprint('begun')\nwhile True: time.sleep(0.05)"


@asynccontextmanager
async def host(tmp_path: Path, **limits: Any) -> AsyncGenerator[Dispatcher]:
    """A host of its own, for tests that fill its slots."""
    config = Config(data_dir=tmp_path / "data", rules=(("exec_background", "*", "allow"),))
    for name, value in limits.items():
        setattr(config.limits, name, value)
    with anyio.fail_after(60):
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            yield made


async def launch(dispatcher: Dispatcher, code: str, /, **given: Any) -> str:
    launched = await dispatcher("exec_background", {"code": code, **given})
    exec_id: str = launched["exec_id"]
    return exec_id


async def until_it_prints(dispatcher: Dispatcher, exec_id: str) -> dict[str, Any]:
    """Wait for a whole line: `print` writes its end by itself, a moment later."""
    with anyio.fail_after(30):
        while True:
            seen: dict[str, Any] = await dispatcher("exec_wait", {"exec_id": exec_id, "since": "0", "until": "news"})
            if seen["stdout"].endswith("\n") or seen["done"]:
                return seen


async def end(dispatcher: Dispatcher, exec_id: str) -> dict[str, Any]:
    await dispatcher("exec_interrupt", [exec_id])
    outcome: dict[str, Any] = await dispatcher("exec_wait", [exec_id])
    assert outcome["done"]
    return outcome
