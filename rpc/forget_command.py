"""`cellhost forget`: removes a frame, those below it, and everything that was recorded in them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..store.errors import HostError, NotFound
from ..store.forgetting import forget
from ..store.store import Store
from ..tools.config import Config

OK, FAILED = 0, 1


def main(arguments: list[str]) -> int:
    """Forget the frame and return the exit code."""
    given = _parser().parse_args(arguments)
    folder = Config(data_dir=given.data_dir).data_folder()
    try:
        if not (folder / "control.db").exists():  # looking makes none
            raise NotFound("no such frame", hint="nothing is kept in this data folder; name another with --data-dir")
        with Store(folder) as store:
            gone = forget(store, given.frame_id)
    except HostError as error:
        sys.stderr.write(f"cellhost forget: {error}" + (f" ({error.hint})" if error.hint else "") + "\n")
        return FAILED
    sys.stdout.write(
        f"forgot {gone.frames} frames, {gone.cells} cells, {gone.jobs} jobs and {gone.versions} versions, "
        f"{gone.bytes} bytes of files\n"
    )
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cellhost forget",
        description="Remove a frame and those below it for good: rows, logs, and the bytes nobody else needs. "
        "Refuses while one of its jobs runs.",
    )
    parser.add_argument("frame_id", help="a session, turn or job (cellhost frames lists them)")
    parser.add_argument("--data-dir", type=Path, help="where records are kept (default: the user's data folder)")
    return parser
