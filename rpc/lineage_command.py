"""`cellhost lineage`: what a version was made from and what was made from it, as text or as a picture."""

from __future__ import annotations

import argparse
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

from ..store.errors import NotFound
from ..store.ids import VERSION_ID
from ..tools.lineage_picture import FORMATS, picture_of
from ..tools.lines import one_line
from .looking import looking
from .options import Parser, add_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..store.records import Records

_SHOWN = 8


def main(arguments: list[str]) -> int:
    """Write the picture to stdout and return 0."""
    parser = Parser(prog="cellhost lineage", description="Show what a version came from and what came from it.")
    parser.add_argument(
        "version", metavar="VERSION", help="a saved version's id, v-…, or a saved file's name: its latest version"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.add_argument("--direction", choices=("up", "down", "both"), default="both", help="default: both")
    parser.add_argument("--max-depth", type=_within(0, 100), default=32, metavar="N", help="steps, 0 to 100 (32)")
    parser.add_argument(
        "--max-nodes", type=_within(1, 10_000), default=500, metavar="N", help="1 to 10000 each way (500)"
    )
    add_place(parser)
    given = parser.parse_args(arguments)
    with looking(given) as (_, records):
        picture = picture_of(
            records,
            _version_id(records, given.version),
            way=given.direction,
            max_depth=given.max_depth,
            max_nodes=given.max_nodes,
        )
    drawn = FORMATS[given.format](picture)
    sys.stdout.buffer.write(drawn.encode("utf-8", "backslashreplace"))
    return 0


def _version_id(records: Records, named: str) -> str:
    """The id of the version that is meant. Raises `NotFound`."""
    if VERSION_ID.fullmatch(named):
        return named
    for filename in (named, PurePath(named).name):
        if found := records.artifacts.list(filename=filename, limit=1)["artifacts"]:
            return str(found[0]["latest_version_id"])
    saved = [artifact["filename"] for artifact in records.artifacts.list(limit=_SHOWN)["artifacts"]]
    hint = f"saved last: {', '.join(one_line(name) for name in saved)}" if saved else "nothing is saved in this project"
    raise NotFound("no such version, and no saved file of that name", hint=hint)


def _within(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isdecimal() and len(text) < 8 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:64]!r}: must be a number from {least} to {most}")
        return int(text)

    return number
