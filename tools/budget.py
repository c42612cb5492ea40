"""Answers cut to a door's budget: never over it, always saying so and how to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from ..store.counting import counted

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
        if call.budget is None or limit == 1:
            return page
        room = call.budget - _MARKS_CHARS
        if (taken := size(page)) <= room:
            return page
        limit = max(1, min(limit - 1, limit * room // taken))


def fit(result: dict[str, Any], max_chars: int, go_on: str, *, keyed: bool = False) -> dict[str, Any]:
    """The result itself if it fits; else cut. Cut here or by the tool, it is marked `truncated` and says how to go on.

    Cut are its longest list, then its long texts, then its largest object. A `keyed` result is a collection itself,
    such as tables by their names: members are left out from its end.
    """
    marks = {"truncated": True, "go_on_with": go_on}
    whole = result | marks if result.get("truncated") is True else result
    if size(whole) <= max_chars:
        return whole
    room = max_chars - _MARKS_CHARS - len(go_on)
    cut = _cut_members(result, room) if keyed else _cut_largest(result, list, room)
    for longest in _SHORTENINGS:
        if size(cut) <= room:
            break
        cut = shortened(cut, longest)
    if size(cut) > room:
        cut = _cut_largest(cut, dict, room)
    if size(cut) > room:
        cut = {}
    return cut | marks


def _cut_largest(result: dict[str, Any], kind: type[list[Any] | dict[str, Any]], room: int) -> dict[str, Any]:
    """The result with the largest of its lists, or of its objects, cut so that all of it fits."""
    sizes = {name: size(value) for name, value in result.items() if isinstance(value, kind)}
    if not sizes:
        return result
    name = max(sizes, key=sizes.__getitem__)
    left = room - (size(result) - sizes[name])
    return result | {name: _leading(result[name], left)}


def _cut_members(result: dict[str, Any], room: int) -> dict[str, Any]:
    """The first members that fit; in one that would take more than half of the room, its longest list is cut."""
    most = room // 2
    members = {key: _cut_member(value, most) for key, value in result.items()}
    kept: dict[str, Any] = _leading(members, room)
    return kept


def _cut_member(member: Any, most: int) -> Any:
    if size(member) <= most:
        return member
    return (
        _cut_largest(cast("dict[str, Any]", member), list, most) if isinstance(member, dict) else _leading(member, most)
    )


def _leading(collection: Any, room: int) -> Any:
    """A list's or an object's first items that fit, and one at least."""
    pairs = isinstance(collection, dict)
    kept: list[Any] = []
    for item in cast("dict[str, Any]", collection).items() if pairs else cast("list[Any]", collection):
        room -= size(item) + 1
        if room < 0 and kept:
            break
        kept.append(item)
    return dict(kept) if pairs else kept


def shortened(value: Any, longest: int) -> Any:
    """The value with every text in it cut to `longest` characters and a note of how many are left out."""
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}… ({counted(len(value) - longest, 'character')} more)"
    if isinstance(value, dict):
        return {name: shortened(inner, longest) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [shortened(inner, longest) for inner in cast("list[Any]", value)]
    return value
