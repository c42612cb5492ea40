"""The store as a whole: lazy, isolated by project, shared by servers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellhost.store.errors import Closed, InvalidParams
from cellhost.store.jobs import NewJob
from cellhost.store.runfolder import RunFolder
from cellhost.store.store import Store


def test_a_store_that_is_not_used_touches_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        store.project("p")
    assert list(tmp_path.iterdir()) == []


def test_importing_the_store_imports_nothing_heavy() -> None:
    program = (
        "import sys; import cellhost.store.store\n"
        "print([name for name in ('sqlite_utils', 'asyncio', 'anyio', 'platformdirs') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"


def test_a_frame_is_written_at_once_in_its_projects_file(store: Store, tmp_path: Path) -> None:
    frame_id = store.new_frame(kind="turn", project_id="proj-1", status="ready")
    with Store(tmp_path / "data") as other:
        assert other.project("proj-1").frames.get(frame_id).kind == "turn"
    assert (tmp_path / "data" / "projects" / "proj-1" / "records.db").is_file()


def test_nothing_of_one_project_is_seen_in_another(store: Store) -> None:
    store.new_frame(kind="turn", project_id="one")
    store.new_frame(kind="turn", project_id="two")
    assert len(store.project("one").frames.browse()["frames"]) == 1
    assert store.project("one") is store.project("one")


def test_asking_for_a_project_begins_none(store: Store, tmp_path: Path) -> None:
    store.new_frame(kind="turn")
    assert (store.has_project("default"), store.has_project("other")) == (True, False)
    assert [path.name for path in (tmp_path / "data" / "projects").iterdir()] == ["default"]


@pytest.mark.parametrize(
    "project_id", ["", "Upper", "..", "a/b", ".hidden", "-x", "ü", "a" * 65, "a b", "a\n", "a\x00"]
)
def test_a_name_that_no_folder_should_have_is_refused(store: Store, project_id: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParams) as caught:
        store.project(project_id)
    assert [issue.path for issue in caught.value.issues] == ["$.project_id"]
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("project_id", ["a", "0", "proj-bg.cwd_1", "a" * 64])
def test_a_good_name_is_taken(store: Store, project_id: str) -> None:
    assert store.new_frame(kind="turn", project_id=project_id).startswith("f-")


def test_a_relative_data_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("data") as store:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.new_frame(kind="turn")
    assert (tmp_path / "data" / "control.db").is_file()


def test_a_closed_store_says_so(store: Store) -> None:
    records = store.project("p")
    store.new_frame(kind="turn", project_id="p")
    store.close()
    store.close()
    with pytest.raises(Closed):
        store.project("p")
    with pytest.raises(Closed):
        records.frames.browse()
    with pytest.raises(Closed):
        store.permission_rules()


def test_closing_folds_the_logs_in(store: Store, tmp_path: Path) -> None:
    store.new_frame(kind="turn", project_id="p")
    store.close()
    files = {path.name for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert files == {"control.db", "records.db"}


def test_a_store_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with Store(tmp_path / "data") as store:
            for project_id in ("one", "two"):
                store.new_frame(kind="turn", project_id=project_id)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_only_dead_servers_jobs_are_lost(store: Store, tmp_path: Path) -> None:
    records = store.project("p")
    frame_id = store.new_frame(kind="session", project_id="p")
    servers = store.control.servers
    with RunFolder() as live:
        servers.register(live.server_id, os.getpid(), str(live.path))
        servers.register("s-dead", 1, str(tmp_path / "no run folder"))
        for server_id in (live.server_id, "s-dead"):
            records.jobs.add(NewJob(frame_id=frame_id, code="1", server_id=server_id))
        assert store.mark_dead_servers() == 1
        assert [row.job.status for row in records.jobs.list()] == ["lost", "queued"]
        assert [server.server_id for server in servers.list()] == [live.server_id]
        assert store.mark_dead_servers() == 0
    assert store.mark_dead_servers() == 1


def test_a_spoilt_project_keeps_no_other_from_being_mended(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for project_id in ("broken", "whole"):
        frame_id = store.new_frame(kind="session", project_id=project_id)
        store.project(project_id).jobs.add(NewJob(frame_id=frame_id, code="1", server_id="s-dead"))
    store.control.servers.register("s-dead", 1, str(tmp_path / "no run folder"))
    store.close()
    (tmp_path / "data/projects/broken/records.db").write_bytes(b"no database at all" * 100)
    with Store(tmp_path / "data") as later:
        later.mark_dead_servers()
        assert [row.job.status for row in later.project("whole").jobs.list()] == ["lost"]
        assert [server.server_id for server in later.control.servers.list()] == ["s-dead"]
    assert "projects/broken/records.db is not a SQLite database" in caplog.text
