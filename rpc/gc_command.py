"""`cellhost gc`: removes what nobody refers to any more, while servers go on working."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..store.errors import HostError
from ..store.garbage import Garbage, collect
from ..store.store import Store
from ..tools.config import Config
from ..tools.leftovers import half_written

if TYPE_CHECKING:
    from collections.abc import Iterator

OK, FAILED = 0, 1

_KINDS = {
    "object": "objects of no version",
    "half copy": "copies left half made",
    "half file": "files left half written in workspaces",
    "job log": "logs of no job",
    "server": "servers that were killed",
}


def main(arguments: list[str]) -> int:
    """Remove it, or only list it, and return the exit code."""
    given = _parser().parse_args(arguments)
    folder = Config(data_dir=given.data_dir).data_folder()
    if not (folder / "control.db").exists():  # looking makes none
        sys.stdout.write("nothing is kept in this data folder\n")
        return OK
    try:
        with Store(folder) as store:
            found = [*collect(store, dry_run=given.dry_run), *_half_files(store, dry_run=given.dry_run)]
            _report(found, dry_run=given.dry_run)
    except HostError as error:
        sys.stderr.write(f"cellhost gc: {error}" + (f" ({error.hint})" if error.hint else "") + "\n")
        return FAILED
    return OK


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
        sys.stdout.write(f"{verb} {len(sizes)} {_KINDS[kind]}, {sum(sizes)} bytes\n")
    if not found:
        sys.stdout.write("nothing to remove\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cellhost gc",
        description="Remove bytes and logs that nobody refers to and what killed servers left; servers may be at work.",
    )
    parser.add_argument("--data-dir", type=Path, help="where records are kept (default: the user's data folder)")
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed, and remove nothing")
    return parser
