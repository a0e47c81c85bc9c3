"""Chow–Liu trees against direct computation, networkx and all trees there are."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.chow_liu import (
    direct,
    fit_tree,
    mutual_information,
    spanning_tree,
    tree_log_likelihood,
    tree_parameters,
)
from tasks.pairs import count_pairs
from tasks.reading import Partition


def counted(rows, cardinalities):
    return count_pairs(Partition(np.ascontiguousarray(np.array(rows, np.int8).T), None), cardinalities)


def dependent_rows(rng, cardinalities, n_rows):
    """Each variable a noisy copy of one before it."""
    rows = np.empty((n_rows, len(cardinalities)), int)
    for v, k in enumerate(cardinalities):
        noise = rng.integers(0, k, n_rows)
        source = rows[:, rng.integers(0, v)] % k if v else noise
        rows[:, v] = np.where(rng.random(n_rows) < 0.6, source, noise)
    return rows


def direct_information(rows, i, j):
    """Σ p log p / (p p) over the rows that have both, from the definition."""
    both = [(r[i], r[j]) for r in rows if r[i] >= 0 and r[j] >= 0]
    n = len(both)
    terms = []
    for a, b in set(both):
        p = both.count((a, b)) / n
        pa, pb = sum(x == a for x, _ in both) / n, sum(y == b for _, y in both) / n
        terms.append(p * math.log(p / (pa * pb)))
    return math.fsum(terms)


def test_information_by_its_definition():
    rng = np.random.default_rng(0)
    cardinalities = [2, 3, 4, 2, 20]
    rows = dependent_rows(rng, cardinalities, 400)
    rows[rng.random(rows.shape) < 0.1] = -1
    rows = rows.tolist()
    information, available = mutual_information(counted(rows, cardinalities).counts, cardinalities)
    for i, j in itertools.combinations(range(5), 2):
        # A sum of at most 60 terms below one.
        assert information[i, j] == pytest.approx(direct_information(rows, i, j), abs=1e-14)
        assert available[i, j] == sum(r[i] >= 0 and r[j] >= 0 for r in rows)
    assert (information == information.T).all()
    assert (np.diag(information) == 0).all()
    assert np.diag(available).tolist() == [sum(r[i] >= 0 for r in rows) for i in range(5)]


def test_information_in_closed_form():
    """A copy has the entropy; a binary symmetric channel log 2 less its noise's entropy."""
    counts = np.array([[3, 0, 3, 0], [0, 5, 0, 5], [3, 0, 3, 0], [0, 5, 0, 5]])
    information, _ = mutual_information(counts, [2, 2])
    assert information[0, 1] == pytest.approx(-(3 / 8 * math.log(3 / 8) + 5 / 8 * math.log(5 / 8)), rel=1e-15)
    channel = np.array([[50, 0, 45, 5], [0, 50, 5, 45], [45, 5, 50, 0], [5, 45, 0, 50]])
    information, _ = mutual_information(channel, [2, 2])
    assert information[0, 1] == pytest.approx(math.log(2) + 0.9 * math.log(0.9) + 0.1 * math.log(0.1), rel=1e-14)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_independent_counts_have_exactly_none(a, b):
    """Zero, not nearly so: the forest falls apart there."""
    block = np.outer(a, b)
    counts = np.block([[np.diag(block.sum(axis=1)), block], [block.T, np.diag(block.sum(axis=0))]])
    information, _ = mutual_information(counts, [len(a), len(b)])
    assert information.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@given(st.lists(st.lists(st.integers(0, 2**30), min_size=2, max_size=2), min_size=2, max_size=2))
def test_never_negative_and_at_most_log_of_the_states(block):
    block = np.array(block)
    counts = np.block([[np.diag(block.sum(axis=1)), block], [block.T, np.diag(block.sum(axis=0))]])
    information, _ = mutual_information(counts, [2, 2])
    assert 0 <= information[0, 1] <= math.log(2) * (1 + 1e-12)


def test_small_information_is_not_lost():
    """Nearly independent: half the squared correlation, where the definition's own terms cancel to nothing."""
    n, d = 10**9, 1
    block = np.array([[n + d, n - d], [n - d, n + d]])
    counts = np.block([[np.diag(block.sum(axis=1)), block], [block.T, np.diag(block.sum(axis=0))]])
    information, _ = mutual_information(counts, [2, 2])
    assert information[0, 1] == pytest.approx((d / n) ** 2 / 2, rel=1e-9)


@pytest.mark.parametrize("weight", [1e-300, 1e-9, 1, 1e300])
def test_weights_of_any_size(weight):
    block = np.array([[3, 1], [2, 4]])
    counts = np.block([[np.diag(block.sum(axis=1)), block], [block.T, np.diag(block.sum(axis=0))]])
    plain, _ = mutual_information(counts, [2, 2])
    heavy, _ = mutual_information(counts * float(weight), [2, 2])
    assert heavy == pytest.approx(plain, rel=1e-14)


def test_a_pair_never_seen_together():
    rows = [[0, -1], [1, -1], [-1, 0], [-1, 1]]
    tree = fit_tree(counted(rows, [2, 2]), [2, 2], "ab")
    assert tree.available.tolist() == [[2, 0], [0, 2]]
    assert tree.information.tolist() == [[0, 0], [0, 0]]
    assert tree.parents.tolist() == [-1, -1]


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_is_networkxs(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    weights = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.4), 1)
    names = [f"v{x:02}" for x in rng.permutation(n)]
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from((i, j, weights[i, j]) for i, j in zip(*np.nonzero(weights), strict=True))
    wanted = {frozenset(e) for e in nx.maximum_spanning_tree(graph).edges}
    found = spanning_tree(weights + weights.T, names)
    assert {frozenset(e) for e in found} == wanted
    strengths = [(weights + weights.T)[e] for e in found]
    assert strengths == sorted(strengths, reverse=True)
    parents = direct(found, names)
    assert {frozenset((v, int(p))) for v, p in enumerate(parents) if p >= 0} == wanted
    assert (parents < 0).sum() == nx.number_connected_components(graph)


