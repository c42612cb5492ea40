"""What nobody refers to: found and removed, and nothing that a server at work needs."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellhost.store.artifacts import NewVersion
from cellhost.store.garbage import collect
from cellhost.store.jobs import NewJob
from cellhost.store.records import Records
from cellhost.store.rows import Version
from cellhost.store.store import Store


def save(records: Records, frame_id: str, content: bytes) -> Version:
    new = NewVersion(frame_id=frame_id, filename="a.bin", content_type="application/octet-stream")
    with records.objects.stage(io.BytesIO(content)) as staged:
        return records.artifacts.save(staged, new)


def found(store: Store, *, dry_run: bool = False) -> list[tuple[str, str, int]]:
    return sorted((each.kind, each.name, each.bytes) for each in collect(store, dry_run=dry_run))


def litter(records: Records, frame_id: str) -> tuple[Version, list[tuple[str, str, int]]]:
    """One of everything that is needed, and one of everything that is not: what is not."""
    needed = save(records, frame_id, b"needed")
    job, _ = records.jobs.add(NewJob(frame_id=frame_id, code="1", server_id="s-1"))
    (records.job_folder(job.exec_id) / "stdout.log").write_bytes(b"kept")
    orphan, _ = records.objects.put(io.BytesIO(b"orphan!"))
    (records.job_folder("exec-00000000dead") / "stdout.log").write_bytes(b"123")
    half = records.objects.path("x").parents[1] / ".incoming-0123456789abcdef"
    half.write_bytes(b"ha")
    return needed, [("half copy", half.name, 2), ("job log", "exec-00000000dead", 3), ("object", orphan, 7)]


def files(records: Records) -> set[str]:
    return {str(path.relative_to(records.folder)) for path in records.folder.rglob("*") if path.is_file()}


def test_what_nobody_refers_to_is_listed_and_then_removed(store: Store, records: Records) -> None:
    frame_id = store.new_frame(kind="session", project_id="p")
    needed, garbage = litter(records, frame_id)
    before = files(records)
    assert found(store, dry_run=True) == garbage
    assert files(records) == before
    assert found(store) == garbage
    assert found(store) == []
    left = {name for name in files(records) if not name.startswith("records.db")}
    job = records.jobs.list()[0].job
    assert left == {f"objects/{needed.checksum[:2]}/{needed.checksum}", f"jobs/{job.exec_id}/stdout.log"}
    assert records.objects.read(needed.checksum, needed.size_bytes) == b"needed"


def test_files_that_are_not_ours_are_left_alone(store: Store, records: Records) -> None:
    save(records, store.new_frame(kind="session", project_id="p"), b"x")
    for name in ("objects/ab/notes.txt", "objects/readme", "jobs/mine/a.txt"):
        path = records.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    before = files(records)
    assert found(store) == []
    assert files(records) == before


def test_a_copy_under_way_is_nobodys_garbage(store: Store, records: Records) -> None:
    frame_id = store.new_frame(kind="session", project_id="p")
    with records.objects.stage(io.BytesIO(b"under way")) as staged:
        assert found(store) == []
        new = NewVersion(frame_id=frame_id, filename="a", content_type="text/plain")
        version = records.artifacts.save(staged, new)
    assert records.objects.read(version.checksum, version.size_bytes) == b"under way"


def test_a_project_without_records_is_left_alone(store: Store, records: Records, tmp_path: Path) -> None:
    litter(records, store.new_frame(kind="session", project_id="p"))
    store.close()
    for path in records.folder.glob("records.db*"):
        path.rename(tmp_path / path.name)  # as a person does with a damaged file
    with Store(tmp_path / "data") as again:
        assert found(again) == []
        assert not (records.folder / "records.db").exists()


def test_a_killed_server_is_forgotten_and_its_jobs_are_lost(
    store: Store, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    frame_id = store.new_frame(kind="session", project_id="p")
    store.control.servers.register("s-0123456789ab", 1, str(tmp_path / "cellhost-0123456789ab"))
    job, _ = records.jobs.add(NewJob(frame_id=frame_id, code="1", server_id="s-0123456789ab"))
    assert found(store, dry_run=True) == [("server", "s-0123456789ab", 0)]
    assert records.jobs.get(job.exec_id).status == "queued"
    assert found(store) == [("server", "s-0123456789ab", 0)]
    assert records.jobs.get(job.exec_id).status == "lost"


SAVING = """
import io, sys
from cellhost.store.artifacts import NewVersion
from cellhost.store.store import Store

with Store(sys.argv[1]) as store:
    records = store.project("p")
    frame_id = store.new_frame(kind="session", project_id="p")
    for number in range(int(sys.argv[2])):
        with records.objects.stage(io.BytesIO(b"%d" % (number % 7) * 1000)) as staged:
            new = NewVersion(frame_id=frame_id, filename="a.bin", content_type="application/octet-stream")
            records.artifacts.save(staged, new)
        records.objects.put(io.BytesIO(b"orphan %d" % number))
"""


def test_nothing_that_a_server_saves_meanwhile_is_taken_for_garbage(store: Store, records: Records) -> None:
    records.path()
    command = [sys.executable, "-P", "-c", SAVING, str(store.data_dir), "150"]
    with subprocess.Popen(command, env=os.environ) as saving:
        removed = 0
        while saving.poll() is None:
            removed += sum(kind == "object" for kind, _, _ in found(store))
    assert saving.returncode == 0
    removed += sum(kind == "object" for kind, _, _ in found(store))
    assert removed == 150
    versions = records.database.select(Version)
    assert len(versions) == 150
    for version in versions:
        records.objects.read(version.checksum, version.size_bytes)
