"""What nobody refers to any more: found, and removed while servers go on working.

    for found in collect(store):
        print(found.kind, found.name, found.bytes)

A save writes its rows in the transaction that gives the bytes their name, and a job's row is there before its logs: so
what has no row while we hold the write lock belongs to nobody.
"""

from __future__ import annotations

import re
import shutil
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from . import runfolder
from .ids import EXEC_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .records import Records
    from .store import Store

Kind = Literal["object", "half copy", "half file", "job log", "server"]

_OBJECT = re.compile(r"[0-9a-f]{64}")
_AT_ONCE = 100
"""Files looked at while the write lock is held: a server's own writing waits some milliseconds at most."""


class Garbage(msgspec.Struct, frozen=True):
    """Something nobody refers to; `bytes` is what removing it gives back."""

    kind: Kind
    name: str
    bytes: int


def collect(store: Store, *, dry_run: bool = False) -> Iterator[Garbage]:
    """Finds what nobody refers to in any project, and removes it unless `dry_run`.

    Objects of no version, copies that a killed server left half made, logs of no job, and servers that were killed:
    their run folders go, and their jobs are marked lost. Raises `StorageError`.
    """
    yield from _servers(store, dry_run=dry_run)
    for project in store.control.projects.list():
        if (store.project_folder(project.project_id) / "records.db").exists():
            yield from _of_project(store.project(project.project_id), dry_run=dry_run)
    if not dry_run:
        store.control.database.give_back_space()


def _servers(store: Store, *, dry_run: bool) -> Iterator[Garbage]:
    for server in store.control.servers.list():
        if not runfolder.is_live(Path(server.run_folder)):
            yield Garbage("server", server.server_id, 0)
    if not dry_run:
        runfolder.sweep()
        store.mark_dead_servers()


def _of_project(records: Records, *, dry_run: bool) -> Iterator[Garbage]:
    for path in records.objects.abandoned():
        size = _size(path)
        if dry_run or records.objects.remove_abandoned(path):
            yield Garbage("half copy", path.name, size)
    objects = (path for path in (records.folder / "objects").glob("??/*") if _OBJECT.fullmatch(path.name))
    yield from _unreferenced(records, objects, "object", _VERSIONS, dry_run=dry_run)
    logs = (path for path in (records.folder / "jobs").glob("*") if EXEC_ID.fullmatch(path.name))
    yield from _unreferenced(records, logs, "job log", _JOBS, dry_run=dry_run)
    if not dry_run:
        records.database.give_back_space()


_VERSIONS = "SELECT DISTINCT checksum FROM artifact_versions WHERE checksum IN (SELECT value FROM json_each(?))"
_JOBS = "SELECT exec_id FROM jobs WHERE exec_id IN (SELECT value FROM json_each(?))"


def _unreferenced(
    records: Records, paths: Iterator[Path], kind: Kind, referring: str, *, dry_run: bool
) -> Iterator[Garbage]:
    """The files or folders named for a row that there is not."""
    while some := list(islice(paths, _AT_ONCE)):
        names = msgspec.json.encode([path.name for path in some]).decode()
        found: list[Garbage] = []
        with records.database.transaction():
            needed = {name for (name,) in records.database.rows(referring, [names])}
            for path in some:
                if path.name not in needed:
                    found.append(Garbage(kind, path.name, _size(path)))
                    if not dry_run:
                        _remove(path)
        yield from found


def _size(path: Path) -> int:
    """Bytes of a file, or of the files in a folder; what vanishes meanwhile has none."""
    try:
        return sum(map(_size, path.iterdir())) if path.is_dir() else path.stat().st_size
    except OSError:
        return 0


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
