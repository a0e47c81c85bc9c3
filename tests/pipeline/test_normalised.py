"""Normalised log potentials: by their definition over the joint, and what makes them unique."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.markov import MarkovNetwork
from pipeline.normalised import normalise
from tests.oracle import Enumeration, make_field, random_field


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=80)
def test_by_definition(seed, n):
    """φ_S(x_S) = Σ over T ⊆ S of (−1)^|S − T| log p(x_T, the others at their reference)."""
    field = random_field(random.Random(seed), n)
    here = Enumeration(field)
    log_p = (here.logs(here.eta) - here.log_z(here.eta)).reshape(field.cardinalities)
    potentials, constant = normalise(field)
    sets = {
        s for scope in field.scopes for r in range(1, len(scope) + 1) for s in itertools.combinations(sorted(scope), r)
    }
    assert set(potentials) == {s for s in sets if all(field.cardinalities[v] > 1 for v in s)}
    assert list(potentials) == sorted(potentials, key=lambda key: (len(key), key))
    for key, values in potentials.items():
        assert values.shape == tuple(field.cardinalities[v] - 1 for v in key)
        for entry in np.ndindex(values.shape):
            wanted = 0.0
            for inside in itertools.product((0, 1), repeat=len(key)):
                state = [0] * n
                for v, x, i in zip(key, entry, inside, strict=True):
                    state[v] = (x + 1) * i
                wanted += (-1) ** (len(key) - sum(inside)) * log_p[tuple(state)]
            assert values[entry] == pytest.approx(wanted, abs=1e-10)
    assert constant - here.log_z(here.eta) == pytest.approx(log_p[(0,) * n], abs=1e-10)


@given(st.integers(0, 10**6), st.integers(1, 5))
@settings(max_examples=40)
def test_equal_distributions_have_equal_ones(seed, n):
    """Potentials moved between factors, factors scaled: raw tables differ, these do not."""
    rng = np.random.default_rng(seed)
    field = random_field(random.Random(seed), n)
    tables = [t.copy() for t in field.tables]
    for v in range(n):
        holders = [f for f, scope in enumerate(field.scopes) if v in scope]
        if len(holders) > 1:
            change = rng.uniform(0.2, 5, field.cardinalities[v])
            for f, factor in ((holders[0], change), (holders[1], 1 / change)):
                shape = [-1 if u == v else 1 for u in field.scopes[f]]
                tables[f] = tables[f] * factor.reshape(shape)
    tables[0] = tables[0] * 7.0
    other = MarkovNetwork("other", field.variables, field.states, field.scopes, tuple(tables))
    found, wanted = normalise(other)[0], normalise(field)[0]
    assert list(found) == list(wanted)
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, atol=1e-10)


def test_a_value_by_hand():
    field = make_field([2, 2], [(0, 1), (1,)], [[[1.0, 2.0], [4.0, 24.0]], [1.0, 5.0]])
    potentials, constant = normalise(field)
    assert list(potentials) == [(0,), (1,), (0, 1)]
    assert [v.item() for v in potentials.values()] == pytest.approx([np.log(4), np.log(10), np.log(3)])
    assert constant == 0.0


def test_zeros_are_infinite_or_have_no_value():
    field = make_field([2, 2], [(0, 1)], [[[1.0, 2.0], [0.0, 3.0]]])
    potentials, _ = normalise(field)
    assert potentials[(0,)].tolist() == [-np.inf]
    assert potentials[(1,)].tolist() == [np.log(2)]
    assert potentials[(0, 1)].tolist() == [[np.inf]]
    field = make_field([2], [(0,), (0,)], [[0.0, 1.0], [1.0, 0.0]])
    assert np.isnan(normalise(field)[0][(0,)]).all()
