"""The in-process door: a host embedded in Python, without and with kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, Dispatcher, build_dispatcher
from cellhost.store.errors import Closed, Denied, InvalidParams, NotFound, NotReadOnly, UnknownMethod
from cellhost.tools.config import Kept, Limits

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import SetRule


class RecordingExecutor:
    """An executor of another kind: notes its calls, answers in its own words."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def launch(self, code: str, origin: str = "agent") -> dict[str, Any]:
        self.calls.append(("launch", code, origin))
        return {"exec_id": "exec-1", "status": "running"}

    def list_jobs(self) -> list[dict[str, Any]]:
        self.calls.append(("list",))
        return [{"exec_id": "exec-1", "status": "running"}]

    def peek(self, exec_id: str) -> dict[str, Any]:
        self.calls.append(("peek", exec_id))
        return {"exec_id": exec_id, "status": "done", "done": True, "stdout": "partial"}

    def interrupt(self, exec_id: str) -> dict[str, Any]:
        self.calls.append(("interrupt", exec_id))
        return {"exec_id": exec_id, "status": "interrupted"}


async def test_query_stays_read_only_and_answers_under_a_deny_rule(dispatcher: Dispatcher, rule: SetRule) -> None:
    rule(dispatcher, "query", "deny")
    assert await dispatcher("query", [{"sql": "SELECT 7 AS value"}]) == [{"value": 7}]
    with pytest.raises(NotReadOnly, match="only allows read-only") as caught:
        await dispatcher("query", [{"sql": "DELETE FROM frames"}])
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, PermissionError)


async def test_the_schema_shows_no_table_of_the_control_database(dispatcher: Dispatcher) -> None:
    schema = await dispatcher("query_schema", [])
    assert {"frames", "cells", "jobs", "artifacts", "artifact_versions", "lineage_edges"} <= schema.keys()
    assert not {"settings", "permission_rules", "host_calls", "permission_requests"} & schema.keys()


@pytest.mark.parametrize(
    "params",
    [["SELECT 7 AS value"], [{"sql": "SELECT 7 AS value"}], {"sql": "SELECT 7 AS value"}, ["SELECT ? AS value", [7]]],
)
async def test_every_form_of_params_is_the_same_query(dispatcher: Dispatcher, params: Any) -> None:
    assert await dispatcher("query", params) == [{"value": 7}]


async def test_query_answers_as_table_and_as_frame(dispatcher: Dispatcher) -> None:
    table = await dispatcher("query", {"sql": "SELECT 1 AS a, 'x' AS a", "format": "table"})
    assert (table["columns"], table["rows"], table["row_count"]) == (["a", "a"], [[1, "x"]], 1)
    assert await dispatcher("query", {"sql": "SELECT 1 AS a", "df": True}) == {"columns": ["a"], "rows": [[1]]}
    assert await dispatcher("query", {"sql": "SELECT 1 AS a, 'x' AS a"}) == [{"a": 1, "a_2": "x"}]


async def test_a_launch_is_gated_and_an_interrupt_is_not(dispatcher: Dispatcher, rule: SetRule) -> None:
    executor = dispatcher.background = RecordingExecutor()
    rule(dispatcher, "exec_background", "deny")
    denied = await dispatcher("exec_background", [{"code": "print(1)"}])
    assert set(denied) == {"error"}
    assert denied["error"].startswith("Permission denied")
    assert executor.calls == []

    rule(dispatcher, "exec_background", "allow")
    assert await dispatcher("exec_background", [{"code": "print(1)"}]) == {"exec_id": "exec-1", "status": "running"}
    assert await dispatcher("exec_list", []) == [{"exec_id": "exec-1", "status": "running"}]
    assert (await dispatcher("exec_peek", ["exec-1"]))["stdout"] == "partial"
    rule(dispatcher, "exec_interrupt", "deny")
    assert (await dispatcher("exec_interrupt", ["exec-1"]))["status"] == "interrupted"
    assert executor.calls == [
        ("launch", "print(1)", "agent"),
        ("list",),
        ("peek", "exec-1"),
        ("interrupt", "exec-1"),
    ]


