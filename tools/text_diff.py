"""Unified diffs of texts, bounded in size and in time."""

from __future__ import annotations

import time
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from difflib import Match

MAX_CHARS = 1_000_000
"""Characters of both texts that are compared."""

WITHIN_S = 2.0
"""How long comparing may take: texts made for it could make it take hours."""

_MAX_LINES = 20_000
_CONTEXT = 3


def unified_diff(before: str, after: str, before_name: str, after_name: str) -> str | None:
    """The lines that differ, with three around them; None where comparing them would take too much.

    Empty when only the ends of lines differ.
    """
    if len(before) + len(after) > MAX_CHARS:
        return None
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > _MAX_LINES:
        return None
    matcher = _TimedMatcher(old, new)
    try:
        groups = list(matcher.get_grouped_opcodes(_CONTEXT))
    except TimeoutError:
        return None
    if not groups:
        return ""
    lines = [f"--- {before_name}", f"+++ {after_name}"]
    for group in groups:
        lines += _hunk(group, old, new)
    return "\n".join(lines)


class _TimedMatcher(SequenceMatcher[str]):
    """Compares until its time is over; each step of it is short."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, old, new)
        self._until = time.monotonic() + WITHIN_S

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        if time.monotonic() > self._until:
            raise TimeoutError
        return super().find_longest_match(alo, ahi, blo, bhi)


def _hunk(group: Sequence[tuple[str, int, int, int, int]], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """One piece of a diff, with its head (GNU diffutils manual, Detailed Description of Unified Format)."""
    first, last = group[0], group[-1]
    yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
    for kind, old_from, old_to, new_from, new_to in group:
        if kind == "equal":
            yield from (f" {line}" for line in old[old_from:old_to])
        else:
            yield from (f"-{line}" for line in old[old_from:old_to])
            yield from (f"+{line}" for line in new[new_from:new_to])


def _range(start: int, end: int) -> str:
    length = end - start
    begins = start + 1 if length else start  # of no line, the one before it is named
    return f"{begins}" if length == 1 else f"{begins},{length}"
