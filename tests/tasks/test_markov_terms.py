"""Value and gradient: decomposed, in one piece, row by row and enumerated are the same to 1e-10."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import ImpossibleDataError
from tasks.markov_gradient import _gradient
from tasks.markov_terms import Penalty
from tests.oracle import (
    FIELD_KINDS,
    Enumeration,
    incomplete_field,
    local_terms,
    make_field,
    with_potentials,
)

# What the issue promises: relative to the value, and for the gradient to the number of examples.
EXACT = 1e-10
WAYS = ({}, {"whole": True}, {"by_row": True}, {"whole": True, "by_row": True})


def weights_of(seed, rows, kind):
    rng = random.Random(seed)
    if kind == "whole":
        return [rng.randint(0, 4) for _ in rows[1:]] + [1]
    return [rng.choice([0.0, 0.25, 1.7, rng.expovariate(1.0)]) for _ in rows[1:]] + [0.3] if kind else None


@given(
    st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(FIELD_KINDS), st.sampled_from([None, "whole", "parts"])
)
@settings(max_examples=150)
def test_value_and_gradient_against_enumeration(seed, n, kind, weighting):
    field, rows = incomplete_field(seed, n, 30, kind)
    weights = weights_of(seed, rows, weighting)
    here = Enumeration(field)
    value, gradient = here.log_likelihood(here.eta, rows, weights)
    total = math.fsum(weights or [1] * len(rows))
    for way in WAYS:
        terms = local_terms(field, rows, weights, **way)
        point = terms.evaluate(here.eta)
        assert terms.n_examples == total
        assert point.log_likelihood == pytest.approx(value, rel=EXACT, abs=EXACT)
        assert point.objective == point.log_likelihood
        np.testing.assert_allclose(_gradient(terms, point), gradient, rtol=0, atol=EXACT * total)
        np.testing.assert_allclose(point.expected, here.data_term(here.eta, rows, weights)[1], atol=EXACT * total)
        assert point.log_z == pytest.approx(here.log_z(here.eta), rel=EXACT, abs=EXACT)


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(FIELD_KINDS))
@settings(max_examples=60)
def test_objective_with_pseudo_count_and_penalty(seed, n, kind):
    """A pseudo count is rows spread evenly over all joint states; both terms are in value and gradient."""
    field, rows = incomplete_field(seed, n, 30, kind)
    here = Enumeration(field)
    value, gradient = here.objective(here.eta, rows, pseudo_count=2.5, l2=0.7)
    for way in WAYS[:2]:
        terms = local_terms(field, rows, penalty=Penalty(2.5, 0.7), **way)
        point = terms.evaluate(here.eta)
        assert point.objective == pytest.approx(value, rel=EXACT, abs=EXACT)
        np.testing.assert_allclose(_gradient(terms, point), gradient, rtol=0, atol=EXACT * (len(rows) + 2.5))


@pytest.mark.parametrize("kind", FIELD_KINDS)
def test_gradient_is_the_slope(kind):
    """Central differences of the value itself, no oracle in between."""
    field, rows = incomplete_field(11, 5, 40, kind)
    terms = local_terms(field, rows, penalty=Penalty(1.5, 0.3))
    eta, step = Enumeration(field).eta, 1e-4
    gradient = _gradient(terms, terms.evaluate(eta))
    for k in random.Random(3).sample(range(len(eta)), 12):
        way = np.zeros(len(eta))
        way[k] = step
        slope = (terms.evaluate(eta + way).objective - terms.evaluate(eta - way).objective) / (2 * step)
        # Third derivatives are at most the examples, here 40; rounding is 1e-16 of some hundreds over the step.
        assert gradient[k] == pytest.approx(slope, abs=1e-7 * 42)


@given(st.integers(0, 10**6), st.sampled_from(FIELD_KINDS))
@settings(max_examples=30)
def test_adding_a_constant_to_a_factor_changes_nothing(seed, kind):
    field, rows = incomplete_field(seed, 4, 20, kind)
    terms = local_terms(field, rows)
    eta = Enumeration(field).eta
    shift = np.repeat(np.random.default_rng(seed).uniform(-600, 600, len(field.scopes)), np.diff(field.graph.bases))
    before, after = terms.evaluate(eta), terms.evaluate(eta + shift)
    # The shift itself is rounded: a few 1e-14 in each log potential.
    assert after.log_likelihood == pytest.approx(before.log_likelihood, rel=1e-10)
    np.testing.assert_allclose(after.expected, before.expected, atol=1e-10 * len(rows))
    np.testing.assert_allclose(after.marginals, before.marginals, atol=1e-10)


@pytest.mark.parametrize("scale", [30.0, 150.0, 300.0, 650.0])
@pytest.mark.parametrize("kind", ["complete", "partly", "at random", "hidden", "mixture"])
def test_log_potentials_far_apart(scale, kind):
    """Linear space where it can, logarithms where it must: the same value."""
    for seed in range(6):
        field, rows = incomplete_field(seed, 5, 20, kind, max_arity=3)
        rng = random.Random(seed)
        field = with_potentials(field, [rng.uniform(-scale, 0) for _ in range(10**4)])
        here = Enumeration(field)
        value, gradient = here.log_likelihood(here.eta, rows)
        for way in WAYS[:2]:
            terms = local_terms(field, rows, **way)
            point = terms.evaluate(here.eta)
            assert point.log_likelihood == pytest.approx(value, rel=EXACT)
            np.testing.assert_allclose(_gradient(terms, point), gradient, rtol=0, atol=1e-9 * len(rows))


def test_zeros_and_rows_they_exclude():
    """v0 and v1 are never both s1: such rows are impossible, with v0 missing only if v1 alone cannot be."""
    table = np.array([[1.0, 2.0], [0.5, 0.0]])
    field = make_field([2, 2, 2], [(0, 1), (1, 2)], [table, [[1, 2], [3, 4]]])
    here = Enumeration(field)
    rows = [(0, 1, 0), (1, 0, 1), (-1, 1, 1), (1, -1, 0), (0, -1, -1)]
    for way in WAYS:
        point = local_terms(field, rows, **way).evaluate(here.eta)
        assert point.log_likelihood == pytest.approx(here.log_likelihood(here.eta, rows)[0], rel=1e-12)
    for way in WAYS:
        with pytest.raises(ImpossibleDataError) as refused:
            local_terms(field, [*rows, (1, 1, 0)], **way).evaluate(here.eta)
        found = dict(refused.value.codes)
        assert found.items() >= {"v0": 1, "v1": 1}.items()
    excluded = make_field([2, 2, 2], [(0, 1), (1, 2)], [[[1, 0], [1, 0]], [[1, 2], [3, 4]]])
    for way in WAYS:
        with pytest.raises(ImpossibleDataError) as refused:
            local_terms(excluded, [(0, 0, 0), (-1, 1, 1)], **way).evaluate(Enumeration(excluded).eta)
        assert refused.value.hidden == ("v0",)
        assert dict(refused.value.codes)["v1"] == 1


def test_a_constant_factor_is_no_parameter():
    field = make_field([2, 3], [(0, 1), ()], [np.arange(1.0, 7.0).reshape(2, 3), 7.0])
    plain = make_field([2, 3], [(0, 1)], [np.arange(1.0, 7.0).reshape(2, 3)])
    rows = [(0, 1), (-1, 2), (1, -1)]
    eta = Enumeration(plain).eta
    assert field.graph.n_parameters == 6
    found, wanted = local_terms(field, rows).evaluate(eta), local_terms(plain, rows).evaluate(eta)
    assert found.log_likelihood == wanted.log_likelihood
