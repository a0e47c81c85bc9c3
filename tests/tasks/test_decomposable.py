"""Which factor graphs have a closed form, and that it is the maximum."""

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.decomposable import closed_form, find_clique_tree, maximal_scopes
from tests.oracle import Enumeration, incomplete_field, local_terms, make_field, random_field

YES = {
    "one variable": [(0,)],
    "apart": [(0,), (1,), (2,)],
    "one pair": [(0, 1)],
    "a chain": [(0, 1), (1, 2), (2, 3)],
    "a star": [(0, 1), (2, 0), (0, 3)],
    "a tree": [(0, 1), (0, 2), (1, 3), (4, 1), (2, 5)],
    "a forest": [(0, 1), (2, 3), (3, 4)],
    "unary beside pairs": [(0,), (0, 1), (1,), (1, 2)],
    "a triangle of one factor": [(0, 1, 2)],
    "a triangle and its sides": [(0, 1), (0, 1, 2), (1, 2), (2, 0)],
    "overlapping triangles": [(0, 1, 2), (1, 2, 3), (2, 3, 4)],
    "triangles at a point": [(0, 1, 2), (2, 3, 4), (0, 5, 6)],
    "equal scopes": [(0, 1), (1, 0), (1, 2)],
    "three about one": [(0, 1, 2), (0, 1, 3), (1, 0, 4)],
    "a large clique and a tail": [(0, 1, 2, 3), (3, 4)],
}
NO = {
    "a triangle of pairs": [(0, 1), (1, 2), (0, 2)],
    "a cycle of four": [(0, 1), (1, 2), (2, 3), (3, 0)],
    "a cycle of four with a chord": [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)],
    "three triangles about one": [(0, 1, 2), (0, 2, 3), (0, 3, 1)],
    "the sides of a triangle's triangles": [(0, 1, 2), (2, 3, 4), (4, 5, 0)],
    "a cycle beside a tree": [(0, 1), (2, 3), (3, 4), (4, 5), (5, 2)],
    "a grid": [(0, 1), (2, 3), (0, 2), (1, 3)],
}


def graph_of(scopes, k=2):
    return make_field([k] * (1 + max(v for s in scopes for v in s)), scopes).graph


@pytest.mark.parametrize("name", YES)
def test_decomposable(name):
    tree = find_clique_tree(graph_of(YES[name]))
    assert tree is not None
    assert sorted(tree.factors) == maximal_scopes(YES[name])
    seen: set = set()
    for f, separator in zip(tree.factors, tree.separators, strict=True):
        # Running intersection, in the order in which the cliques come.
        assert set(separator) == set(YES[name][f]) & seen
        seen |= set(YES[name][f])


@pytest.mark.parametrize("name", NO)
def test_not_decomposable(name):
    assert find_clique_tree(graph_of(NO[name])) is None


def brute_force_jointree(scopes):
    """Graham's reduction: drop variables of one scope alone and scopes inside others until nothing is left."""
    left = [set(s) for s in scopes]
    while True:
        before = [set(s) for s in left]
        for s in left:
            s -= {v for v in s if sum(v in t for t in left) == 1}
        left = [s for i, s in enumerate(left) if s and not any(s < t or (s == t and j < i) for j, t in enumerate(left))]
        if left == before:
            return not left


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 4))
@settings(max_examples=200)
def test_detection_against_grahams_reduction(seed, n, arity):
    graph = random_field(random.Random(seed), n, max_arity=arity).graph
    assert (find_clique_tree(graph) is not None) == brute_force_jointree(graph.scopes)


@given(st.integers(0, 10**6))
@settings(max_examples=60)
def test_the_closed_form_is_the_maximum(seed):
    """The gradient is zero on what the data show, Z is one, the rest has no probability."""
    field, rows = incomplete_field(seed, 5, 60, "complete", max_arity=random.Random(seed).randint(1, 4))
    tree = find_clique_tree(field.graph)
    if tree is None:
        return
    terms = local_terms(field, rows)
    eta = closed_form(field.graph, tree, terms.complete, len(rows))
    here = Enumeration(field)
    assert here.log_z(eta) == pytest.approx(0, abs=1e-11)
    np.testing.assert_allclose(here.marginals(eta) * len(rows), terms.complete, atol=1e-10 * len(rows))
    assert terms.evaluate(eta).log_likelihood == pytest.approx(here.log_likelihood(eta, rows)[0], rel=1e-11)


def test_a_value_by_hand():
    """A chain of two pairs: θ_01 = μ_01 and θ_12 = μ_12 / μ_1, whichever is the root."""
    field = make_field([2, 2, 2], [(0, 1), (1, 2)])
    rows = [(0, 0, 0)] * 3 + [(0, 1, 1)] * 2 + [(1, 1, 0)] * 5
    terms = local_terms(field, rows)
    eta = closed_form(field.graph, find_clique_tree(field.graph), terms.complete, 10)
    found = Enumeration(field).probabilities(eta).reshape(2, 2, 2)
    wanted = np.zeros((2, 2, 2))
    wanted[0, 0, 0] = 0.3
    for a, p in ((0, 0.2), (1, 0.5)):
        wanted[a, 1, 0], wanted[a, 1, 1] = p * 5 / 7, p * 2 / 7
    np.testing.assert_allclose(found, wanted, atol=1e-15)


def test_a_scope_inside_others_is_left_out():
    assert maximal_scopes([(0,), (1, 0), (0, 1), (2, 1, 0), (3,), (), (0, 2)]) == [3, 4]


def test_many_cliques_take_no_time():
    """A star's pairs all share a variable: no look at every two of them."""
    began = time.perf_counter()
    assert find_clique_tree(graph_of([(i, i + 1) for i in range(20_000)])) is not None
    assert find_clique_tree(graph_of([(0, i) for i in range(1, 20_001)])) is not None
    assert time.perf_counter() - began < 5
