"""Texts of whatever kind, as they are shown on one line."""

from __future__ import annotations


def one_line(text: str, most: int = 200) -> str:
    """Text that a terminal shows on one line, whatever is in it."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def first_line(text: str, most: int = 80) -> str:
    """The first line with anything on it, on which it may be cut."""
    return one_line(text.strip().partition("\n")[0].strip(), most)
