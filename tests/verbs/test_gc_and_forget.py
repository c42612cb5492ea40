"""`cellhost gc` and `cellhost forget` on a data folder that a real server is using."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import anyio

from cellhost import Config, build_dispatcher
from cellhost.store.errors import HostError
from cellhost.store.store import Store

from .conftest import COMMAND, WITHIN_S

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from cellhost.store.rows import HostCall


def cellhost(verb: str, data: Path | None = None, *arguments: str) -> tuple[int, str, str]:
    place = () if data is None else ("--data-dir", str(data))
    command = [*COMMAND, verb, *place, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return done.returncode, done.stdout, done.stderr


def objects(data: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in (data / "projects" / "default" / "objects").glob("??/*"))


async def test_garbage_is_listed_removed_and_then_gone_while_a_server_works(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = build_dispatcher(Config(data_dir=data), workspace=tmp_path / "work")
    await made("write_file", ["a.txt", "kept"])
    saved = await made("save_artifact", ["a.txt"])
    orphan = data / "projects" / "default" / "objects" / "ab" / ("ab" * 32)
    orphan.parent.mkdir()
    orphan.write_bytes(b"orphan")
    listed = await anyio.to_thread.run_sync(cellhost, "gc", data, "--dry-run")
    assert listed == (0, f"object     {'ab' * 32}  6\nwould remove 1 object of no version, 6 bytes\n", "")
    assert objects(data) == [b"kept", b"orphan"]
    assert await anyio.to_thread.run_sync(cellhost, "gc", data) == (0, "removed 1 object of no version, 6 bytes\n", "")
    assert await anyio.to_thread.run_sync(cellhost, "gc", data) == (0, "nothing to remove\n", "")
    assert objects(data) == [b"kept"]
    assert (await made("read_artifact", [saved["version_id"]]))["content"] == "kept"
    await made.host.aclose()


async def test_files_left_half_written_are_removed_and_none_that_is_being_written(tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    made = build_dispatcher(Config(data_dir=data), workspace=work)
    await made("write_file", ["deep/a.txt", "kept"])
    await made("save_artifact", ["deep/a.txt"])
    left, young = (work / "deep" / f".cellhost-{name}.tmp" for name in ("left", "young"))
    writing = f"""
import os, pathlib, sys
from cellhost.tools.file_change import beside

