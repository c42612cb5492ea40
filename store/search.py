"""Turns whatever a caller types into a full-text query that SQLite takes."""

from __future__ import annotations


def match_all_words(text: str) -> str | None:
    """An FTS5 query for texts with words that begin with each word of `text`; `None` if there is no word in it.

    match_all_words('plot "x') == '"plot"* "x"*'
    """
    words = "".join(_kept(character) for character in text).split()
    return " ".join(f'"{word}"*' for word in words) or None


def _kept(character: str) -> str:
    # What the tokeniser splits at splits here too, or a word of punctuation alone would match nothing.
    return character if character.isalnum() else " "
