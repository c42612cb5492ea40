"""What saved versions hold, read and compared: verified, bounded, blocking, for a thread."""

from __future__ import annotations

import base64
import codecs
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec

from ..store.errors import TooLarge
from ..store.objects import not_as_saved
from .file_content import DEFAULT_LINES, measure, read_bytes, read_lines
from .text_diff import MAX_CHARS, unified_diff

if TYPE_CHECKING:
    from ..store.records import Records
    from ..store.rows import Version

MAX_IMAGE_BYTES = 3_750_000
"""5 MB as base64, which is what the strictest of the models take."""

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_CHUNK = 1 << 20
_LONGEST_CHARACTER = 4  # bytes of UTF-8
_INSIDE_CHARACTERS = bytes(range(0x80, 0xC0))


class Piece(msgspec.Struct, frozen=True):
    """A part of a version: text, or bytes as base64; `next_offset` is where the rest begins, if there is any."""

    encoding: Literal["utf-8", "base64", "image"]
    content: str
    lines: int | None
    next_offset: int | None


SHOWN_AS_IMAGE = Piece("image", "", None, None)


def read_version(
    records: Records, version: Version, offset: int, limit: int | None, max_bytes: int, longest_line: int
) -> Piece:
    """Lines of a text, or bytes of anything else, from `offset`, counted from 1, up to `max_bytes` of content.

    A text with a line over `longest_line` bytes is paged by bytes too, or the rest of that line could never be read;
    `lines` is None.

    Raises:
        StorageError: the bytes are missing, cut, or not those that were saved.
    """
    with records.objects.open(version.checksum, version.size_bytes) as file:
        whole = measure(file)
        if whole.checksum != version.checksum:
            raise not_as_saved()
        if _is_text(file):
            if not _lines_fit(file, longest_line):
                return _part_of_text(file, whole.bytes, offset, min(limit or max_bytes, max_bytes))
            read = read_lines(file, whole, offset, limit or DEFAULT_LINES, max_bytes)
            following = offset + read.content.count("\n")
            return Piece("utf-8", read.content, whole.lines, following if read.truncated else None)
        read = read_bytes(file, whole, offset, limit, max_bytes)
        got = len(read.content) // 4 * 3 - read.content[-2:].count("=")
        return Piece("base64", read.content, None, offset + got if read.truncated else None)


def is_image(version: Version) -> bool:
    """Whether models can look at it."""
    return version.content_type in _IMAGES


def image_data(records: Records, version: Version) -> str:
    """An image's bytes as base64.

    Raises:
        TooLarge: no model takes an image of that size.
        StorageError: as `read_version`.
    """
    if version.size_bytes > MAX_IMAGE_BYTES:
        raise TooLarge(
            f"the image has {version.size_bytes} bytes, more than {MAX_IMAGE_BYTES}",
            hint="make a smaller one in a job from host.artifact_path(version_id), or give an offset to read its bytes",
        )
    return base64.b64encode(records.objects.read(version.checksum, version.size_bytes)).decode("ascii")


class Diff(msgspec.Struct, frozen=True):
    """How two versions differ, or why that is not shown line by line."""

    text: str | None
    reason: str | None = None
    truncated: bool = False

    def within(self, longest: int) -> Diff:
        """The same, its text cut at a line's end after at most `longest` characters."""
        if self.text is None or len(self.text) <= longest:
            return self
        return Diff(self.text[: self.text.rfind("\n", 0, longest) + 1], truncated=True)


def diff_versions(records: Records, before: Version, after: Version) -> Diff:
    """The unified diff of two texts.

    Raises:
        StorageError: as `read_version`.
    """
    if before.checksum == after.checksum:
        return Diff("")
    if before.size_bytes + after.size_bytes > MAX_CHARS:
        return Diff(None, f"more than {MAX_CHARS} bytes in all: compare them in a job")
    old, new = _text(records, before), _text(records, after)
    if old is None or new is None:
        return Diff(None, "not both are UTF-8 text")
    diff = unified_diff(old, new, _label(before), _label(after))
    if diff is None:
        return Diff(None, "too many lines to compare: compare them in a job")
    if not diff:
        return Diff("", "only the ends of lines differ")
    return Diff(diff)


def _label(version: Version) -> str:
    return f"{version.filename} ({version.version_id})"


def _text(records: Records, version: Version) -> str | None:
    try:
        text = records.objects.read(version.checksum, version.size_bytes).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _is_text(file: BinaryIO) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    file.seek(0)
    try:
        while chunk := file.read(_CHUNK):
            if b"\0" in chunk:
                return False
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _lines_fit(file: BinaryIO, longest: int) -> bool:
    file.seek(0)
    return all(len(line) <= longest for line in iter(partial(file.readline, longest + 1), b""))


def _part_of_text(file: BinaryIO, size: int, offset: int, limit: int) -> Piece:
    """Whole characters, at least one, from the first that begins at or after the `offset`th byte."""
    most = max(limit, _LONGEST_CHARACTER)
    file.seek(offset - 1)
    data = file.read(most + _LONGEST_CHARACTER - 1)
    text = data.lstrip(_INSIDE_CHARACTERS)
    content, used = codecs.utf_8_decode(text[:most], "strict", False)
    following = offset + len(data) - len(text) + used
    return Piece("utf-8", content, None, following if following <= size else None)