async def test_a_replaced_executor_is_waited_for_by_looking_at_it(dispatcher: Dispatcher) -> None:
    dispatcher.background = RecordingExecutor()
    assert (await dispatcher("exec_wait", ["exec-1"]))["done"] is True


async def test_a_replaced_executor_gets_further_arguments_only_when_they_were_given(
    dispatcher: Dispatcher, rule: SetRule
) -> None:
    class Labelled:
        def __init__(self) -> None:
            self.calls: list[tuple[Any, ...]] = []

        async def launch(self, code: str, origin: str = "agent", **given: Any) -> dict[str, Any]:
            self.calls.append(("launch", code, origin, given))
            return {"exec_id": "exec-2", "status": "queued", "theirs": True}

    executor = dispatcher.background = Labelled()
    rule(dispatcher, "exec_background", "allow")
    launched = await dispatcher("exec_background", {"code": "1", "label": "x", "origin": "user"})
    assert launched == {"exec_id": "exec-2", "status": "queued", "theirs": True}
    assert executor.calls == [("launch", "1", "user", {"label": "x"})]


async def test_nobody_is_there_to_ask_so_a_launch_is_denied_and_says_how_to_allow_it(dispatcher: Dispatcher) -> None:
    executor = dispatcher.background = RecordingExecutor()
    denied = await dispatcher("exec_background", ["print(1)"])
    assert "needs approval" in denied["error"]
    (request,) = await dispatcher("permission_pending")
    assert (request["tool"], request["preview"], request["state"]) == ("exec_background", "print(1)", "pending")
    resolved = await dispatcher("permission_resolve", [request["request_id"], "allow"])
    assert resolved == {"state": "allowed", "rule_id": None}
    assert executor.calls == []

    assert (await dispatcher("exec_background", ["print(1)"]))["exec_id"] == "exec-1"
    assert "error" in await dispatcher("exec_background", ["print(1)"])


async def test_an_approval_of_code_is_remembered_for_that_code_only(dispatcher: Dispatcher) -> None:
    dispatcher.background = RecordingExecutor()
    await dispatcher("exec_background", ["print(*)"])
    (request,) = await dispatcher("permission_pending")
    resolved = await dispatcher("permission_resolve", [request["request_id"], "allow", "always"])
    (remembered,) = [each for each in await dispatcher("permission_list") if each["rule_id"] == resolved["rule_id"]]
    assert remembered["pattern"].startswith("sha256:")
    for _ in range(2):
        assert (await dispatcher("exec_background", ["print(*)"]))["exec_id"] == "exec-1"
    assert "error" in await dispatcher("exec_background", ["print(2)"])


async def test_the_same_call_made_again_is_the_same_request(dispatcher: Dispatcher) -> None:
    for _ in range(3):
        await dispatcher("exec_background", ["print(1)"])
    await dispatcher("exec_background", ["print(2)"])
    assert len(await dispatcher("permission_pending")) == 2


async def test_an_approval_for_once_is_spent_by_one_of_eight_racing_calls(dispatcher: Dispatcher) -> None:
    executor = dispatcher.background = RecordingExecutor()
    await dispatcher("exec_background", ["print(1)"])
    (request,) = await dispatcher("permission_pending")
    await dispatcher("permission_resolve", [request["request_id"], "allow"])
    answers: list[dict[str, Any]] = []

    async def race() -> None:
        answers.append(await dispatcher("exec_background", ["print(1)"]))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(race)
    assert sorted("exec_id" in answer for answer in answers) == [False] * 7 + [True]
    assert executor.calls == [("launch", "print(1)", "agent")]


