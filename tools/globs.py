"""Globs as regexes whose stars are atomic: matching time grows with the text, not with its power.

one_line = compile_glob("data-*.csv", anything=r"[^\\r\\n]")
one_line.fullmatch("data-7.csv")
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ANYTHING = r"[\s\S]"


@lru_cache(maxsize=512)
def compile_glob(pattern: str, anything: str = ANYTHING) -> re.Pattern[str]:
    """The regex of a case-sensitive glob of `*`, `?` and `[…]`; `anything` is one character that `*` and `?` match."""
    parts = [""]
    for piece in _pieces(pattern):
        if piece == "*":
            parts.append("")
        else:
            parts[-1] += _one_character(piece, anything)
    first, *rest = parts
    if not rest:
        return re.compile(first)
    between = "".join(f"(?>{anything}*?{part})" for part in rest[:-1])
    return re.compile(f"{first}{between}{anything}*{rest[-1]}")


def _pieces(pattern: str) -> Iterable[str]:
    """The glob's pieces: `*`, `?`, a bracketed class, or one literal character."""
    at = 0
    while at < len(pattern):
        end = pattern.find("]", at + 2) if pattern[at] == "[" else -1
        after = end + 1 if end > 0 else at + 1
        yield pattern[at:after]
        at = after


def _one_character(piece: str, anything: str) -> str:
    if piece == "?":
        return anything
    if len(piece) == 1:
        return re.escape(piece)
    negated = piece[1] == "!"
    body = re.sub(r"([\\\[\]^&~|])", r"\\\1", piece[2:-1] if negated else piece[1:-1])
    try:
        re.compile(f"[{body}]")
    except re.error:
        return r"(?!)"  # a range that runs backwards matches nothing
    return f"(?={anything})[{'^' if negated else ''}{body}]"
