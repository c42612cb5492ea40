"""What verbs share that look at records: the store of the chosen data folder, read-only, and how times are written."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ..store.store import Store
from ..tools.lines import one_line
from .options import settings_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Iterable, Sequence

    from ..store.records import Records


class Place(NamedTuple):
    """An open store and the project's records in it."""

    store: Store
    records: Records


@contextmanager
def looking(given: argparse.Namespace) -> Generator[Place]:
    """The records that `--data-dir` and `--project` mean, as they are; servers may be at work on them.

    Raises `StorageError` where there are none, `InvalidParams` for settings that do not fit.
    """
    settings = settings_of(given).settings
    with Store(settings.config().data_folder(), read_only=True) as store:
        yield Place(store, store.project(settings.project))


def local_time(at_ms: int | None) -> str:
    """A time of the records in the reader's zone, to the second; `-` for none."""
    if at_ms is None:
        return "-"
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns under their names, as wide as they need to be; the last is never padded."""
    lines = [tuple(head), *(tuple(one_line(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    return "".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip() + "\n"
        for line in lines
    )
