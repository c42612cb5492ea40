"""`cellhost replay FILE`: play a transcript against a fresh server and show the first difference.

Replies may come in any order and are told by their ids; notifications of one method must come in order. Wherever a hole
stands, the value must be of its kind, and the same value as wherever else that numbered hole stands.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..store.counting import counted
from ..store.errors import Closed, HostError, TimedOut
from . import transcript as transcripts
from .matching import Bindings
from .player import COMMAND, Player

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .transcript import Line, Transcript

_SHOWN = 600


class Difference(msgspec.Struct, frozen=True):
    """Where a run first differs from its transcript: `line` of the file (0: after the last), why, and both sides."""

    line: int
    reason: str
    expected: Any = None
    actual: Any = None

    def __str__(self) -> str:
        where = f"line {self.line}: {self.reason}" if self.line else f"after the last line: {self.reason}"
        if self.expected is None and self.actual is None:
            return where
        return f"{where}\n  expected  {_shown(self.expected)}\n  actual    {_shown(self.actual)}"


def replay(path: Path, command: Sequence[str] = COMMAND, timeout: float = 30.0) -> Difference | None:
    """Play a transcript and return the first difference, or None.

    `command` starts the server; `<workspace>` and `<data_dir>` in it are filled with fresh folders, and the options
    that the transcript names are added. `timeout` bounds each wait, in seconds.

    Raises:
        NotFound, InvalidParams: the transcript cannot be read.

    """
    script = transcripts.read(path)
    with Player(script.head, command, timeout) as player:
        return _play(script, player)


def _play(script: Transcript, player: Player) -> Difference | None:
    bindings = Bindings({f"<{name}>": folder for name, folder in player.folders.items()})
    for line in script.lines:
        difference = None
        if line.mark == "->":
            difference = _send(line, player, bindings)
        elif line.mark == "<-":
            difference = _expect(line, player, bindings)
        if difference:
            return difference
    return _end(script, player)


def _send(line: Line, player: Player, bindings: Bindings) -> Difference | None:
    try:
        player.send(bindings.fill(line.message))
    except KeyError as error:
        return Difference(line.number, f"{error.args[0]} is sent before any answer gave it a value")
    except Closed as error:
        return Difference(line.number, str(error))
    return None


def _expect(line: Line, player: Player, bindings: Bindings) -> Difference | None:
    try:
        actual = player.wait_like(bindings.fill_known(line.message))
    except (TimedOut, Closed) as error:
        return Difference(line.number, str(error), line.message, player.inbox or "(nothing)")
    mismatch = bindings.match(line.message, _in_order_of(line.message, actual))
    if mismatch is None:
        return None
    what = f"{_name(line.message)} differs at {mismatch.path}"
    return Difference(line.number, what, mismatch.expected, mismatch.actual)


def _in_order_of(expected: Any, actual: Any) -> Any:
    """A batch's answers in the order of the expected ones: any order is right."""
    if not isinstance(expected, list) or not isinstance(actual, list):
        return actual
    rank = {repr(_id(item)): at for at, item in enumerate(cast("list[Any]", expected))}
    return sorted(cast("list[Any]", actual), key=lambda item: rank.get(repr(_id(item)), len(rank)))


def _end(script: Transcript, player: Player) -> Difference | None:
    try:
        status = player.end()
    except TimedOut as error:
        return Difference(0, str(error))
    if player.inbox:
        return Difference(0, "more came than expected", "(nothing)", player.inbox[0])
    if status != script.head.exit:
        return Difference(0, f"the exit status differs{player.last_words()}", script.head.exit, status)
    return None


def _name(message: Any) -> str:
    if isinstance(message, dict) and "method" in message:
        return str(cast("dict[str, Any]", message)["method"])
    return "the batch's answer" if isinstance(message, list) else f"the reply to {_id(message)!r}"


def _id(message: Any) -> Any:
    return cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({counted(len(text), 'character')})"


def main(arguments: Sequence[str]) -> int:
    """The verb `replay`; exit status 0, or 1 where a run differs or a transcript cannot be read."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    given = _parser().parse_args(arguments[:at])
    command = (*COMMAND, *arguments[at + 1 :])
    results = [_run(path, command, given.timeout, update=given.update) for path in given.files]
    return 0 if all(results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cellhost replay",
        description="Play transcripts against a fresh server each and show the first difference.",
        epilog="Options after -- go to the server.",
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a transcript, as serve --record writes it")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="the longest wait for a message")
    parser.add_argument("--update", action="store_true", help="write what the server answers now into the file")
    return parser


def _run(path: Path, command: Sequence[str], timeout: float, *, update: bool) -> bool:
    try:
        if update:
            from .rerecord import rerecord

            verdict = "written" if rerecord(path, command, timeout) else "unchanged"
            difference = None
        else:
            difference = replay(path, command, timeout)
            verdict = str(difference) if difference else "ok"
    except HostError as error:
        sys.stdout.write(f"{path.name}: {error}\n")
        return False
    sys.stdout.write(f"{path.name}: {verdict}\n")
    return difference is None
