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

TITLES = {
    "once": "Allow once",
    "conversation": "Allow in this conversation",
    "project": "Allow in this project",
    "always": "Always allow",
}
"""How a form or a message offers each approval."""


class Orders:
    """What the test tells a driver: the server's command and the story to go through."""

    def __init__(self) -> None:
        given: dict[str, Any] = json.loads(sys.argv[1])
        self.command: list[str] = given["command"]
        self.mode: str | None = given.get("mode")
        story: dict[str, Any] = given["story"]
        self.sql: str = story["sql"]
        self.wrong_sql: str = story["wrong_sql"]
        self.job: str = story["job"]
        self.endless: str = story["endless"]
        self.asked: str = story["asked"]
        self.refused: str = story["refused"]
        self.remember: dict[str, str] = story["remember"]
        self.twice = [code for code in self.remember.values() for _ in range(2)]


class Person:
    """Decides what is asked: refuses what is to be refused, else allows for as long as the story has it."""

    def __init__(self, orders: Orders) -> None:
        self.asked: list[str] = []
        self._orders = orders

    def decide(self, text: str) -> str | None:
        """How long an approval of what is shown holds; None to refuse it."""
        self.asked.append(text)
        if self._orders.refused in text:
            return None
        return next((name for name, code in self._orders.remember.items() if code in text), "once")

    def asks(self) -> dict[str, int]:
        """How often each code that the story runs twice was asked for."""
        return {name: sum(code in text for text in self.asked) for name, code in self._orders.remember.items()}


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
