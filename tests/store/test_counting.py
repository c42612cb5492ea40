"""Numbers of things in words."""

import re
from pathlib import Path

import pytest

from cellhost.store.counting import counted

SOURCES = Path(__file__).parents[2]
RUN_IN_KERNELS = {"launcher.py", "demo.py"}  # code that imports nothing of ours, and counts what is never one


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (0, ("frame",), "0 frames"),
        (1, ("frame",), "1 frame"),
        (2, ("frame",), "2 frames"),
        (1, ("copy left", "copies left"), "1 copy left"),
        (3, ("copy left", "copies left"), "3 copies left"),
    ],
)
def test_one_of_a_thing_is_said_as_one(number: int, words: tuple[str, ...], said: str) -> None:
    assert counted(number, *words) == said


def test_no_text_puts_a_length_before_a_plural_of_its_own() -> None:
    plural = re.compile(r"""\{[^{}]*\blen\([^{}]*\}\s+(?:[a-z]+\s+)?[a-z]+s\b""")
    files = [path for folder in ("rpc", "tools", "store") for path in (SOURCES / folder).rglob("*.py")]
    told = [f"{path.name}: {found}" for path in files for found in plural.findall(path.read_text())]
    assert [each for each in told if each.partition(":")[0] not in RUN_IN_KERNELS] == []
