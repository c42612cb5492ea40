"""Where the nodes of a directed graph go: in layers from left to right, edges short and seldom crossing.

The steps are those of Sugiyama, Tagawa and Toda (1981): cycles are opened, nodes get layers, edges over several layers
get a place in each, layers are ordered by the barycentres of their neighbours, and heights follow from the order. What
each layer's heights are is a least-squares problem with a least distance between neighbours, solved exactly by pooling
adjacent violators.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ORDER_SWEEPS = 12
_HEIGHT_SWEEPS = 12
_BEND = 0.25
"""How much room the passage of an edge takes, where a node takes 1."""

Edge = tuple[str, str]
Point = tuple[float, float]
_Item = int


class Layout(msgspec.Struct, frozen=True):
    """Places in units of one layer and one node: `(layer, height)`; an edge's way leads through all layers it crosses.

    Heights begin at 0; `layers` and `height` are the extent of all.
    """

    nodes: dict[str, Point]
    edges: dict[Edge, list[Point]]
    layers: int
    height: float


def lay_out(nodes: Sequence[str], edges: Iterable[Edge]) -> Layout:
    """The layout of a graph, the same for the same input; edges between unknown nodes are left out."""
    known = set(nodes)
    unique = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1] and known.issuperset(edge)]
    forward = _without_cycles(nodes, unique)
    layer_of = _layers(nodes, list(forward))
    grid = _Grid(nodes, layer_of, forward)
    grid.order()
    heights = grid.heights()
    low = min(heights, default=0.0)
    places = [(float(layer), height - low) for layer, height in zip(grid.layer_of, heights, strict=True)]
    ways = {edge: [places[item] for item in way] for edge, way in grid.ways.items()}
    return Layout(
        nodes={node: places[item] for item, node in enumerate(nodes)},
        edges={(start, end): ways.get((start, end)) or ways[end, start][::-1] for start, end in unique},
        layers=max(layer_of.values(), default=-1) + 1,
        height=max((height for _, height in places), default=-1.0) + 1,
    )


def _without_cycles(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[Edge, None]:
    """The edges with those turned round that would close a cycle: they lead back to a node still being visited."""
    following: dict[str, list[str]] = defaultdict(list)
    for start, end in edges:
        following[start].append(end)
    untried = {node: iter(following[node]) for node in nodes}
    is_open: dict[str, bool] = {}
    turned: set[Edge] = set()
    for first in nodes:
        path = [] if first in is_open else [first]
        while path:
            node = path[-1]
            if node not in is_open:
                is_open[node] = True
                turned |= {(node, end) for end in following[node] if is_open.get(end)}
            fresh = next((end for end in untried[node] if end not in is_open), None)
            if fresh is None:
                is_open[node] = False
                path.pop()
            else:
                path.append(fresh)
    return dict.fromkeys((end, start) if (start, end) in turned else (start, end) for start, end in edges)


def _layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The longest way from a node without inputs; such a node itself stands right before what it is first used for."""
    following: dict[str, list[str]] = defaultdict(list)
    waiting = dict.fromkeys(nodes, 0)
    for start, end in edges:
        following[start].append(end)
        waiting[end] += 1
    layer = dict.fromkeys(nodes, 0)
    sources = [node for node in nodes if not waiting[node]]
    ready = list(sources)
    for node in ready:
        for end in following[node]:
            layer[end] = max(layer[end], layer[node] + 1)
            waiting[end] -= 1
            if not waiting[end]:
                ready.append(end)
    for node in sources:
        if following[node]:
            layer[node] = min(layer[end] for end in following[node]) - 1
    return layer


