"""Another process holds a database: the wire goes on, and what needs the file is told that it may be repeated."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Spawn

HELD_S = 10.0


@pytest.mark.slow  # the ten seconds are what is tested
@pytest.mark.parametrize("name", ["control.db", "projects/default/records.db"])
async def test_a_database_held_for_ten_seconds_stops_no_other_call(spawn: Spawn, tmp_path: Path, name: str) -> None:
    async with spawn() as peer:
        await peer.result("write_file", ["a.txt", "one"])
        await peer.result("save_artifact", ["a.txt"])
        with closing(sqlite3.connect(tmp_path / "data" / name, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            until = time.monotonic() + HELD_S
            saves = [await peer.request("save_artifact", ["a.txt"]) for _ in range(2)]
            told: dict[int, dict[str, object]] = {}
            slowest = 0.0
            while time.monotonic() < until:
                begun = time.monotonic()
                id_ = await peer.request("ping")
                while (message := await peer.receive())["id"] != id_:
                    told[message["id"]] = message
                slowest = max(slowest, time.monotonic() - begun)
                await anyio.lowlevel.checkpoint()
            assert slowest < 2
            holder.execute("ROLLBACK")
        while len(told) < len(saves):
            message = await peer.receive()
            told[message["id"]] = message
        error = told[saves[0]]["error"]
        assert isinstance(error, dict)
        assert (error["code"], error["message"]) == (-31507, f"{name} is locked by another process")
        assert error["data"]["retryable"] is True
        saved = await peer.result("save_artifact", ["a.txt"])
        listing = await peer.result("list_artifact_versions", [saved["artifact_id"]])
        # Whatever was answered for is there; a save that only the audit could not note may be there too.
        ordinals = [each["ordinal"] for each in listing["versions"]]
        assert ordinals == list(range(len(ordinals), 0, -1))
        assert len(ordinals) >= 2 + sum("result" in message for message in told.values())
        assert await peer.end() == 0
