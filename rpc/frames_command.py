"""`cellhost frames`: past work; all of it, what a pattern finds, or one frame with its cells."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ..store.counting import counted
from ..store.frames import STATUSES
from ..store.ids import FRAME_ID
from .looking import local_time, looking, table
from .options import Parser, add_place, count

if TYPE_CHECKING:
    import argparse

    from ..store.frames import FrameDetail, Frames

_SHOWN_CELLS = 200


def main(arguments: list[str]) -> int:
    """Write the frames, or the one whose id is given, and return the exit code."""
    parser = Parser(prog="cellhost frames", description="Show past work, newest first.")
    parser.add_argument("pattern", nargs="?", metavar="PATTERN", help="words in it or its cells, or a frame's id")
    add_place(parser)
    parser.add_argument("--status", choices=STATUSES, help="only those in this state")
    parser.add_argument("--all", action="store_true", help="the frames inside sessions too, as a search always does")
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="at most so many (default: 50)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line; one frame: one object")
    given = parser.parse_args(arguments)
    with looking(given) as (_, records):
        if given.pattern and FRAME_ID.fullmatch(given.pattern):
            _show_one(records.frames.detail(given.pattern, page_size=_SHOWN_CELLS), as_json=given.json)
        else:
            _show_many(_found(records.frames, given), as_json=given.json)
    return 0


def _found(frames: Frames, given: argparse.Namespace) -> list[dict[str, Any]]:
    if given.pattern:
        return frames.search(given.pattern, status=given.status, limit=given.limit)["frames"]
    return frames.browse(status=given.status, roots_only=not given.all, limit=given.limit)["frames"]


def _show_many(frames: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.writelines(msgspec.json.encode(frame).decode() + "\n" for frame in frames)
        return
    rows = [
        (
            frame["frame_id"],
            local_time(frame["created_at"]),
            frame["kind"],
            frame["status"],
            frame["name"] or frame["task_summary"] or frame["workspace"] or "-",
        )
        for frame in frames
    ]
    sys.stdout.write(table(("frame", "made", "kind", "status", "about"), rows))


def _show_one(detail: FrameDetail, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.encode(detail).decode() + "\n")
        return
    for name, value in detail["frame"].items():
        if value is not None:
            shown = local_time(value) if name.endswith("_at") else value
            sys.stdout.write(f"{name:<14} {shown}\n")
    if detail["children"]:
        sys.stdout.write("\n")
        _show_many(detail["children"], as_json=False)
    if detail["cells"]:
        rows = [
            (str(cell["seq"]), local_time(cell["started_at"]), cell["status"], cell["code"]) for cell in detail["cells"]
        ]
        sys.stdout.write("\n" + table(("cell", "began", "status", "code"), rows))
    if not detail["last_page"]:
        sys.stdout.write(f"… and {counted(detail['total_cells'] - len(detail['cells']), 'more cell')}\n")
