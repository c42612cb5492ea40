"""The object store: bytes of artifact versions, named by their SHA-256, kept once and never changed.

    with objects.stage(path) as staged:          # the long part: copies, hashes and fsyncs in one pass
        artifacts.save(staged, …)                # the short part: places the bytes and writes the rows

A copy in progress is an `.incoming-…` file whose lock is held; one that a killed server left behind is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from .errors import StorageError
from .faults import write_fault
from .folders import make_private_folder, sync_folder
from .sources import copy_hashed, open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_INCOMING = ".incoming-"
_CHUNK = 1 << 20
_SPOILT_HINT = "put the project's objects folder back from a copy; other versions are not affected"


class Staged(msgspec.Struct, frozen=True):
    """Bytes that are safe on the disk and not yet anybody's; `checksum` is SHA-256 in hex."""

    checksum: str
    size: int
    path: Path


class Objects:
    """The objects of one project, under `folder`; safe to use from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._swept = False

    def path(self, checksum: str) -> Path:
        """Where the bytes are, if they are there."""
        return self._folder / checksum[:2] / checksum

    @contextlib.contextmanager
    def stage(self, source: Path | BinaryIO) -> Generator[Staged]:
        """Copies a regular file, or what is left of an open one, into the store; gone again unless placed.

        Raises `NotFound` or `InvalidParams` for a file that cannot be read, `Busy` for one that changes meanwhile,
        `StorageError` when the copy cannot be written.
        """
        with open_source(source) as reading:
            self._sweep()
            path, descriptor = self._incoming()
            try:
                checksum, size = copy_hashed(reading, descriptor)
                yield Staged(checksum, size, path)
            finally:
                path.unlink(missing_ok=True)
                os.close(descriptor)

    def place(self, staged: Staged) -> None:
        """Gives the staged bytes their name. Raises `StorageError`.

        They take the place of what has that name already: whoever spoilt those bytes has not spoilt this save.
        """
        target = self.path(staged.checksum)
        make_private_folder(target.parent)
        try:
            staged.path.replace(target)
            sync_folder(target.parent)
        except OSError as error:
            raise write_fault(error) from error

    def put(self, source: Path | BinaryIO) -> tuple[str, int]:
        """Keeps the bytes and returns their SHA-256 (hex) and size. Raises what `stage` and `place` raise."""
        with self.stage(source) as staged:
            self.place(staged)
        return staged.checksum, staged.size

    def remove(self, checksum: str) -> int:
        """Takes the bytes away and returns how many they were; only for who knows that no version names them."""
        path, size = self.path(checksum), 0
        with contextlib.suppress(FileNotFoundError):
            size = path.stat().st_size
            path.unlink()
        return size

    def open(self, checksum: str, size: int | None = None) -> BinaryIO:
        """Opens the bytes for reading; with `size`, only if they are whole. Raises `StorageError`."""
        try:
            opened = self.path(checksum).open("rb")
        except OSError as error:
            raise _lost() from error
        if size is not None and os.fstat(opened.fileno()).st_size != size:
            opened.close()
            raise _lost()
        return opened

    def is_complete(self, checksum: str, size: int) -> bool:
        """Whether as many bytes are there as were saved; they are not read."""
        try:
            return self.path(checksum).stat().st_size == size
        except OSError:
            return False

    def copy(self, checksum: str, size: int, write: Callable[[bytes], object]) -> None:
        """Hands the bytes on in pieces. Raises `StorageError` at the end unless they are those that were saved."""
        digest = hashlib.sha256()
        with self.open(checksum, size) as reading:
            while piece := _read(reading):
                digest.update(piece)
                write(piece)
        if digest.hexdigest() != checksum:
            raise not_as_saved()

    def read(self, checksum: str, size: int) -> bytes:
        """All the bytes, as they were saved. Raises `StorageError`."""
        pieces: list[bytes] = []
        self.copy(checksum, size, pieces.append)
        return b"".join(pieces)

    def _incoming(self) -> tuple[Path, int]:
        make_private_folder(self._folder)
        while True:
            path = self._folder / f"{_INCOMING}{os.urandom(8).hex()}"
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o400)
            except OSError as error:
                raise write_fault(error) from error
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Another server's sweep may have come between the two lines above.
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
            os.close(descriptor)

    def _sweep(self) -> None:
        """Removes, once, what servers that were killed left half copied."""
        if not self._swept:
            self._swept = True
            for path in self.abandoned():
                self.remove_abandoned(path)

    def abandoned(self) -> list[Path]:
        """What servers that were killed left half copied; what is being copied now is not among it."""
        return [path for path in self._folder.glob(f"{_INCOMING}*") if _if_free(path, lambda: None)]

    def remove_abandoned(self, path: Path) -> bool:
        """Removes one of `abandoned`; false when it has gone meanwhile."""
        return _if_free(path, path.unlink)


def _if_free(path: Path, act: Callable[[], None]) -> bool:
    """Acts while nobody else can hold the file; false when somebody does, or it is not there."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            act()
        finally:
            os.close(descriptor)
        return True
    return False


def _read(reading: BinaryIO) -> bytes:
    try:
        return reading.read(_CHUNK)
    except OSError as error:
        raise _lost() from error


def not_as_saved() -> StorageError:
    """The error for bytes that somebody changed."""
    return StorageError("the bytes of this version are not those that were saved", hint=_SPOILT_HINT)


def _lost() -> StorageError:
    return StorageError("the bytes of this version are missing or incomplete", hint=_SPOILT_HINT)