with beside(pathlib.Path({str(work)!r}) / "deep" / "b.txt") as (file, temporary):
    os.utime(temporary, (1, 1))
    print("begun", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-P", "-c", writing], stdin=PIPE, stdout=PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        for path in (left, young):
            path.write_bytes(b"half")
        os.utime(left, (1, 1))
        listed = await anyio.to_thread.run_sync(cellhost, "gc", data, "--dry-run")
        told = "half file  .cellhost-left.tmp  4\nwould remove 1 file left half written in its workspace, 4 bytes\n"
        assert listed == (0, told, "")
        assert left.exists()
        assert (await anyio.to_thread.run_sync(cellhost, "gc", data))[0] == 0
        assert not left.exists()
        assert young.exists()  # too young to tell whether somebody writes it
        writer.communicate(b"")
    assert sorted(path.name for path in (work / "deep").iterdir()) == [young.name, "a.txt"]
    await made.host.aclose()


async def test_a_session_is_forgotten_unless_a_job_of_it_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = Config(data_dir=data, rules=(("exec_background", "*", "allow"),))
    with anyio.fail_after(60):
        async with build_dispatcher(config, workspace=tmp_path / "work") as made:
            frame_id = made.frame_id
            await made("write_file", ["a.txt", "private"])
            await made("save_artifact", ["a.txt"])
            launched = await made("exec_background", ["while True: pass"])
            code, out, told = await anyio.to_thread.run_sync(cellhost, "forget", data, frame_id)
            assert (code, out) == (1, "")
            assert told == (
                f"cellhost forget: 1 of its jobs has not ended (interrupt {launched['exec_id']}, or wait for it)\n"
            )
            await made("exec_interrupt", [launched["exec_id"]])
            await made("exec_wait", [launched["exec_id"]])
            code, out, told = await anyio.to_thread.run_sync(cellhost, "forget", data, frame_id)
            assert (code, told) == (0, "")
            assert out.startswith("forgot 1 frame, 1 cell, 1 job and 1 version, ")
            assert await rows(made) == [[0, 0, 0]]
            assert objects(data) == []
    assert list((data / "projects" / "default" / "jobs").iterdir()) == []


async def test_what_a_forgotten_session_was_refused_is_forgotten_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with build_dispatcher(Config(data_dir=data), workspace=tmp_path / "work") as made:
        for method, params in (
            ("save_artifact", {"path": "private.txt", "priority": 101}),  # before anybody knows whose call it is
            ("write_file", ["a.txt", "x"]),
            ("save_artifact", ["a.txt"]),
            ("read_file", {"path": "private.txt", "limit": 0}),
            ("read_file", ["private.txt"]),
        ):
            with suppress(HostError):
                await made(method, params)
        frame_id = made.frame_id
    assert [call.root_frame_id for call in calls(data)] == [frame_id] * 5
    assert cellhost("forget", data, frame_id)[0] == 0
    assert [call.args_preview for call in calls(data)] == [""] * 5


def calls(data: Path) -> list[HostCall]:
    with Store(data) as store:
        return store.control.audit.list(limit=10)


async def test_the_copies_that_jobs_opened_are_forgotten_in_every_workspace(tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = Config(data_dir=data, rules=(("exec_background", "*", "allow"),))
    with anyio.fail_after(60):
        async with build_dispatcher(config, workspace=tmp_path / "one") as one:
            frame_id = one.frame_id
            await one("write_file", ["a.txt", "private"])
            saved = await one("save_artifact", ["a.txt"])
        async with build_dispatcher(config, workspace=tmp_path / "two") as two:
            await two("write_file", ["b.txt", "kept"])
            kept = await two("save_artifact", ["b.txt"])
            opening = f"for each in {[saved['version_id'], kept['version_id']]}: print(host.artifact_path(each))"
            job = await two("exec_background", [opening])
            await two("exec_wait", [job["exec_id"]])
        copies = tmp_path / "two" / ".cellhost"
        assert sorted(path.name for path in copies.iterdir()) == sorted([saved["version_id"], kept["version_id"]])
        code, out, _ = await anyio.to_thread.run_sync(cellhost, "forget", data, frame_id)
        assert (code, out) == (0, "forgot 1 frame, 0 cells, 0 jobs and 1 version, 14 bytes of files\n")
        assert [path.name for path in copies.iterdir()] == [kept["version_id"]]


async def test_a_server_whose_session_was_forgotten_begins_it_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = build_dispatcher(Config(data_dir=data), workspace=tmp_path / "work")
    with anyio.fail_after(60):
        async with made:
            for _ in range(2):
                await made("write_file", ["a.txt", "kept"])
                await made("save_artifact", ["a.txt"])
                assert await rows(made) == [[1, 0, 1]]
                assert (await anyio.to_thread.run_sync(cellhost, "forget", data, made.frame_id))[0] == 0
                assert await rows(made) == [[0, 0, 0]]
            await made("save_artifact", ["a.txt"])
            frame_id = made.frame_id
        again = build_dispatcher(Config(data_dir=data), workspace=tmp_path / "work")
        async with again:
            assert again.frame_id == frame_id


async def rows(dispatcher: Any) -> list[list[int]]:
    sql = "SELECT (SELECT count(*) FROM frames), (SELECT count(*) FROM jobs), (SELECT count(*) FROM artifacts)"
    table = await dispatcher("query", {"sql": sql, "format": "table"})
    found: list[list[int]] = table["rows"]
    return found


def test_where_nothing_is_kept_nothing_is_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert cellhost("gc", data) == (0, "nothing is kept in this data folder\n", "")
    code, out, told = cellhost("forget", data, "f-000000000000")
    assert (code, out) == (1, "")
    assert told.startswith("cellhost forget: no such frame (")
    assert not data.exists()


def test_a_frame_that_is_not_there_and_a_missing_argument_are_told(tmp_path: Path) -> None:
    made = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
    made.store.new_frame(kind="session")
    made.store.close()
    for frame_id in ("f-000000000000", "nonsense", "' OR 1=1"):
        code, _, told = cellhost("forget", tmp_path / "data", frame_id)
        assert (code, told) == (1, "cellhost forget: no such frame (`cellhost frames` lists them)\n")
    assert cellhost("forget", tmp_path / "data")[0] == 2
    assert cellhost("gc", tmp_path / "data", "--no-such-flag")[0] == 2


def test_the_data_folder_may_be_named_by_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
    frame_id = made.store.new_frame(kind="session")
    made.store.close()
    monkeypatch.setenv("CELLHOST_DATA_DIR", str(tmp_path / "data"))
    assert cellhost("gc") == (0, "nothing to remove\n", "")
    code, out, told = cellhost("forget", None, frame_id)
    assert (code, told) == (0, "")
    assert out.startswith("forgot 1 frame, ")


def test_a_data_folder_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "control.db").write_bytes(b"this is no database\n" * 1000)
    for verb, arguments in (("gc", ()), ("forget", ("f-000000000000",))):
        code, out, told = cellhost(verb, tmp_path, *arguments)
        assert (code, out) == (1, "")
        assert told.startswith(f"cellhost {verb}: control.db is not a SQLite database (")
