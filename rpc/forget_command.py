"""`cellhost forget`: removes a frame, those below it, and everything that was recorded in them."""

from __future__ import annotations

import sys

from ..store.counting import counted
from ..store.errors import NotFound
from ..store.forgetting import forget
from ..store.store import Store
from ..tools.copies import remove_copies
from .options import Parser, add_data_dir, settings_of


def main(arguments: list[str]) -> int:
    """Forget the frame and return the exit code."""
    parser = Parser(
        prog="cellhost forget",
        description="Remove a frame and those below it for good: rows, logs, and the bytes nobody else needs. "
        "Refuses while one of its jobs runs.",
    )
    parser.add_argument("frame_id", help="a session, turn or job (cellhost frames lists them)")
    add_data_dir(parser)
    given = parser.parse_args(arguments)
    folder = settings_of(given).settings.config().data_folder()
    if not (folder / "control.db").exists():  # looking makes none
        raise NotFound("no such frame", hint="nothing is kept in this data folder; name another with --data-dir")
    with Store(folder) as store:
        workspaces = store.control.sessions.workspaces()  # as long as the session is there
        gone = forget(store, given.frame_id)
        freed = gone.bytes + remove_copies(workspaces, gone.versions)
    sys.stdout.write(
        f"forgot {counted(gone.frames, 'frame')}, {counted(gone.cells, 'cell')}, {counted(gone.jobs, 'job')} and "
        f"{counted(len(gone.versions), 'version')}, {counted(freed, 'byte')} of files\n"
    )
    return 0
