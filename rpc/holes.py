"""Volatile values of a conversation as named holes, so that two runs of it read the same.

`"exec-3f0c51b2a9de"` becomes `"<exec_id:1>"`: numbered holes stand for the same value wherever they stand. `"<ms>"` and
its like stand for any value of their kind. What the client sends first is its own and stays as it is.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, cast

from .redaction import REDACTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Direction = Literal["->", "<-"]

# Members whose values differ from run to run, by the hole that stands for them; null is never volatile.
ANY_OF_KIND = {
    "ms": "created_at updated_at started_at ended_at expires_at decided_at modified_at last_seen_at at elapsed_ms",
    "us": "elapsed_us",
    "s": "wall_s cpu_s",
    "kb": "peak_rss_kb",
    "pid": "pid processId",
    "time": "createdAt lastUpdatedAt lastModified",
    "version": "version sqlite python",
    "path": "executable",
    "packages": "packages",
    "traceback": "traceback",
}
# Opaque values, by the members that bring them or take them back.
NUMBERED = {
    "cursor": "next_cursor nextCursor cursor",
    "next": "next since",
    "state": "requestState",
    "fault": "reference",
}
# Ids are known by their form, also inside longer texts.
IDS = {
    "f": "frame_id",
    "c": "cell_id",
    "a": "artifact_id",
    "v": "version_id",
    "exec": "exec_id",
    "perm": "permission_id",
    "s": "server_id",
}
FOLDERS = ("workspace", "data_dir")

_KIND_OF = {member: kind for kind, members in ANY_OF_KIND.items() for member in members.split()}
_NUMBERED_OF = {member: kind for kind, members in NUMBERED.items() for member in members.split()}
# The id in every example of a schema is the same one: part of a text, not of a run.
_EXAMPLE = "0123456789ab"
_ID = re.compile(
    rf"(?<![\w-])(?:(f|c|a|v|exec|perm|s)-(?!{_EXAMPLE})[0-9a-f]{{12}}|(?<=Internal error )[0-9a-f]{{12}})(?![\w-])"
)
_UNMISTAKABLE = 12
_EPOCH_MS = range(1_500_000_000_000, 3_000_000_000_000)

HOLE = re.compile(
    rf"<(?:(?:{'|'.join([*IDS.values(), *NUMBERED, 'ask'])}):\d+|{'|'.join([*ANY_OF_KIND, *FOLDERS])}|redacted)>"
)

_NUMBERS = {"<ms>", "<us>", "<s>", "<kb>", "<pid>"}
_ANYTHING = {"<traceback>", REDACTED}


def fits(hole: str, value: Any) -> bool:
    """Whether a hole that is not numbered may stand for this value."""
    if hole == "<packages>":
        return isinstance(value, dict) and all(isinstance(one, str) for one in cast("dict[str, Any]", value).values())
    if hole in _ANYTHING:
        return value is not None
    if hole in _NUMBERS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str)


def walk(value: Any, leaf: Callable[[Any, str], Any], name: str = "") -> Any:
    """A JSON value with each leaf replaced by `leaf(value, name of its member)`.

    Names of members that are ids are leaves too. The cells of a table (`columns` beside `rows`) have their column's
    name. A text that is JSON is walked as JSON.
    """
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if name in _KIND_OF and fits(f"<{_KIND_OF[name]}>", members):
            return leaf(members, name)
        walked = {_name(key, leaf): walk(member, leaf, key) for key, member in members.items()}
        columns, rows = members.get("columns"), members.get("rows")
        if isinstance(columns, list) and isinstance(rows, list):
            names = [str(column) for column in cast("list[Any]", columns)]
            walked["rows"] = [_walk_row(row, names, leaf) for row in cast("list[Any]", rows)]
        return walked
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return leaf(items, name) if name in _KIND_OF else [walk(item, leaf, name) for item in items]
    inner = inner_json(value)
    return leaf(value, name) if inner is None else compact(walk(inner, leaf))


def _name(key: str, leaf: Callable[[Any, str], Any]) -> str:
    """A member's name, which may be an id itself, as in a graph's `info`."""
    return str(leaf(key, "")) if _ID.fullmatch(key) or HOLE.fullmatch(key) else key


def _walk_row(row: Any, names: list[str], leaf: Callable[[Any, str], Any]) -> Any:
    if not isinstance(row, list):
        return walk(row, leaf)
    cells = cast("list[Any]", row)
    return [walk(cell, leaf, names[at] if at < len(names) else "") for at, cell in enumerate(cells)]


def inner_json(value: Any) -> Any:
    """The object or array that a text holds in the compact form, or None: MCP repeats its answers so."""
    if not isinstance(value, str) or value[:1] not in {"{", "["}:
        return None
    try:
        inner = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return inner if compact(inner) == value else None


def compact(value: Any) -> str:
    """JSON as our encoder writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Names:
    """The holes of one conversation, numbered as they come; `folders` are texts such as the workspace's path."""

    def __init__(self, folders: Mapping[str, str] | None = None) -> None:
        paths = sorted((folders or {}).items(), key=lambda item: -len(item[1]))
        self._folders = {path: f"<{name}>" for name, path in paths if path}
        self._holes: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._own: set[str] = set()

    def name(self, message: Any, direction: Direction) -> Any:
        """The message with holes for what is volatile in it."""
        if direction == "->":
            return walk(message, self._name_sent)
        message = self._name_request(message)
        return walk(message, self._name_received)

    @property
    def values(self) -> dict[str, str]:
        """What each numbered hole stands for."""
        return {hole: value for value, hole in self._holes.items()}

    def _name_request(self, message: Any) -> Any:
        """A request of the server's has an id of its making."""
        if not isinstance(message, dict):
            return message
        request = cast("dict[str, Any]", message)
        if "method" in request and isinstance(request.get("id"), str):
            return request | {"id": self._number("ask", request["id"])}
        return request

    def _name_sent(self, value: Any, name: str) -> Any:
        if name == "processId" and isinstance(value, int):
            return "<pid>"
        if not isinstance(value, str):
            return value
        self._own.update(match[0] for match in _ID.finditer(value) if match[0] not in self._holes)
        return self._known(value, name)

    def _name_received(self, value: Any, name: str) -> Any:
        kind = _KIND_OF.get(name)
        if kind and fits(f"<{kind}>", value):
            return f"<{kind}>"
        if isinstance(value, int) and value in _EPOCH_MS and not isinstance(value, bool):
            return "<ms>"
        if not isinstance(value, str):
            return value
        if value and name in _NUMBERED_OF and value not in self._own and not HOLE.fullmatch(value):
            return self._number(_NUMBERED_OF[name], value)
        return self._known(_ID.sub(self._name_id, value), name)

    def _name_id(self, match: re.Match[str]) -> str:
        value = match[0]
        return value if value in self._own else self._number(IDS[match[1]] if match[1] else "fault", value)

    def _number(self, kind: str, value: str) -> str:
        if value not in self._holes:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._holes[value] = f"<{kind}:{self._counts[kind]}>"
        return self._holes[value]

    def _known(self, text: str, name: str) -> str:
        """Known values put as their holes: whole texts, ids inside them, and paths under a known folder.

        A short opaque value such as `"0"` is one only in the members that carry it.
        """
        if text in self._holes and (name in _NUMBERED_OF or len(text) >= _UNMISTAKABLE):
            return self._holes[text]
        text = _ID.sub(lambda match: self._holes.get(match[0], match[0]), text)
        for path, hole in self._folders.items():
            text = text.replace(path, hole)
        return text
