"""Jobs and their cells."""

import threading
from pathlib import Path
from typing import Any

import pytest

from cellhost.store.errors import InvalidParams, NotFound
from cellhost.store.jobs import FINAL, Jobs, NewJob
from cellhost.store.records import Records
from cellhost.store.rows import Job
from cellhost.store.store import Store


def launch(records: Records, frame_id: str, code: str = "print(1)", **more: Any) -> Job:
    job, _ = records.jobs.add(NewJob(frame_id=frame_id, code=code, server_id="s-1", **more))
    return job


def test_a_job_is_queued_with_its_cell(records: Records, frame_id: str) -> None:
    job, created = records.jobs.add(
        NewJob(frame_id=frame_id, code="print(1)", server_id="s-1", label="count", timeout_s=3, memory_mb=64)
    )
    assert created
    assert records.jobs.get(job.exec_id) == job
    assert (job.status, job.label, job.timeout_s, job.memory_mb, job.root_frame_id) == (
        "queued",
        "count",
        3.0,
        64,
        frame_id,
    )
    cell = records.cells.get(job.cell_id)
    assert (cell.code, cell.seq, cell.origin, cell.status) == ("print(1)", 1, "agent", "queued")
    assert cell.code_hash == "d287bb7f9d15abdc5b6e98536263815744b6ef21c8f3c839fc434ca70d8efe99"


def test_cells_are_numbered_within_their_frame(records: Records, frame_id: str) -> None:
    other = records.frames.add(kind="session").frame_id
    jobs = [launch(records, frame_id), launch(records, other), launch(records, frame_id)]
    assert [records.cells.get(job.cell_id).seq for job in jobs] == [1, 1, 2]


def test_a_job_in_no_frame_leaves_no_row(records: Records) -> None:
    with pytest.raises(NotFound, match="no such frame"):
        launch(records, "f-000000000000")
    assert records.database.value("SELECT count(*) FROM cells") == 0
    assert records.jobs.list() == []


def test_the_same_key_is_the_same_job(records: Records, frame_id: str) -> None:
    first, created = records.jobs.add(NewJob(frame_id=frame_id, code="1", server_id="s-1", key="k"))
    again, created_again = records.jobs.add(NewJob(frame_id=frame_id, code="2", server_id="s-2", key="k"))
    assert (created, created_again) == (True, False)
    assert again == first == records.jobs.find_key("k")
    assert records.jobs.find_key("other") is None
    assert len(records.jobs.list()) == 1
    for key in ("", "k" * 257):
        with pytest.raises(InvalidParams, match=r"\$.key"):
            launch(records, frame_id, key=key)


def test_eight_racing_launches_of_one_key_make_one_job(records: Records, frame_id: str, tmp_path: Path) -> None:
    stores = [Store(tmp_path / "data") for _ in range(2)]
    start, made = threading.Barrier(8), list[str]()

    def race(number: int) -> None:
        jobs = stores[number % 2].project("p").jobs
        start.wait(timeout=30)
        made.append(jobs.add(NewJob(frame_id=frame_id, code="1", server_id="s-1", key="k"))[0].exec_id)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    for opened in stores:
        opened.close()
    assert len(made) == 8
    assert set(made) == {records.jobs.list()[0].job.exec_id}


def test_an_update_reaches_the_job_and_its_cell(records: Records, frame_id: str) -> None:
    job = launch(records, frame_id)
    assert records.jobs.update(job.exec_id, status="running", started_at=10, progress_done=2, progress_total=5)
    assert records.jobs.update(
        job.exec_id,
        status="failed",
        ended_at=20,
        stdout_bytes=7,
        error_name="ValueError",
        error_value="no",
        error_traceback="…",
        stdout_tail="tail",
        cpu_s=0.5,
    )
    ended, cell = records.jobs.get(job.exec_id), records.cells.get(job.cell_id)
    assert (ended.status, ended.started_at, ended.ended_at, ended.stdout_bytes) == ("failed", 10, 20, 7)
    assert (cell.status, cell.started_at, cell.ended_at, cell.cpu_s) == ("failed", 10, 20, 0.5)
    assert (cell.error_name, cell.error_value, cell.stdout_tail) == ("ValueError", "no", "tail")


@pytest.mark.parametrize("status", FINAL)
def test_nothing_changes_once_the_status_is_final(records: Records, frame_id: str, status: str) -> None:
    job = launch(records, frame_id)
    assert records.jobs.update(job.exec_id, status=status, ended_at=20)
    ended, cell = records.jobs.get(job.exec_id), records.cells.get(job.cell_id)
    assert records.jobs.update(job.exec_id, status="running", stdout_bytes=9, wall_s=1.0) is False
    assert (records.jobs.get(job.exec_id), records.cells.get(job.cell_id)) == (ended, cell)


