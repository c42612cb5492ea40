"""Lineage: one version's inputs, and walks both ways."""

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellhost.store import lineage
from cellhost.store.artifacts import NewVersion
from cellhost.store.errors import NotFound
from cellhost.store.lineage import Direction, LineageGraph
from cellhost.store.records import Records
from cellhost.store.rows import Edge
from cellhost.store.store import Store


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with Store(tmp_path / "data") as store:
        yield store.project("p")


def save(records: Records, frame_id: str, name: str, *inputs: str, cell: str | None = None) -> str:
    new = NewVersion(
        frame_id=frame_id,
        filename=name,
        content_type="text/plain",
        input_version_ids=inputs,
        producing_cell_id=cell,
    )
    with records.objects.stage(io.BytesIO(name.encode())) as staged:
        return records.artifacts.save(staged, new).version_id


def named(graph: LineageGraph) -> dict[str, int]:
    return {graph["info"][node]["filename"]: graph["info"][node]["depth"] for node in graph["nodes"]}


def pairs(graph: LineageGraph) -> set[tuple[str, str]]:
    info = graph["info"]
    return {(info[edge["from"]]["filename"], info[edge["to"]]["filename"]) for edge in graph["edges"]}


@pytest.fixture
def diamond(records: Records, frame_id: str) -> dict[str, str]:
    """raw → left, right → report; and notes, made from nothing."""
    raw = save(records, frame_id, "raw")
    left, right = (save(records, frame_id, name, raw) for name in ("left", "right"))
    report = save(records, frame_id, "report", left, right, raw)
    return {"raw": raw, "left": left, "right": right, "report": report, "notes": save(records, frame_id, "notes")}


def test_a_version_knows_its_inputs_and_the_code_that_made_it(records: Records, frame_id: str) -> None:
    cell = records.cells.add(frame_id=frame_id, code="plot(raw)")
    raw = save(records, frame_id, "raw.csv")
    plot = save(records, frame_id, "plot.png", raw, cell=cell.cell_id)
    version = records.artifacts.version(plot)
    assert records.lineage.get(plot) == {
        "version_id": plot,
        "artifact_id": version.artifact_id,
        "filename": "plot.png",
        "checksum": version.checksum,
        "frame_id": frame_id,
        "producing_cell_id": cell.cell_id,
        "code": "plot(raw)",
        "inputs": [{"version_id": raw, "filename": "raw.csv"}],
        "extraction_pending": False,
    }
    assert (records.lineage.get(raw)["code"], records.lineage.get(raw)["inputs"]) == (None, [])


def test_a_walk_up_reaches_everything_it_was_made_from(records: Records, diamond: dict[str, str]) -> None:
    graph = records.lineage.graph(diamond["report"])
    assert named(graph) == {"report": 0, "left": 1, "right": 1, "raw": 1}
    assert graph["nodes"][0] == graph["root"] == diamond["report"]
    assert pairs(graph) == {
        ("raw", "left"),
        ("raw", "right"),
        ("raw", "report"),
        ("left", "report"),
        ("right", "report"),
    }
    assert len(graph["edges"]) == 5
    assert {edge["direction"] for edge in graph["edges"]} == {"up"}
    assert "truncated" not in graph


def test_a_walk_down_reaches_everything_made_from_it(records: Records, diamond: dict[str, str]) -> None:
    graph = records.lineage.graph(diamond["raw"], direction="down")
    assert named(graph) == {"raw": 0, "left": 1, "right": 1, "report": 1}
    assert ("left", "report") in pairs(graph)
    assert {edge["direction"] for edge in graph["edges"]} == {"down"}


def test_a_version_alone_is_a_graph_of_one(records: Records, diamond: dict[str, str]) -> None:
    graph = records.lineage.graph(diamond["notes"])
    assert (graph["root"], graph["nodes"], graph["edges"]) == (diamond["notes"], [diamond["notes"]], [])
    assert graph["info"] == {diamond["notes"]: {"filename": "notes", "depth": 0}}
    assert set(graph) == {"root", "nodes", "edges", "info"}


def test_a_cycle_ends(records: Records, diamond: dict[str, str]) -> None:
    records.database.insert(Edge(input_version_id=diamond["report"], output_version_id=diamond["raw"], created_at=1))
    for name, direction in (("report", "up"), ("raw", "up"), ("raw", "down")):
        graph = records.lineage.graph(diamond[name], direction="up" if direction == "up" else "down")
        assert set(named(graph)) == {"raw", "left", "right", "report"}
        assert len(graph["edges"]) == 6
        assert "truncated" not in graph


def test_a_walk_cut_by_depth_says_so(records: Records, frame_id: str) -> None:
    chain = [save(records, frame_id, "0")]
    for number in range(1, 6):
        chain.append(save(records, frame_id, str(number), chain[-1]))
    cut = records.lineage.graph(chain[-1], max_depth=2)
    assert named(cut) == {"5": 0, "4": 1, "3": 2}
    assert pairs(cut) == {("4", "5"), ("3", "4")}
    assert (cut.get("truncated"), cut.get("reason")) == (True, "max_depth")
    assert records.lineage.graph(chain[-1], max_depth=0).get("reason") == "max_depth"
    whole = records.lineage.graph(chain[-1], max_depth=5, max_nodes=6)
    assert (len(whole["nodes"]), whole.get("truncated")) == (6, None)


def test_a_walk_cut_by_number_has_the_nearest_and_says_so(records: Records, frame_id: str) -> None:
    deep = save(records, frame_id, "deep")
    inputs = [save(records, frame_id, f"in{number}", deep) for number in range(4)]
    report = save(records, frame_id, "report", *inputs)
    cut = records.lineage.graph(report, max_nodes=4)
    assert sorted(named(cut).values()) == [0, 1, 1, 1]
    assert (cut.get("truncated"), cut.get("reason")) == (True, "max_nodes")
    assert len(cut["edges"]) == 3
    one = records.lineage.graph(report, max_nodes=1)
    assert (named(one), one.get("reason")) == ({"report": 0}, "max_nodes")


@pytest.mark.parametrize("version_id", ["v-000000000000", "", "f-000000000000", "' OR 1=1"])
def test_absent_and_malformed_ids_are_the_same_answer(records: Records, version_id: str) -> None:
    for look_up in (records.lineage.get, records.lineage.graph):
        with pytest.raises(NotFound) as caught:
            look_up(version_id)
        assert str(caught.value) == "no such version"


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_walk_is_the_same_whether_a_part_of_the_graph_is_read_or_all_of_it(
    records: Records, frame_id: str, direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(direction)
    versions = [save(records, frame_id, f"v{number}") for number in range(60)]
    chosen = {
        (chance.choice(versions), chance.choice(versions)) for _ in range(110)
    }  # with cycles and parts of its own
    with records.database.transaction():
        for source, made in sorted(chosen):
            records.database.insert(Edge(input_version_id=source, output_version_id=made, created_at=1))
    limits = [(depth, nodes) for depth in (1, 2, 3, 50) for nodes in (1, 2, 7, 30, 500)]
    for root in versions[::7]:
        for depth, nodes in limits:
            walks: list[LineageGraph] = []
            for many in (10_000, 1):
                monkeypatch.setattr(lineage, "_MANY", many)
                walk = records.lineage.graph(root, direction=direction, max_depth=depth, max_nodes=nodes)
                walk["edges"].sort(key=str)
                walks.append(walk)
            assert walks[0] == walks[1]
            assert len(walks[0]["nodes"]) <= nodes
            assert max(node["depth"] for node in walks[0]["info"].values()) <= depth