async def test_permission_check_tells_what_the_rules_would_say(dispatcher: Dispatcher, rule: SetRule) -> None:
    assert (await dispatcher("permission_check", ["query", {"sql": "SELECT 1"}]))["decision"] == "allow"
    assert (await dispatcher("permission_check", ["exec_background", {"code": "1"}]))["decision"] == "ask"
    assert (await dispatcher("permission_check", ["write_file", {"path": "a", "content": ""}]))["decision"] == "allow"
    rule(dispatcher, "write_file", "deny")
    assert (await dispatcher("permission_check", ["write_file", {"path": "a", "content": ""}]))["decision"] == "deny"


async def test_a_rule_for_a_path_holds_however_the_path_is_written(dispatcher: Dispatcher, tmp_path: Path) -> None:
    await dispatcher("permission_set", ["global", "write_file", "secret/*", "deny"])
    for path in (
        "secret/a.txt",
        "./secret/a.txt",
        "secret/../secret/a.txt",
        str(tmp_path / "work" / "secret" / "a.txt"),
    ):
        assert set(await dispatcher("write_file", [path, "x"])) == {"error"}
    assert not (tmp_path / "work" / "secret").exists()


@pytest.mark.parametrize("path", ["../out.txt", "/etc/passwd", "link/out.txt"])
async def test_a_path_outside_the_workspace_is_denied(dispatcher: Dispatcher, tmp_path: Path, path: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path)
    for tool, params in (("write_file", [path, "x"]), ("read_file", [path]), ("save_artifact", [path])):
        with pytest.raises(Denied, match="outside the workspace") as caught:
            await dispatcher(tool, params)
        assert str(tmp_path) not in str(caught.value)
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    "path",
    [".env", "prod.ENV", ".env.local", "server.pem", "keys/my.KEY", "id_rsa", "x/id_ed25519", ".netrc", ".pgpass"],
)
async def test_secret_files_are_vetoed_before_any_rule(
    dispatcher: Dispatcher, tmp_path: Path, path: str, rule: SetRule
) -> None:
    rule(dispatcher, "*", "allow")
    target = tmp_path / "work" / path
    target.parent.mkdir(parents=True)
    target.write_text("secret")
    (tmp_path / "work" / "innocent.txt").symlink_to(target)
    for name in (path, "innocent.txt"):
        for tool, params in (("write_file", [name, "x"]), ("read_file", [name]), ("save_artifact", [name])):
            with pytest.raises(Denied, match="secrets"):
                await dispatcher(tool, params)
    assert target.read_text() == "secret"
    listed = await dispatcher("list_files", ["**"])
    assert [each["path"] for each in listed["files"]] == []


async def test_the_example_of_an_env_file_is_no_secret(dispatcher: Dispatcher) -> None:
    assert (await dispatcher("write_file", [".env.example", "KEY="]))["bytes"] == 4


async def test_jobs_need_a_running_host_and_the_error_says_how(dispatcher: Dispatcher, rule: SetRule) -> None:
    rule(dispatcher, "exec_background", "allow")
    with pytest.raises(Closed) as caught:
        await dispatcher("exec_background", ["print(1)"])
    assert "async with build_dispatcher" in (caught.value.hint or "")


async def test_an_unknown_method_names_the_nearest(dispatcher: Dispatcher) -> None:
    with pytest.raises(UnknownMethod) as caught:
        await dispatcher("exec_lst")
    assert caught.value.hint == "did you mean exec_list?"
    with pytest.raises(UnknownMethod):
        await dispatcher("progress", {"done": 1})


async def test_frames_of_another_project_can_be_seen_in_process(dispatcher: Dispatcher) -> None:
    frame_id = dispatcher.store.new_frame(kind="turn", project_id="other", status="ready")
    assert (await dispatcher("frames", {"project_id": "other"}))["frames"][0]["frame_id"] == frame_id
    assert (await dispatcher("frames"))["frames"] == []
    with pytest.raises(NotFound):
        await dispatcher("frames", {"frame_id": frame_id})