def test_an_unknown_status_or_job_is_refused(records: Records, frame_id: str) -> None:
    job = launch(records, frame_id)
    with pytest.raises(InvalidParams, match=r"\$.status"):
        records.jobs.update(job.exec_id, status="asleep")
    for call in (records.jobs.get, records.jobs.update):
        with pytest.raises(NotFound, match="no such job"):
            call("exec-000000000000")
    with pytest.raises(NotFound, match="no such job"):
        records.job_folder("../../../etc")


def test_jobs_are_listed_newest_first_with_what_a_reader_needs(records: Records, frame_id: str) -> None:
    first = launch(records, frame_id, code="x" * 300, label="long")
    second = launch(records, frame_id)
    records.jobs.update(first.exec_id, status="running", progress_done=1, progress_message="reading")
    records.jobs.update(second.exec_id, status="done", ended_at=20, stdout_bytes=3)
    newest, oldest = records.jobs.list()
    assert (newest.job, newest.code_preview) == (records.jobs.get(second.exec_id), "print(1)")
    assert (newest.job.status, newest.job.ended_at, newest.job.stdout_bytes) == ("done", 20, 3)
    assert (oldest.job.label, oldest.job.status, oldest.code_preview) == ("long", "running", "x" * 200)
    assert (oldest.job.progress_done, oldest.job.progress_message) == (1.0, "reading")


def test_pages_have_every_job_exactly_once_while_jobs_are_added(records: Records, frame_id: str) -> None:
    launched = [launch(records, frame_id).exec_id for _ in range(7)]
    seen: list[str] = []
    cursor = None
    while page := records.jobs.list(limit=3, cursor=cursor):
        seen += [row.job.exec_id for row in page]
        cursor = seen[-1]
        launch(records, frame_id)
    assert seen == launched[::-1]


def test_jobs_are_read_with_their_cells(records: Records, frame_id: str) -> None:
    jobs = [launch(records, frame_id, code=f"step({number})") for number in range(3)]
    recorded = records.jobs.recorded(jobs[0].exec_id)
    assert recorded is not None
    assert (recorded.job, recorded.cell.code) == (jobs[0], "step(0)")
    assert records.jobs.recorded("exec-000000000000") is None


def test_jobs_are_listed_by_status_and_session(records: Records, frame_id: str) -> None:
    other = records.frames.add(kind="session").frame_id
    mine, theirs = launch(records, frame_id), launch(records, other)
    records.jobs.update(mine.exec_id, status="done")
    assert [row.job.exec_id for row in records.jobs.list(status="queued")] == [theirs.exec_id]
    assert [row.job.exec_id for row in records.jobs.list(root_frame_id=frame_id)] == [mine.exec_id]
    with pytest.raises(InvalidParams, match=r"\$.status"):
        records.jobs.list(status="asleep")
    with pytest.raises(InvalidParams, match=r"\$.cursor"):
        records.jobs.list(cursor="exec-000000000000")


def test_a_dead_servers_jobs_are_lost_with_the_output_they_left(store: Store, records: Records, frame_id: str) -> None:
    running, done, other = (launch(records, frame_id) for _ in range(3))
    records.jobs.update(running.exec_id, status="running", started_at=5)
    records.jobs.update(done.exec_id, status="done", stdout_bytes=2)
    records.database.execute("UPDATE jobs SET server_id = 's-2' WHERE exec_id = ?", [other.exec_id])
    (records.job_folder(running.exec_id) / "stdout.log").write_bytes(b"so far\n")
    assert store.mark_lost("s-1") == 1
    lost = records.jobs.get(running.exec_id)
    assert (lost.status, lost.stdout_bytes, lost.stderr_bytes, lost.ended_by) == ("lost", 7, 0, "server")
    assert lost.ended_at is not None
    assert records.cells.get(running.cell_id).status == "lost"
    assert [records.jobs.get(job.exec_id).status for job in (done, other)] == ["done", "queued"]
    assert store.mark_lost("s-1") == 0


def statuses(jobs: Jobs) -> list[str]:
    return [row.job.status for row in jobs.list()]


def test_jobs_are_lost_in_projects_that_are_not_open(
    store: Store, records: Records, frame_id: str, tmp_path: Path
) -> None:
    launch(records, frame_id)
    store.close()
    with Store(tmp_path / "data") as later:
        assert later.mark_lost("s-1") == 1
        assert not later.project("p").database.is_open
        assert statuses(later.project("p").jobs) == ["lost"]
