"""`cellhost jobs`: the jobs of a project, once or live."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from ..store.ids import now_ms
from ..store.jobs import FINAL, LIVE
from ..tools.lines import one_line
from .looking import local_time, looking, table
from .options import Parser, add_place, count
from .seen_jobs import SeenJobs

if TYPE_CHECKING:
    from collections.abc import Generator

    from .seen_jobs import SeenJob

EVERY_S = 0.25
_BAR = 20
_WIDTH = 120
_ABOUT, _LEAST_ABOUT, _SESSION = 60, 30, 20
_OWN_SCREEN, _FORMER_SCREEN, _TOP, _CLEAR_LINE, _CLEAR_BELOW = (
    "\x1b[?1049h",
    "\x1b[?1049l",
    "\x1b[H",
    "\x1b[K",
    "\x1b[J",
)


def main(arguments: list[str]) -> int:
    """Write the table and return 0; with `--watch` until it is interrupted."""
    parser = Parser(prog="cellhost jobs", description="Show jobs, newest first.")
    add_place(parser)
    parser.add_argument("--status", choices=(*LIVE, *FINAL), help="only jobs in this state")
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="at most so many (default: 50)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line")
    form.add_argument("--watch", action="store_true", help="live until Ctrl-C; where no terminal is, a line a change")
    given = parser.parse_args(arguments)
    with looking(given) as place:
        jobs = SeenJobs(place)
        if given.watch and sys.stdout.isatty():
            _watch(jobs, given.status, given.limit)
        elif given.watch:
            _follow(jobs, given.status, given.limit)
        elif given.json:
            for seen in jobs.list(status=given.status, limit=given.limit):
                sys.stdout.write(msgspec.json.encode(_row(seen)).decode() + "\n")
        else:
            sys.stdout.write(_table(jobs.list(status=given.status, limit=given.limit)))
    return 0


def _watch(jobs: SeenJobs, status: str | None, limit: int) -> None:
    with _own_screen():
        while True:
            columns, lines = shutil.get_terminal_size()
            shown = _table(jobs.list(status=status, limit=min(limit, lines))).splitlines()[: lines - 1]
            sys.stdout.write(_TOP + "".join(f"{line[:columns]}{_CLEAR_LINE}\n" for line in shown) + _CLEAR_BELOW)
            sys.stdout.flush()
            time.sleep(EVERY_S)


@contextmanager
def _own_screen() -> Generator[None]:
    sys.stdout.write(_OWN_SCREEN)
    try:
        yield
    finally:
        sys.stdout.write(_FORMER_SCREEN)
        sys.stdout.flush()


def _follow(jobs: SeenJobs, status: str | None, limit: int) -> None:
    """A line for every job whose state or progress has changed, the oldest first."""
    told: dict[str, str] = {}
    while True:
        for seen in reversed(jobs.list(status=status, limit=limit)):
            parts = (
                seen.job.exec_id,
                f"{seen.status:<11}",
                _progress(seen),
                seen.job.session,
                _about(seen),
                _note(seen),
            )
            line = "  ".join(part for part in parts if part)
            if told.get(seen.job.exec_id) != line:
                told[seen.job.exec_id] = line
                sys.stdout.write(f"{local_time(now_ms())}  {line}\n")
        sys.stdout.flush()
        time.sleep(EVERY_S)


def _table(seen: list[SeenJob]) -> str:
    """Ordinary rows within `_WIDTH`; below a cell that has a note, that note."""
    cells = any(each.job.session is not None for each in seen)
    head = ("job", "status", "took", "progress", "output", "began", *(["session"] if cells else []))
    rows = [_cells(each) for each in seen]
    taken = sum(max(map(len, column)) + 2 for column in zip(head, *rows, strict=False))
    most = min(_ABOUT, max(_LEAST_ABOUT, _WIDTH - taken))
    lines = table(
        (*head, "about"), [(*row[: len(head)], _about(each, most)) for row, each in zip(rows, seen, strict=True)]
    ).splitlines()
    notes = ["", *(f"  {one_line(note, _WIDTH - 2)}\n" if (note := _note(each)) else "" for each in seen)]
    return "".join(f"{line}\n{note}" for line, note in zip(lines, notes, strict=True))


def _cells(seen: SeenJob) -> tuple[str, ...]:
    job = seen.job
    return (
        job.exec_id,
        seen.status,
        _took(seen),
        _progress(seen),
        _bytes(seen.ends.stdout + seen.ends.stderr),
        local_time(job.started_at),
        one_line(job.session or "-", _SESSION),
    )


def _row(seen: SeenJob) -> dict[str, Any]:
    return msgspec.structs.asdict(seen.job) | {
        "status": seen.status,
        "stdout_bytes": seen.ends.stdout,
        "stderr_bytes": seen.ends.stderr,
        "code_preview": seen.code,
    }


def _about(seen: SeenJob, most: int = _ABOUT) -> str:
    return one_line(seen.job.label or seen.code, most)


def _note(seen: SeenJob) -> str | None:
    return seen.job.note and f"note: {one_line(seen.job.note)}"


def _took(seen: SeenJob) -> str:
    job = seen.job
    if job.started_at is None or (seen.status == "lost" and job.ended_at is None):
        return "-"
    seconds = ((job.ended_at or now_ms()) - job.started_at) / 1000
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def _bytes(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _progress(seen: SeenJob) -> str:
    job = seen.job
    if job.progress_done is None:
        return "-"
    message = f" {one_line(job.progress_message, 30)}" if job.progress_message else ""
    if not job.progress_total:
        return f"{job.progress_done:g}{message}"
    part = min(1.0, max(0.0, job.progress_done / job.progress_total))
    bar = ("#" * round(part * _BAR)).ljust(_BAR, ".")
    return f"[{bar}] {part:4.0%} {job.progress_done:g}/{job.progress_total:g}{message}"
