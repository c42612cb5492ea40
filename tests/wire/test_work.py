"""An agent's work over a real pipe: guarded queries, gated launches, jobs in the workspace, team mode."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Spawn


async def test_a_query_reads_under_a_deny_rule_and_never_writes(spawn: Spawn) -> None:
    async with spawn("--deny", "query", "--deny", "*") as peer:
        assert await peer.result("query", [{"sql": "SELECT 7 AS value"}]) == [{"value": 7}]
        refused = await peer.error("query", [{"sql": "DELETE FROM frames"}])
        assert refused["code"] == -31403
        assert "only allows read-only" in refused["message"]
        assert "settings" not in await peer.result("query_schema", [])


async def test_a_launch_is_gated_and_an_interrupt_works_under_a_deny_rule(spawn: Spawn) -> None:
    async with spawn() as peer:
        endless = {"code": "import time\nprint('up')\nwhile True: time.sleep(0.1)"}
        await peer.result("permission_set", ["global", "exec_background", "*", "deny"])
        denied = await peer.error("exec_background", endless)
        assert (denied["code"], denied["data"]["tool"]) == (-31401, "exec_background")
        assert await peer.result("exec_list") == []

        await peer.result("permission_set", ["global", "exec_background", "*", "allow"])
        launched = await peer.result("exec_background", endless)
        exec_id = launched["exec_id"]
        assert [job["exec_id"] for job in await peer.result("exec_list")] == [exec_id]
        since, printed = "0", ""
        while "up\n" not in printed:
            news = await peer.result("exec_wait", {"exec_id": exec_id, "until": "news", "since": since})
            since, printed = news["next"], printed + news["stdout"]
        assert (await peer.result("exec_peek", [exec_id]))["stdout"] == "up\n"

        await peer.result("permission_set", ["global", "exec_interrupt", "*", "deny"])
        await peer.result("exec_interrupt", [exec_id])
        ended = await peer.result("exec_wait", [exec_id])
        assert (ended["status"], ended["interrupted"], ended["stdout"]) == ("interrupted", True, "up\n")


async def test_a_denied_call_says_how_to_allow_it_and_an_approval_is_good_for_one_call(spawn: Spawn) -> None:
    async with spawn() as peer:
        allow = (await peer.error("exec_background", ["print(1)"]))["data"]["allow_with"]
        assert (await peer.result(allow["method"], allow["params"]))["state"] == "allowed"
        assert (await peer.result("exec_background", ["print(1)"]))["exec_id"]
        assert (await peer.error("exec_background", ["print(1)"]))["data"]["kind"] == "permission"


async def test_a_rule_set_by_the_person_at_the_keyboard_counts_at_once(spawn: Spawn, tmp_path: Path) -> None:
    def rules(*arguments: str) -> str:
        command = [sys.executable, "-P", "-m", "cellhost", "rules", "--data-dir", str(tmp_path / "data"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    async with spawn() as peer:
        await peer.error("exec_background", ["print(1)"])
        rule_id = rules("allow", "exec_background", "print(*").strip()
        assert (await peer.result("exec_background", ["print(1)"]))["exec_id"]
        assert (await peer.error("exec_background", ["import os"]))["data"]["kind"] == "permission"
        assert rule_id in rules("list")
        assert rules("remove", rule_id) == "removed\n"
        assert (await peer.error("exec_background", ["print(1)"]))["data"]["kind"] == "permission"


async def test_a_team_server_refuses_kernels_without_a_session_scoped_factory(spawn: Spawn) -> None:
    async with spawn("--team", "--allow", "exec_background") as peer:
        refused = await peer.error("exec_background", ["print(1)"])
        assert refused["code"] == -31410
        assert "session-scoped kernel factory" in refused["message"]
        assert await peer.result("exec_list") == []


async def test_a_job_sees_what_write_file_wrote_and_its_output_can_be_saved(spawn: Spawn, tmp_path: Path) -> None:
    async with spawn("--allow", "exec_background") as peer:
        await peer.result("write_file", [{"path": "notes.txt", "content": "payload"}])
        code = (
            "content = open('notes.txt').read()\n"
            "open('made_by_cell.txt', 'w').write(content.upper())\n"
            "import os, json\n"
            "print(os.getcwd())\n"
            "print(json.dumps(host.query('SELECT filename FROM artifacts')))\n"
        )
        launched = await peer.result("exec_background", [{"code": code}])
        outcome = await peer.result("exec_wait", [launched["exec_id"]])
        assert outcome["error"] is None
        folder, rows = outcome["stdout"].splitlines()
        assert folder == str((tmp_path / "workspace").resolve())
        assert json.loads(rows) == []
        saved = await peer.result("save_artifact", [{"path": "made_by_cell.txt"}])
        assert saved["filename"] == "made_by_cell.txt"
        files = await peer.result("list_files")
        assert [each["path"] for each in files["files"]] == ["made_by_cell.txt", "notes.txt"]


async def test_calls_of_a_job_are_audited_as_the_jobs(spawn: Spawn, tmp_path: Path) -> None:
    async with spawn("--allow", "exec_background") as peer:
        launched = await peer.result("exec_background", ["host.write_file('a.txt', 'x')"])
        assert (await peer.result("exec_wait", [launched["exec_id"]]))["status"] == "done"
        assert await peer.end() == 0
    from cellhost.store.store import Store

    with Store(tmp_path / "data") as store:
        rows = store.control.audit.list(methods=["write_file"])
        assert [(row.door, row.exec_id, row.ok) for row in rows] == [("kernel", launched["exec_id"], True)]
