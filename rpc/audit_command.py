"""`cellhost audit`: the calls that came in, whatever became of them, newest first."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime

import msgspec

from ..store.errors import InvalidParams
from ..store.ids import now_ms
from ..tools.host import method_table, nearest_hint
from .looking import local_time, looking, table
from .options import Parser, add_place, count

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def main(arguments: list[str]) -> int:
    """Write the calls that are asked for and return the exit code."""
    parser = Parser(prog="cellhost audit", description="Show the calls that came in, newest first.")
    add_place(parser)
    parser.add_argument("--tool", metavar="NAME", help="only calls of this tool or method")
    parser.add_argument("--since", type=_since, metavar="WHEN", help="30s, 15m, 2h, 3d, or a date or time: 2026-01-31")
    parser.add_argument("--denied", action="store_true", help="only those refused, by a rule or by a guard")
    parser.add_argument("--limit", type=count, default=100, metavar="N", help="at most so many (default: 100)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args(arguments)
    with looking(given) as (store, _):
        calls = store.control.audit.list(
            methods=_names(given.tool), since=given.since, denied=given.denied, limit=given.limit
        )
    if given.json:
        sys.stdout.writelines(msgspec.json.encode(call).decode() + "\n" for call in calls)
        return 0
    rows = [
        (
            local_time(call.at),
            call.door,
            call.exec_id or "-",
            call.method,
            call.error_kind or "ok",
            f"{call.elapsed_us / 1000:.1f}",
            call.args_preview,
        )
        for call in calls
    ]
    sys.stdout.write(table(("time", "door", "job", "method", "outcome", "ms", "arguments"), rows))
    return 0


def _names(given: str | None) -> tuple[str, ...]:
    """Every name under which calls of that method stand in the audit."""
    if given is None:
        return ()
    methods = method_table()
    if given not in methods:
        hint = nearest_hint(given, methods, "`cellhost schema` tells of all")
        raise InvalidParams(f"there is no method {given[:64]!r}", hint=hint)
    return tuple(name for name, method in methods.items() if method is methods[given])


def _since(text: str) -> int:
    span = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if span:
        return now_ms() - int(span[1]) * _UNIT_MS[span[2]]
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r}: write 30s, 15m, 2h, 3d, or a date or time as 2026-01-31") from None
