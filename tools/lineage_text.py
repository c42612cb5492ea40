"""Lineage as text: a tree for a terminal, and the languages of Mermaid and Graphviz."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .lineage_picture import Picture

_MERMAID_SYNTAX = re.compile(r"[^\w ]")


def text(picture: Picture) -> str:
    """Trees of what the version was made from and of what was made from it; each version is unfolded once."""
    inputs: dict[str, list[str]] = defaultdict(list)
    outputs: dict[str, list[str]] = defaultdict(list)
    for start, end in picture.edges:
        inputs[end].append(start)
        outputs[start].append(end)
    lines = [_named(picture, picture.root)]
    for title, following in (("made from", inputs), ("made into", outputs)):
        if following[picture.root]:
            lines += [title, *_tree(picture, following)]
    if picture.reason:
        lines.append(f"… there is more: cut by {picture.reason}")
    return "\n".join(lines) + "\n"


def _tree(picture: Picture, following: dict[str, list[str]]) -> Iterator[str]:
    seen = {picture.root}
    stack = [("", iter(following[picture.root]), len(following[picture.root]))]
    while stack:
        indent, rest, left = stack.pop()
        node = next(rest, None)
        if node is None:
            continue
        last = left == 1
        stack.append((indent, rest, left - 1))
        children = following.get(node, [])
        again = node in seen and bool(children)
        yield f"{indent}{'└── ' if last else '├── '}{_named(picture, node)}{' (see above)' if again else ''}"
        if node not in seen:
            seen.add(node)
            stack.append((indent + ("    " if last else "│   "), iter(children), len(children)))


def _named(picture: Picture, node: str) -> str:
    shown = "".join(c if c.isprintable() else " " for c in picture.versions[node].filename)
    return f"{shown}  {node}"


def mermaid(picture: Picture) -> str:
    """A flowchart from left to right; names are spelt so that none of them can be syntax."""
    numbers = {node: f"n{number}" for number, node in enumerate(picture.versions)}
    lines = ["flowchart LR"]
    if picture.reason:
        lines.append(f"    %% there is more: cut by {picture.reason}")
    for node, version in picture.versions.items():
        name = _MERMAID_SYNTAX.sub(lambda match: f"#{ord(match[0])};", version.filename)
        lines.append(f'    {numbers[node]}["{name}<br/>{node}"]')
    lines += [f"    {numbers[start]} --> {numbers[end]}" for start, end in picture.edges]
    lines += ["    classDef root stroke-width:3px", f"    class {numbers[picture.root]} root"]
    return "\n".join(lines) + "\n"


def dot(picture: Picture) -> str:
    """A digraph from left to right, for Graphviz."""
    lines = ["digraph lineage {", "    rankdir=LR", '    node [shape=box, style=rounded, fontname="sans-serif"]']
    if picture.reason:
        lines.append(f"    label={_quoted(f'there is more: cut by {picture.reason}')}")
    for node, version in picture.versions.items():
        width = ", penwidth=3" if node == picture.root else ""
        lines.append(f"    {_quoted(node)} [label={_quoted(version.filename, node)}{width}]")
    lines += [f"    {_quoted(start)} -> {_quoted(end)}" for start, end in picture.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(*lines: str) -> str:
    escaped = [
        "".join(c if c.isprintable() else " " for c in line).replace("\\", "\\\\").replace('"', '\\"') for line in lines
    ]
    return '"' + "\\n".join(escaped) + '"'
