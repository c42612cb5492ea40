"""Saving files for good: versions, names, types, inputs; and listing what was saved."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from cellhost.store.errors import InvalidParams, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost import Dispatcher

    from .conftest import Finished, Refused, SetRule


async def save(dispatcher: Dispatcher, content: str = "x", /, path: str = "a.txt", **given: Any) -> dict[str, Any]:
    await dispatcher("write_file", {"path": path, "content": content})
    saved: dict[str, Any] = await dispatcher("save_artifact", {"path": path, **given})
    return saved


async def rows(dispatcher: Dispatcher, sql: str) -> list[list[Any]]:
    table = await dispatcher("query", {"sql": sql, "format": "table"})
    found: list[list[Any]] = table["rows"]
    return found


def objects_of(dispatcher: Dispatcher) -> list[bytes]:
    folder = dispatcher.host.config.data_folder() / "projects" / "default" / "objects"
    return sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_save_artifact_answers_with_what_was_saved(dispatcher: Dispatcher) -> None:
    before = time.time_ns() // 1_000_000
    saved = await save(dispatcher, "a,b\n1,2\n", "out/table.csv")
    assert saved == {
        "artifact_id": saved["artifact_id"],
        "version_id": saved["version_id"],
        "filename": "table.csv",
        "path": "out/table.csv",
        "content_type": "text/csv",
        "size_bytes": 8,
        "checksum": hashlib.sha256(b"a,b\n1,2\n").hexdigest(),
        "created_at": saved["created_at"],
    }
    assert saved["artifact_id"].startswith("a-")
    assert saved["version_id"].startswith("v-")
    assert before <= saved["created_at"] <= time.time_ns() // 1_000_000
    assert (await dispatcher("read_file", ["out/table.csv"]))["checksum"] == saved["checksum"]


async def test_every_form_of_save_artifact_saves_the_same(dispatcher: Dispatcher) -> None:
    source = await save(dispatcher, path="source.txt")
    named = {
        "path": "a.txt",
        "filename": "b.csv",
        "content_type": "text/x-mine",
        "input_version_ids": [source["version_id"]],
        "priority": 7,
    }
    camel = {
        "path": "a.txt",
        "filename": "b.csv",
        "contentType": "text/x-mine",
        "inputVersionIds": [source["version_id"]],
        "priority": 7,
    }
    await dispatcher("write_file", ["a.txt", "x"])
    for params in (named, [named], camel, [camel], list(named.values())):
        saved = await dispatcher("save_artifact", params)
        assert (saved["filename"], saved["content_type"]) == ("b.csv", "text/x-mine")
        assert (await dispatcher("lineage_get", [saved["version_id"]]))["inputs"] == [
            {"version_id": source["version_id"], "filename": "source.txt"}
        ]
    (artifact,) = (await dispatcher("artifacts", {"filename": "b.csv"}))["artifacts"]
    assert (artifact["ordinal"], artifact["priority"]) == (5, 7)


async def test_saving_a_name_again_is_the_next_version_of_the_same_artifact(dispatcher: Dispatcher) -> None:
    first = await save(dispatcher, "one", priority=5)
    second = await save(dispatcher, "two")
    third = await save(dispatcher, "three", "elsewhere/a.txt")
    other = await save(dispatcher, "four", filename="b.txt")
    assert first["artifact_id"] == second["artifact_id"] == third["artifact_id"] != other["artifact_id"]
    assert len({first["version_id"], second["version_id"], third["version_id"]}) == 3
    assert await rows(
        dispatcher, "SELECT filename, ordinal, size_bytes FROM artifact_versions ORDER BY filename, ordinal"
    ) == [["a.txt", 1, 3], ["a.txt", 2, 3], ["a.txt", 3, 5], ["b.txt", 1, 4]]
    (artifact,) = (await dispatcher("list_artifacts", {"filename": "a.txt"}))["artifacts"]
    assert (artifact["latest_version_id"], artifact["ordinal"]) == (third["version_id"], 3)
    assert artifact["priority"] == 5  # given once, kept


async def test_priority_is_nought_until_it_is_given_and_then_the_last_one(dispatcher: Dispatcher) -> None:
    for given, kept in ((None, 0), (0, 0), (100, 100), (None, 100), (3, 3)):
        await save(dispatcher, priority=given)
        (artifact,) = (await dispatcher("list_artifacts"))["artifacts"]
        assert artifact["priority"] == kept


async def test_a_version_stays_as_it_was_whatever_becomes_of_the_file(dispatcher: Dispatcher) -> None:
    await save(dispatcher, "one")
    await dispatcher("write_file", ["a.txt", "changed"])
    assert objects_of(dispatcher) == [b"one"]


async def test_the_same_bytes_are_stored_once(dispatcher: Dispatcher) -> None:
    saved = [await save(dispatcher, "same", name) for name in ("a.txt", "b.txt", "a.txt")]
    assert len({each["checksum"] for each in saved}) == 1
    assert len({each["version_id"] for each in saved}) == 3
    assert objects_of(dispatcher) == [b"same"]


@pytest.mark.parametrize("data", [b"", b"\x00\xff" * 1000, b"x" * (9 << 20)], ids=["empty", "binary", "9 MiB"])
async def test_any_bytes_can_be_saved(dispatcher: Dispatcher, data: bytes) -> None:
    (dispatcher.host.workspace.make() / "file").write_bytes(data)
    saved = await dispatcher("save_artifact", ["file"])
    assert (saved["size_bytes"], saved["checksum"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert objects_of(dispatcher) == [data]


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("a.csv", "text/csv"),
        ("A.CSV", "text/csv"),
        ("plot.png", "image/png"),
        ("a.json", "application/json"),
        ("a.py", "text/x-python"),
        ("a.csv.gz", "application/gzip"),
        ("a.tar.bz2", "application/x-bzip2"),
        ("a.csv.xz", "application/x-xz"),
        ("unknown.zzz", "application/octet-stream"),
        ("none", "application/octet-stream"),
        ("data:text/html,x", "application/octet-stream"),
    ],
)
async def test_the_content_type_is_that_of_the_name(dispatcher: Dispatcher, name: str, content_type: str) -> None:
    assert (await save(dispatcher, filename=name))["content_type"] == content_type


@pytest.mark.parametrize("given", ["text/csv", "application/vnd.api+json", "x/y", "image/svg+xml"])
async def test_a_content_type_that_is_given_is_kept(dispatcher: Dispatcher, given: str) -> None:
    assert (await save(dispatcher, content_type=given))["content_type"] == given
    (artifact,) = (await dispatcher("list_artifacts", {"content_type": given}))["artifacts"]
    assert artifact["content_type"] == given


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("folder\\file.txt", "file.txt"),
        ("a\nb.txt", "ab.txt"),
        ("\u202egnp.exe", "gnp.exe"),
        ("  spaced.txt  ", "spaced.txt"),
        ("e\u0301.txt", "é.txt"),
        ("a:b*?.txt", "a:b*?.txt"),
        ("é" * 200 + ".txt", "é" * 125 + ".txt"),
    ],
    ids=ascii,
)
async def test_an_unsafe_name_is_cleaned(dispatcher: Dispatcher, name: str, shown: str) -> None:
    assert (await save(dispatcher, filename=name))["filename"] == shown


@pytest.mark.parametrize("name", [".", "..", "/", "a/..", " ", "\x00", "\u202e", "\\"], ids=ascii)
async def test_a_name_with_nothing_left_is_refused_and_nothing_is_kept(
    dispatcher: Dispatcher, refused: Refused, name: str
) -> None:
    await dispatcher("write_file", ["a.txt", "x"])
    error = await refused(dispatcher, "save_artifact", {"path": "a.txt", "filename": name})
    assert isinstance(error, InvalidParams)
    assert [(issue.path, issue.message) for issue in error.issues] == [("$.filename", "must name a file")]
    assert (await dispatcher("list_artifacts"))["count"] == 0
    assert objects_of(dispatcher) == []


async def test_an_input_that_is_no_version_of_this_project_is_refused_and_nothing_is_kept(
    dispatcher: Dispatcher, refused: Refused
) -> None:
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session", project_id="other")
    foreign = (await save(dispatcher, "foreign"))["version_id"]
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session", project_id="default")
    known = (await save(dispatcher, "known"))["version_id"]
    await dispatcher("write_file", ["new.txt", "new"])
    said = set[str]()
    for unknown in ("v-000000000000", foreign, "nonsense", "v-", "../x", "a'; DROP TABLE cells"):
        for name in ("new.txt", "a.txt"):
            params = {"path": "new.txt", "filename": name, "input_version_ids": [known, unknown]}
            error = await refused(dispatcher, "save_artifact", params)
            assert isinstance(error, NotFound)
            said.add(str(error))
    assert said == {"no such version"}
    assert await rows(dispatcher, "SELECT version_id FROM artifact_versions") == [[known]]
    assert await rows(dispatcher, "SELECT * FROM lineage_edges") == []
    assert objects_of(dispatcher) == [b"known"]


async def test_an_input_named_twice_is_one_edge_and_a_version_may_have_five_hundred(dispatcher: Dispatcher) -> None:
    first = (await save(dispatcher))["version_id"]
    saved = await save(dispatcher, filename="b.txt", input_version_ids=[first] * 500)
    assert await rows(dispatcher, "SELECT input_version_id, output_version_id FROM lineage_edges") == [
        [first, saved["version_id"]]
    ]


async def test_a_file_that_is_absent_is_refused_and_nothing_is_kept(dispatcher: Dispatcher, refused: Refused) -> None:
    for path in ("absent", "no/such/folder/a.txt"):
        error = await refused(dispatcher, "save_artifact", [path])
        assert (error.kind, str(error)) == ("not_found", "no such file")
    assert await rows(dispatcher, "SELECT * FROM artifacts") == []


async def test_a_refusal_by_rule_saves_nothing(dispatcher: Dispatcher, rule: SetRule) -> None:
    await dispatcher("write_file", ["a.txt", "x"])
    rule(dispatcher, "save_artifact", "deny")
    assert await dispatcher("save_artifact", ["a.txt"]) == {"error": "Permission denied: a rule denies save_artifact"}
    assert (await dispatcher("list_artifacts"))["count"] == 0


async def test_eight_saves_of_one_name_at_once_are_eight_versions_in_order(dispatcher: Dispatcher) -> None:
    await dispatcher("write_file", ["a.txt", "x"])
    saved: list[str] = []

    async def save_once() -> None:
        saved.append((await dispatcher("save_artifact", ["a.txt"]))["version_id"])

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(save_once)
    found = await rows(dispatcher, "SELECT version_id, ordinal FROM artifact_versions ORDER BY ordinal")
    assert [ordinal for _, ordinal in found] == list(range(1, 9))
    assert {version_id for version_id, _ in found} == set(saved)


async def test_another_session_has_artifacts_of_its_own_under_the_same_name(dispatcher: Dispatcher) -> None:
    first = await save(dispatcher)
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session", project_id="default")
    second = await save(dispatcher)
    assert first["artifact_id"] != second["artifact_id"]
    listing = await dispatcher("list_artifacts")
    assert [(each["filename"], each["ordinal"]) for each in listing["artifacts"]] == [("a.txt", 1), ("a.txt", 1)]


# Listing


async def test_list_artifacts_answers_with_a_page_newest_first(dispatcher: Dispatcher) -> None:
    assert await dispatcher("list_artifacts") == {"count": 0, "artifacts": [], "next_cursor": None}
    saved = [await save(dispatcher, str(number), f"{number}.txt") for number in range(3)]
    listing = await dispatcher("list_artifacts")
    assert (listing["count"], listing["next_cursor"]) == (3, None)
    newest = listing["artifacts"][0]
    assert newest == {
        "artifact_id": saved[2]["artifact_id"],
        "root_frame_id": dispatcher.frame_id,
        "filename": "2.txt",
        "content_type": "text/plain",
        "priority": 0,
        "latest_version_id": saved[2]["version_id"],
        "created_at": saved[2]["created_at"],
        "updated_at": saved[2]["created_at"],
        "ordinal": 1,
        "size_bytes": 1,
        "checksum": saved[2]["checksum"],
    }
    assert [each["filename"] for each in listing["artifacts"]] == ["2.txt", "1.txt", "0.txt"]
    assert await dispatcher("artifacts") == listing


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"search": "PLOT"}, {"plot.png", "my plot.csv"}),
        ({"search": "."}, {"plot.png", "my plot.csv", "100%_sure.txt"}),
        ({"search": "%_"}, {"100%_sure.txt"}),
        ({"search": "_plot"}, set[str]()),
        ({"search": ""}, {"plot.png", "my plot.csv", "100%_sure.txt"}),
        ({"filename": "plot.png"}, {"plot.png"}),
        ({"filename": "PLOT.png"}, set[str]()),
        ({"contentType": "image/png"}, {"plot.png"}),
        ({"content_type": "image/png", "search": "csv"}, set[str]()),
    ],
)
async def test_list_artifacts_finds_by_part_of_name_whole_name_and_type(
    dispatcher: Dispatcher, given: dict[str, Any], found: set[str]
) -> None:
    for name in ("plot.png", "my plot.csv", "100%_sure.txt"):
        await save(dispatcher, path=name)
    listing = await dispatcher("list_artifacts", given)
    assert {each["filename"] for each in listing["artifacts"]} == found
    assert listing["count"] == len(found)
    snake = {name.replace("contentType", "content_type"): value for name, value in given.items()}
    in_order = [snake.get(name) for name in ("search", "filename", "content_type")]
    for params in (in_order, [*in_order, 10, None], [given]):
        assert await dispatcher("list_artifacts", params) == listing


async def test_pages_have_every_artifact_exactly_once_while_others_are_added(dispatcher: Dispatcher) -> None:
    before = [f"{number}.txt" for number in range(7)]
    for name in before:
        await save(dispatcher, path=name)
    seen: list[str] = []
    cursor = None
    while True:
        page = await dispatcher("list_artifacts", {"limit": 2, "cursor": cursor})
        seen += [each["filename"] for each in page["artifacts"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        await save(dispatcher, path=f"new {len(seen)}.txt")
        await save(dispatcher, path="3.txt")  # a new version is no new artifact
    assert seen == before[::-1]


async def test_a_cursor_of_something_else_is_told(dispatcher: Dispatcher, refused: Refused) -> None:
    for _ in range(2):
        dispatcher.store.new_frame(kind="session")
    of_frames = (await dispatcher("frames", {"limit": 1}))["next_cursor"]
    for cursor in ("", "nonsense", of_frames, "\u00e9", "YXJ0aWZhY3RzOi0x"):
        error = await refused(dispatcher, "list_artifacts", {"cursor": cursor})
        assert isinstance(error, InvalidParams)
        assert [issue.path for issue in error.issues] == ["$.cursor"]


async def test_artifacts_of_another_project_are_not_there(dispatcher: Dispatcher) -> None:
    await save(dispatcher)
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session", project_id="other")
    assert (await dispatcher("list_artifacts"))["count"] == 0


# Copies for jobs


async def test_a_copy_for_a_job_is_the_saved_version_even_after_somebody_changed_it(
    shared: Dispatcher, finished: Finished
) -> None:
    saved = await save(shared, "as saved", "copied.txt")
    code = (
        "import os\n"
        f"path = host.artifact_path({saved['version_id']!r})\n"
        "print(open(path).read(), oct(os.stat(path).st_mode & 0o777))\n"
        "os.chmod(path, 0o644); open(path, 'w').write('tampered')\n"
        f"path = host.artifact_path({saved['version_id']!r})\n"
        "print(open(path).read(), sorted(os.listdir(os.path.dirname(path))))\n"
    )
    outcome = await finished(shared, code)
    assert outcome["error"] is None, outcome["error"]
    assert outcome["stdout"] == "as saved 0o444\nas saved ['copied.txt']\n"


async def test_a_copy_can_have_the_longest_name(shared: Dispatcher, finished: Finished) -> None:
    saved = await save(shared, "x", "n" * 255)
    outcome = await finished(shared, f"print(len(open(host.artifact_path({saved['version_id']!r})).read()))")
    assert (outcome["error"], outcome["stdout"]) == (None, "1\n")


async def test_a_version_that_is_not_there_is_told_in_the_job(shared: Dispatcher, finished: Finished) -> None:
    code = "try:\n    host.artifact_path('v-000000000000')\nexcept Exception as error:\n    print(error.kind, error)\n"
    assert (await finished(shared, code))["stdout"].startswith("not_found no such version")


async def test_a_copy_for_a_job_is_refused_when_the_saved_bytes_were_changed(
    shared: Dispatcher, finished: Finished
) -> None:
    saved = await save(shared, "never to be seen changed", "changed.txt")
    folder: Path = shared.host.config.data_folder() / "projects" / "default" / "objects"
    path = folder / saved["checksum"][:2] / saved["checksum"]
    path.chmod(0o600)
    path.write_text("never to be seen CHANGED")
    code = (
        f"import os\ntry:\n    host.artifact_path({saved['version_id']!r})\nexcept Exception as error:\n"
        f"    print(error.kind, error, os.listdir('.cellhost/{saved['version_id']}'))\n"
    )
    told = (await finished(shared, code))["stdout"]
    assert told.startswith("storage the bytes of this version are not those that were saved")
    assert told.endswith(" []\n")  # nothing half copied


async def test_a_job_gets_the_edge_of_what_it_opened_and_another_job_does_not(
    shared: Dispatcher, finished: Finished
) -> None:
    source = await save(shared, "raw", "opened.txt")
    made = "open('made.txt', 'w').write('made')\nprint(host.save_artifact('made.txt')['version_id'])"
    opening = await finished(shared, f"open(host.artifact_path({source['version_id']!r})).read()\n{made}")
    other = await finished(shared, made)
    lineage = await shared("lineage_get", [opening["stdout"].strip()])
    assert lineage["inputs"] == [{"version_id": source["version_id"], "filename": "opened.txt"}]
    assert (await shared("lineage_get", [other["stdout"].strip()]))["inputs"] == []
    graph = await shared("lineage_graph", {"version_id": source["version_id"], "direction": "down"})
    assert [(edge["from"], edge["to"]) for edge in graph["edges"]] == [
        (source["version_id"], opening["stdout"].strip())
    ]


async def test_a_save_by_a_job_names_its_code(shared: Dispatcher, finished: Finished) -> None:
    code = "open('made.txt', 'w').write('made')\nprint(host.save_artifact('made.txt')['version_id'])"
    outcome = await finished(shared, code)
    lineage = await shared("lineage_get", [outcome["stdout"].strip()])
    assert (lineage["code"], lineage["filename"]) == (code, "made.txt")
    assert lineage["producing_cell_id"].startswith("c-")


async def test_a_sparse_large_file_is_saved_while_the_host_answers(shared: Dispatcher) -> None:
    path: Path = shared.host.workspace.make() / "sparse"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 64 << 20)
    pings = 0
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            done = anyio.Event()

            async def save_it() -> None:
                assert (await shared("save_artifact", ["sparse"]))["size_bytes"] == 64 << 20
                done.set()

            tasks.start_soon(save_it)
            while not done.is_set():
                await shared("ping")
                await anyio.lowlevel.checkpoint()
                pings += 1
    assert pings > 20
