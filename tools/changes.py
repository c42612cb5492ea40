"""News of what is recorded, for whoever subscribes: a file, a job, a frame, the cells of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
import msgspec

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


ChangeKind: TypeAlias = Literal["artifact", "job", "frame", "cells"]


class Change(msgspec.Struct, frozen=True):
    """Something in a project is new: a version, a job, what a frame is called, or (`cells`) what is in a frame."""

    project_id: str
    kind: ChangeKind
    id: str


class Changes:
    """Hands changes on to its subscribers; used from the event loop only."""

    def __init__(self) -> None:
        self._streams: set[ChangeStream] = set()

    def publish(self, change: Change) -> None:
        """Tell every subscriber."""
        for stream in self._streams:
            stream.offer(change)

    def subscribe(self) -> ChangeStream:
        """An `async with` block that collects changes from now on until they are taken."""
        return ChangeStream(self._streams)


class ChangeStream:
    """What has not been taken yet is kept once per thing, so a slow reader costs little and misses nothing."""

    def __init__(self, streams: set[ChangeStream]) -> None:
        self._streams = streams
        self._waiting: dict[Change, None] = {}
        self._came = anyio.Event()

    def offer(self, change: Change) -> None:
        """Keep it until it is taken."""
        self._waiting[change] = None
        self._came.set()

    async def __aenter__(self) -> Self:
        self._streams.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._streams.discard(self)

    async def take(self) -> list[Change]:
        """All changes since the last time, in the order they came; waits until there are some."""
        while not self._waiting:
            self._came = anyio.Event()
            await self._came.wait()
        changes, self._waiting = self._waiting, {}
        return list(changes)
