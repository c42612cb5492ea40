"""The versions of one artifact: listed in pages, and what is on record of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.errors import InvalidParams, NotFound

from .checks import sha256

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Refused


async def save(dispatcher: Dispatcher, content: str, path: str = "out/a.txt", **given: Any) -> dict[str, Any]:
    await dispatcher("write_file", {"path": path, "content": content})
    saved: dict[str, Any] = await dispatcher("save_artifact", {"path": path, **given})
    return saved


async def test_versions_are_listed_newest_first_with_all_that_is_on_record(dispatcher: Dispatcher) -> None:
    first = await save(dispatcher, "one")
    second = await save(dispatcher, "two!", content_type="text/x-mine")
    listing = await dispatcher("list_artifact_versions", [first["artifact_id"]])
    assert (listing["count"], listing["next_cursor"]) == (2, None)
    assert listing["versions"][0] == {
        "version_id": second["version_id"],
        "artifact_id": first["artifact_id"],
        "ordinal": 2,
        "filename": "a.txt",
        "content_type": "text/x-mine",
        "size_bytes": 4,
        "checksum": sha256(b"two!"),
        "producing_cell_id": None,
        "frame_id": dispatcher.frame_id,
        "source": "save",
        "created_at": second["created_at"],
        "path": "out/a.txt",
    }
    assert listing["versions"][1]["version_id"] == first["version_id"]
    for params in ({"artifactId": first["artifact_id"]}, [{"artifact_id": first["artifact_id"], "limit": 200}]):
        assert await dispatcher("list_artifact_versions", params) == listing


async def test_pages_have_every_version_exactly_once_while_others_are_saved(dispatcher: Dispatcher) -> None:
    before = [await save(dispatcher, str(number)) for number in range(7)]
    seen: list[int] = []
    cursor = None
    while True:
        params = {"artifact_id": before[0]["artifact_id"], "limit": 2, "cursor": cursor}
        page = await dispatcher("list_artifact_versions", params)
        seen += [each["ordinal"] for each in page["versions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        await save(dispatcher, f"late {len(seen)}")
    assert seen == [7, 6, 5, 4, 3, 2, 1]


async def test_a_cursor_of_another_listing_is_told(dispatcher: Dispatcher, refused: Refused) -> None:
    saved = await save(dispatcher, "x")
    for name in "bc":
        await save(dispatcher, "x", name)
    of_artifacts = (await dispatcher("list_artifacts", {"limit": 1}))["next_cursor"]
    for cursor in ("", "nonsense", of_artifacts):
        error = await refused(dispatcher, "list_artifact_versions", [saved["artifact_id"], 1, cursor])
        assert isinstance(error, InvalidParams)
        assert [issue.path for issue in error.issues] == ["$.cursor"]


async def test_metadata_is_of_the_latest_version_unless_one_is_named(dispatcher: Dispatcher) -> None:
    source = await save(dispatcher, "raw", "raw.txt")
    first = await save(dispatcher, "one", priority=4, input_version_ids=[source["version_id"]])
    second = await save(dispatcher, "two")
    latest = await dispatcher("get_artifact_metadata", [first["artifact_id"]])
    assert latest["artifact"] == {
        "artifact_id": first["artifact_id"],
        "root_frame_id": dispatcher.frame_id,
        "filename": "a.txt",
        "content_type": "text/plain",
        "priority": 4,
        "latest_version_id": second["version_id"],
        "created_at": first["created_at"],
        "updated_at": second["created_at"],
    }
    assert (latest["version"]["ordinal"], latest["version_count"], latest["inputs"]) == (2, 2, [])
    named = await dispatcher("get_artifact_metadata", [first["artifact_id"], first["version_id"]])
    assert named["version"]["checksum"] == sha256(b"one")
    assert named["inputs"] == [{"version_id": source["version_id"], "filename": "raw.txt"}]
    assert named["artifact"] == latest["artifact"]


async def test_a_version_of_another_artifact_is_none_of_this_one(dispatcher: Dispatcher, refused: Refused) -> None:
    saved, other = await save(dispatcher, "x"), await save(dispatcher, "y", "b.txt")
    error = await refused(dispatcher, "get_artifact_metadata", [saved["artifact_id"], other["version_id"]])
    assert (error.kind, str(error)) == ("not_found", "no such version")


CALLS: list[tuple[str, dict[str, str], str]] = [
    ("list_artifact_versions", {"artifact_id": "{artifact}"}, "no such artifact"),
    ("get_artifact_metadata", {"artifact_id": "{artifact}"}, "no such artifact"),
    ("get_artifact_metadata", {"artifact_id": "{mine}", "version_id": "{version}"}, "no such version"),
    ("read_artifact", {"version_id": "{version}"}, "no such version"),
    ("diff_artifact", {"from_version_id": "{version}", "to_version_id": "{my_version}"}, "no such version"),
    ("diff_artifact", {"from_version_id": "{my_version}", "to_version_id": "{version}"}, "no such version"),
    ("restore_artifact_version", {"artifact_id": "{artifact}", "version_id": "{my_version}"}, "no such artifact"),
    ("restore_artifact_version", {"artifact_id": "{mine}", "version_id": "{version}"}, "no such version"),
    ("materialise_artifact", {"version_id": "{version}"}, "no such version"),
    ("materialise_artifact", {"version_id": "{version}", "filename": "new.txt"}, "no such version"),
    ("lineage_get", {"version_id": "{version}"}, "no such version"),
    ("lineage_graph", {"version_id": "{version}"}, "no such version"),
]


@pytest.mark.parametrize(("method", "params", "message"), CALLS, ids=[f"{c[0]}-{n}" for n, c in enumerate(CALLS)])
async def test_foreign_absent_and_malformed_ids_are_the_same_answer(
    dispatcher: Dispatcher, refused: Refused, method: str, params: dict[str, str], message: str
) -> None:
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session", project_id="other")
    foreign = await save(dispatcher, "foreign")
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session", project_id="default")
    mine = await save(dispatcher, "mine")
    told: list[tuple[int, str, dict[str, Any]]] = []
    for artifact, version in (
        (foreign["artifact_id"], foreign["version_id"]),
        ("a-000000000000", "v-000000000000"),
        ("nonsense", "nonsense"),
        ("a-", "../../etc/passwd"),
        ("' OR 1=1 --", "' OR 1=1 --"),
        ("a\x00b", "\u202e"),
        ("x" * 256, "x" * 256),
    ):
        known = {"mine": mine["artifact_id"], "my_version": mine["version_id"]}
        given = {name: text.format(artifact=artifact, version=version, **known) for name, text in params.items()}
        error = await refused(dispatcher, method, given)
        assert isinstance(error, NotFound)
        told.append((error.code, str(error), error.as_data()))
    assert [each[1] for each in told] == [message] * len(told)
    assert all(each == told[0] for each in told)
    assert not (dispatcher.host.workspace.root / "new.txt").exists()
