"""A data folder that cannot be used: each call says so and what to do, and nothing is half done."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cellhost import Dispatcher

    from .conftest import Refused

READING: list[tuple[str, Any]] = [
    ("query", ["SELECT 1"]),
    ("frames", None),
    ("lineage_get", ["v-000000000000"]),
    ("list_artifacts", None),
    ("list_artifact_versions", ["a-000000000000"]),
    ("get_artifact_metadata", ["a-000000000000"]),
    ("read_artifact", ["v-000000000000"]),
    ("diff_artifact", ["v-000000000000", "v-000000000000"]),
]
WRITING: list[tuple[str, Any]] = [
    ("save_artifact", ["a.txt"]),
    ("restore_artifact_version", ["a-000000000000", "v-000000000000"]),
    ("materialise_artifact", ["v-000000000000", "new.txt"]),
]
ALLOWED: tuple[tuple[str, str, Literal["allow"]], ...] = (
    ("restore_artifact_version", "*", "allow"),
    ("materialise_artifact", "*", "allow"),
)
NOBODY = 65534


async def used_before(tmp_path: Path) -> Dispatcher:
    """A host on a data folder that has records, closed; its workspace has `a.txt`."""
    made = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
    await made("write_file", ["a.txt", "x"])
    await made("save_artifact", ["a.txt"])
    await made.host.aclose()
    return build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")


def make_newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " SELECT migration_set, '9999', 'later' FROM _sqlite_migrations LIMIT 1"
        )
    connection.close()


def make_nonsense(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 1000)


def make_damaged(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


FAULTS = [
    (make_newer, "was made by a newer version of cellhost", "upgrade cellhost"),
    (make_nonsense, "is not a SQLite database", "Move the file away"),
    (make_damaged, "is damaged", "Move the file away"),
]


@pytest.mark.parametrize(("spoil", "message", "hint"), FAULTS, ids=["newer", "nonsense", "damaged"])
@pytest.mark.parametrize("name", ["control.db", "projects/default/records.db"])
async def test_a_database_that_cannot_be_used_is_named_and_left_alone(
    tmp_path: Path, refused: Refused, name: str, spoil: Callable[[Path], None], message: str, hint: str
) -> None:
    made = await used_before(tmp_path)
    spoil(tmp_path / "data" / name)
    before = (tmp_path / "data" / name).read_bytes()
    calls = [*READING, *WRITING, ("frame_new", ["turn"])]
    if name == "control.db":
        calls += [("write_file", ["a.txt", "changed"]), ("permission_list", None)]
    for method, params in calls:
        error = await refused(made, method, params)
        assert isinstance(error, StorageError), method
        assert (error.code, str(error)) == (-31507, f"{name} {message}")
        assert (error.hint or "").startswith(hint)
    await made.host.aclose()
    assert (tmp_path / "data" / name).read_bytes() == before
    assert (tmp_path / "work" / "a.txt").read_text() == "x"
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["a.txt"]


@pytest.mark.parametrize("under", ["file", "file/below", "/proc/no-such-folder"])
async def test_a_data_folder_that_cannot_be_made_is_told_by_every_call_that_needs_it(
    tmp_path: Path, refused: Refused, under: str
) -> None:
    (tmp_path / "file").write_text("x")
    made = build_dispatcher(Config(data_dir=Path(tmp_path, under)), workspace=tmp_path / "work")
    assert (await made("ping"))["project_id"] == "default"
    for method, params in (*READING, ("write_file", ["a.txt", "x"]), ("permission_list", None)):
        error = await refused(made, method, params)
        assert isinstance(error, StorageError), method
        assert "--data-dir" in (error.hint or "")
    await made.host.aclose()
    assert not (tmp_path / "work").exists()
    assert (tmp_path / "file").read_text() == "x"


async def test_a_host_whose_data_folder_cannot_be_used_still_reads_files(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("there")
    config = Config(data_dir=tmp_path / "file", rules=(("exec_background", "*", "allow"),))
    async with build_dispatcher(config, workspace=tmp_path / "work") as made:
        assert (await made("read_file", ["a.txt"]))["content"] == "there"
        assert len((await made("list_files"))["files"]) == 1
        for method, params in (("exec_list", None), ("exec_background", ["print(1)"]), ("query", ["SELECT 1"])):
            assert isinstance(await refused(made, method, params), StorageError)
        assert (await made("ping"))["confinement"] == "none"


@contextlib.contextmanager
def read_only(data: Path, work: Path) -> Generator[None]:
    """The data folder as a user finds it who may read all of it and write nothing; root may write anywhere."""
    user = os.geteuid()
    folders = [data, *data.rglob("*")]
    for path in [*folders, work, *work.rglob("*")] if user == 0 else []:
        os.chown(path, NOBODY, NOBODY)
    for path in folders:
        path.chmod(0o500 if path.is_dir() else 0o400)
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        for path in folders:
            path.chmod(0o700 if path.is_dir() else 0o600)


async def test_a_read_only_data_folder_is_told_by_every_call_and_left_as_it_was(refused: Refused) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = await used_before(folder)
        await made.host.aclose()
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with read_only(folder / "data", folder / "work"):
            config = Config(data_dir=folder / "data", rules=ALLOWED)
            async with build_dispatcher(config, workspace=folder / "work") as made:
                for method, params in [*READING, *WRITING, ("write_file", ["a.txt", "y"]), ("frame_new", ["turn"])]:
                    error = await refused(made, method, params)
                    assert isinstance(error, StorageError), method
                    assert str(error).endswith("cannot be written: the data folder is read-only"), method
                    assert "--data-dir" in (error.hint or "")
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow  # five seconds are what SQLite waits
async def test_a_database_that_another_process_holds_is_told_as_worth_repeating(
    tmp_path: Path, refused: Refused
) -> None:
    made = await used_before(tmp_path)
    holder = sqlite3.connect(tmp_path / "data" / "control.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        error = await refused(made, "permission_set", ["global", "query", "*", "ask"])
        assert isinstance(error, StorageError)
        assert error.as_data()["retryable"] is True
        assert str(error) == "control.db is locked by another process"
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert (await made("permission_set", ["global", "query", "*", "ask"]))["rule_id"].startswith("perm-")
    await made.host.aclose()
