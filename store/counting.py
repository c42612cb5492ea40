"""Numbers of things, as people say them."""

from __future__ import annotations


def counted(number: int, noun: str, many: str | None = None) -> str:
    """How many of them there are.

    counted(1, "frame") == "1 frame"; counted(0, "frame") == "0 frames"; counted(2, "copy", "copies") == "2 copies"
    """
    return f"{number} {noun if number == 1 else many or f'{noun}s'}"
