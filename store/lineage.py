"""Lineage: what a version was made from, and what was made from it.

In every edge `from` is the input and `to` the output, whichever way the walk goes.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from .artifacts import Artifacts
    from .cells import Cells
    from .sqlite import Database

Direction = Literal["up", "down"]


class Input(TypedDict):
    version_id: str
    filename: str


class Lineage(TypedDict):
    """Where one version comes from; `code` is null when no cell made it."""

    version_id: str
    artifact_id: str
    filename: str
    checksum: str
    frame_id: str
    producing_cell_id: str | None
    code: str | None
    inputs: list[Input]
    extraction_pending: bool


LineageEdge = TypedDict("LineageEdge", {"from": str, "to": str, "direction": Direction})


class NodeInfo(TypedDict):
    filename: str
    depth: int


class LineageGraph(TypedDict):
    """The versions reached from `root`, nearest first; `reason` names the limit that cut the walk."""

    root: str
    nodes: list[str]
    edges: list[LineageEdge]
    info: dict[str, NodeInfo]
    truncated: NotRequired[bool]
    reason: NotRequired[str]


class Lineages:
    """Walks over the `lineage_edges` table of a project."""

    def __init__(self, database: Database, artifacts: Artifacts, cells: Cells) -> None:
        self._database = database
        self._artifacts = artifacts
        self._cells = cells

    def get(self, version_id: str) -> Lineage:
        """A version with its inputs and the code that made it. Raises `NotFound`."""
        version = self._artifacts.version(version_id)
        cell = version.producing_cell_id
        return {
            "version_id": version.version_id,
            "artifact_id": version.artifact_id,
            "filename": version.filename,
            "checksum": version.checksum,
            "frame_id": version.frame_id,
            "producing_cell_id": cell,
            "code": self._cells.get(cell).code if cell else None,
            "inputs": self.inputs(version_id),
            "extraction_pending": False,
        }

    def graph(
        self, version_id: str, *, direction: Direction = "up", max_depth: int = 32, max_nodes: int = 500
    ) -> LineageGraph:
        """Everything a version was made from (`up`) or that was made from it (`down`), within the limits.

        Raises `NotFound`.
        """
        self._artifacts.version(version_id)
        near, far = _ENDS[direction]
        walk = _WALK.format(near=near, far=far)
        walked = _Walk(self._database.rows(walk, [version_id, max_nodes + 1]))
        depths = walked.depths(version_id, max_depth)
        # What the query reached and the depths did not lies deeper.
        reason = "max_nodes" if len(depths) > max_nodes else "max_depth" if len(depths) < len(walked.names) else None
        nodes = list(depths)[:max_nodes]
        graph: LineageGraph = {
            "root": version_id,
            "nodes": nodes,
            "edges": walked.edges(nodes, direction),
            "info": {node: {"filename": walked.names[node], "depth": depths[node]} for node in nodes},
        }
        if reason:
            graph["truncated"] = True
            graph["reason"] = reason
        return graph

    def inputs(self, version_id: str) -> list[Input]:
        """What a version was made from, in the order it was told."""
        sql = (
            "SELECT version_id, filename FROM lineage_edges JOIN artifact_versions"
            " ON version_id = input_version_id WHERE output_version_id = ? ORDER BY lineage_edges.rowid"
        )
        return [{"version_id": found, "filename": name} for found, name in self._database.rows(sql, [version_id])]


_ENDS = {
    "up": ("output_version_id", "input_version_id"),
    "down": ("input_version_id", "output_version_id"),
}
# UNION keeps each version once, so a cycle ends and the work is that of the edges; the queue makes it breadth first.
_WALK = """
    WITH RECURSIVE walk(version_id) AS (
        VALUES (?)
        UNION
        SELECT {far} FROM walk JOIN lineage_edges ON {near} = walk.version_id
        LIMIT ?
    )
    SELECT
        version_id,
        (SELECT filename FROM artifact_versions WHERE artifact_versions.version_id = walk.version_id),
        (SELECT group_concat({far}, ' ') FROM lineage_edges WHERE {near} = walk.version_id)
    FROM walk
"""


class _Walk:
    """What the recursive query found: each version's name and its neighbours further on."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.names: dict[str, str] = {version_id: filename for version_id, filename, _ in rows}
        self._next: dict[str, list[str]] = {
            version_id: following.split(" ") if following else [] for version_id, _, following in rows
        }

    def depths(self, root: str, max_depth: int) -> dict[str, int]:
        """Steps from the root, nearest first, of every version walked within `max_depth`."""
        depths, frontier = {root: 0}, [root]
        for depth in range(1, max_depth + 1):
            beyond = dict.fromkeys(chain.from_iterable(self._next[version_id] for version_id in frontier))
            frontier = [found for found in beyond if found not in depths and found in self.names]
            if not frontier:
                break
            depths.update(dict.fromkeys(frontier, depth))
        return depths

    def edges(self, nodes: list[str], direction: Direction) -> list[LineageEdge]:
        """The edges between the nodes, as input → output."""
        kept, whole = set(nodes), len(nodes) == len(self.names)
        edges: list[LineageEdge] = []
        for node in nodes:
            following = self._next[node]
            reached = following if whole else [found for found in following if found in kept]
            if direction == "up":
                edges.extend([{"from": found, "to": node, "direction": "up"} for found in reached])
            else:
                edges.extend([{"from": node, "to": found, "direction": "down"} for found in reached])
        return edges
