"""Waiting for the first of several events."""

from __future__ import annotations

import anyio


async def wait_for_any(*events: anyio.Event) -> None:
    """Return as soon as one of the events is set; give it a bound with a cancel scope."""
    if any(event.is_set() for event in events):
        return
    async with anyio.create_task_group() as tasks:

        async def end_with(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(end_with, event)
