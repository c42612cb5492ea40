"""`cellhost demo`: the main job on real input, every message shown with what it means.

Spawns a real server over pipes with a fresh data folder and workspace, and checks every answer.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.counting import counted
from .client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

OK, FAILED = 0, 1
SHOWN_CHARS = 230
MOST_NEWS = 20

SUMMARY_JOB = """\
import csv, time
from collections import defaultdict

with open("penguins.csv") as file:
    rows = [row for row in csv.DictReader(file) if row["body_mass_g"] != "NA"]
masses = defaultdict(list)
for number, row in enumerate(rows, start=1):
    masses[row["species"], row["sex"]].append(float(row["body_mass_g"]))
    if number % 57 == 0:
        print(f"read {number} of {len(rows)} penguins", flush=True)
        host.progress(number, len(rows), row["species"])
        time.sleep(0.1)

source = host.query("SELECT version_id FROM artifact_versions WHERE filename = ?", ["penguins.csv"])[0]
with open("mass_by_species.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["species", "sex", "count", "mean_mass_g"])
    for (species, sex), values in sorted(masses.items()):
        writer.writerow([species, sex, len(values), round(sum(values) / len(values), 1)])
saved = host.save_artifact("mass_by_species.csv", input_version_ids=[source["version_id"]])
print("saved", saved["version_id"])
"""

ENDLESS_JOB = "import itertools, time\nfor n in itertools.count():\n    print('still at it', n)\n    time.sleep(0.05)\n"


class DemoFailed(Exception):
    """An answer was not what it must be."""


class Demo:
    """The steps, in order; each says what it does and checks the answer."""

    def __init__(self, client: Client, say: Callable[[str], None]) -> None:
        self._client = client
        self._say = say

    def result(self, meaning: str, method: str, params: Any = None) -> Any:
        """Make a call that must succeed."""
        self._say(f"\n# {meaning}")
        response = self._client.call(method, params)
        if "result" not in response:
            raise DemoFailed(f"{method} failed: {response['error']['message']}")
        return response["result"]

    def error(self, meaning: str, method: str, params: Any, kind: str) -> dict[str, Any]:
        """Make a call that must fail with an error of that kind."""
        self._say(f"\n# {meaning}")
        response = self._client.call(method, params)
        if response.get("error", {}).get("data", {}).get("kind") != kind:
            raise DemoFailed(f"{method} should have been refused as {kind!r}")
        error: dict[str, Any] = response["error"]
        return error

    def run(self) -> None:
        """All of it."""
        self.result("Is anybody there? Version, limits, and the frame that calls are recorded in.", "ping")
        source = self._save_input()
        exec_id = self._launch_after_approval()
        self._watch(exec_id)
        self._interrupt_endless_job()
        saved = self._ask_records(exec_id)
        self._walk_lineage(saved, source)
        self._refused_writes()
        self.result("Enough. The server answers, ends its jobs and exits.", "shutdown")

    def _save_input(self) -> str:
        data = files("cellhost.rpc").joinpath("penguins.csv").read_text()
        written = self.result(
            "Write a data set into the workspace: 344 penguins of Palmer Station.",
            "write_file",
            {"path": "penguins.csv", "content": data},
        )
        check(written["bytes"] == len(data.encode()), "all bytes were written")
        saved = self.result(
            "Keep it as an artifact: immutable bytes, with a checksum.", "save_artifact", ["penguins.csv"]
        )
        check(saved["checksum"] == written["checksum"], "what was saved is what was written")
        return str(saved["version_id"])

    def _launch_after_approval(self) -> str:
        launch = {"code": SUMMARY_JOB, "label": "mass by species"}
        error = self.error(
            "Start a job. Nobody has allowed jobs yet, so it is denied, with how to allow it.",
            "exec_background",
            launch,
            "permission",
        )
        allow = error["data"]["allow_with"]
        self.result("The person at the keyboard allows this code, once.", allow["method"], allow["params"])
        launched = self.result("The same call again: now it runs, and returns at once.", "exec_background", launch)
        check(launched["status"] in ("queued", "starting", "running"), "the job is on its way")
        return str(launched["exec_id"])

    def _watch(self, exec_id: str) -> None:
        self._until_it_prints(exec_id)
        peeked = self.result("Look at the job while it runs: never waits.", "exec_peek", [exec_id])
        check(not peeked["done"] and "read 57 of 342" in peeked["stdout"], "output is seen live")
        done = self.result("Wait until it is done.", "exec_wait", {"exec_id": exec_id, "timeout_s": 60})
        check(done["status"] == "done" and done["error"] is None, "the job succeeded")
        check(done["stdout"].splitlines()[-1].startswith("saved v-"), "the job saved its file through `host`")
        check(done["progress"]["done"] == 342 and done["progress"]["total"] == 342, "its progress was reported")

    def _until_it_prints(self, exec_id: str) -> None:
        meaning, since = "Wait for news: another status, progress or output.", "0"
        for _ in range(MOST_NEWS):
            news = self.result(meaning, "exec_wait", {"exec_id": exec_id, "until": "news", "since": since})
            if news["stdout"]:
                return
            meaning, since = "Wait for more.", news["next"]
        raise DemoFailed("the job never printed")

    def _interrupt_endless_job(self) -> None:
        self.result(
            "Allow jobs for this conversation from now on.",
            "permission_set",
            {"scope": "conversation", "tool": "exec_background", "pattern": "*", "decision": "allow"},
        )
        launched = self.result("Start a job that never ends.", "exec_background", [ENDLESS_JOB])
        exec_id = launched["exec_id"]
        self._until_it_prints(exec_id)
        self.result("Stop it. Needs no approval.", "exec_interrupt", [exec_id])
        ended = self.result("It has ended, and its output is kept.", "exec_wait", {"exec_id": exec_id, "timeout_s": 30})
        check(ended["status"] == "interrupted" and "still at it" in ended["stdout"], "the job was interrupted")

    def _ask_records(self, exec_id: str) -> str:
        jobs = self.result(
            "Ask the records with SQL: which jobs were there?",
            "query",
            ["SELECT exec_id, status FROM jobs ORDER BY created_at, exec_id"],
        )
        check({job["status"] for job in jobs} == {"done", "interrupted"}, "both jobs are on record")
        versions = self.result(
            "Which file did the first job save?",
            "query",
            {
                "sql": "SELECT v.version_id, v.filename FROM artifact_versions v JOIN jobs j "
                "ON j.cell_id = v.producing_cell_id WHERE j.exec_id = :exec_id",
                "params": {"exec_id": exec_id},
            },
        )
        check([version["filename"] for version in versions] == ["mass_by_species.csv"], "its file is on record")
        return str(versions[0]["version_id"])

    def _walk_lineage(self, saved: str, source: str) -> None:
        lineage = self.result("Where did this file come from? The code, and its inputs.", "lineage_get", [saved])
        check(lineage["code"] == SUMMARY_JOB, "the code that made it is on record")
        graph = self.result("Walk the whole ancestry.", "lineage_graph", {"version_id": saved})
        check(
            [(edge["from"], edge["to"]) for edge in graph["edges"]] == [(source, saved)],
            "it was made from the data set",
        )

    def _refused_writes(self) -> None:
        self.error("SQL that writes is refused.", "query", ["DELETE FROM jobs"], "denied")
        self.error(
            "So is a file outside the workspace.",
            "write_file",
            {"path": "../elsewhere.txt", "content": "x"},
            "denied",
        )


def check(holds: bool, expectation: str) -> None:
    """Raises `DemoFailed` unless an answer is right."""
    if not holds:
        raise DemoFailed(f"expected that {expectation}")


def main(arguments: list[str]) -> int:
    """Run the demo and return 0 if every answer was right."""
    parser = argparse.ArgumentParser(prog="cellhost demo", description=__doc__)
    parser.add_argument("--full", action="store_true", help="show every message whole")
    full = parser.parse_args(arguments).full
    with tempfile.TemporaryDirectory(prefix="cellhost-demo-") as folder:
        data, workspace = Path(folder, "data"), Path(folder, "workspace")
        workspace.mkdir()
        serve = ["--config", os.devnull, "--data-dir", str(data), "--workspace", str(workspace)]
        try:
            with Client(serve, lambda way, line: _show(way, line, full=full)) as client:
                Demo(client, _say).run()
                check(client.close() == 0, "the server exits with 0")
                check(
                    sorted(path.name for path in workspace.iterdir()) == ["mass_by_species.csv", "penguins.csv"],
                    "no file is left over",
                )
        except (DemoFailed, ConnectionError) as error:
            _say(f"\nFAILED: {error}")
            return FAILED
    _say("\nEvery answer was right.")
    return OK


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _show(way: str, line: bytes, *, full: bool) -> None:
    text = line.decode().rstrip("\n")
    if not full and len(text) > SHOWN_CHARS:
        text = f"{text[:SHOWN_CHARS]}… ({counted(len(text), 'character')})"
    _say(f"{way} {text}")
