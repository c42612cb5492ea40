"""What every Python driver shares: its orders, and one line of JSON for each step's outcome.

    report = Report()
    with report.step("list"):
        report.saw(tools=17)

A driver runs in its client's own environment, so only the standard library is at hand here.
"""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

WITHIN_S = 30.0
"""Bound of every wait for an answer."""


class Orders:
    """What the test tells a driver: the server's command and the story to go through."""

    def __init__(self) -> None:
        given: dict[str, Any] = json.loads(sys.argv[1])
        self.command: list[str] = given["command"]
        self.mode: str | None = given.get("mode")
        story: dict[str, str] = given["story"]
        self.sql = story["sql"]
        self.wrong_sql = story["wrong_sql"]
        self.job = story["job"]
        self.endless = story["endless"]
        self.asked = story["asked"]
        self.refused = story["refused"]


class Report:
    """Prints what came of each step."""

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}

    def saw(self, **values: Any) -> None:
        """Keep what the client saw, for the test to check."""
        self._seen |= values

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        """One step: an exception in it is its outcome, and the driver goes on."""
        around, self._seen = self._seen, {}
        failure = None
        try:
            yield
        except Exception:  # noqa: BLE001 (the outcome is the test's to judge)
            failure = traceback.format_exc(limit=-4)
        sys.stdout.write(json.dumps({"step": name, "failure": failure, "saw": self._seen}) + "\n")
        sys.stdout.flush()
        self._seen = around


def answered(content: dict[str, Any]) -> dict[str, Any]:
    """The fields of a job's outcome that a test looks at."""
    return {name: content.get(name) for name in ("status", "done", "stdout")}
