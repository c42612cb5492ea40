"""`cellhost tail`: what a job printed, byte by byte: its stdout on ours, its stderr on ours."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, BinaryIO

from ..store.errors import NotFound
from ..tools.kernel.log import START, Ends
from .looking import looking
from .options import Parser, add_place
from .seen_jobs import SeenJobs

if TYPE_CHECKING:
    from pathlib import Path

    from ..tools.kernel.log import JobLog

EVERY_S = 0.05
_CHUNK = 1 << 20


def main(arguments: list[str]) -> int:
    """Copy the logs and return 0; with `-f` until the job has ended."""
    parser = Parser(prog="cellhost tail", description="Show what a job has printed.")
    parser.add_argument("exec_id", metavar="EXEC_ID", help="the job; cellhost jobs lists them")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    add_place(parser)
    given = parser.parse_args(arguments)
    with looking(given) as place:
        jobs = SeenJobs(place)
        log, copied = jobs.log(given.exec_id), START
        while True:
            seen = jobs.get(given.exec_id)  # before its logs are read: once it has ended, nothing is added
            _check_kept(log, seen.ends)
            copied = _copy(log, copied, seen.ends)
            if seen.ended or not given.follow:
                return 0
            time.sleep(EVERY_S)


def _check_kept(log: JobLog, ends: Ends) -> None:
    if (ends.stdout or ends.stderr) and not log.folder.exists():
        raise NotFound("the logs of this job are not kept any more", hint="its row in cells has the end of them")


def _copy(log: JobLog, start: Ends, end: Ends) -> Ends:
    """Write what the logs have gained; where they were copied to."""
    return Ends(
        _append(log.stdout, start.stdout, end.stdout, sys.stdout.buffer),
        _append(log.stderr, start.stderr, end.stderr, sys.stderr.buffer),
    )


def _append(path: Path, start: int, end: int, target: BinaryIO) -> int:
    if start >= end:
        return start
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return start
    try:
        while start < end and (data := os.pread(descriptor, min(_CHUNK, end - start), start)):
            target.write(data)
            start += len(data)
    finally:
        os.close(descriptor)
    target.flush()
    return start
