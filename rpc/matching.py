"""Whether what came is what a transcript says should come, and where it first differs."""

from __future__ import annotations

import os
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .holes import HOLE, fits, inner_json, walk

if TYPE_CHECKING:
    from collections.abc import Iterator


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

    def add(self, values: dict[str, str]) -> None:
        """Give holes that have none yet their values."""
        self._values = values | self._values

    def fill(self, message: Any) -> Any:
        """The message to send: every hole replaced by its value.

        Raises:
            KeyError: a hole that no answer has given a value yet.

        """
        filled, missing = self._filled(message)
        if missing:
            raise KeyError(missing[0])
        return filled

    def fill_known(self, message: Any) -> Any:
        """The message with every hole that has a value replaced by it."""
        return self._filled(message)[0]

    def _filled(self, message: Any) -> tuple[Any, list[str]]:
        missing: list[str] = []

        def value(match: re.Match[str]) -> str:
            hole = match[0]
            if ":" in hole and hole not in self._values:
                missing.append(hole)
            return str(self._values.get(hole, hole))

        def fill(leaf: Any, _name: str) -> Any:
            if leaf == "<pid>":
                return os.getpid()
            return HOLE.sub(value, leaf) if isinstance(leaf, str) else leaf

        return walk(message, fill), missing

    def match(self, expected: Any, actual: Any) -> Mismatch | None:
        """The first difference, or None, binding the holes that are met for the first time."""
        return next(self._differ(expected, actual, "$"), None)

    def learn(self, expected: Any, actual: Any) -> None:
        """Bind what can be bound, whatever else differs."""
        for _ in self._differ(expected, actual, "$"):
            pass

    def _differ(self, expected: Any, actual: Any, path: str) -> Iterator[Mismatch]:
        if isinstance(expected, dict) and isinstance(actual, dict):
            yield from self._differ_members(cast("dict[str, Any]", expected), cast("dict[str, Any]", actual), path)
        elif isinstance(expected, list) and isinstance(actual, list):
            yield from self._differ_items(cast("list[Any]", expected), cast("list[Any]", actual), path)
        elif isinstance(expected, str):
            yield from self._differ_text(expected, actual, path)
        elif type(cast("object", expected)) is not type(cast("object", actual)) or expected != actual:
            yield Mismatch(path, expected, actual)

    def _differ_members(self, expected: dict[str, Any], actual: dict[str, Any], path: str) -> Iterator[Mismatch]:
        expected = {str(self._values.get(name, name)): value for name, value in expected.items()}
        for name in [*expected, *(name for name in actual if name not in expected)]:
            where = f"{path}.{name}"
            if name not in actual or name not in expected:
                yield Mismatch(where, expected.get(name, ABSENT), actual.get(name, ABSENT))
            else:
                yield from self._differ(expected[name], actual[name], where)

    def _differ_items(self, expected: list[Any], actual: list[Any], path: str) -> Iterator[Mismatch]:
        pairs = zip_longest(expected, actual, fillvalue=ABSENT)
        for at, (one, other) in enumerate(pairs):
            if at >= len(expected) or at >= len(actual):
                yield Mismatch(f"{path}[{at}]", one, other)
            else:
                yield from self._differ(one, other, f"{path}[{at}]")

    def _differ_text(self, expected: str, actual: Any, path: str) -> Iterator[Mismatch]:
        if expected == actual:
            return
        if HOLE.fullmatch(expected) and ":" not in expected and expected not in self._values:
            same = fits(expected, actual)
        elif not isinstance(actual, str):
            same = False
        elif (inner := inner_json(expected)) is not None and (other := inner_json(actual)) is not None:
            yield from self._differ(inner, other, path)
            return
        else:
            same = self._match_holes(expected, actual)
        if not same:
            yield Mismatch(path, expected, actual)

    def _match_holes(self, expected: str, actual: str) -> bool:
        """Match literal text exactly and let holes take the shortest text that makes the whole fit."""
        holes: list[str] = HOLE.findall(expected)
        literal = [re.escape(text) for text in HOLE.split(expected)]
        groups = [self._pattern(hole) for hole in holes]
        pattern = "".join(text + group for text, group in zip(literal, [*groups, ""], strict=True))
        match = re.fullmatch(pattern, actual, re.DOTALL)
        if match is None:
            return False
        return all(self._bind(hole, value) for hole, value in zip(holes, match.groups(), strict=True))

    def _pattern(self, hole: str) -> str:
        if hole in self._values:
            return f"({re.escape(str(self._values[hole]))})"
        return r"([0-9a-zA-Z-]+?)" if "_id:" in hole else "(.+?)"

    def _bind(self, hole: str, value: str) -> bool:
        if ":" not in hole:
            return True
        if hole not in self._values and value in self._values.values():
            return False  # two holes, so two values
        return bool(self._values.setdefault(hole, value) == value)