class _Grid:
    """Nodes, and the bends of long edges, as items in layers; an item's number is its place in `layer_of`."""

    def __init__(self, nodes: Sequence[str], layer_of: Mapping[str, int], edges: Iterable[Edge]) -> None:
        number = {node: item for item, node in enumerate(nodes)}
        self.layer_of = [layer_of[node] for node in nodes]
        self.real = len(nodes)
        self.ways: dict[Edge, list[_Item]] = {}
        before: list[list[_Item]] = [[] for _ in nodes]
        after: list[list[_Item]] = [[] for _ in nodes]
        for start, end in edges:
            way = [number[start]]
            for layer in range(layer_of[start] + 1, layer_of[end]):
                way.append(len(self.layer_of))
                self.layer_of.append(layer)
                before.append([])
                after.append([])
            way.append(number[end])
            for left, right in pairwise(way):
                after[left].append(right)
                before[right].append(left)
            self.ways[start, end] = way
        self._before, self._after = before, after
        self.rows: list[list[_Item]] = [[] for _ in range(max(self.layer_of, default=-1) + 1)]
        for item, layer in enumerate(self.layer_of):
            self.rows[layer].append(item)

    def order(self) -> None:
        """Order every layer so that few edges cross; the best of several sweeps, there and back."""
        best, fewest = [list(row) for row in self.rows], self._crossings()
        for sweep in range(_ORDER_SWEEPS):
            if not fewest:
                break
            self._sweep(self._before if sweep % 2 == 0 else self._after, self.rows[:: 1 if sweep % 2 == 0 else -1])
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
        self.rows = best

    def _sweep(self, neighbours: list[list[_Item]], rows: list[list[_Item]]) -> None:
        place = self._places()
        for row in rows:
            middle = {item: _mean([place[other] for other in neighbours[item]], place[item]) for item in row}
            row.sort(key=middle.__getitem__)  # items without neighbours stay about where they were
            for at, item in enumerate(row):
                place[item] = (at + 0.5) / len(row)

    def _places(self) -> list[float]:
        place = [0.0] * len(self.layer_of)
        for row in self.rows:
            for at, item in enumerate(row):
                place[item] = (at + 0.5) / len(row)
        return place

    def _crossings(self) -> int:
        """How many pairs of edges cross: inversions between neighbouring layers, counted with a binary indexed tree."""
        total = 0
        for left, right in pairwise(self.rows):
            at = {item: place for place, item in enumerate(right)}
            ends = [place for item in left for place in sorted(at[end] for end in self._after[item])]
            total += _inversions(ends, len(right))
        return total

    def heights(self) -> list[float]:
        """Heights that keep the order, with items near the middle of their neighbours."""
        height = [0.0] * len(self.layer_of)
        nobody: list[list[_Item]] = [[] for _ in height]
        both = [[*before, *after] for before, after in zip(self._before, self._after, strict=True)]
        self._place(self.rows, nobody, height)
        for sweep in range(_HEIGHT_SWEEPS):
            forward = sweep % 2 == 0
            self._place(self.rows[:: 1 if forward else -1], self._before if forward else self._after, height)
        self._place(self.rows, both, height)
        return height

    def _place(self, rows: list[list[_Item]], neighbours: list[list[_Item]], height: list[float]) -> None:
        """Give every row, one after the other, the heights nearest to the means of its items' neighbours."""
        for row in rows:
            offsets = [0.0]
            for above, below in pairwise(row):
                offsets.append(offsets[-1] + (self._room(above) + self._room(below)) / 2)
            wanted = [_mean([height[other] for other in neighbours[item]], height[item]) for item in row]
            placed = _nondecreasing([want - offset for want, offset in zip(wanted, offsets, strict=True)])
            for item, base, offset in zip(row, placed, offsets, strict=True):
                height[item] = base + offset

    def _room(self, item: _Item) -> float:
        return 1.0 if item < self.real else _BEND


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _inversions(values: list[int], size: int) -> int:
    tree, count = [0] * (size + 1), 0
    for seen, value in enumerate(values):
        at, not_above = value + 1, 0
        while at:
            not_above += tree[at]
            at -= at & -at
        count += seen - not_above
        at = value + 1
        while at <= size:
            tree[at] += 1
            at += at & -at
    return count


def _nondecreasing(values: list[float]) -> list[float]:
    """The nearest values, by least squares, that never fall: neighbours that would are pooled at their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, size = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / size:
            before, count = pools.pop()
            total, size = total + before, size + count
        pools.append((total, size))
    return [total / size for total, size in pools for _ in range(size)]
