"""A job's two logs: exact bytes, paged by byte offset and cut at the ends of characters.

    page = read_page(log, position=parse_position("0"), ends=log.sizes(), max_chars=1000, stream="both", final=False)
    page.next          # opaque: give it as `since` to get what came after

The pages of a log, put together, are the log. Bytes that are not UTF-8 read as U+FFFD, wherever pages are cut.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from ...store.errors import InvalidParams, Issue, StorageError

if TYPE_CHECKING:
    from pathlib import Path

Stream: TypeAlias = Literal["both", "stdout", "stderr"]
DEFAULT_MAX_CHARS = 1_000_000
MIN_PAGE = 4  # the longest character in UTF-8: a page must be able to hold one
_POSITION = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})(?:\.([0-9]{1,18}))?")


class Ends(msgspec.Struct, frozen=True):
    """Byte offsets into the two logs: sizes, or a place to go on from; and how often the outputs have changed."""

    stdout: int
    stderr: int
    outputs: int = 0

    def __str__(self) -> str:
        logs = f"{self.stdout}.{self.stderr}"
        return f"{logs}.{self.outputs}" if self.outputs else logs


START = Ends(0, 0)


class Page(msgspec.Struct, frozen=True):
    """Text of the two logs; `truncated`: there is more than fitted, `dropped_chars` of it left out for good."""

    stdout: str
    stderr: str
    next: str
    truncated: bool
    dropped_chars: int = 0


class JobLog:
    """Where a job's output lies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stdout = folder / "stdout.log"
        self.stderr = folder / "stderr.log"

    def sizes(self) -> Ends:
        """Bytes in the logs now; a log that does not exist (yet) has none."""
        return Ends(_size(self.stdout), _size(self.stderr))

    def cut(self, ends: Ends) -> None:
        """Drop what was written after the job's end, by children that outlived it for a moment."""
        for path, end in ((self.stdout, ends.stdout), (self.stderr, ends.stderr)):
            with suppress(OSError):
                if _size(path) > end:
                    os.truncate(path, end)


def _size(path: Path) -> int:
    """Bytes; none of what is no file: the job's code may have put anything in its place."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def parse_position(since: str) -> Ends:
    """The offsets in a `since`; `"0"` is the start. Raises `InvalidParams` for anything we never gave out."""
    if since == "0":
        return START
    match = _POSITION.fullmatch(since)
    if match is None:
        raise InvalidParams(
            "since is not a position in the logs",
            [Issue("$.since", "must be the `next` of an earlier answer")],
            hint='pass `next` unchanged, or "0" for the start',
        )
    return Ends(int(match[1]), int(match[2]), int(match[3] or 0))


def read_page(log: JobLog, position: Ends, ends: Ends, *, max_chars: int, stream: Stream, final: bool) -> Page:
    """What the logs hold between `position` and `ends`, raw, at most `max_chars` characters in all.

    `final`: nothing will be added, so that a character broken off at the very end is given as U+FFFD instead of
    being kept back until the rest of it comes.
    """
    budget = max(MIN_PAGE, max_chars)
    out = err = None
    if stream != "stderr":
        out = read_text(log.stdout, position.stdout, ends.stdout, budget, final=final)
        budget -= len(out.text)
    if stream != "stdout":
        err = read_text(log.stderr, position.stderr, ends.stderr, budget, final=final)
    following = Ends(out.end if out else position.stdout, err.end if err else position.stderr, ends.outputs)
    more = any(passage.more for passage in (out, err) if passage)
    return Page(out.text if out else "", err.text if err else "", str(following), more)


class Passage(msgspec.Struct, frozen=True):
    """Text out of one log, the offset after it, and whether more was there than was asked for."""

    text: str
    end: int
    more: bool


def read_text(path: Path, start: int, end: int, limit: int, *, final: bool) -> Passage:
    """At most `limit` characters of a file from byte `start`, not beyond `end`; none if a character may not fit."""
    if start >= end or limit < MIN_PAGE:
        return Passage("", start, start < end)
    data = read_bytes(path, start, min(limit, end - start))
    stop = start + len(data)
    text, used = codecs.utf_8_decode(data, "replace", final and stop >= end)
    return Passage(text, start + used, stop < end)


def read_bytes(path: Path, start: int, length: int) -> bytes:
    """That part of a file; shorter where the file ends, nothing where there is none.

    Raises `StorageError` for a file that cannot be read.
    """
    if length <= 0:
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # whatever stands in its place
        try:
            return os.pread(descriptor, length, start)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return b""
    except OSError as error:
        raise StorageError(
            f"a job's log cannot be read: {error.strerror}", hint="check the data folder and its disk, then try again"
        ) from None
