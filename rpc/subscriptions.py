"""News that a peer has subscribed to: of jobs, saved files and frames."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from ..store.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
    from collections.abc import Set as AbstractSet

    from anyio.abc import TaskGroup, TaskStatus
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from ..tools.changes import ChangeKind
    from ..tools.host import Host
    from .outgoing import Outgoing

logger = logging.getLogger(__name__)

OUTPUT_CHARS = 64 * 1024
"""Output text in one notification at most; `next` says where the rest begins."""

BETWEEN_S = 0.05
"""Between two rounds of notifications, at least."""

_KINDS: Mapping[ChangeKind, str] = {"artifact": "saved", "job": "added", "frame": "changed", "cells": "worked in"}
_FRAME_KINDS = ("changed", "worked in")


class News(msgspec.Struct, frozen=True):
    """Something is new: of a job its `status`, `progress` or `output`; what was recorded, as `_KINDS` has it."""

    project_id: str
    id: str
    kind: str

    @property
    def is_of_job(self) -> bool:
        """Whether it is about a job."""
        return self.kind not in _KINDS.values()

    @property
    def uri(self) -> str:
        """The resource that is new or different."""
        if self.kind == "saved":
            return f"artifact://{self.id}"
        return f"frame://{self.id}" if self.kind in _FRAME_KINDS else f"job://{self.id}/log"

    @property
    def is_of_list(self) -> bool:
        """Whether the list of resources is different now."""
        return self.kind in ("saved", "added", "changed")


def changed(items: list[News], uris: AbstractSet[str]) -> list[str]:
    """Those of the URIs whose resource is new or different; a saved file may have become part of any lineage."""
    found = dict.fromkeys(item.uri for item in items if item.uri in uris)
    if any(item.kind == "saved" for item in items):
        found |= dict.fromkeys(sorted(uri for uri in uris if uri.startswith("lineage://")))
    return list(found)


@asynccontextmanager
async def news_of(host: Host) -> AsyncGenerator[AsyncIterable[list[News]]]:
    """All news of a host from now on, in rounds at least `BETWEEN_S` apart; a slow reader is told each thing once."""
    engine = await host.background.engine()
    send: MemoryObjectSendStream[list[News]]
    receive: MemoryObjectReceiveStream[list[News]]
    send, receive = anyio.create_memory_object_stream[list[News]](0)

    async def jobs(*, task_status: TaskStatus[None]) -> None:
        async with engine.subscribe(output=True) as subscription:
            task_status.started()
            while True:
                items = await subscription.take()
                await send.send([News(item.project_id, item.exec_id, item.kind) for item in items])
                await anyio.sleep(BETWEEN_S)

    async def records(*, task_status: TaskStatus[None]) -> None:
        async with host.changes.subscribe() as changes:
            task_status.started()
            while True:
                items = await changes.take()
                await send.send([News(item.project_id, item.id, _KINDS[item.kind]) for item in items])
                await anyio.sleep(BETWEEN_S)

    async with send, receive, anyio.create_task_group() as tasks:
        await tasks.start(jobs)
        await tasks.start(records)
        yield receive
        tasks.cancel_scope.cancel()


class Subscriptions:
    """One peer's subscriptions outside of any request; their tasks live in `tasks`.

    `ready()` returns when the peer has read enough of what was sent before.
    """

    def __init__(
        self, host: Host, outgoing: Outgoing, tasks: TaskGroup, ready: Callable[[], Awaitable[object]]
    ) -> None:
        self._host = host
        self._outgoing = outgoing
        self._tasks = tasks
        self._ready = ready
        self._uris: set[str] = set()
        self._next: dict[str, str] = {}
        self._over: set[str] = set()
        self._following_jobs = False
        self._following_resources = False

    def follow_jobs(self) -> None:
        """Send `exec/update` and `exec/output` from now on (plain)."""
        if not self._following_jobs:
            self._following_jobs = True
            self._tasks.start_soon(self._until_fault, self._follow_jobs)

    def subscribe(self, uri: str) -> None:
        """Send `notifications/resources/updated` for this resource (MCP, handshake era)."""
        self._uris.add(uri)
        self.follow_resources()

    def unsubscribe(self, uri: str) -> None:
        """Stop that."""
        self._uris.discard(uri)

    def follow_resources(self) -> None:
        """Send `notifications/resources/list_changed` from now on (MCP, handshake era)."""
        if not self._following_resources:
            self._following_resources = True
            self._tasks.start_soon(self._until_fault, self._follow_resources)

    async def _until_fault(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Follow news; what goes wrong ends that and nothing else, until somebody subscribes again."""
        try:
            await follow()
        except Exception:
            logger.exception("a subscription has ended")
        finally:
            self._following_jobs &= follow != self._follow_jobs
            self._following_resources &= follow != self._follow_resources

    async def _follow_resources(self) -> None:
        async with news_of(self._host) as news:
            async for items in news:
                await self._ready()
                if any(item.is_of_list for item in items):
                    self._outgoing.notify("notifications/resources/list_changed", {})
                for uri in changed(items, self._uris):
                    self._outgoing.notify("notifications/resources/updated", {"uri": uri})

    async def _follow_jobs(self) -> None:
        async with news_of(self._host) as news:
            async for items in news:
                for item in items:
                    await self._ready()
                    if item.is_of_job and item.id not in self._over:
                        with suppress(NotFound):  # forgotten meanwhile
                            await self._tell(item)

    async def _tell(self, item: News) -> None:
        """Tell of a job: its output first, so that word of its end has all of it behind it."""
        outcome = await self._peek(item, max_chars=1)
        if item.kind in ("status", "output") or outcome["done"]:
            await self._tell_output(item)
        if item.kind != "output" or outcome["done"]:
            told = {name: outcome[name] for name in ("exec_id", "status", "progress")}
            self._outgoing.notify("exec/update", told | {"next": self._next.get(item.id, "0")})
        if outcome["done"]:
            self._over.add(item.id)
            self._next.pop(item.id, None)

    async def _tell_output(self, item: News) -> None:
        """Send what is new in the log, piece by piece."""
        while True:
            since = self._next.get(item.id, "0")
            outcome = await self._peek(item, since=since, max_chars=OUTPUT_CHARS)
            self._next[item.id] = outcome["next"]
            for stream in ("stdout", "stderr"):
                if outcome[stream]:
                    told = {"exec_id": item.id, "stream": stream, "text": outcome[stream], "next": outcome["next"]}
                    self._outgoing.notify("exec/output", told)
            if outcome["next"] == since or not outcome["truncated"]:
                return
            await self._ready()

    async def _peek(self, item: News, **options: Any) -> dict[str, Any]:
        engine = await self._host.background.engine()
        return await engine.peek(self._host.background.owner_of(item.project_id), item.id, **options)