async def test_a_frame_of_another_project_can_be_made_current(dispatcher: Dispatcher) -> None:
    dispatcher.frame_id = dispatcher.store.new_frame(kind="turn", project_id="other", status="ready")
    ping = await dispatcher("ping")
    assert (ping["project_id"], ping["frame_id"]) == ("other", dispatcher.frame_id)
    with pytest.raises(NotFound):
        dispatcher.frame_id = "f-000000000000"


async def test_nothing_is_written_by_looking(dispatcher: Dispatcher, tmp_path: Path) -> None:
    await dispatcher("ping")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(warm_kernels=17), "Config.warm_kernels: expected int <= 16"),
        (Config(limits=Limits(session_kernels=0)), "Config.limits.session_kernels: expected int >= 1"),
        (Config(kept=Kept(job_age_s=-1.0)), "Config.kept.job_age_s: expected float > 0.0"),
    ],
)
async def test_a_number_out_of_its_bounds_keeps_a_host_from_opening(
    tmp_path: Path, config: Config, message: str
) -> None:
    config.data_dir = tmp_path / "data"
    made = build_dispatcher(config, workspace=tmp_path / "work")
    with pytest.raises(InvalidParams) as refusal:
        await made.__aenter__()
    assert str(refusal.value) == message
    await made.host.aclose()


async def test_a_host_continues_its_workspaces_session(tmp_path: Path) -> None:
    frames: list[str] = []
    for new_session in (False, False, True):
        config = Config(data_dir=tmp_path / "data", new_session=new_session)
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            await made("write_file", ["a.txt", "x"])
            await made("save_artifact", ["a.txt"])
            frames.append(made.frame_id)
            assert len((await made("artifacts"))["artifacts"]) == (2 if new_session else 1)
    assert frames[0] == frames[1] != frames[2]


async def test_every_call_is_audited_without_contents_and_secrets(dispatcher: Dispatcher, rule: SetRule) -> None:
    await dispatcher("write_file", ["a.txt", "the content"])
    await dispatcher("query", ["SELECT 1"])
    with pytest.raises(InvalidParams):
        await dispatcher("query", {})
    with pytest.raises(UnknownMethod):
        await dispatcher("no_such_method", {"api_key": "hunter2"})
    rule(dispatcher, "exec_background", "deny")
    await dispatcher("exec_background", {"code": "1", "env": {"PASSWORD": "hunter2"}})
    rows = dispatcher.store.control.audit.list()
    assert [(row.method, row.ok, row.error_kind) for row in reversed(rows)] == [
        ("write_file", True, None),
        ("query", True, None),
        ("query", False, "params"),
        ("no_such_method", False, "method"),
        ("exec_background", False, "permission"),
    ]
    everything = "".join(row.args_preview for row in rows)
    assert "the content" not in everything
    assert "hunter2" not in everything
    assert {row.door for row in rows} == {"in_process"}


async def test_team_mode_refuses_kernels_without_a_session_scoped_factory(tmp_path: Path, rule: SetRule) -> None:
    config = Config(data_dir=tmp_path / "data")
    config.team_mode = True
    made = build_dispatcher(config, workspace=tmp_path / "data" / "agent-workspaces" / "session")
    with pytest.raises(RuntimeError, match="session-scoped kernel factory"):
        await made.new_background_kernel()
    async with made:
        rule(made, "exec_background", "allow")
        with pytest.raises(RuntimeError, match="session-scoped kernel factory"):
            await made("exec_background", ["print(1)"])
        assert await made("exec_list") == []


