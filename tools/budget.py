"""Answers cut to a door's budget: never over it, always saying so and how to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .call import Call

T = TypeVar("T")

_MARKS_CHARS = 200
"""What `truncated` and the hint take."""

_SHORTENINGS = (4000, 1000, 200)


def size(value: Any) -> int:
    """Characters of a value's JSON."""
    return len(msgspec.json.encode(value).decode("utf-8"))


async def page_within(call: Call, limit: int, fetch: Callable[[int], Awaitable[T]]) -> T:
    """Fetch a page of `limit` rows, of fewer while the page is over the call's budget."""
    while True:
        page = await fetch(limit)
        if call.budget is None or limit == 1 or (taken := size(page)) <= call.budget:
            return page
        limit = max(1, min(limit - 1, limit * call.budget // taken))


def fit(result: dict[str, Any], max_chars: int, go_on: str) -> dict[str, Any]:
    """The result itself if it fits; else cut at its longest list, then in its long texts, and marked `truncated`."""
    if size(result) <= max_chars:
        return result
    room = max_chars - _MARKS_CHARS - len(go_on)
    cut = _cut_longest_list(result, room)
    for longest in _SHORTENINGS:
        if size(cut) <= room:
            break
        cut = _shortened(cut, longest)
    if size(cut) > room:
        cut = {}
    return cut | {"truncated": True, "go_on_with": go_on}


def _cut_longest_list(result: dict[str, Any], room: int) -> dict[str, Any]:
    lists = {name: cast("list[Any]", value) for name, value in result.items() if isinstance(value, list)}
    if not lists:
        return result
    name = max(lists, key=lambda each: size(lists[each]))
    left = room - size(result | {name: []})
    kept: list[Any] = []
    for item in lists[name]:
        left -= size(item) + 1
        if left < 0 and kept:
            break
        kept.append(item)
    return result | {name: kept}


def _shortened(value: Any, longest: int) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}… ({len(value) - longest} characters more)"
    if isinstance(value, dict):
        return {name: _shortened(inner, longest) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_shortened(inner, longest) for inner in cast("list[Any]", value)]
    return value
