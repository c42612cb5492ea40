"""Saved versions put back into the workspace: whole or not at all, never other bytes, never over another file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.artifacts import NewVersion
from cellhost.store.errors import Denied, InvalidParams, StorageError
from cellhost.tools.temporary import temporary_beside

from .checks import names_in, only_issue, sha256

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cellhost import Dispatcher

    from .conftest import Refused, SetRule

ALLOWED: tuple[tuple[str, str, Literal["allow"]], ...] = (
    ("restore_artifact_version", "*", "allow"),
    ("materialise_artifact", "*", "allow"),
)


@pytest.fixture
async def allowed(tmp_path: Path) -> AsyncIterator[Dispatcher]:
    """A host without kernels that may restore and copy."""
    made = build_dispatcher(Config(data_dir=tmp_path / "data", rules=ALLOWED), workspace=tmp_path / "work")
    yield made
    await made.host.aclose()


async def save(dispatcher: Dispatcher, content: str, path: str = "out/a.txt", **given: Any) -> dict[str, Any]:
    await dispatcher("write_file", {"path": path, "content": content})
    saved: dict[str, Any] = await dispatcher("save_artifact", {"path": path, **given})
    return saved


def spoil(dispatcher: Dispatcher, data: bytes, content: bytes) -> None:
    folder: Path = dispatcher.host.config.data_folder() / "projects" / "default" / "objects"
    path = folder / sha256(data)[:2] / sha256(data)
    path.chmod(0o600)
    path.write_bytes(content)


async def ordinals(dispatcher: Dispatcher, artifact_id: str) -> list[int]:
    listing = await dispatcher("list_artifact_versions", [artifact_id])
    return [each["ordinal"] for each in listing["versions"]]


async def test_a_restored_version_is_the_newest_and_the_content_of_the_file_it_came_from(allowed: Dispatcher) -> None:
    first = await save(allowed, "one")
    await save(allowed, "two")
    file = allowed.host.workspace.root / "out" / "a.txt"
    file.chmod(0o640)
    restored = await allowed("restore_artifact_version", [first["artifact_id"], first["version_id"]])
    assert restored == first | {"version_id": restored["version_id"], "created_at": restored["created_at"]}
    assert restored["version_id"] != first["version_id"]
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("one", 0o640)
    found = await allowed("get_artifact_metadata", [first["artifact_id"]])
    assert (found["version"]["version_id"], found["version"]["ordinal"]) == (restored["version_id"], 3)
    assert found["version"]["source"] == "restore"
    assert found["inputs"] == [{"version_id": first["version_id"], "filename": "a.txt"}]
    assert names_in(file.parent) == ["a.txt"]


async def test_a_file_that_is_gone_is_made_again_with_its_folders(allowed: Dispatcher) -> None:
    first = await save(allowed, "one", "deep/er/a.txt", filename="shown.txt")
    (allowed.host.workspace.root / "deep" / "er" / "a.txt").unlink()
    (allowed.host.workspace.root / "deep" / "er").rmdir()
    restored = await allowed("restore_artifact_version", [first["artifact_id"], first["version_id"]])
    assert (restored["path"], restored["filename"]) == ("deep/er/a.txt", "shown.txt")
    assert (allowed.host.workspace.root / "deep" / "er" / "a.txt").read_text() == "one"


async def test_without_a_rule_a_restore_needs_approval_for_the_path(dispatcher: Dispatcher, rule: SetRule) -> None:
    first = await save(dispatcher, "one")
    await save(dispatcher, "two")
    params = {"artifact_id": first["artifact_id"], "version_id": first["version_id"]}
    denied = await dispatcher("restore_artifact_version", params)
    assert denied["error"].startswith("Permission denied: restore_artifact_version needs approval")
    (request,) = await dispatcher("permission_pending")
    assert "-two\n+one" in request["preview"]
    checked = {"tool": "restore_artifact_version", "arguments": params}
    assert (await dispatcher("permission_check", checked))["decision"] == "ask"
    await dispatcher("permission_set", ["global", "restore_artifact_version", "out/*", "allow"])
    assert (await dispatcher("permission_check", checked))["decision"] == "allow"
    assert (await dispatcher("restore_artifact_version", params))["path"] == "out/a.txt"
    await dispatcher("permission_set", ["global", "materialise_artifact", "out/*", "allow"])
    made = await dispatcher("materialise_artifact", [first["version_id"], "elsewhere/b.txt"])
    assert "needs approval" in made["error"]
    assert (await dispatcher("materialise_artifact", [first["version_id"], "out/b.txt"]))["path"] == "out/b.txt"
    rule(dispatcher, "restore_artifact_version", "deny")
    assert "a rule denies" in (await dispatcher("restore_artifact_version", params))["error"]


async def test_bytes_that_are_not_those_that_were_saved_are_not_restored(allowed: Dispatcher, refused: Refused) -> None:
    first = await save(allowed, "as saved")
    await save(allowed, "two")
    for content in (b"as Saved", b"as save", b""):
        spoil(allowed, b"as saved", content)
        for method, params in (
            ("restore_artifact_version", [first["artifact_id"], first["version_id"]]),
            ("materialise_artifact", [first["version_id"], "copy.txt"]),
        ):
            error = await refused(allowed, method, params)
            assert isinstance(error, StorageError)
            assert str(error).startswith("the bytes of this version are ")
    assert await ordinals(allowed, first["artifact_id"]) == [2, 1]
    work = allowed.host.workspace.root
    assert ((work / "out" / "a.txt").read_text(), names_in(work), names_in(work / "out")) == ("two", ["out"], ["a.txt"])


async def test_what_is_no_file_any_more_is_left_alone_and_nothing_is_on_record(
    allowed: Dispatcher, refused: Refused
) -> None:
    first = await save(allowed, "one")
    file = allowed.host.workspace.root / "out" / "a.txt"
    file.unlink()
    file.mkdir()
    (file / "inside").write_text("kept")
    error = await refused(allowed, "restore_artifact_version", [first["artifact_id"], first["version_id"]])
    assert isinstance(error, InvalidParams)
    assert await ordinals(allowed, first["artifact_id"]) == [1]
    assert names_in(file) == ["inside"]


async def test_a_file_that_cannot_be_replaced_at_the_last_moment_leaves_no_version(
    allowed: Dispatcher, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await save(allowed, "one")
    second = await save(allowed, "two")

    def busy(self: Path, target: Path) -> Path:
        raise OSError(16, "Device or resource busy")  # what a file that is mounted there answers

    monkeypatch.setattr(Path, "replace", busy)
    error = await refused(allowed, "restore_artifact_version", [first["artifact_id"], first["version_id"]])
    assert (error.kind, str(error)) == ("storage", "could not write the file (EBUSY)")
    monkeypatch.undo()
    found = await allowed("get_artifact_metadata", [first["artifact_id"]])
    assert (found["version_count"], found["artifact"]["latest_version_id"]) == (2, second["version_id"])
    assert await allowed("query", ["SELECT * FROM lineage_edges"]) == []
    assert (allowed.host.workspace.root / "out" / "a.txt").read_text() == "two"


@pytest.mark.parametrize("server", ["killed", "alive"])
async def test_what_a_killed_server_began_to_restore_the_next_one_takes_back(
    allowed: Dispatcher, tmp_path: Path, server: str
) -> None:
    first = await save(allowed, "one")
    await save(allowed, "two")
    artifacts, file = allowed.store.project("default").artifacts, allowed.host.workspace.root / "out" / "a.txt"
    halfway = NewVersion(
        frame_id=allowed.frame_id, filename="a.txt", content_type="text/plain", source="restore", path="out/a.txt"
    )
    begun = artifacts.save_again(first["version_id"], halfway)
    with temporary_beside(file, begun.version_id) as (_, waiting):
        if server == "killed":
            waiting.unlink()
            waiting.write_text("one")
        next_one = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
        assert await ordinals(next_one, first["artifact_id"]) == ([2, 1] if server == "killed" else [3, 2, 1])
        await next_one.host.aclose()
        assert waiting.exists() == (server == "alive")
    assert file.read_text() == "two"


async def test_a_version_of_another_session_is_copied_and_not_restored(allowed: Dispatcher, refused: Refused) -> None:
    theirs = await save(allowed, "theirs")
    allowed.frame_id = allowed.store.new_frame(kind="session", project_id="default")
    error = await refused(allowed, "restore_artifact_version", [theirs["artifact_id"], theirs["version_id"]])
    assert only_issue(error) == ("$.artifact_id", "names an artifact of another session")
    assert await allowed("materialise_artifact", [theirs["version_id"], "in/b.txt"]) == {
        "version_id": theirs["version_id"],
        "path": "in/b.txt",
        "bytes": 6,
        "checksum": sha256(b"theirs"),
    }
    assert (allowed.host.workspace.root / "in" / "b.txt").read_text() == "theirs"
    assert await ordinals(allowed, theirs["artifact_id"]) == [1]


async def test_a_copy_never_takes_the_place_of_anything(allowed: Dispatcher, refused: Refused) -> None:
    saved = await save(allowed, "saved", "a.txt")
    work = allowed.host.workspace.root
    (work / "a.txt").write_text("mine")
    (work / "folder").mkdir()
    (work / "link").symlink_to(work / "a.txt")
    for filename in (None, "a.txt", "./a.txt", "folder", "link"):
        error = await refused(
            allowed, "materialise_artifact", {"version_id": saved["version_id"], "filename": filename}
        )
        assert only_issue(error) == ("$.filename", "names a file that is there")
    assert (work / "a.txt").read_text() == "mine"
    assert names_in(work) == ["a.txt", "folder", "link"]


async def test_eight_copies_to_one_name_at_once_are_one_file(allowed: Dispatcher) -> None:
    saved = await save(allowed, "x" * 100_000)
    made: list[bool] = []

    async def copy() -> None:
        try:
            await allowed("materialise_artifact", [saved["version_id"], "copy.txt"])
        except InvalidParams:
            made.append(False)
        else:
            made.append(True)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(copy)
    assert sorted(made) == [False] * 7 + [True]
    assert names_in(allowed.host.workspace.root) == ["copy.txt", "out"]


@pytest.mark.parametrize("filename", [".env", "../out.txt", "/etc/out.txt", "a/../../b"])
async def test_a_copy_stays_in_the_workspace_and_is_no_secret(
    allowed: Dispatcher, refused: Refused, filename: str
) -> None:
    saved = await save(allowed, "x")
    error = await refused(allowed, "materialise_artifact", [saved["version_id"], filename])
    assert isinstance(error, Denied)
    assert names_in(allowed.host.workspace.root) == ["out"]


@pytest.mark.parametrize("filename", ["", "out/", "a\0b", "out/a.txt/b", "x" * 300, "loop/b"])
async def test_a_bad_name_for_a_copy_is_told_by_its_parameter(
    allowed: Dispatcher, refused: Refused, filename: str
) -> None:
    saved = await save(allowed, "x")
    (allowed.host.workspace.root / "loop").symlink_to("loop")
    given = {"version_id": saved["version_id"], "filename": filename}
    error = await refused(allowed, "materialise_artifact", given)
    assert only_issue(error)[0] == "$.filename"
    assert names_in(allowed.host.workspace.root) == ["loop", "out"]


async def test_a_bad_name_that_is_checked_first_is_told_by_its_place_in_the_arguments(
    allowed: Dispatcher, refused: Refused
) -> None:
    saved = await save(allowed, "x")
    given = {"version_id": saved["version_id"], "filename": "out/"}
    error = await refused(allowed, "permission_check", ["materialise_artifact", given])
    assert only_issue(error) == ("$.arguments.filename", "names a folder")


@pytest.mark.parametrize(
    "path", [".cellhost/v-1/a.txt", "./.cellhost/new", ".cellhost", "sub/.cellhost/a.txt", "to/v-1/a"]
)
async def test_tools_write_nothing_among_the_copies_of_saved_versions(
    allowed: Dispatcher, refused: Refused, path: str
) -> None:
    saved = await save(allowed, "x")
    root = allowed.host.workspace.root
    copy = root / ".cellhost" / "v-1" / "a.txt"
    copy.parent.mkdir(parents=True)
    copy.write_text("copy")
    (root / "to").symlink_to(".cellhost")
    for method, params in (
        ("write_file", [path, "mine"]),
        ("edit_file", [path, "copy", "mine"]),
        ("materialise_artifact", [saved["version_id"], path]),
    ):
        error = await refused(allowed, method, params)
        assert isinstance(error, Denied)
        assert ".cellhost is for the copies of saved versions" in str(error)
    assert (names_in(root), names_in(copy.parent)) == ([".cellhost", "out", "to"], ["a.txt"])
    assert (await allowed("read_file", [".cellhost/v-1/a.txt"]))["content"] == "copy"
    resaved = await allowed("save_artifact", [".cellhost/v-1/a.txt"])
    error = await refused(allowed, "restore_artifact_version", [resaved["artifact_id"], resaved["version_id"]])
    assert isinstance(error, Denied)


async def test_a_version_that_goes_back_to_no_file_is_told_by_its_parameter(
    allowed: Dispatcher, refused: Refused
) -> None:
    saved = await save(allowed, "x")
    (allowed.host.workspace.root / "out" / "a.txt").unlink()
    (allowed.host.workspace.root / "out" / "a.txt").mkdir()
    error = await refused(allowed, "restore_artifact_version", [saved["artifact_id"], saved["version_id"]])
    assert only_issue(error) == ("$.version_id", "names something that is not a regular file")


async def test_a_restore_keeps_its_place_among_calls_on_the_file(allowed: Dispatcher) -> None:
    first = await save(allowed, "one")
    read: list[str] = []

    async def read_it() -> None:
        read.append((await allowed("read_file", ["out/a.txt"]))["content"])

    for _ in range(5):
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(allowed, "write_file", ["out/a.txt", "two"])
                tasks.start_soon(read_it)
                tasks.start_soon(allowed, "restore_artifact_version", [first["artifact_id"], first["version_id"]])
                tasks.start_soon(read_it)
                tasks.start_soon(allowed, "write_file", ["out/a.txt", "three"])
                tasks.start_soon(read_it)
    assert read == ["two", "one", "three"] * 5


async def test_the_audit_names_the_file_that_was_written(allowed: Dispatcher) -> None:
    first = await save(allowed, "one")
    await allowed("restore_artifact_version", [first["artifact_id"], first["version_id"]])
    sql = "SELECT resource_keys, side_effect_class FROM host_calls ORDER BY call_id DESC LIMIT 1"
    ((keys, kind),) = allowed.store.control.database.rows(sql)
    assert keys == f'["artifact:{first["artifact_id"]}","workspace:out/a.txt"]'
    assert kind == "workspace_write"
