"""Sessions, projects and servers in control.db."""

from pathlib import Path

import pytest

from cellhost.store.errors import InvalidParams
from cellhost.store.ids import new_id
from cellhost.store.store import Store


def test_a_workspace_continues_with_the_session_seen_last(store: Store) -> None:
    sessions = store.control.sessions
    assert sessions.continue_session("folder", "p") is None
    for frame_id in ("f-old", "f-new"):
        sessions.start_session(frame_id, "p", "folder")
    assert sessions.continue_session("folder", "p") == "f-new"
    store.control.database.execute("UPDATE sessions SET last_seen_at = 1")
    sessions.touch("f-old")
    assert sessions.continue_session("folder", "p") == "f-old"


def test_sessions_of_other_workspaces_and_projects_are_not_continued(store: Store) -> None:
    sessions = store.control.sessions
    sessions.start_session("f-1", "p", "folder")
    assert sessions.continue_session("other folder", "p") is None
    assert sessions.continue_session("folder", "q") is None


def test_starting_a_session_again_keeps_its_beginning(store: Store) -> None:
    sessions = store.control.sessions
    sessions.start_session("f-1", "p", "folder")
    store.control.database.execute("UPDATE sessions SET created_at = 1, last_seen_at = 1")
    sessions.start_session("f-1", "p", "other")
    session = sessions.get("f-1")
    assert session is not None
    assert (session.created_at, session.workspace) == (1, "other")
    assert session.last_seen_at > 1


def test_a_frame_is_found_in_its_project_without_opening_it(store: Store, tmp_path: Path) -> None:
    frame_id = store.new_frame(kind="turn", project_id="mine")
    store.close()
    with Store(tmp_path / "data") as again:
        assert again.find_frame_project(frame_id) == "mine"
        assert again.find_frame_project("f-000000000000") is None
        assert not again.project("mine").database.is_open


def test_a_frame_id_is_taken_in_every_project(store: Store) -> None:
    frame_id = new_id("f")
    assert store.new_frame(kind="turn", project_id="mine", frame_id=frame_id) == frame_id
    for project_id in ("mine", "other"):
        with pytest.raises(InvalidParams, match="taken"):
            store.new_frame(kind="turn", project_id=project_id, frame_id=frame_id)
    assert store.find_frame_project(frame_id) == "mine"
    assert store.project("other").frames.browse()["frames"] == []


def test_a_frame_whose_writing_was_cut_short_may_be_written_again(store: Store) -> None:
    frame_id = new_id("f")
    store.control.projects.claim_frame(frame_id, "mine")
    assert store.new_frame(kind="turn", project_id="mine", frame_id=frame_id) == frame_id


def test_servers_come_and_go(store: Store) -> None:
    servers = store.control.servers
    servers.register("s-1", 10, "/run/one")
    servers.register("s-2", 11, "/run/two")
    servers.unregister("s-1")
    assert [(server.server_id, server.pid, server.run_folder) for server in servers.list()] == [("s-2", 11, "/run/two")]
