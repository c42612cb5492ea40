"""Whether what came is what a transcript says should come, and where it first differs."""

from __future__ import annotations

import os
import re
from typing import Any, cast

import msgspec

from .holes import HOLE, fits, inner_json, walk


class Mismatch(msgspec.Struct, frozen=True):
    """The first difference inside one message; `path` is a JSON path."""

    path: str
    expected: Any
    actual: Any


ABSENT = "(absent)"


class Bindings:
    """What the numbered holes of a transcript stand for in this run; `known` are such as `<workspace>`."""

    def __init__(self, known: dict[str, str] | None = None) -> None:
        self._values: dict[str, Any] = dict(known or {})

    def fill(self, message: Any) -> Any:
        """The message to send: every hole replaced by its value.

        Raises:
            KeyError: a hole that no answer has given a value yet.

        """
        return walk(message, lambda value, _name: self._fill_text(value) if isinstance(value, str) else value)

    def _fill_text(self, text: str) -> Any:
        if text == "<pid>":
            return os.getpid()
        return HOLE.sub(self._value, text)

    def _value(self, match: re.Match[str]) -> str:
        hole = match[0]
        if ":" in hole or hole in self._values:
            return str(self._values[hole])
        return hole

    def match(self, expected: Any, actual: Any, path: str = "$") -> Mismatch | None:
        """The first difference, or None, binding the holes that are met for the first time."""
        if isinstance(expected, dict) and isinstance(actual, dict):
            return self._match_members(cast("dict[str, Any]", expected), cast("dict[str, Any]", actual), path)
        if isinstance(expected, list) and isinstance(actual, list):
            return self._match_items(cast("list[Any]", expected), cast("list[Any]", actual), path)
        if isinstance(expected, str):
            return self._match_text(expected, actual, path)
        same: bool = type(cast("object", expected)) is type(cast("object", actual)) and expected == actual
        return None if same else Mismatch(path, expected, actual)

    def _match_members(self, expected: dict[str, Any], actual: dict[str, Any], path: str) -> Mismatch | None:
        for name in [*expected, *(name for name in actual if name not in expected)]:
            where = f"{path}.{name}"
            if name not in actual or name not in expected:
                return Mismatch(where, expected.get(name, ABSENT), actual.get(name, ABSENT))
            if mismatch := self.match(expected[name], actual[name], where):
                return mismatch
        return None

    def _match_items(self, expected: list[Any], actual: list[Any], path: str) -> Mismatch | None:
        for at, (one, other) in enumerate(zip(expected, actual, strict=False)):
            if mismatch := self.match(one, other, f"{path}[{at}]"):
                return mismatch
        if len(expected) == len(actual):
            return None
        at = min(len(expected), len(actual))
        one, other = ([*items, *[ABSENT] * (at + 1)][at] for items in (expected, actual))
        return Mismatch(f"{path}[{at}]", one, other)

    def _match_text(self, expected: str, actual: Any, path: str) -> Mismatch | None:
        if expected == actual:
            return None
        if HOLE.fullmatch(expected) and ":" not in expected and expected not in self._values:
            return None if fits(expected, actual) else Mismatch(path, expected, actual)
        if not isinstance(actual, str):
            return Mismatch(path, expected, actual)
        inner, other = inner_json(expected), inner_json(actual)
        if inner is not None and other is not None:
            return self.match(inner, other, path)
        found = self._match_holes(expected, actual)
        return None if found else Mismatch(path, expected, actual)

    def _match_holes(self, expected: str, actual: str) -> bool:
        """Match literal text exactly and let holes take the shortest text that makes the whole fit."""
        holes: list[str] = HOLE.findall(expected)
        literal = [re.escape(text) for text in HOLE.split(expected)]
        groups = [self._pattern(hole) for hole in holes]
        pattern = "".join(text + group for text, group in zip(literal, [*groups, ""], strict=True))
        match = re.fullmatch(pattern, actual, re.DOTALL)
        return bool(match) and all(self._bind(hole, value) for hole, value in zip(holes, match.groups(), strict=True))

    def _pattern(self, hole: str) -> str:
        if hole in self._values:
            return f"({re.escape(str(self._values[hole]))})"
        return r"([0-9a-zA-Z-]+?)" if "_id:" in hole else "(.+?)"

    def _bind(self, hole: str, value: str) -> bool:
        if ":" not in hole:
            return True
        if hole not in self._values and value in self._values.values():
            return False  # two holes, so two values
        return self._values.setdefault(hole, value) == value
