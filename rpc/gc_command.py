"""`cellhost gc`: removes what nobody refers to any more, while servers go on working."""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..store.counting import counted
from ..store.garbage import Garbage, collect
from ..store.store import Store
from ..tools.temporary import half_written
from .options import Parser, add_data_dir, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = {
    "object": ("object of no version", "objects of no version"),
    "half copy": ("copy left half made", "copies left half made"),
    "half file": ("file left half written in its workspace", "files left half written in workspaces"),
    "job log": ("log of no job", "logs of no job"),
    "server": ("server that was killed", "servers that were killed"),
}


def main(arguments: list[str]) -> int:
    """Remove it, or only list it, and return the exit code."""
    parser = Parser(
        prog="cellhost gc",
        description="Remove bytes and logs that nobody refers to and what killed servers left; servers may be at work.",
    )
    add_data_dir(parser)
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed, and remove nothing")
    given = parser.parse_args(arguments)
    folder = settings_of(given).settings.config().data_folder()
    if not (folder / "control.db").exists():  # looking makes none
        sys.stdout.write("nothing is kept in this data folder\n")
        return 0
    with Store(folder) as store:
        found = [*collect(store, dry_run=given.dry_run), *_half_files(store, dry_run=given.dry_run)]
    _report(found, dry_run=given.dry_run)
    return 0


def _half_files(store: Store, *, dry_run: bool) -> Iterator[Garbage]:
    for workspace in store.control.sessions.workspaces():
        for path in half_written(Path(workspace)):
            with suppress(OSError):
                size = path.stat().st_size
                if not dry_run:
                    path.unlink()
                yield Garbage("half file", path.name, size)


def _report(found: list[Garbage], *, dry_run: bool) -> None:
    of_kind: dict[str, list[int]] = defaultdict(list)
    for each in found:
        of_kind[each.kind].append(each.bytes)
        if dry_run:
            sys.stdout.write(f"{each.kind:<9}  {each.name}  {each.bytes}\n")
    verb = "would remove" if dry_run else "removed"
    for kind, sizes in of_kind.items():
        sys.stdout.write(f"{verb} {counted(len(sizes), *_KINDS[kind])}, {counted(sum(sizes), 'byte')}\n")
    if not found:
        sys.stdout.write("nothing to remove\n")
