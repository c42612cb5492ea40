"""The README names every tool and every verb, each in one table."""

from __future__ import annotations

import re
from pathlib import Path

from cellhost.rpc.cli import VERBS
from cellhost.tools.registry import REGISTRY

README = Path(__file__).parents[2] / "README.md"


def column(heading: str, number: int) -> list[str]:
    """First words of the code spans in one column of the first table under a heading."""
    section = README.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line) for line in section.splitlines() if line.startswith("|")]
    return [span.split()[0] for row in rows[2:] for span in re.findall(r"`([^`]+)`", row[number])]


def test_the_readme_lists_every_tool() -> None:
    assert sorted(column("Tools", 2)) == sorted(REGISTRY.tools)


def test_the_readme_lists_every_verb() -> None:
    assert sorted(column("By hand", 1)) == sorted(["serve", *VERBS])
