"""Every tool has a transcript, and a fresh server still answers as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellhost.rpc.replay import replay
from cellhost.rpc.rerecord import rerecord
from cellhost.tools.registry import REGISTRY

FOLDER = Path(__file__).parents[1] / "transcripts"


def test_every_tool_has_a_transcript_and_every_transcript_a_tool() -> None:
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(REGISTRY.tools)


@pytest.mark.parametrize("name", REGISTRY.tools)
def test_a_fresh_server_answers_as_the_transcript_says(name: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{name}.jsonl"
    if request.config.getoption("--update-transcripts"):
        rerecord(path)
    assert replay(path) is None