async def test_a_job_runs_where_write_file_writes_and_nothing_lands_in_our_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: SetRule
) -> None:
    own_folder = tmp_path / "own"
    own_folder.mkdir()
    monkeypatch.chdir(own_folder)
    workspace = tmp_path / "data" / "agent-workspaces" / "f-1"
    with anyio.fail_after(60):
        async with build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=workspace) as made:
            made.frame_id = made.store.new_frame(kind="turn", project_id="proj-1", status="ready")
            rule(made, "exec_background", "allow")
            assert (await made("write_file", [{"path": "notes.txt", "content": "payload"}])).get("error") is None
            code = (
                "content = open('notes.txt').read()\n"
                "open('made_by_cell.txt', 'w').write(content.upper())\n"
                "import os\nprint(os.getcwd())\n"
            )
            launched = await made("exec_background", [{"code": code}])
            outcome = await made("exec_wait", [launched["exec_id"]])
            assert outcome["error"] is None
            assert outcome["stdout"].strip() == str(workspace.resolve())
            saved = await made("save_artifact", [{"path": "made_by_cell.txt"}])
            assert saved["filename"] == "made_by_cell.txt"
            assert (workspace / "made_by_cell.txt").read_text() == "PAYLOAD"
            (job,) = await made("exec_list")
            assert (job["exec_id"], job["status"], job["done"]) == (launched["exec_id"], "done", True)
    assert list(own_folder.iterdir()) == []


async def test_a_job_calls_back_into_the_host_while_it_runs(running: Dispatcher, rule: SetRule) -> None:
    rule(running, "exec_background", "allow")
    await running("write_file", ["input.txt", "one two three"])
    source = await running("save_artifact", ["input.txt"])
    code = (
        "rows = host.query('SELECT filename FROM artifact_versions')\n"
        "print(rows)\n"
        f"path = host.artifact_path({source['version_id']!r})\n"
        "open('count.txt', 'w').write(str(len(open(path).read().split())))\n"
        "host.progress(1, 2, 'half way')\n"
        "saved = host.save_artifact('count.txt')\n"
        "print(host.lineage[saved['version_id']].filename)\n"
        "try:\n"
        "    host.exec_wait(host.exec_id)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    launched = await running("exec_background", [code])
    outcome = await running("exec_wait", [launched["exec_id"]])
    assert outcome["error"] is None, outcome
    lines = outcome["stdout"].splitlines()
    assert lines[:2] == ["[{'filename': 'input.txt'}]", "count.txt"]
    assert "cannot wait for itself" in lines[2]
    assert outcome["progress"] == {"done": 1.0, "total": 2.0, "message": "half way"}
    version = (await running("query", ["SELECT version_id FROM artifact_versions WHERE filename = 'count.txt'"]))[0]
    lineage = await running("lineage_get", [version["version_id"]])
    assert lineage["code"] == code
    assert lineage["inputs"] == [{"version_id": source["version_id"], "filename": "input.txt"}]


async def test_a_denied_call_of_a_job_raises_in_the_job(running: Dispatcher, rule: SetRule) -> None:
    rule(running, "exec_background", "allow")
    await running("permission_set", ["global", "write_file", "forbidden.txt", "deny"])
    code = "try:\n    host.write_file('forbidden.txt', 'x')\nexcept RuntimeError as error:\n    print(error)\n"
    launched = await running("exec_background", [code])
    outcome = await running("exec_wait", [launched["exec_id"]])
    assert outcome["stdout"].startswith("host.write_file error: Permission denied")


async def test_a_module_written_into_the_workspace_can_be_imported_and_shadows_nothing(
    running: Dispatcher, rule: SetRule
) -> None:
    rule(running, "exec_background", "allow")
    await running("write_file", ["plot_data.py", "VALUE = 42\n"])
    await running("write_file", ["json.py", "raise SystemExit('shadowed')\n"])
    launched = await running("exec_background", ["import json, plot_data\nplot_data.VALUE"])
    outcome = await running("exec_wait", [launched["exec_id"]])
    assert (outcome["status"], outcome["result"]) == ("done", "42")


async def test_calls_on_one_file_keep_the_order_they_came_in(running: Dispatcher) -> None:
    saved: list[dict[str, Any]] = []

    async def save() -> None:
        saved.append(await running("save_artifact", ["a.txt"]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(running, "write_file", ["a.txt", "x" * 200_000])
        tasks.start_soon(save)
    assert saved[0]["size_bytes"] == 200_000
