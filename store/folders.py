"""Folders of ours: readable by their owner only, from the moment they exist."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from .faults import write_fault

if TYPE_CHECKING:
    from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Makes the folder and those missing above it, mode 0700; one that is there stays as it is.

    Raises `StorageError`.
    """
    try:
        _make(folder)
    except OSError as error:
        raise write_fault(error) from error


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable, as `fsync` does for a file's bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make(folder: Path) -> None:
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
