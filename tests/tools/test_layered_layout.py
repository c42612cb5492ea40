"""The layered layout: whatever the graph, boxes never overlap and edges lead from left to right."""

from __future__ import annotations

import random
from itertools import pairwise
from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from cellhost.tools.layered_layout import Edge, Layout, lay_out


def crossings(layout: Layout) -> int:
    """Pairs of straight pieces between two layers that cross."""
    pieces = [(a, b) for way in layout.edges.values() for a, b in pairwise(way)]
    return sum(
        a[0] == c[0] and (a[1] - c[1]) * (b[1] - d[1]) < 0 for i, (a, b) in enumerate(pieces) for c, d in pieces[:i]
    )


names = st.integers(0, 11).map(str)


@given(st.lists(st.tuples(names, names), max_size=40))
def test_boxes_never_overlap_and_every_edge_leads_from_its_start_to_its_end(edges: list[Edge]) -> None:
    nodes = sorted({node for edge in edges for node in edge})
    layout = lay_out(nodes, edges)
    assert layout == lay_out(nodes, edges)
    assert set(layout.nodes) == set(nodes)
    assert set(layout.edges) == {edge for edge in edges if edge[0] != edge[1]}
    places = sorted(layout.nodes.values())
    assert all(a[0] != b[0] or b[1] - a[1] > 1 - 1e-9 for a, b in pairwise(places))
    for (start, end), way in layout.edges.items():
        assert (way[0], way[-1]) == (layout.nodes[start], layout.nodes[end])
        assert {b[0] - a[0] for a, b in pairwise(way)} in ({1.0}, {-1.0})
    assert all(0 <= x < layout.layers and -1e-9 <= y <= layout.height - 1 + 1e-9 for x, y in places)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted).map(tuple), max_size=30))
def test_without_cycles_no_edge_leads_backwards(pairs: list[tuple[int, int]]) -> None:
    edges = [(str(start), str(end)) for start, end in pairs]
    layout = lay_out([str(number) for number in range(10)], edges)
    assert all(way[0][0] < way[-1][0] for way in layout.edges.values())


def test_a_chain_is_straight_and_a_tree_has_no_crossing() -> None:
    chain = lay_out("abcd", [("a", "b"), ("b", "c"), ("c", "d")])
    assert chain.nodes == {"a": (0, 0), "b": (1, 0), "c": (2, 0), "d": (3, 0)}
    numbers = [str(number) for number in range(31)]
    tree = lay_out(numbers, [(str((number - 1) // 2), str(number)) for number in range(30, 0, -1)])
    assert crossings(tree) == 0


def test_order_is_found_where_two_rows_are_given_upside_down() -> None:
    left, right = [f"l{n}" for n in range(8)], [f"r{n}" for n in range(8)]
    layout = lay_out([*left, *reversed(right)], zip(left, right, strict=True))
    assert crossings(layout) == 0


def test_nothing_and_one_thing_have_a_layout() -> None:
    assert lay_out([], []) == Layout({}, {}, 0, 0)
    assert lay_out(["a"], [("a", "a"), ("a", "absent")]) == Layout({"a": (0, 0)}, {}, 1, 1)


def test_five_hundred_nodes_take_no_time_worth_naming() -> None:
    chance = random.Random(3)
    edges = [(str(chance.randrange(number)), str(number)) for number in range(1, 500) for _ in range(2)]
    began = perf_counter()
    lay_out([str(number) for number in range(500)], edges)
    assert perf_counter() - began < 10  # 0.3 s on a quiet machine
