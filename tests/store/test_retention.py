"""Ended jobs that are kept for so long and no longer."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.artifacts import NewVersion
from cellhost.store.errors import NotFound
from cellhost.store.ids import now_ms
from cellhost.store.jobs import FINAL, LIVE, NewJob
from cellhost.store.retention import AT_ONCE, Retention, remove_expired
from cellhost.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost.store.records import Records

HOUR_MS = 3_600_000
EVERYTHING = Retention(age_s=1e9, log_bytes=1 << 40)
TEN_HOURS = Retention(age_s=36_000, log_bytes=1 << 40)


def job(records: Records, *, hours_ago: float, size: int = 10, status: str = "done", **given: Any) -> str:
    """A job with its log that ended then."""
    frame_id = records.frames.add(kind="session").frame_id
    made, _ = records.jobs.add(NewJob(frame_id=frame_id, code="print(1)", server_id="s-1", **given))
    (records.job_folder(made.exec_id) / "stdout.log").write_bytes(b"x" * size)
    ended = {} if status in LIVE else {"ended_at": now_ms() - round(hours_ago * HOUR_MS), "stdout_bytes": size}
    records.jobs.update(made.exec_id, status=status, **ended)  # type: ignore[arg-type]
    return made.exec_id


def kept(records: Records) -> set[str]:
    found = {listed.job.exec_id for listed in records.jobs.list(limit=1000)}
    assert {path.name for path in (records.folder / "jobs").iterdir()} == found
    return found


def test_jobs_over_the_age_go_with_rows_and_logs(store: Store, records: Records) -> None:
    old, young = job(records, hours_ago=11, key="k"), job(records, hours_ago=9)
    cell_id = records.jobs.get(old).cell_id
    assert remove_expired(store, EVERYTHING) == []
    assert remove_expired(store, TEN_HOURS) == [old]
    assert kept(records) == {young}
    assert records.jobs.find_key("k") is None
    with pytest.raises(NotFound):
        records.cells.get(cell_id)
    assert remove_expired(store, TEN_HOURS) == []


@pytest.mark.parametrize("status", FINAL)
def test_jobs_of_every_ended_status_go(store: Store, records: Records, status: str) -> None:
    old = job(records, hours_ago=11, status=status)
    assert remove_expired(store, TEN_HOURS) == [old]


@pytest.mark.parametrize("status", LIVE)
def test_a_job_that_has_not_ended_stays_whatever_it_wrote(store: Store, records: Records, status: str) -> None:
    live = job(records, hours_ago=100, size=1000, status=status)
    assert remove_expired(store, Retention(age_s=1, log_bytes=1)) == []
    assert kept(records) == {live}


def test_the_oldest_logs_go_when_all_are_too_much(store: Store, records: Records) -> None:
    oldest, middle, newest = (job(records, hours_ago=hours, size=400) for hours in (9, 5, 2))
    assert remove_expired(store, Retention(age_s=1e9, log_bytes=1000)) == [oldest]
    assert kept(records) == {middle, newest}


def test_what_ended_within_the_last_hour_stays_and_takes_its_room(store: Store, records: Records) -> None:
    older, recent = job(records, hours_ago=2, size=10), job(records, hours_ago=0.5, size=2000)
    assert remove_expired(store, Retention(age_s=1, log_bytes=1000)) == [older]
    assert kept(records) == {recent}


def test_a_cell_that_made_something_stays_as_its_provenance(store: Store, records: Records) -> None:
    old = job(records, hours_ago=11)
    found = records.jobs.get(old)
    with records.objects.stage(io.BytesIO(b"made")) as staged:
        new = NewVersion(
            frame_id=found.frame_id, filename="a.txt", content_type="text/plain", producing_cell_id=found.cell_id
        )
        version = records.artifacts.save(staged, new)
    assert remove_expired(store, TEN_HOURS) == [old]
    assert records.cells.get(found.cell_id).code == "print(1)"
    assert records.artifacts.version(version.version_id).producing_cell_id == found.cell_id


def test_one_call_removes_only_so_many(store: Store, records: Records) -> None:
    old = [job(records, hours_ago=100 - number) for number in range(AT_ONCE + 3)]
    assert remove_expired(store, TEN_HOURS) == old[:AT_ONCE]
    assert remove_expired(store, TEN_HOURS) == old[AT_ONCE:]


def test_jobs_of_projects_that_are_not_open_go_too_and_their_files_are_closed(store: Store, tmp_path: Path) -> None:
    removed = [job(store.project(name), hours_ago=11) for name in ("p", "q")]
    store.close()
    with Store(tmp_path / "data") as later:
        assert remove_expired(later, TEN_HOURS) == removed
        assert not later.project("p").database.is_open


def test_a_project_that_cannot_be_used_stops_no_other(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, other = (job(store.project(name), hours_ago=11) for name in ("p", "q"))
    store.close()
    (tmp_path / "data" / "projects" / "p" / "records.db").write_bytes(b"no database" * 1000)
    with Store(tmp_path / "data") as later:
        assert remove_expired(later, TEN_HOURS) == [other]
    assert "project p" in caplog.text


def test_the_log_says_what_was_removed(store: Store, records: Records, caplog: pytest.LogCaptureFixture) -> None:
    old = job(records, hours_ago=11)
    with caplog.at_level(logging.INFO):
        remove_expired(store, TEN_HOURS)
    assert f"removed {old} of project p with 10 bytes of logs" in caplog.text


def test_logs_without_their_row_gone_half_way_are_finished_later(store: Store, records: Records) -> None:
    old = job(records, hours_ago=11)
    for path in (records.folder / "jobs" / old).iterdir():
        path.unlink()
    assert remove_expired(store, TEN_HOURS) == [old]
    assert kept(records) == set()
