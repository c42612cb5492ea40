"""One call on its way: who makes it, and what it may use while it runs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from .approval import Ask
    from .host import Host
    from .outputs import Image

Door = Literal["plain", "editor", "mcp", "kernel", "in_process"]

TRUSTED_DOORS: frozenset[Door] = frozenset({"plain", "editor", "in_process"})
"""Doors of whoever wrote our command line; a model or a job stands behind the others."""


class Caller(msgspec.Struct, frozen=True):
    """Identity of a call: its door and the frame it is recorded in. A job's comes from the job, never from itself."""

    door: Door
    project_id: str
    root_frame_id: str
    frame_id: str
    exec_id: str | None = None
    cell_id: str | None = None

    @property
    def trusted(self) -> bool:
        """True where other projects and harness methods may be reached."""
        return self.door in TRUSTED_DOORS


class ReportProgress(Protocol):
    """Told of a call's progress; `total` and `message` may be absent."""

    def __call__(self, done: float, total: float | None, message: str | None) -> None: ...


class Call:
    """What `Tool.run` gets beside its parameters.

    `budget`: characters of JSON the answer may have, or None. `encoded`: results may hold `msgspec.Raw`.
    `aside()`: entered while the call waits for its turn, so that the door may serve other calls meanwhile.
    `waiting()`: the same around a wait for a job, for news or for a person, of which a door has only so many.
    `progress`: told of the call's progress, if the caller asked for it.
    `images`: where the tool puts images that belong to its answer, at a door that shows them.
    `ask`: puts a question to the person behind this door, if one can be reached through it.
    `give_way()`: let later calls with this one's resource keys start, though it goes on: it only waits from here on.
    `extra`: the older SDK's compatibility keys. `identity` is who calls where the door knows it (a job); else the
    host fills it in with the current frame, once the call has its place in the order.
    """

    __slots__ = (
        "aside",
        "ask",
        "budget",
        "door",
        "encoded",
        "extra",
        "give_way",
        "host",
        "identity",
        "images",
        "progress",
        "waiting",
    )

    def __init__(
        self,
        host: Host,
        door: Door,
        *,
        identity: Caller | None = None,
        budget: int | None = None,
        encoded: bool = False,
        progress: ReportProgress | None = None,
        ask: Ask | None = None,
        images: list[Image] | None = None,
        aside: Callable[[], AbstractContextManager[None]] = nullcontext,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.host = host
        self.door: Door = door
        self.identity = identity
        self.ask = ask
        self.budget = budget
        self.encoded = encoded
        self.images = images
        self.progress = progress
        self.aside = aside
        self.waiting = waiting
        self.give_way: Callable[[], None] = _hold_nothing
        self.extra: dict[str, Any] = {}

    @property
    def caller(self) -> Caller:
        """Who calls; known while the call runs."""
        assert self.identity is not None
        return self.identity


def _hold_nothing() -> None:
    """Before a call has its turn it has nothing to give up."""
