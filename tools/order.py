"""Order of calls that share a resource key.

Two turns that share a key, one of them mutating, run one after the other in order of arrival; all others run side
by side. A turn depends only on earlier turns, so there is no deadlock. `EVERY_FILE` is shared with every key of a
file: for a call that cannot tell yet which file it will write.

    turn = order.enter(("workspace:a.txt",), mutating=True)
    await turn.started()
    ...
    order.leave(turn)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterable

_FILE = "workspace:"
EVERY_FILE = f"{_FILE}*"


class Turn:
    """One call's place in the order; it has started when no blocker is left."""

    __slots__ = ("_event", "blockers", "dependents", "keys", "mutating")

    def __init__(self, keys: tuple[str, ...], *, mutating: bool) -> None:
        self.keys = keys
        self.mutating = mutating
        self.blockers: set[Turn] = set()
        self.dependents: set[Turn] = set()
        self._event: anyio.Event | None = None

    @property
    def ready(self) -> bool:
        """True once nothing earlier stands in the way."""
        return not self.blockers

    async def started(self) -> None:
        """Return when the turn has come."""
        if self.blockers:
            self._event = anyio.Event()
            await self._event.wait()

    def unblock(self, blocker: Turn) -> None:
        """Drop one blocker, and wake the waiter when it was the last."""
        self.blockers.discard(blocker)
        if not self.blockers and self._event is not None:
            self._event.set()

    def wait_for(self, earlier: Iterable[Turn]) -> None:
        """Let the turn start only after all of `earlier` have left."""
        for turn in earlier:
            self.blockers.add(turn)
            turn.dependents.add(self)


class _Key:
    """What stands on one key: writers in order of arrival, and the readers after the last of them."""

    __slots__ = ("readers", "writers")

    def __init__(self) -> None:
        self.writers: dict[Turn, None] = {}
        self.readers: dict[Turn, None] = {}

    def last_writer(self) -> Iterable[Turn]:
        return (next(reversed(self.writers)),) if self.writers else ()

    def started_writers(self) -> Iterable[Turn]:
        return [turn for turn in self.writers if turn.ready]


class ResourceOrder:
    """All turns of one host; used from one event loop, never from threads."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}

    def enter(self, keys: tuple[str, ...], *, mutating: bool, ahead: bool = False) -> Turn:
        """Take a place on all `keys` at once.

        `ahead` waits only for mutating turns that have already started: for calls that look at what goes on.
        """
        of_file = EVERY_FILE not in keys and any(name.startswith(_FILE) for name in keys)
        turn = Turn((*keys, EVERY_FILE) if of_file else keys, mutating=mutating)
        for name in turn.keys:
            self._stand(turn, name, mutating=mutating and not (of_file and name == EVERY_FILE), ahead=ahead)
        return turn

    def _stand(self, turn: Turn, name: str, *, mutating: bool, ahead: bool) -> None:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _Key()
        if key.writers:
            turn.wait_for(key.started_writers() if ahead else key.last_writer())
        if mutating:
            turn.wait_for(key.readers)
            key.writers[turn] = None
            key.readers = {}
        else:
            key.readers[turn] = None

    def leave(self, turn: Turn) -> None:
        """Give the place up, whether the turn ran or was cancelled while it waited."""
        for name in turn.keys:
            key = self._keys.get(name)
            if key is None:
                continue
            key.writers.pop(turn, None)
            key.readers.pop(turn, None)
            if not key.writers and not key.readers:
                del self._keys[name]
        for dependent in turn.dependents:
            # Whoever waited for a turn that never ran still waits for what that one waited for.
            dependent.wait_for(turn.blockers)
            dependent.unblock(turn)
        for blocker in turn.blockers:
            blocker.dependents.discard(turn)
        turn.dependents.clear()
        turn.blockers.clear()
