"""Forgetting a frame: everything in it goes, and nothing that anybody else needs."""

import io
from pathlib import Path

import pytest

from cellhost.store.artifacts import NewVersion
from cellhost.store.errors import Busy, NotFound
from cellhost.store.forgetting import Forgotten, forget
from cellhost.store.jobs import NewJob
from cellhost.store.records import Records
from cellhost.store.rows import HostCall, Job, Version
from cellhost.store.store import Store


def frame(store: Store, parent_id: str | None = None) -> str:
    return store.new_frame(kind="turn" if parent_id else "session", project_id="p", parent_id=parent_id)


def save(records: Records, frame_id: str, name: str, content: bytes, *inputs: str, cell: str | None = None) -> Version:
    new = NewVersion(
        frame_id=frame_id,
        filename=name,
        content_type="text/plain",
        input_version_ids=inputs,
        producing_cell_id=cell,
    )
    with records.objects.stage(io.BytesIO(content)) as staged:
        return records.artifacts.save(staged, new)


def run(records: Records, frame_id: str, output: bytes = b"printed") -> Job:
    job, _ = records.jobs.add(NewJob(frame_id=frame_id, code="secret()", server_id="s-000000000000"))
    (records.job_folder(job.exec_id) / "stdout.log").write_bytes(output)
    records.jobs.update(job.exec_id, status="done", stdout_tail="secret output")
    return job


def rows(records: Records, table: str) -> int:
    return int(records.database.value(f"SELECT count(*) FROM {table}"))


def sound(records: Records) -> bool:
    for name in ("frames_fts", "cells_fts"):
        records.database.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)")
    checked = records.database.rows("PRAGMA integrity_check"), records.database.rows("PRAGMA foreign_key_check")
    return checked == ([("ok",)], [])


def test_a_session_goes_with_the_frames_below_it_and_nothing_of_others(store: Store, records: Records) -> None:
    root, other = frame(store), frame(store)
    turn = frame(store, root)
    deep = frame(store, turn)
    jobs = [run(records, each) for each in (root, turn, deep)]
    kept_job = run(records, other)
    saved = save(records, deep, "a.txt", b"only here", cell=jobs[2].cell_id)
    shared = save(records, root, "b.txt", b"shared bytes")
    kept = save(records, other, "c.txt", b"shared bytes", saved.version_id)
    gone = forget(store, root)
    assert gone == Forgotten(3, 3, 3, gone.versions, len(b"only here") + 3 * len(b"printed"))
    assert sorted(gone.versions) == sorted([saved.version_id, shared.version_id])
    assert [rows(records, table) for table in ("frames", "cells", "jobs", "artifacts", "artifact_versions")] == [1] * 5
    assert rows(records, "lineage_edges") == 0
    assert records.artifacts.version(kept.version_id) == kept
    assert records.objects.read(kept.checksum, kept.size_bytes) == b"shared bytes"
    assert not records.objects.path(saved.checksum).exists()
    assert shared.checksum == kept.checksum
    assert [path.name for path in (records.folder / "jobs").iterdir()] == [kept_job.exec_id]
    assert records.frames.search("secret")["frames"][0]["frame_id"] == other
    assert [store.find_frame_project(each) for each in (root, turn, deep, other)] == [None, None, None, "p"]
    assert sound(records)


def test_of_a_session_that_stays_a_turns_versions_go_and_the_rest_is_put_right(store: Store, records: Records) -> None:
    root = frame(store)
    turn = frame(store, root)
    job = run(records, turn)
    first = save(records, root, "a.txt", b"first")
    save(records, turn, "a.txt", b"second")
    only = save(records, turn, "b.txt", b"only in the turn")
    made = save(records, root, "c.txt", b"made by the job", only.version_id, cell=job.cell_id)
    assert len(forget(store, turn).versions) == 2
    artifact = records.artifacts.get(first.artifact_id)
    assert (artifact.latest_version_id, artifact.updated_at) == (first.version_id, first.created_at)
    with pytest.raises(NotFound):
        records.artifacts.get(only.artifact_id)
    lineage = records.lineage.get(made.version_id)
    assert (lineage["producing_cell_id"], lineage["code"], lineage["inputs"]) == (None, None, [])
    assert sound(records)


def test_a_frame_with_a_live_job_anywhere_below_is_refused_whole(
    store: Store, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    root = frame(store)
    turn = frame(store, root)
    saved = save(records, root, "a.txt", b"x")
    job, _ = records.jobs.add(NewJob(frame_id=turn, code="1", server_id="s-000000000000"))
    with pytest.raises(Busy, match="1 of its jobs has not ended") as caught:
        forget(store, root)
    assert job.exec_id in (caught.value.hint or "")
    assert records.artifacts.version(saved.version_id) == saved
    store.control.servers.register("s-000000000000", 1, str(tmp_path / "no such folder"))
    assert forget(store, root).frames == 2  # its server was killed: the job was not live


def test_the_audit_keeps_that_calls_were_made_and_not_what_with(store: Store, records: Records) -> None:
    root, other = frame(store), frame(store)
    job = run(records, root)
    for session, exec_id in ((root, None), (other, job.exec_id), (other, None)):
        call = HostCall(
            door="plain",
            method="query",
            ok=True,
            elapsed_us=1,
            root_frame_id=session,
            exec_id=exec_id,
            args_preview="secret",
        )
        store.control.audit.add_calls([call])
    store.set_permission_rule(scope="conversation", scope_id=root, tool="query", pattern="secret", decision="deny")
    store.set_permission_rule(scope="conversation", scope_id=other, tool="query", pattern="kept", decision="deny")
    store.control.sessions.start_session(root, "p", "/work")
    store.control.requests.add(root_frame_id=root, door="plain", tool="exec", target="secret", preview="secret")
    forget(store, root)
    previews = store.control.database.rows("SELECT method, args_preview FROM host_calls ORDER BY call_id")
    assert previews == [("query", ""), ("query", ""), ("query", "secret")]
    assert [rule.pattern for rule in store.permission_rules(scope="conversation")] == ["kept"]
    assert store.control.sessions.get(root) is None
    assert store.control.requests.pending(root) == []
    store.close()
    left = [path for path in store.data_dir.rglob("*") if path.is_file() and b"secret(" in path.read_bytes()]
    assert left == []


@pytest.mark.parametrize("frame_id", ["f-000000000000", "", "nonsense", "' OR 1=1 --", "../p"])
def test_a_frame_that_is_not_there_is_told(store: Store, records: Records, frame_id: str) -> None:
    kept = frame(store)
    with pytest.raises(NotFound, match="no such frame"):
        forget(store, frame_id)
    assert records.frames.get(kept).frame_id == kept


def test_forgetting_that_was_killed_half_way_is_finished_by_the_next(store: Store, records: Records) -> None:
    root = frame(store)
    store.control.sessions.start_session(root, "p", "/work")
    records.database.execute("DELETE FROM frames")
    assert forget(store, root).cells == 0
    assert store.control.sessions.get(root) is None
    with pytest.raises(NotFound):
        forget(store, root)
