"""Elimination orders and jointrees: the properties that make them right, known widths, and what is refused."""

import itertools
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.elimination_order import ENTRY_BYTES, find_order
from tasks.errors import TooLargeError
from tasks.jointree import make_jointree
from tests.oracle import random_field


def order_of(scopes, cardinalities=None, **options):
    n = 1 + max(v for s in scopes for v in s)
    return find_order([f"v{i}" for i in range(n)], cardinalities or [2] * n, scopes, **options)


def grid(side):
    n = side * side
    return [(v, v + 1) for v in range(n) if (v + 1) % side] + [(v, v + side) for v in range(n - side)]


@given(st.integers(0, 10**6), st.integers(1, 9))
@settings(max_examples=80)
def test_a_jointree_is_one(seed, n):
    """Every factor in a cluster, every variable's clusters connected, no cluster inside its parent or the reverse."""
    graph = random_field(random.Random(seed), n).graph
    elimination = find_order(graph.names, graph.cardinalities, graph.scopes)
    assert sorted(elimination.order) == list(range(n))
    tree = make_jointree(graph.cardinalities, graph.scopes, elimination)
    members = [set(m) for m in tree.members]
    assert all(len(set(m)) == len(m) for m in tree.members)
    assert tree.treewidth == elimination.treewidth
    parents = tree.parent.tolist()
    for c, p in enumerate(parents):
        assert p == -1 or p > c
        separator = tree.members[c][: tree.n_separator[c]]
        assert set(separator) == (members[c] & members[p] if p >= 0 else set())
        assert p == -1 or not (members[p] <= members[c] or members[c] <= members[p])
        assert tree.size[c] == np.prod([graph.cardinalities[v] for v in tree.members[c]])
        assert tree.size[c] == tree.runs[c] * np.prod([graph.cardinalities[v] for v in separator])
    for v in range(n):
        holders = [c for c, m in enumerate(members) if v in m]
        # Connected: all but one of the clusters with a variable have a parent with it.
        assert sum(parents[c] not in holders for c in holders) == 1
    owned = [set(tree.factor[a:b].tolist()) for a, b in itertools.pairwise(tree.factor_ptr.tolist())]
    assert sorted(f for own in owned for f in own) == list(range(len(graph.scopes)))
    assert all(set(graph.scopes[f]) <= members[c] for c, own in enumerate(owned) for f in own)
    assert elimination.n_bytes >= 8 * tree.size.sum()


@given(st.integers(0, 10**6), st.integers(1, 9))
@settings(max_examples=30)
def test_the_tour_walks_every_edge_there_and_back(seed, n):
    graph = random_field(random.Random(seed), n).graph
    tree = make_jointree(graph.cardinalities, graph.scopes, find_order(graph.names, graph.cardinalities, graph.scopes))
    at = []
    for move in tree.tour.tolist():
        if move > 0:
            assert tree.parent[move - 1] == (at[-1] if at else -1)
            at.append(move - 1)
        else:
            assert at.pop() == -move - 1
    assert not at
    assert len(tree.tour) == 2 * len(tree.members)


@pytest.mark.parametrize(
    ("scopes", "width"),
    [
        ([(0,)], 0),
        ([(0,), (1,)], 0),
        ([(i, i + 1) for i in range(50)], 1),
        ([((i - 1) // 2, i) for i in range(1, 63)], 1),
        ([(0, 1), (1, 2), (0, 2)], 2),
        ([(i, (i + 1) % 9) for i in range(9)], 2),
        ([(0, 1, 2), (2, 3, 4), (4, 5, 6)], 2),
        (list(itertools.combinations(range(6), 2)), 5),
        ([(0, 1, 2, 3)], 3),
        (grid(3), 3),
    ],
)
def test_known_widths(scopes, width):
    found = order_of(scopes)
    assert found.treewidth == width
    assert max(map(len, found.cliques)) == width


@pytest.mark.parametrize("side", [5, 8, 10, 15])
def test_grids_take_less_than_row_by_row(side):
    """The row-by-row order has the grid's treewidth, and cliques of that size nearly throughout."""
    found = order_of(grid(side))
    assert found.treewidth <= 1.5 * side
    assert found.n_bytes <= ENTRY_BYTES * (side * side - side) * 2 ** (side + 1)


def test_the_same_order_every_time():
    assert order_of(grid(7)) == order_of(grid(7))


def test_states_count_not_only_variables():
    """The variable with many states goes first, while it has few neighbours."""
    scopes = [(0, 1), (1, 2), (2, 3), (3, 0)]
    found = order_of(scopes, [100, 2, 2, 2])
    assert found.n_bytes <= ENTRY_BYTES * (400 + 8 + 4 + 2)


@pytest.mark.parametrize(("side", "seconds"), [(40, 5), (100, 30)])
def test_too_wide_is_refused_at_once(side, seconds):
    began = time.perf_counter()
    with pytest.raises(TooLargeError) as refused:
        order_of(grid(side), allowed_bytes=1 << 33)
    assert time.perf_counter() - began < seconds
    text = str(refused.value)
    assert text.startswith(f"the partition function of {side * side} variables needs a jointree of treewidth ")
    assert " GiB (" in text
    assert "allowed 8 GiB" in text
    assert "--estimator lap" in text
    assert "\n" not in text


def test_the_memory_allowed_is_exact():
    needed = order_of(grid(5)).n_bytes
    assert order_of(grid(5), allowed_bytes=needed).n_bytes == needed
    with pytest.raises(TooLargeError, match="25 variables needs a jointree of treewidth 5 or more"):
        order_of(grid(5), allowed_bytes=needed - ENTRY_BYTES)
