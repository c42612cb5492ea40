"""Where versions came from: one step, chains and diamonds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellhost.store.errors import NotFound

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Finished, Refused


async def save(dispatcher: Dispatcher, name: str, *inputs: str) -> str:
    await dispatcher("write_file", [name, name])
    saved = await dispatcher("save_artifact", {"path": name, "input_version_ids": list(inputs)})
    version_id: str = saved["version_id"]
    return version_id


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
    assert next(iter(said))[1] == "no such version"
