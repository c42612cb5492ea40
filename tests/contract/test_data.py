"""The tools that read the records: schema, SQL, frames, lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, build_dispatcher
from cellhost.store.errors import Denied, InvalidParams, NotFound, NotReadOnly, QueryError, TimedOut, TooLarge

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost import Dispatcher

    from .conftest import Finished, Refused

TABLES = ("frames", "cells", "jobs", "artifacts", "artifact_versions", "lineage_edges")


async def save(dispatcher: Dispatcher, name: str, *inputs: str) -> str:
    await dispatcher("write_file", [name, name])
    saved = await dispatcher("save_artifact", {"path": name, "input_version_ids": list(inputs)})
    version_id: str = saved["version_id"]
    return version_id


def only_issue(error: Exception) -> tuple[str, str]:
    assert isinstance(error, InvalidParams)
    (issue,) = error.issues
    return issue.path, issue.message


# query_schema


@pytest.mark.parametrize("params", [None, [], {}, [{}], [None], {"database": None}])
async def test_query_schema_lists_the_columns_of_every_table_that_sql_may_read(shared: Dispatcher, params: Any) -> None:
    schema = await shared("query_schema", params)
    assert {*TABLES, *(f"my_{name}" for name in TABLES)} <= schema.keys()
    for name in TABLES:
        table = await shared("query", {"sql": f"SELECT * FROM {name} LIMIT 0", "format": "table"})
        assert schema[name] == table["columns"]
        assert schema[f"my_{name}"] == schema[name]


@pytest.mark.parametrize("tool", ["query", "query_schema"])
async def test_a_database_that_was_not_given_is_not_there(shared: Dispatcher, refused: Refused, tool: str) -> None:
    given = {"sql": "SELECT 1"} if tool == "query" else {}
    for name in ("sales", "control", "../control.db", "default"):
        error = await refused(shared, tool, given | {"database": name})
        assert isinstance(error, NotFound)
        assert (str(error), error.code) == ("no such database", -31404)


# query


@pytest.mark.parametrize(
    "params",
    [
        ["SELECT :a AS a", {"a": 7}],
        ["SELECT ? AS a", [7]],
        {"sql": "SELECT ? AS a", "params": [7]},
        [{"sql": "SELECT $a AS a", "params": {"a": 7}}],
        ["SELECT ? AS a", [7], None, None, "records", None, False],
    ],
)
async def test_every_form_of_query_binds_its_values(shared: Dispatcher, params: Any) -> None:
    assert await shared("query", params) == [{"a": 7}]


async def test_query_answers_in_three_forms(shared: Dispatcher) -> None:
    sql = "SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2.5, NULL"
    assert await shared("query", {"sql": sql}) == [{"a": 1, "b": "x"}, {"a": 2.5, "b": None}]
    assert await shared("query", {"sql": sql, "format": "records"}) == [{"a": 1, "b": "x"}, {"a": 2.5, "b": None}]
    assert await shared("query", {"sql": sql, "df": True}) == {"columns": ["a", "b"], "rows": [[1, "x"], [2.5, None]]}
    table = await shared("query", {"sql": sql, "format": "table"})
    assert table.pop("elapsed_ms") >= 0
    assert table == {
        "columns": ["a", "b"],
        "types": table["types"],
        "rows": [[1, "x"], [2.5, None]],
        "row_count": 2,
        "truncated": False,
    }
    assert len(table["types"]) == 2


async def test_no_rows_still_have_columns(shared: Dispatcher) -> None:
    sql = "SELECT 1 AS a WHERE 0"
    assert await shared("query", {"sql": sql}) == []
    assert await shared("query", {"sql": sql, "df": True}) == {"columns": ["a"], "rows": []}
    assert (await shared("query", {"sql": sql, "format": "table"}))["columns"] == ["a"]


async def test_values_that_json_cannot_hold_are_marked(shared: Dispatcher) -> None:
    sql = "SELECT 9007199254740993 AS big, x'00ff' AS bytes, 9e999 AS inf, 9007199254740992 AS exact"
    assert await shared("query", [sql]) == [
        {
            "big": {"$int": "9007199254740993"},
            "bytes": {"$blob": "AP8="},
            "inf": {"$float": "inf"},
            "exact": 9007199254740992,
        }
    ]
    assert await shared("query", ["SELECT length(?) AS n", [{"$blob": "AP8="}]]) == [{"n": 2}]


async def test_a_limit_gives_exactly_so_many_rows_and_without_one_too_many_are_an_error(
    shared: Dispatcher, refused: Refused
) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10001) SELECT i FROM n"
    assert await shared("query", {"sql": numbers, "limit": 2}) == [{"i": 1}, {"i": 2}]
    table = await shared("query", {"sql": numbers, "limit": 2, "format": "table"})
    assert (table["row_count"], table["truncated"]) == (2, True)
    assert len(await shared("query", {"sql": numbers, "limit": 10_000})) == 10_000
    error = await refused(shared, "query", {"sql": numbers})
    assert isinstance(error, TooLarge)
    assert error.code == -31413
    assert "limit" in (error.hint or "")


async def test_explain_shows_the_plan_and_runs_nothing(shared: Dispatcher) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with anyio.fail_after(2):
        plan = await shared("query", {"sql": endless, "explain": True})
    assert all("detail" in row for row in plan)


@pytest.mark.parametrize(
    ("sql", "kind", "code", "message"),
    [
        ("DELETE FROM frames", NotReadOnly, -31403, "only allows read-only"),
        ("INSERT INTO frames DEFAULT VALUES", NotReadOnly, -31403, "only allows read-only"),
        ("ATTACH 'x' AS y", NotReadOnly, -31403, "only allows read-only"),
        ("SELECT load_extension('x')", Denied, -31403, ""),
        ("SELECT * FROM no_such_table", QueryError, -31400, "no such table"),
        ("SELECT no_such_column FROM frames", QueryError, -31400, "no such column"),
        ("SELEC 1", QueryError, -31400, "syntax error"),
        ("   ", QueryError, -31400, "the statement is empty"),
        ("SELECT 1; SELECT 2", QueryError, -31400, "only one statement at a time"),
        ("SELECT 1 \0", InvalidParams, -32602, "NUL"),
    ],
)
async def test_sql_that_cannot_run_says_which_kind_of_wrong_it_is(
    shared: Dispatcher, refused: Refused, sql: str, kind: type[Exception], code: int, message: str
) -> None:
    error = await refused(shared, "query", [sql])
    assert isinstance(error, kind)
    assert error.code == code
    assert message in str(error)


@pytest.mark.parametrize(
    ("sql", "params", "path"),
    [
        ("SELECT ?", [], "$.params"),
        ("SELECT ?", [1, 2], "$.params"),
        ("SELECT ?", [[1]], "$.params[0]"),
        ("SELECT ?", [2**63], "$.params[0]"),
        ("SELECT ?", [{"$blob": "!"}], "$.params[0]"),
        ("SELECT :a", {"b": 1}, "$.params"),
        ("SELECT :a", {"a": 1, "b": 1}, "$.params"),
    ],
)
async def test_values_that_do_not_fit_the_statement_are_told_with_their_place(
    shared: Dispatcher, refused: Refused, sql: str, params: Any, path: str
) -> None:
    error = await refused(shared, "query", [sql, params])
    assert isinstance(error, InvalidParams)
    assert error.code == -32602
    assert all(issue.path.startswith(path) for issue in error.issues)
    assert error.issues


async def test_df_and_format_exclude_each_other(shared: Dispatcher, refused: Refused) -> None:
    error = await refused(shared, "query", {"sql": "SELECT 1", "df": True, "format": "records"})
    assert only_issue(error) == ("$.df", "leave it out when format is given")


async def test_a_query_that_takes_too_long_ends_at_its_limit(tmp_path: Path, refused: Refused) -> None:
    config = Config(data_dir=tmp_path / "data")
    config.limits.query_timeout_s = 0.3
    made = build_dispatcher(config, workspace=tmp_path / "work")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with anyio.fail_after(5):
        error = await refused(made, "query", [endless])
    assert isinstance(error, TimedOut)
    assert error.code == -31408
    await made.host.aclose()


async def test_sql_sees_what_was_just_recorded_and_my_views_only_this_session(dispatcher: Dispatcher) -> None:
    await save(dispatcher, "a.txt")
    first = dispatcher.frame_id
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session")
    await save(dispatcher, "b.txt")
    assert await dispatcher("query", ["SELECT filename FROM artifacts ORDER BY 1"]) == [
        {"filename": "a.txt"},
        {"filename": "b.txt"},
    ]
    mine = "SELECT filename, root_frame_id FROM my_artifacts"
    assert await dispatcher("query", [mine]) == [{"filename": "b.txt", "root_frame_id": dispatcher.frame_id}]
    dispatcher.frame_id = first
    assert await dispatcher("query", [mine]) == [{"filename": "a.txt", "root_frame_id": first}]


# frames


def add_cell(dispatcher: Dispatcher, frame_id: str, code: str) -> str:
    return dispatcher.store.project("default").cells.add(frame_id=frame_id, code=code, status="done").cell_id


async def test_browsing_answers_with_the_newest_sessions(dispatcher: Dispatcher) -> None:
    assert await dispatcher("frames") == {"mode": "browse", "frames": [], "next_cursor": None}
    root = (await dispatcher("frame_new", ["session", "first"]))["frame_id"]
    listing = await dispatcher("frames", {"roots_only": False})
    assert [frame["frame_id"] for frame in listing["frames"]] == [root, dispatcher.frame_id]
    assert listing["frames"][0] == {
        "frame_id": root,
        "parent_id": dispatcher.frame_id,
        "root_frame_id": dispatcher.frame_id,
        "kind": "session",
        "name": "first",
        "task_summary": None,
        "model": None,
        "status": "ready",
        "depth": 1,
        "workspace": str(dispatcher.host.workspace.root),
        "created_at": listing["frames"][0]["created_at"],
        "updated_at": listing["frames"][0]["created_at"],
    }
    assert [frame["frame_id"] for frame in (await dispatcher("frames"))["frames"]] == [dispatcher.frame_id]
    assert await dispatcher("frames", {"status": "failed"}) == {"mode": "browse", "frames": [], "next_cursor": None}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("penguins", {"named"}),
        ("PENG", {"named"}),
        ("analysis penguins", {"named"}),
        ("read_csv", {"coded"}),
        ("summary", {"summarised"}),
        ("no such thing", set[str]()),
        ('"', set[str]()),
        ("*", set[str]()),
        ("a AND OR NOT (", set[str]()),
        ("'; DROP TABLE frames; --", set[str]()),
        ("\x00", set[str]()),
        ("é" * 1000, set[str]()),
    ],
    ids=ascii,
)
async def test_searching_finds_names_summaries_and_code_and_takes_any_text(
    shared: Dispatcher, pattern: str, found: set[str]
) -> None:
    shared.frame_id = shared.store.new_frame(kind="session")
    frames = {name: (await shared("frame_new", ["turn"]))["frame_id"] for name in ("named", "coded", "summarised")}
    await shared("frame_update", {"frame_id": frames["named"], "name": "analysis of penguins"})
    await shared("frame_update", {"frame_id": frames["summarised"], "task_summary": "a summary"})
    add_cell(shared, frames["coded"], "pd.read_csv('x')")
    answer = await shared("frames", {"pattern": pattern})
    assert (answer["mode"], answer["pattern"], answer["next_cursor"]) == ("search", pattern, None)
    ids = {frame["frame_id"] for frame in answer["frames"]}
    assert {name for name, frame_id in frames.items() if frame_id in ids} == found
    roots = await shared("frames", {"pattern": pattern, "rootsOnly": True})
    assert not {frame["frame_id"] for frame in roots["frames"]} & set(frames.values())


async def test_a_frame_is_shown_with_a_page_of_its_cells_and_its_children(dispatcher: Dispatcher) -> None:
    frame_id = (await dispatcher("frame_new", ["turn"]))["frame_id"]
    child = dispatcher.store.new_frame(kind="turn", parent_id=frame_id)
    empty = await dispatcher("frames", [frame_id])
    assert {name: empty[name] for name in ("cells", "page", "page_size", "n_pages", "total_cells", "last_page")} == {
        "cells": [],
        "page": 0,
        "page_size": 50,
        "n_pages": 1,
        "total_cells": 0,
        "last_page": True,
    }
    assert set(empty) == {*("frame", "cells", "children", "page", "page_size", "n_pages", "total_cells", "last_page")}
    assert [each["frame_id"] for each in empty["children"]] == [child]
    cells = [add_cell(dispatcher, frame_id, f"print({number})") for number in range(5)]
    seen: list[str] = []
    for number in range(3):
        page = await dispatcher("frames", {"frame_id": frame_id, "page": number, "page_size": 2})
        seen += [cell["cell_id"] for cell in page["cells"]]
        assert (page["page"], page["n_pages"], page["total_cells"], page["last_page"]) == (number, 3, 5, number == 2)
        assert page["frame"]["frame_id"] == frame_id
    assert seen == cells
    beyond = await dispatcher("frames", {"frame_id": frame_id, "page": 2**53 - 1, "page_size": 200})
    assert (beyond["cells"], beyond["last_page"]) == ([], True)


async def test_the_forms_of_frames_are_the_same(dispatcher: Dispatcher) -> None:
    frame_id = (await dispatcher("frame_new", ["turn"]))["frame_id"]
    named = {"frame_id": frame_id, "page": 0, "page_size": 10}
    answer = await dispatcher("frames", named)
    for params in ([named], {"frameId": frame_id, "page": 0, "pageSize": 10}, [frame_id, *[None] * 4, 0, 10]):
        assert await dispatcher("frames", params) == answer


@pytest.mark.parametrize("search", [None, "word"])
async def test_pages_of_frames_have_each_exactly_once_while_others_are_added(
    dispatcher: Dispatcher, search: str | None
) -> None:
    before = [(await dispatcher("frame_new", ["turn", f"word {number}"]))["frame_id"] for number in range(7)]
    params: dict[str, Any] = {"limit": 2, "roots_only": False, "pattern": search}
    seen: list[str] = []
    cursor = None
    while True:
        page = await dispatcher("frames", params | {"cursor": cursor})
        assert len(page["frames"]) <= 2
        seen += [frame["frame_id"] for frame in page["frames"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        await dispatcher("frame_new", ["turn", "word new"])
    assert [frame_id for frame_id in seen if frame_id != dispatcher.frame_id] == before[::-1]


async def test_frames_that_are_absent_foreign_or_malformed_are_told_in_the_same_words(
    dispatcher: Dispatcher, refused: Refused
) -> None:
    foreign = dispatcher.store.new_frame(kind="turn", project_id="other")
    said = set[tuple[str, str, str | None]]()
    for frame_id in ("f-000000000000", foreign, "nonsense", "", "../..", "f-" + "0" * 200):
        for method in ("frames", "frame_update"):
            if frame_id or method == "frames":
                error = await refused(dispatcher, method, [frame_id])
                assert isinstance(error, NotFound)
                said.add((error.kind, str(error), error.hint))
    assert said == {("not_found", "No such frame", "Call frames without arguments to list them")}


async def test_a_project_that_is_not_there_is_not_begun_by_looking(dispatcher: Dispatcher, refused: Refused) -> None:
    projects = dispatcher.host.config.data_folder() / "projects"
    await dispatcher("frames")
    for project_id in ("absent", "NOT A NAME", "../default", ".."):
        for more in ({}, {"pattern": "x"}, {"frame_id": "f-000000000000"}):
            error = await refused(dispatcher, "frames", {"project_id": project_id} | more)
            assert isinstance(error, NotFound)
            assert str(error) == "no such project"
    assert [folder.name for folder in projects.iterdir()] == ["default"]


@pytest.mark.parametrize("cursor", ["", "nonsense", "YXJ0aWZhY3RzOjE", "ZnJhbWVzOi0x", "ZnJhbWVzOjEx!", "é"])
async def test_a_cursor_that_frames_did_not_give_is_told(shared: Dispatcher, refused: Refused, cursor: str) -> None:
    for params in ({"cursor": cursor}, {"pattern": "word", "cursor": cursor}):
        path, message = only_issue(await refused(shared, "frames", params))
        assert path == "$.cursor"
        assert message.startswith("is not a cursor of this listing")


# lineage


async def test_lineage_get_tells_where_a_version_came_from(shared: Dispatcher, finished: Finished) -> None:
    source = await save(shared, "source.csv")
    code = (
        "open('made.txt', 'w').write('made')\n"
        f"print(host.save_artifact('made.txt', input_version_ids=[{source!r}])['version_id'])"
    )
    outcome = await finished(shared, code)
    version_id = outcome["stdout"].strip()
    lineage = await shared("lineage_get", [version_id])
    (row,) = await shared("query", ["SELECT * FROM artifact_versions WHERE version_id = ?", [version_id]])
    assert lineage == {
        "version_id": version_id,
        "artifact_id": row["artifact_id"],
        "filename": "made.txt",
        "checksum": row["checksum"],
        "frame_id": shared.frame_id,
        "producing_cell_id": row["producing_cell_id"],
        "code": code,
        "inputs": [{"version_id": source, "filename": "source.csv"}],
        "extraction_pending": False,
    }
    origin = await shared("lineage_get", {"versionId": source})
    assert (origin["producing_cell_id"], origin["code"], origin["inputs"]) == (None, None, [])
    for params in ({"version_id": version_id}, [{"versionId": version_id}]):
        assert await shared("lineage_get", params) == lineage


async def test_a_chain_is_walked_up_and_down(shared: Dispatcher) -> None:
    chain = [await save(shared, "chain0.txt")]
    for number in range(1, 5):
        chain.append(await save(shared, f"chain{number}.txt", chain[-1]))
    up = await shared("lineage_graph", [chain[4]])
    assert up == {
        "root": chain[4],
        "nodes": chain[::-1],
        "edges": [{"from": chain[at - 1], "to": chain[at], "direction": "up"} for at in (4, 3, 2, 1)],
        "info": {version_id: {"filename": f"chain{at}.txt", "depth": 4 - at} for at, version_id in enumerate(chain)},
    }
    down = await shared("lineage_graph", {"version_id": chain[0], "direction": "down"})
    assert (down["root"], down["nodes"]) == (chain[0], chain)
    assert down["edges"] == [{"from": chain[at], "to": chain[at + 1], "direction": "down"} for at in range(4)]
    assert "truncated" not in up | down


async def test_a_diamond_has_each_version_once_at_its_nearest(shared: Dispatcher) -> None:
    top = await save(shared, "top.txt")
    left, right = await save(shared, "left.txt", top), await save(shared, "right.txt", top)
    bottom = await save(shared, "bottom.txt", left, right, top)
    graph = await shared("lineage_graph", [bottom])
    assert sorted(graph["nodes"]) == sorted([bottom, left, right, top])
    assert {version_id: info["depth"] for version_id, info in graph["info"].items()} == {
        bottom: 0,
        left: 1,
        right: 1,
        top: 1,
    }
    pairs = {(edge["from"], edge["to"]) for edge in graph["edges"]}
    assert pairs == {(left, bottom), (right, bottom), (top, bottom), (top, left), (top, right)}
    assert len(graph["edges"]) == 5
    assert (await shared("lineage_get", [bottom]))["inputs"] == [
        {"version_id": left, "filename": "left.txt"},
        {"version_id": right, "filename": "right.txt"},
        {"version_id": top, "filename": "top.txt"},
    ]


async def test_a_walk_that_is_cut_says_by_which_limit(shared: Dispatcher) -> None:
    chain = [await save(shared, "cut0.txt")]
    for number in range(1, 4):
        chain.append(await save(shared, f"cut{number}.txt", chain[-1]))
    for given, nodes, reason in (
        ({"max_depth": 0}, chain[:1], "max_depth"),
        ({"maxDepth": 2}, chain[:3], "max_depth"),
        ({"max_depth": 3}, chain, None),
        ({"max_nodes": 1}, chain[:1], "max_nodes"),
        ({"max_nodes": 3}, chain[:3], "max_nodes"),
        ({"max_nodes": 4}, chain, None),
    ):
        graph = await shared("lineage_graph", {"version_id": chain[0], "direction": "down"} | given)
        assert graph["nodes"] == nodes
        assert (graph.get("truncated", False), graph.get("reason")) == (reason is not None, reason)
        assert graph["info"].keys() == set(nodes)
        assert all({edge["from"], edge["to"]} <= set(nodes) for edge in graph["edges"])
    assert (await shared("lineage_graph", [chain[0], "down", 2]))["nodes"] == chain[:3]


async def test_versions_that_are_absent_foreign_or_malformed_are_told_in_the_same_words(
    dispatcher: Dispatcher, refused: Refused
) -> None:
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session", project_id="other")
    foreign = await save(dispatcher, "a.txt")
    dispatcher.frame_id = dispatcher.store.new_frame(kind="session", project_id="default")
    said = set[tuple[str, str, str | None]]()
    for version_id in ("v-000000000000", foreign, "nonsense", "/etc/passwd", "v-" + "0" * 200, "a\nb"):
        for method in ("lineage_get", "lineage_graph"):
            error = await refused(dispatcher, method, [version_id])
            assert isinstance(error, NotFound)
            said.add((error.kind, str(error), error.hint))
    assert len(said) == 1
    assert next(iter(said))[1] == "No such version"
