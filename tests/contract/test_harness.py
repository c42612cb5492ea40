"""The harness methods for frames and for who we are, and the doors they are closed to."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.errors import NotFound, UnknownMethod
from cellhost.store.version import VERSION
from cellhost.tools.call import Call

from .checks import only_issue

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Finished, Refused

FRAME = {
    *("frame_id", "parent_id", "root_frame_id", "kind", "name", "task_summary", "model", "status", "depth"),
    *("workspace", "created_at", "updated_at"),
}


# ping


@pytest.mark.parametrize("params", [None, {}, [], [{}]])
async def test_ping_tells_who_we_are(dispatcher: Dispatcher, params: Any) -> None:
    ping = await dispatcher("ping", params)
    assert ping == {
        "version": VERSION,
        "protocol": "1",
        "sqlite": sqlite3.sqlite_version,
        "limits": ping["limits"],
        "features": ping["features"],
        "confinement": "none",
        "project_id": "default",
        "frame_id": dispatcher.frame_id,
    }
    assert ping["limits"]["jobs_running"] == 16
    assert (ping["limits"]["session_kernels"], ping["limits"]["warm_kernels"]) == (8, 1)
    assert (ping["limits"]["job_outputs"], ping["limits"]["output_bytes"]) == (100, 16 << 20)
    assert ping["limits"]["job_output_bytes"] == 256 << 20
    assert "mcp" in ping["features"]


# Frames


async def test_a_new_frame_is_written_at_once_below_the_current_one_and_does_not_become_it(
    dispatcher: Dispatcher,
) -> None:
    current = dispatcher.frame_id
    answer = await dispatcher("frame_new", {"kind": "turn", "name": "a turn", "status": "processing"})
    assert set(answer) == {"frame_id"}
    assert dispatcher.frame_id == current
    (row,) = await dispatcher("query", ["SELECT * FROM frames WHERE frame_id = ?", [answer["frame_id"]]])
    assert (row["parent_id"], row["root_frame_id"], row["depth"]) == (current, current, 1)
    assert (row["kind"], row["name"], row["status"]) == ("turn", "a turn", "processing")


@pytest.mark.parametrize(
    "params",
    [
        ["turn", "named", "other", "done"],
        {"kind": "turn", "name": "named", "projectId": "other", "status": "done"},
        [{"kind": "turn", "name": "named", "project_id": "other", "status": "done"}],
    ],
)
async def test_a_frame_for_another_project_is_a_root_there(dispatcher: Dispatcher, params: Any) -> None:
    frame_id = (await dispatcher("frame_new", params))["frame_id"]
    detail = await dispatcher("frames", {"frame_id": frame_id, "project_id": "other"})
    frame = detail["frame"]
    assert (frame["parent_id"], frame["root_frame_id"], frame["status"]) == (None, frame_id, "done")
    assert (await dispatcher("query", ["SELECT count(*) AS n FROM frames"])) == [{"n": 0}]


@pytest.mark.parametrize("project_id", ["Upper", "a b", "../x", ".hidden", "-x", "é", "a\n"])
async def test_a_project_name_that_no_folder_may_have_is_told(
    dispatcher: Dispatcher, refused: Refused, project_id: str
) -> None:
    error = await refused(dispatcher, "frame_new", {"kind": "turn", "project_id": project_id})
    path, message = only_issue(error)
    assert path == "$.project_id"
    assert message == "must be 1-64 of a-z, 0-9, '.', '_', '-' and start with a letter or digit"
    assert not (dispatcher.host.config.data_folder() / "projects").exists()


async def test_updating_a_frame_changes_what_is_given_and_answers_with_the_frame(dispatcher: Dispatcher) -> None:
    frame_id = (await dispatcher("frame_new", ["turn", "before"]))["frame_id"]
    frame = await dispatcher("frame_update", {"frame_id": frame_id, "status": "done"})
    assert set(frame) == FRAME
    assert (frame["name"], frame["status"], frame["task_summary"]) == ("before", "done", None)
    frame = await dispatcher("frame_update", [frame_id, None, "after", "did it"])
    assert (frame["name"], frame["status"], frame["task_summary"]) == ("after", "done", "did it")
    frame = await dispatcher("frame_update", [{"frameId": frame_id, "taskSummary": "again"}])
    assert (frame["name"], frame["task_summary"]) == ("after", "again")
    assert frame["updated_at"] >= frame["created_at"]
    assert (await dispatcher("frames", [frame_id]))["frame"] == frame


async def test_the_current_frame_can_be_updated_before_anything_is_recorded_in_it(dispatcher: Dispatcher) -> None:
    frame = await dispatcher("frame_update", [dispatcher.frame_id, "done"])
    assert (frame["frame_id"], frame["kind"], frame["status"]) == (dispatcher.frame_id, "session", "done")


async def test_later_calls_are_recorded_in_the_frame_that_is_used_and_in_its_project(
    running: Dispatcher, finished: Finished
) -> None:
    home = running.frame_id
    there = (await running("frame_new", ["turn", None, "other"]))["frame_id"]
    assert await running("frame_use", [there]) == {"frame_id": there, "project_id": "other"}
    ping = await running("ping")
    assert (ping["frame_id"], ping["project_id"]) == (there, "other")
    await running("permission_set", ["project", "exec_background", "*", "allow"])
    await running("write_file", ["a.txt", "x"])
    saved = await running("save_artifact", ["a.txt"])
    outcome = await finished(running, "print(host.query('SELECT count(*) AS n FROM artifacts'))")
    assert outcome["stdout"] == "[{'n': 1}]\n"
    frames = "SELECT frame_id FROM jobs UNION SELECT frame_id FROM artifact_versions"
    assert await running("query", [frames]) == [{"frame_id": there}]

    await running("frame_use", {"frameId": home})
    assert await running("query", [frames]) == []
    assert await running("exec_list") == []
    with pytest.raises(NotFound):
        await running("exec_peek", [outcome["exec_id"]])
    with pytest.raises(NotFound):
        await running("lineage_get", [saved["version_id"]])
    assert set(await running("exec_background", ["print(1)"])) == {"error"}  # that rule is of the other project


async def test_a_child_frame_that_is_used_keeps_its_root(dispatcher: Dispatcher) -> None:
    root = dispatcher.frame_id
    child = (await dispatcher("frame_new", ["turn"]))["frame_id"]
    await dispatcher("frame_use", [child])
    await dispatcher("write_file", ["a.txt", "x"])
    saved = await dispatcher("save_artifact", ["a.txt"])
    assert (await dispatcher("lineage_get", [saved["version_id"]]))["frame_id"] == child
    (artifact,) = (await dispatcher("list_artifacts"))["artifacts"]
    assert artifact["root_frame_id"] == root
    grandchild = (await dispatcher("frame_new", ["turn"]))["frame_id"]
    assert (await dispatcher("frames", [grandchild]))["frame"]["depth"] == 2


async def test_a_frame_that_is_not_there_does_not_become_current(dispatcher: Dispatcher, refused: Refused) -> None:
    before = dispatcher.frame_id
    for frame_id in ("f-000000000000", "nonsense", "/etc", "f-" + "0" * 200):
        error = await refused(dispatcher, "frame_use", [frame_id])
        assert isinstance(error, NotFound)
        assert (str(error), error.code) == ("no such frame", -31404)
    assert dispatcher.frame_id == before


# Doors


@pytest.mark.parametrize("door", ["mcp", "kernel"])
async def test_no_agent_and_no_job_can_call_the_harness_methods(dispatcher: Dispatcher, door: Any) -> None:
    for method in (
        *("ping", "frame_new", "frame_update", "frame_use", "permission_set", "permission_list"),
        *("permission_remove", "permission_check", "permission_pending", "permission_resolve"),
    ):
        with pytest.raises(UnknownMethod):
            await dispatcher.host.call(method, {}, Call(dispatcher.host, door))


@pytest.mark.parametrize("door", ["mcp", "kernel"])
async def test_no_agent_and_no_job_sees_another_project(dispatcher: Dispatcher, door: Any) -> None:
    frame_id = dispatcher.store.new_frame(kind="turn", project_id="other")
    for params in ({"project_id": "other"}, {"project_id": "absent"}, {"project_id": "other", "frame_id": frame_id}):
        with pytest.raises(NotFound, match="no such project"):
            await dispatcher.host.call("frames", params, Call(dispatcher.host, door))
    assert (await dispatcher.host.call("frames", {"project_id": "default"}, Call(dispatcher.host, door)))[
        "frames"
    ] == []
