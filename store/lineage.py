"""Lineage: what a version was made from, and what was made from it.

In every edge `from` is the input and `to` the output, whichever way the walk goes.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

import msgspec

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
        with self._database.snapshot():
            self._artifacts.version(version_id)
            following = self._following(version_id, direction, max_nodes)
            depths, reason = _walk(version_id, following, max_depth, max_nodes)
            names = self._filenames(list(depths))
        graph: LineageGraph = {
            "root": version_id,
            "nodes": list(depths),
            "edges": _edges(depths, following, direction, whole=reason is None),
            "info": {node: {"filename": names[node], "depth": depth} for node, depth in depths.items()},
        }
        if reason:
            graph["truncated"] = True
            graph["reason"] = reason
        return graph

    def _following(self, version_id: str, direction: Direction, max_nodes: int) -> dict[str, list[str]]:
        """The neighbours further on of at least the `max_nodes` nearest versions.

        One query: the recursive one, or where most of a large graph is asked for, all of it in the order of its index.
        """
        near, far = _ENDS[direction]
        edges = self._database.value(_EDGES) or 0
        if max_nodes >= _MANY and edges <= max_nodes * _EDGES_A_NODE:
            rows = self._database.rows(_WHOLE.format(near=near, far=far))
        else:
            rows = self._database.rows(_REACHED.format(near=near, far=far), [version_id, max_nodes])
        return {found: following.split(" ") for found, following in rows if following}

    def _filenames(self, version_ids: list[str]) -> dict[str, str]:
        """The names of at least these versions: looking one up takes as long as reading four in order."""
        sql = "SELECT version_id, filename FROM artifact_versions"
        if len(version_ids) >= _MANY and self._database.value(_VERSIONS) <= len(version_ids) * 4:
            return dict(self._database.rows(sql))
        wanted = [msgspec.json.encode(version_ids).decode()]
        return dict(self._database.rows(f"{sql} WHERE version_id IN (SELECT value FROM json_each(?))", wanted))

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
_MANY = 2_000
_EDGES_A_NODE = 20
"""Reading an edge in order takes a fifth of the time that reaching it takes, and a walk reaches few of most graphs."""
# At most so many are there; a count would read them all.
_EDGES = "SELECT max(rowid) FROM lineage_edges"
_VERSIONS = "SELECT max(rowid) FROM artifact_versions"

# UNION keeps each version once, so a cycle ends and the work is that of the edges; the queue makes it breadth first.
_REACHED = """
    WITH RECURSIVE walk(version_id) AS (
        VALUES (?)
        UNION
        SELECT {far} FROM walk JOIN lineage_edges ON {near} = walk.version_id
        LIMIT ?
    )
    SELECT version_id, (SELECT group_concat({far}, ' ') FROM lineage_edges WHERE {near} = walk.version_id)
    FROM walk
"""
_WHOLE = "SELECT {near}, group_concat({far}, ' ') FROM lineage_edges GROUP BY {near}"


def _walk(
    root: str, following: dict[str, list[str]], max_depth: int, max_nodes: int
) -> tuple[dict[str, int], str | None]:
    """Steps from the root of every version within the limits, nearest first, and the limit that ended the walk."""
    depths, frontier, depth = {root: 0}, [root], 0
    while True:
        beyond = dict.fromkeys(chain.from_iterable(following.get(version_id, ()) for version_id in frontier))
        frontier = [found for found in beyond if found not in depths]
        depth += 1
        if not frontier:
            return depths, None
        if depth > max_depth:
            return depths, "max_depth"
        room = max_nodes - len(depths)
        depths.update(dict.fromkeys(frontier[:room], depth))
        if len(frontier) > room:
            return depths, "max_nodes"


def _edges(
    kept: dict[str, int], following: dict[str, list[str]], direction: Direction, *, whole: bool
) -> list[LineageEdge]:
    """The edges between the versions kept, as input → output; `whole`: none leads beyond them."""
    edges: list[LineageEdge] = []
    for node in kept:
        further = following.get(node, [])
        reached = further if whole else [found for found in further if found in kept]
        if direction == "up":
            edges.extend([{"from": found, "to": node, "direction": "up"} for found in reached])
        else:
            edges.extend([{"from": node, "to": found, "direction": "down"} for found in reached])
    return edges
