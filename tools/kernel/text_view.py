r"""The readable view of a job's logs: `\r` folded, long output as its head and tail.

A progress bar that redraws its line a thousand times is one line here, in its last state. Logs of ordinary size are
folded whole; of larger ones only the two ends are read as text, and the middle is counted.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from ...store.counting import counted
from .log import MIN_PAGE, Ends, JobLog, Page, Stream, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

WHOLE_BYTES = 8 << 20
_SLICE = 1 << 20
_KEPT_CHARS = 4096
_NOTE_CHARS = 80
_NOTED_FROM = 2 * _NOTE_CHARS
_CONTINUATION = bytes(range(0x80, 0xC0))
_REDRAWN_LINE = re.compile(r"[^\n]*\r[^\n]*")


def fold(text: str) -> str:
    r"""Each line in its last state: what stands after its last `\r`, as a terminal would leave it."""
    return _REDRAWN_LINE.sub(_last_state, text) if "\r" in text else text


def _last_state(line: re.Match[str]) -> str:
    return next((state for state in reversed(line[0].split("\r")) if state), "")


class TextViewer:
    """Makes views of one job's logs; remembers its last small one and how many characters it has counted."""

    def __init__(self, log: JobLog) -> None:
        self._log = log
        self._counts: dict[Path, tuple[int, int]] = {}
        self._last: tuple[tuple[Ends, int, Stream, bool], Page] | None = None

    def view(self, ends: Ends, *, max_chars: int, stream: Stream, final: bool) -> Page:
        """The logs up to `ends` in at most `max_chars` characters, shared fairly between the two."""
        asked = (ends, max_chars, stream, final)
        last = self._last
        if last is not None and last[0] == asked:  # who polls a job mostly finds what was there the last time
            return last[1]
        page = self._view(ends, max_chars, stream, final)
        self._last = (asked, page) if len(page.stdout) + len(page.stderr) <= _KEPT_CHARS else None
        return page

    def _view(self, ends: Ends, max_chars: int, stream: Stream, final: bool) -> Page:
        wanted = Ends(0 if stream == "stderr" else ends.stdout, 0 if stream == "stdout" else ends.stderr)
        budget = max(2 * MIN_PAGE, max_chars)
        for_stderr = min(wanted.stderr, max(budget // 2, budget - wanted.stdout))
        stdout, out_end, out_dropped = self._one(self._log.stdout, wanted.stdout, budget - for_stderr, final)
        stderr, err_end, err_dropped = self._one(self._log.stderr, wanted.stderr, for_stderr, final)
        dropped = out_dropped + err_dropped
        return Page(stdout, stderr, str(Ends(out_end, err_end, ends.outputs)), dropped > 0, dropped)

    def _one(self, path: Path, end: int, limit: int, final: bool) -> tuple[str, int, int]:
        """Text, the offset it covers the log up to, and how many characters it leaves out."""
        if end > WHOLE_BYTES:
            return self._ends_of(path, end, limit, final)
        text, covered = codecs.utf_8_decode(read_bytes(path, 0, end), "replace", final)
        folded = fold(text)
        if len(folded) <= limit:
            return folded, covered, 0
        head, tail = _shares(limit)
        dropped = len(folded) - head - tail
        return _join(folded[:head], dropped, folded[-tail:], limit), covered, dropped

    def _ends_of(self, path: Path, end: int, limit: int, final: bool) -> tuple[str, int, int]:
        first, last = (min(share, WHOLE_BYTES // 2) for share in _shares(limit))
        head, _ = codecs.utf_8_decode(read_bytes(path, 0, first), "replace")
        raw = read_bytes(path, end - last, last)
        raw = raw[_first_boundary(raw) :]
        tail, used = codecs.utf_8_decode(raw, "replace", final)
        dropped = self._count(path, end) - len(head) - len(tail)
        return _join(fold(head), dropped, fold(tail), limit), end - len(raw) + used, dropped

    def _count(self, path: Path, end: int) -> int:
        """Characters up to `end`, counted once: a character is a byte that continues none."""
        done, chars = self._counts.get(path, (0, 0))
        while done < end:
            data = read_bytes(path, done, min(_SLICE, end - done))
            if not data:
                break
            chars += len(data) if data.isascii() else len(data.translate(None, _CONTINUATION))
            done += len(data)
        self._counts[path] = (done, chars)
        return chars


def _first_boundary(data: bytes) -> int:
    """Where the first whole character starts."""
    return next((i for i, byte in enumerate(data[:MIN_PAGE]) if byte & 0xC0 != 0x80), 0)


def _shares(limit: int) -> tuple[int, int]:
    """Characters for the head and for the tail, with room left for the note between them."""
    room = limit - _NOTE_CHARS if limit >= _NOTED_FROM else limit
    return room // 2, room - room // 2


def _join(head: str, dropped: int, tail: str, limit: int) -> str:
    if limit < _NOTED_FROM:
        return head + tail
    return f"{head}\n[… {counted(dropped, 'character')} left out; page through all with since …]\n{tail}"
