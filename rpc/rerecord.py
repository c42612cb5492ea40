"""Recording a transcript again from what it sends: `cellhost replay --update`, `pytest --update-transcripts`.

The same script against the same server gives the same bytes: answers stand where the old ones stood, not where they
happened to arrive, holes are numbered in the order of the file, progress stands before the reply that it belongs to,
and whatever else is new stands at the end.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..store.errors import Closed, InvalidParams, TimedOut
from . import transcript as transcripts
from .holes import Names
from .matching import Bindings
from .player import COMMAND, OUTPUT, Player, joined, key_of
from .transcript import Line, Transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOTIFICATION_WAIT = 5.0
_SERVER_REQUEST = {"method": "(any)", "id": "(any)"}


def rerecord(path: Path, command: Sequence[str] = COMMAND, timeout: float = 30.0) -> bool:
    """Play what a transcript sends and write what comes back into the file; whether that changed it.

    A file with nothing but `->` lines will do: each request then waits for the replies to those before it.

    Raises:
        NotFound, InvalidParams: the transcript cannot be read, or sends a hole that no answer gives a value.
        Closed: the server ended before all was sent; the file stays as it is.

    """
    old = transcripts.read(path)
    script = old.lines if any(line.mark == "<-" for line in old.lines) else _with_replies(old.lines)
    with Player(old.head, command, timeout) as player:
        take = _Take(player)
        for line in script:
            take.play(line)
        head = msgspec.structs.replace(old.head, exit=player.end())
        take.take_rest()
    new = transcripts.render(Transcript(head, take.lines))
    if new == path.read_bytes():
        return False
    _replace(path, new)
    return True


class _Take:
    """One run: `lines` are what the new transcript has so far."""

    def __init__(self, player: Player) -> None:
        self.lines: list[Line] = []
        self._player = player
        self._names = Names(player.folders)
        self._bindings = Bindings({f"<{name}>": folder for name, folder in player.folders.items()})
        self._tokens: dict[str, Any] = {}
        self._ids: list[str] = []

    def play(self, line: Line) -> None:
        if line.mark == "->":
            self._send(line)
        elif line.mark == "<-":
            self._receive(line.message)
        else:
            self.lines.append(Line("#", line.message))

    def take_rest(self) -> None:
        """What nobody waited for: replies in the order of their requests, then the others by method."""
        rest = _merged(self._player.inbox)
        rank = {id_: at for at, id_ in enumerate(self._ids)}
        replies = [message for message in rest if "method" not in message]
        replies.sort(key=lambda message: rank.get(repr(_member(message, "id")), len(rank)))
        others = sorted((message for message in rest if "method" in message), key=lambda message: message["method"])
        for message in (*replies, *others):
            self._keep(message)

    def _send(self, line: Line) -> None:
        self._bindings.add(self._names.values)
        try:
            message = self._bindings.fill(line.message)
        except KeyError as error:
            raise InvalidParams(f"line {line.number} sends {error.args[0]}, which no answer gave a value") from error
        for request in _items(message):
            self._ids.append(repr(request.get("id")))
            token = _member(_member(request.get("params"), "_meta"), "progressToken")
            if token is not None:
                self._tokens[repr(request.get("id"))] = token
        self._player.send(message)
        self.lines.append(Line("->", self._names.name(message, "->")))

    def _receive(self, expected: Any) -> None:
        try:
            actual = self._wait_like(expected)
        except (TimedOut, Closed):
            return  # it does not come any more
        self._bindings.learn(expected, actual)
        for reply in _items(actual):
            if "method" not in reply:
                self._keep_progress(self._tokens.pop(repr(reply.get("id")), None))
        self._keep(actual)

    def _wait_like(self, expected: Any) -> Any:
        if expected is _SERVER_REQUEST:
            return self._player.wait_for(lambda message: "method" in message and "id" in message)
        notification = isinstance(expected, dict) and "method" in expected
        return self._player.wait_like(self._bindings.fill_known(expected), _NOTIFICATION_WAIT if notification else None)

    def _keep_progress(self, token: Any) -> None:
        if token is None:
            return
        inbox = self._player.inbox
        for message in [message for message in inbox if _progress_token(message) == token]:
            inbox.remove(message)
            self._keep(message)

    def _keep(self, message: Any) -> None:
        self.lines.append(Line("<-", self._names.name(message, "<-")))


def _with_replies(lines: Sequence[Line]) -> list[Line]:
    """Each request followed by its reply, as late as the next request allows; asks stand before their answers."""
    script: list[Line] = []
    owed: list[Line] = []
    for line in lines:
        if line.mark == "->":
            requests = [item for item in _items(line.message) if "method" in item and "id" in item]
            if requests:
                script += owed
                owed = []
                replies = [{"id": request["id"]} for request in requests]
                owed.append(Line("<-", replies if isinstance(line.message, list) else replies[0]))
            elif any("method" not in item and "id" in item for item in _items(line.message)):
                script.append(Line("<-", _SERVER_REQUEST))
        script.append(line)
    return script + owed


def _items(message: Any) -> list[dict[str, Any]]:
    """The objects of a message: of a batch several, else one."""
    items = cast("list[Any]", message) if isinstance(message, list) else [message]
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _member(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _progress_token(message: Any) -> Any:
    if _member(message, "method") not in {"notifications/progress", "$/progress"}:
        return None
    params = _member(message, "params")
    return _member(params, "progressToken") or _member(params, "token")


def _merged(messages: Sequence[Any]) -> list[Any]:
    """The messages with each stream of output as one, where it began: how it was cut is a matter of time."""
    merged: dict[Any, Any] = {}
    for number, message in enumerate(messages):
        key = key_of(message)
        if key[0] == OUTPUT:
            merged[key] = joined(merged[key], message) if key in merged else message
        else:
            merged[number] = message
    return list(merged.values())


def _replace(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(content)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)
