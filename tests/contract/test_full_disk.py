"""A full disk, a workspace that is none, large files: nothing half-written and nothing leaked."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.errors import StorageError

from .checks import MEBIBYTE, names_in, only_issue

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Refused

# A disk that is full, a workspace that is none


def under_file_limit(tmp_path: Path, program: str) -> str:
    """What a program prints that runs in a process whose files may not grow over 1 MiB."""
    setting = textwrap.dedent(f"""
        import anyio, os
        from pathlib import Path
        from cellhost import Config, build_dispatcher
        from cellhost.store.errors import HostError

        tmp = Path({str(tmp_path)!r})
        dispatcher = build_dispatcher(Config(data_dir=tmp / "data"), workspace=tmp / "work")

        async def refusal(method, params):
            try:
                return await dispatcher(method, params)
            except HostError as error:
                print(error.kind, "|", error, "|", error.hint)
    """)
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({MEBIBYTE}, {MEBIBYTE}))\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", limit + setting + textwrap.dedent(program) + "\nanyio.run(main)\n"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FULL = "storage | the disk of the workspace is full | free some space, then repeat the call; nothing of it was kept\n"


def test_a_full_disk_during_a_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    printed = under_file_limit(
        tmp_path,
        """
        async def main():
            large = "x" * 2_000_000
            await dispatcher("write_file", ["a.txt", "as it was"])
            await dispatcher("write_file", ["b.txt", "y" * 1_000_000])
            await refusal("write_file", ["a.txt", large])
            await refusal("write_file", ["new.txt", large])
            await refusal("write_file", {"path": "b.txt", "content": large, "append": True})
            await refusal("edit_file", ["a.txt", "was", large])
            await dispatcher("write_file", ["a.txt", "and goes on"])
            await dispatcher.host.aclose()
        """,
    )
    assert printed == FULL * 4
    work = tmp_path / "work"
    assert names_in(work) == ["a.txt", "b.txt"]
    assert (work / "a.txt").read_text() == "and goes on"
    assert (work / "b.txt").read_text() == "y" * 1_000_000


def test_a_full_disk_during_a_save_leaves_no_row_and_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "large").write_bytes(b"x" * 2 * MEBIBYTE)
    printed = under_file_limit(
        tmp_path,
        """
        async def main():
            await dispatcher("write_file", ["small", "x"])
            small = await dispatcher("save_artifact", ["small"])
            await refusal("save_artifact", {"path": "large", "input_version_ids": [small["version_id"]]})
            await refusal("save_artifact", {"path": "large", "filename": "small"})
            listing = await dispatcher("list_artifacts")
            print([(each["filename"], each["ordinal"]) for each in listing["artifacts"]])
            await dispatcher.host.aclose()
        """,
    )
    full = "storage | the disk of the data folder is full | "
    told = printed.splitlines()
    assert [line.startswith(full) for line in told[:2]] == [True, True]
    assert told[2:] == ["[('small', 1)]"]
    objects = [path for path in (tmp_path / "data" / "projects" / "default" / "objects").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in objects] == [b"x"]


async def test_a_full_disk_during_a_restore_leaves_the_file_and_the_record_as_they_were(tmp_path: Path) -> None:
    made = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
    work = made.host.workspace.make()
    (work / "a.bin").write_bytes(b"x" * 2 * MEBIBYTE)
    large = await made("save_artifact", ["a.bin"])
    await made("write_file", ["a.bin", "small"])
    await made.host.aclose()
    printed = under_file_limit(
        tmp_path,
        f"""
        async def main():
            for tool in ("restore_artifact_version", "materialise_artifact"):
                await dispatcher("permission_set", ["global", tool, "*", "allow"])
            await refusal("restore_artifact_version", ["{large["artifact_id"]}", "{large["version_id"]}"])
            await refusal("materialise_artifact", ["{large["version_id"]}", "copy.bin"])
            print((await dispatcher("list_artifact_versions", ["{large["artifact_id"]}"]))["count"])
            await dispatcher.host.aclose()
        """,
    )
    assert printed == FULL * 2 + "1\n"
    assert names_in(work) == ["a.bin"]
    assert (work / "a.bin").read_text() == "small"


async def test_records_that_cannot_grow_leave_the_file_of_a_restore_as_it_was(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data", rules=(("restore_artifact_version", "*", "allow"),))
    made = build_dispatcher(config, workspace=tmp_path / "work")
    await made("write_file", ["a.txt", "one"])
    saved = await made("save_artifact", ["a.txt"])
    await made("write_file", ["a.txt", "two"])
    database = made.store.project("default").database
    pages = database.value("PRAGMA page_count")
    database.rows(f"PRAGMA max_page_count = {pages + 4}")
    params = [saved["artifact_id"], saved["version_id"]]

    async def until_it_is_full() -> None:
        for _ in range(1000):
            await made("write_file", ["a.txt", "two"])
            await made("restore_artifact_version", params)

    with pytest.raises(StorageError, match=r"records.db cannot grow: the disk of the data folder is full"):
        await until_it_is_full()
    listing = await made("list_artifact_versions", params[:1])
    assert names_in(tmp_path / "work") == ["a.txt"]
    assert (tmp_path / "work" / "a.txt").read_text() == "two"
    database.rows(f"PRAGMA max_page_count = {pages + 1000}")
    await made("restore_artifact_version", params)
    ordinal = (await made("list_artifact_versions", params[:1]))["versions"][0]["ordinal"]
    assert ordinal == listing["versions"][0]["ordinal"] + 1
    assert (tmp_path / "work" / "a.txt").read_text() == "one"
    await made.host.aclose()


async def test_a_workspace_that_is_a_file_is_told_by_every_tool(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "work").write_text("no folder")
    made = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
    error = await refused(made, "list_files")
    assert isinstance(error, StorageError)
    assert str(error) == "the workspace cannot be listed"
    for tool, params in (("read_file", ["a"]), ("write_file", ["a", "x"])):
        assert only_issue(await refused(made, tool, params))[0] == "$.path"
    await made.host.aclose()


async def test_no_descriptor_is_left_open_by_refusals(dispatcher: Dispatcher, work: Path, refused: Refused) -> None:
    (work / "folder").mkdir()
    os.mkfifo(work / "fifo")
    calls = [("read_file", [name]) for name in ("folder", "fifo", "absent", "x" * 300)]
    await refused(dispatcher, *calls[0])  # opens what stays open
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        for tool, params in calls:
            await refused(dispatcher, tool, params)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_a_large_file_is_never_held_in_memory(dispatcher: Dispatcher, work: Path) -> None:
    with (work / "large").open("wb") as file:
        file.truncate(96 * MEBIBYTE)
    tracemalloc.start()
    try:
        params = {"path": "large", "content": "x", "append": True}
        assert (await dispatcher("write_file", params))["bytes"] == 96 * MEBIBYTE + 1
        read = await dispatcher("read_file", {"path": "large", "offset": 96 * MEBIBYTE + 1, "encoding": "base64"})
        line = await dispatcher("read_file", ["large"])  # all of it is one line
        assert tracemalloc.get_traced_memory()[1] < 48 * MEBIBYTE
    finally:
        tracemalloc.stop()
    assert base64.b64decode(read["content"]) == b"x"
    assert (len(line["content"]), line["truncated"], line["lines"]) == (8 * MEBIBYTE, True, 1)
