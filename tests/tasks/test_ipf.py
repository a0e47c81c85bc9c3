"""Iterative proportional fitting: sweeps against the plain method on the whole joint, and what they promise."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.ipf import sweep_factors
from tasks.markov_em import sweep_anyhow
from tasks.markov_terms import make_model, plan_model, scaled
from tests.oracle import Enumeration, random_field, with_potentials

ROOM = 1 << 30


def problem(seed, n, zeros=False):
    """A field, another distribution's moments, and log potentials to begin with."""
    rng = random.Random(seed)
    field = random_field(rng, n)
    here = Enumeration(field)
    shares = np.array([rng.expovariate(1.0) * (not zeros or rng.random() < 0.5) for _ in here.states])
    if not shares.sum():
        shares[0] = 1.0
    targets = here.moments(shares / shares.sum())
    model = make_model(field.graph, plan_model(field.graph, ROOM), ROOM)
    return here, model, targets


def one_sweep(here, model, targets, eta):
    """The definition: each factor's moments matched, in the order in which the tour enters their clusters."""
    bases = model.graph.bases
    first = here.log_z(eta)
    error = 0.0
    for move in model.tree.tour.tolist():
        if move < 0:
            continue
        for f in model.tree.factor[model.tree.factor_ptr[move - 1] : model.tree.factor_ptr[move]].tolist():
            own = slice(int(bases[f]), int(bases[f + 1]))
            now = here.marginals(eta)[own]
            error = max(error, float(np.abs(now - targets[own]).max()))
            with np.errstate(divide="ignore", invalid="ignore"):
                change = np.where(now > 0, np.log(targets[own]) - np.log(now), -np.inf)
            eta = eta.copy()
            eta[own] += change
    return eta, first, error


@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans())
@settings(max_examples=60)
def test_a_sweep_against_its_definition(seed, n, zeros):
    here, model, targets = problem(seed, n, zeros)
    eta = here.eta
    theta, tops = scaled(eta, model.graph.bases)
    new, log_z, error, trusted = sweep_factors(model.tree, theta, targets)
    wanted, first, largest = one_sweep(here, model, targets, eta)
    assert trusted
    assert log_z + tops.sum() == pytest.approx(first, rel=1e-11, abs=1e-11)
    assert error == pytest.approx(largest, rel=1e-8, abs=1e-12)
    with np.errstate(divide="ignore"):
        found = np.log(new) + np.repeat(tops, np.diff(model.graph.bases))
    np.testing.assert_allclose(np.exp(found), np.exp(wanted), rtol=1e-8, atol=1e-13)


@given(st.integers(0, 10**6), st.integers(2, 6), st.booleans())
@settings(max_examples=40)
def test_the_likelihood_never_falls_and_the_moments_come_to_match(seed, n, zeros):
    here, model, targets = problem(seed, n, zeros)
    eta, values, error = here.eta, [], 1.0
    for _ in range(200):
        with np.errstate(invalid="ignore"):
            values.append(float(np.nansum(np.where(targets > 0, targets * eta, 0.0))) - here.log_z(eta))
        theta, _ = scaled(eta, model.graph.bases)
        new, _, error = sweep_anyhow(model, theta, targets)
        with np.errstate(divide="ignore"):
            eta = np.log(new)
        if error < 1e-10:
            break
    assert np.diff(values).min(initial=0.0) >= -1e-12 * max(map(abs, values))
    # Zeros in the targets are approached only slowly where no finite potentials reach them.
    assert error < (1e-2 if zeros else 1e-4)


def test_one_sweep_is_enough_where_factors_are_apart_or_nested():
    """A tree of cliques in the order of its jointree is fitted at once."""
    for seed in range(20):
        rng = random.Random(seed)
        field = random_field(rng, 5, max_arity=1)
        here = Enumeration(field)
        shares = np.array([rng.expovariate(1.0) for _ in here.states])
        targets = here.moments(shares / shares.sum())
        model = make_model(field.graph, plan_model(field.graph, ROOM), ROOM)
        new, _, _ = sweep_anyhow(model, scaled(here.eta, field.graph.bases)[0], targets)
        np.testing.assert_allclose(here.marginals(np.log(new)), targets, rtol=1e-11)


def test_out_of_a_doubles_range_a_sweep_goes_factor_by_factor():
    """The same promise at the cost of an evaluation a factor."""
    fell_back = 0
    for seed in range(25):
        rng = random.Random(seed)
        field = random_field(rng, 4)
        field = with_potentials(field, [rng.uniform(-690, 0) for _ in range(10**4)])
        here = Enumeration(field)
        targets = here.moments(np.full(len(here.states), 1 / len(here.states)))
        model = make_model(field.graph, plan_model(field.graph, ROOM), ROOM)
        theta, tops = scaled(here.eta, field.graph.bases)
        fell_back += not sweep_factors(model.tree, theta, targets)[3]
        new, log_z, error = sweep_anyhow(model, theta, targets)
        assert log_z + tops.sum() == pytest.approx(here.log_z(here.eta), rel=1e-11)
        assert 0 <= error <= 1
        # Of the factor that came last the moments match.
        with np.errstate(divide="ignore"):
            now = here.marginals(np.log(new))
        last = len(field.scopes) - 1
        if not sweep_factors(model.tree, theta, targets)[3] and (new > 0).all():
            own = slice(int(field.graph.bases[last]), int(field.graph.bases[last + 1]))
            np.testing.assert_allclose(now[own], targets[own], rtol=1e-8)
    assert fell_back
