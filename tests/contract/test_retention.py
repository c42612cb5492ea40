"""Old jobs go while the host works, from the disk, from SQL and from its lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.errors import NotFound
from cellhost.tools import retention

from .conftest import ALLOW_JOBS, WITHIN_S

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Finished


async def test_a_job_over_its_age_is_gone_from_disk_sql_and_lists(tmp_path: Path, finished: Finished) -> None:
    config = Config(data_dir=tmp_path / "data", rules=(ALLOW_JOBS,))
    async with build_dispatcher(config, workspace=tmp_path / "work") as before:
        old, young = [(await finished(before, "print('kept')"))["exec_id"] for _ in range(2)]
        records = before.store.project("default")
        records.database.execute("UPDATE jobs SET ended_at = ended_at - 7200000 WHERE exec_id = ?", [old])
    config.kept.job_age_s = 3600
    async with build_dispatcher(config, workspace=tmp_path / "work") as later:
        with anyio.fail_after(WITHIN_S):
            while [row["exec_id"] for row in await later("exec_list")] != [young]:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert await later("query", ["SELECT exec_id FROM jobs"]) == [{"exec_id": young}]
        with pytest.raises(NotFound):
            await later("exec_peek", [old])
        assert (await later("exec_peek", [young]))["stdout"] == "kept\n"
        assert [path.name for path in (tmp_path / "data" / "projects" / "default" / "jobs").iterdir()] == [young]


async def test_jobs_that_the_host_still_holds_go_with_their_rows(
    tmp_path: Path, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_EVERY_S", 0.1)  # the job may end after the first time
    config = Config(data_dir=tmp_path / "data", rules=(ALLOW_JOBS,))
    config.kept.job_age_s = 3600
    async with build_dispatcher(config, workspace=tmp_path / "work") as made:
        exec_id = (await finished(made, "print(1)"))["exec_id"]
        records = made.store.project("default")
        records.database.execute("UPDATE jobs SET ended_at = ended_at - 7200000")
        with anyio.fail_after(WITHIN_S):
            while await made("exec_list"):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        with pytest.raises(NotFound):
            await made("exec_peek", [exec_id])