def all_trees(n):
    """Every labelled tree, by its Prüfer sequence."""
    for sequence in itertools.product(range(n), repeat=n - 2):
        yield list(nx.from_prufer_sequence(list(sequence)).edges)


@pytest.mark.parametrize("seed", range(5))
def test_no_tree_of_five_has_a_larger_likelihood(seed):
    """All 125 trees, each with its own best parameters, by counting rows."""
    rng = np.random.default_rng(seed)
    cardinalities = rng.integers(2, 4, 5).tolist()
    rows = dependent_rows(rng, cardinalities, 300)
    tree = fit_tree(counted(rows, cardinalities), cardinalities, "abcde")
    found = tree_log_likelihood(tree, tree_parameters(tree))

    def likelihood(edges):
        parents = direct(edges, "abcde", root=0)
        total = 0.0
        for row in rows:
            for v, p in enumerate(parents):
                same = rows if p < 0 else rows[rows[:, p] == row[p]]
                total += math.log((same[:, v] == row[v]).mean())
        return total

    own = [(v, int(p)) for v, p in enumerate(tree.parents) if p >= 0]
    assert found == pytest.approx(likelihood(own), rel=1e-12)
    information = tree.information
    scores = {tuple(sorted(map(tuple, map(sorted, e)))): sum(information[x] for x in e) for e in all_trees(5)}
    assert len(scores) == 125
    best = max(scores, key=scores.__getitem__)
    assert best == tuple(sorted(tuple(sorted(e)) for e in own))
    # Likelihoods themselves for the best of the others: the criterion is the likelihood but for a constant.
    for other in sorted(scores, key=scores.__getitem__)[-4:-1]:
        assert likelihood(list(other)) < found
        assert found - likelihood(list(other)) == pytest.approx(300 * (scores[best] - scores[other]), rel=1e-6)


def test_the_likelihood_is_information_less_entropy():
    rng = np.random.default_rng(9)
    rows = dependent_rows(rng, [3] * 6, 500)
    tree = fit_tree(counted(rows, [3] * 6), [3] * 6, "abcdef")
    entropies = sum(-(p := np.bincount(rows[:, v], minlength=3) / 500) @ np.log(p) for v in range(6))
    gained = sum(tree.information[v, p] for v, p in enumerate(tree.parents) if p >= 0)
    assert tree_log_likelihood(tree, tree_parameters(tree)) == pytest.approx(500 * (gained - entropies), rel=1e-12)


def test_the_root_changes_directions_only():
    rows = dependent_rows(np.random.default_rng(3), [2, 3, 2, 4], 300)
    pairs = counted(rows, [2, 3, 2, 4])
    likelihoods, edges = [], []
    for root in range(4):
        tree = fit_tree(pairs, [2, 3, 2, 4], "abcd", root)
        assert tree.parents[root] == -1
        edges.append({frozenset((v, int(p))) for v, p in enumerate(tree.parents) if p >= 0})
        likelihoods.append(tree_log_likelihood(tree, tree_parameters(tree)))
    assert edges == [edges[0]] * 4
    assert likelihoods == pytest.approx([likelihoods[0]] * 4, rel=1e-13)


def test_ties_go_to_the_first_names():
    """All weights equal: a star around the first name, in whatever order the variables stand."""
    equal = np.ones((4, 4)) - np.eye(4)
    for names in itertools.permutations("abcd"):
        edges = spanning_tree(equal, names)
        assert [names[i] + names[j] for i, j in edges] == ["ab", "ac", "ad"]
        parents = direct(edges, names)
        assert [names[p] if p >= 0 else None for p in parents] == [None if v == "a" else "a" for v in names]


def test_ties_hold_through_rounding():
    """The same table with its states in another order is as strong, though its sum is rounded otherwise."""
    weights = np.array([[0, 0.3, 0.3 * (1 + 4e-16)], [0.3, 0, 0.3], [0.3 * (1 + 4e-16), 0.3, 0]])
    assert spanning_tree(weights, "abc") == [(0, 1), (0, 2)]


def test_the_middle_is_the_root_unless_told():
    edges = [(0, 1), (1, 2), (1, 3), (4, 5)]
    assert direct(edges, "abcdefg").tolist() == [1, -1, 1, 1, -1, 4, -1]
    assert direct(edges, "abcdefg", root=5).tolist() == [1, -1, 1, 1, 5, -1, -1]
    assert direct([], "ab").tolist() == [-1, -1]


def test_parameters_and_prior():
    rows = [[0, 0], [0, 0], [0, 1], [1, 1]]
    tree = fit_tree(counted(rows, [2, 2]), [2, 2], "ab", 0)
    plain = tree_parameters(tree)
    assert plain[0].tolist() == [0.75, 0.25]
    assert plain[1] == pytest.approx(np.array([[2 / 3, 1 / 3], [0, 1]]))
    smoothed = tree_parameters(tree, 2.0)
    assert smoothed[0] == pytest.approx(np.array([4, 2]) / 6)
    assert smoothed[1] == pytest.approx(np.array([[3 / 5, 2 / 5], [1 / 3, 2 / 3]]))


def test_no_evidence_is_uniform():
    pairs = counted([[0, 0], [1, 1]], [3, 2])
    tree = fit_tree(pairs, [3, 2], "ab", 0)
    assert tree_parameters(tree)[1][2].tolist() == [0.5, 0.5]
