"""The model term: log Z and marginals against enumeration, zeros, and products that leave a double's range."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import ImpossibleDataError
from tasks.jointree import make_jointree
from tasks.markov_terms import make_model, plan_model, scaled
from tasks.model_term import beliefs, model_term
from tests.oracle import Enumeration, log, log_sum, make_field, random_field, with_potentials

ROOM = 1 << 30


def model_of(field):
    return make_model(field.graph, plan_model(field.graph, ROOM), ROOM)


def check(field, rel=1e-12, tolerance=1e-12):
    """Both ways of evaluating a field against its enumeration: whether the fast one was trusted."""
    wanted = Enumeration(field)
    eta = wanted.eta
    theta, tops = scaled(eta, field.graph.bases)
    model = model_of(field)
    log_z, marginals, trusted = model_term(model.tree, theta)
    results = [(log_z, marginals)] if trusted else []
    results.append(model.evaluate(theta))
    for log_z, marginals in results:
        assert log_z + tops.sum() == pytest.approx(wanted.log_z(eta), rel=rel, abs=1e-11)
        np.testing.assert_allclose(marginals, wanted.marginals(eta), rtol=1e-9, atol=tolerance)
    return trusted


@given(st.integers(0, 10**6), st.integers(1, 7))
@settings(max_examples=120)
def test_against_enumeration(seed, n):
    """Cardinalities 1 to 4, arities 1 to 4, equal scopes, parts apart."""
    assert check(random_field(random.Random(seed), n))


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=80)
def test_zeros(seed, n):
    """Zeros are no loss of digits: all that remains possible is exact, and what has no state left is said to be so."""
    rng = random.Random(seed)
    field = random_field(rng, n)
    eta = [-math.inf if rng.random() < 0.3 else rng.uniform(-1, 1) for _ in range(10**4)]
    try:
        field = with_potentials(field, eta)
    except ValueError:  # a factor of nothing but zeros is refused
        return
    wanted = Enumeration(field)
    if wanted.log_z(wanted.eta) == -math.inf:
        theta, _ = scaled(wanted.eta, field.graph.bases)
        assert not model_term(model_of(field).tree, theta)[2]
        with pytest.raises(ImpossibleDataError, match="the partition function is zero"):
            model_of(field).evaluate(theta)
    else:
        assert check(field)


def test_potentials_at_the_ends_of_a_doubles_range():
    """Exponents anywhere from -300 to 0: exact, or known not to be and then done in logarithms."""
    trusted = []
    for seed in range(60):
        rng = random.Random(seed)
        field = random_field(rng, 5)
        eta = [math.log(10) * (rng.uniform(-300, 0) if rng.random() < 0.9 else 0.0) for _ in range(10**4)]
        trusted.append(check(with_potentials(field, eta), rel=1e-11))
    assert 0 < trusted.count(False) < 60


def test_all_that_counts_is_tiny():
    """A cycle whose likely states contradict each other: Z is 1e-900 of the factors' largest entries."""
    tiny = 1e-300
    agree, differ = [[1, tiny], [tiny, 1]], [[tiny, 1], [1, tiny]]
    field = make_field([2] * 3, [(0, 1), (1, 2), (0, 2), (0,)], [agree, agree, differ, [1.0, tiny]])
    assert not check(field)


def test_a_long_chain_underflows_nowhere():
    """Five thousand variables, Z = e^-20000 or so: messages are scaled on the way."""
    n = 5000
    rng = np.random.default_rng(0)
    tables = [rng.uniform(1e-3, 2e-2, (2, 2)) for _ in range(n - 1)]
    for table in tables:
        table[0, 0] = 1.0
        table[1] *= 1e-3
    unary = np.array([1e-9, 1.0])
    field = make_field(
        [2] * n, [*((i, i + 1) for i in range(n - 1)), *((i,) for i in range(n))], [*tables, *[unary] * n]
    )
    theta, tops = scaled(np.concatenate([np.log(t).ravel() for t in field.tables]), field.graph.bases)
    log_z, marginals, trusted = model_term(model_of(field).tree, theta)
    forward = np.log(unary)
    for table in tables:
        ways = forward[:, None] + np.log(table) + np.log(unary)
        forward = np.array([log_sum(ways[:, x]) for x in (0, 1)])
    assert trusted
    # Errors of 5000 roundings add up.
    assert log_z + tops.sum() == pytest.approx(log_sum(forward), rel=1e-11)
    sums = np.add.reduceat(marginals, field.graph.bases[:-1])
    np.testing.assert_allclose(sums, 1.0, rtol=1e-9)


def test_a_star_of_many_underflows_nowhere():
    """A thousand children each send (1, 1e-3): their product leaves a double's range in one state, which is negligible,
    or in all states, which is noticed."""
    n = 1000
    scopes = [(0, i) for i in range(1, n + 1)]
    easy = make_field([2] * (n + 1), scopes, [[[0.5, 0.5], [5e-4, 5e-4]]] * n)
    hard = make_field([2] * (n + 1), scopes, [[[0.5, 0.5], [5e-4, 5e-4]], [[5e-4, 5e-4], [0.5, 0.5]]] * (n // 2))
    for field, wanted in ((easy, 0.0), (hard, 500 * math.log(1e-3) + math.log(2))):
        theta, tops = scaled(np.concatenate([log(t).ravel() for t in field.tables]), field.graph.bases)
        log_z, marginals = model_of(field).evaluate(theta)
        assert log_z + tops.sum() == pytest.approx(wanted, rel=1e-12, abs=1e-10)
        np.testing.assert_allclose(np.add.reduceat(marginals, field.graph.bases[:-1]), 1.0, rtol=1e-11)
    assert not model_term(model_of(hard).tree, theta)[2]


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=40)
def test_marginals_are_the_gradient(seed, n):
    field = random_field(random.Random(seed), n)
    wanted = Enumeration(field)
    eta, step = wanted.eta, 1e-5
    _, marginals = model_of(field).evaluate(scaled(eta, field.graph.bases)[0])
    for k in random.Random(seed).sample(range(len(eta)), min(6, len(eta))):
        way = np.zeros(len(eta))
        way[k] = step
        slope = (wanted.log_z(eta + way) - wanted.log_z(eta - way)) / (2 * step)
        # Central differences: the third derivative times step² / 6, and rounding over the step.
        assert marginals[k] == pytest.approx(slope, abs=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=40)
def test_beliefs_are_the_clusters_joint_distributions(seed, n):
    field = random_field(random.Random(seed), n)
    wanted = Enumeration(field)
    tree = make_jointree(field.cardinalities, field.graph.scopes, plan_model(field.graph, ROOM))
    found = beliefs(tree, scaled(wanted.eta, field.graph.bases)[0])
    joint = wanted.probabilities(wanted.eta).reshape(field.cardinalities)
    for c, members in enumerate(tree.members):
        own = joint.sum(axis=tuple(v for v in range(n) if v not in members))
        own = own.transpose(np.argsort(np.argsort(members)))
        np.testing.assert_allclose(found[tree.table[c] : tree.table[c + 1]], own.ravel(), rtol=1e-11, atol=1e-14)
