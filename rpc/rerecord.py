"""Recording a transcript again from what it sends: `cellhost replay --update`, `pytest --update-transcripts`.

The same script against the same server gives the same bytes: answers stand where the old ones stood, not where they
happened to arrive, holes are numbered in the order of the file, and what is new stands before the reply that it belongs
to or at the end.
"""

from __future__ import annotations

import os
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


def rerecord(path: Path, command: Sequence[str] = COMMAND, timeout: float = 30.0) -> bool:
    """Play what a transcript sends and write what comes back into the file; whether that changed it.

    A file with nothing but `->` lines will do: each request then waits for the replies to those before it.

    Raises:
        NotFound, InvalidParams: the transcript cannot be read, or sends a hole that no answer gives a value.
        Closed: the server ended too early; the file stays.

    """
    old = transcripts.read(path)
    script = old if any(line.mark == "<-" for line in old.lines) else _with_replies(old)
    with Player(old.head, command, timeout) as player:
        lines = _Take(player).play(script.lines)
        status = player.end()
        lines += _left_over(player.inbox)
    new = transcripts.render(_named(Transcript(msgspec.structs.replace(old.head, exit=status), lines), player.folders))
    if new == path.read_bytes():
        return False
    _replace(path, new)
    return True


def _with_replies(script: Transcript) -> Transcript:
    """Every request followed by its reply, except that what is no request is sent without waiting for it."""
    lines: list[Line] = []
    owed: list[Line] = []
    for line in script.lines:
        if line.mark == "->" and _is_answer(line.message):
            lines.append(Line("<-", {"method": None, "id": line.message["id"]}))
        elif line.mark == "->" and not _is_notification(line.message):
            lines += owed
            owed = []
        lines.append(line)
        if line.mark == "->" and (reply := _reply_shape(line.message)) is not None:
            owed.append(Line("<-", reply))
    return Transcript(script.head, [*lines, *owed])
