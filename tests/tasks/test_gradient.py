"""Gradient ascent: against differences, against EM's stationary points, against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tasks.em import CONVERGED, IMPOSSIBLE_INSTANCE, LIMIT, run_em
from tasks.gradient import _Objective, _Point, run_gradient
from tasks.solving import ALGORITHMS, Settings, random_start, solve
from tests import oracle
from tests.oracle import KINDS, flat, incomplete_data, problem_of

INCOMPLETE = [k for k in KINDS if k not in ("complete", "leaves")]


def arguments(problem, prior):
    s = problem.sub_network
    return s, problem.counts.complete.astype(float), problem.evidence, np.full(s.n_parameters, prior - 1.0)


def make(seed, kind, n=5):
    network, _, rows = incomplete_data(seed, n, 40, kind)
    problem = problem_of(network, rows)
    return network, rows, None if problem.evidence is None or not len(problem.counts.instances) else problem


@given(st.integers(0, 10**6), st.sampled_from(INCOMPLETE), st.sampled_from([1.0, 2.5]))
@settings(max_examples=25)
def test_the_gradient_is_that_of_the_log_posterior(seed, kind, prior):
    _, _, problem = make(seed, kind)
    if problem is None:
        return
    objective = _Objective(*arguments(problem, prior))
    eta = np.log(random_start(problem.sub_network, seed, 0))
    free = np.ones(len(eta), bool)
    point = _Point(objective, objective.softmax(eta, free))
    along = np.random.default_rng(seed).normal(size=len(eta))
    ends = [_Point(objective, objective.softmax(eta + h * along, free)).log_posterior for h in (1e-5, -1e-5)]
    # Central differences: 1e-10 from the step's square, 1e-11 / 1e-5 from rounding.
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(point.gradient @ along, rel=1e-5, abs=1e-4)


@given(
    st.integers(0, 10**6), st.sampled_from(INCOMPLETE), st.sampled_from(["lbfgs", "cg"]), st.sampled_from([1.0, 2.0])
)
@settings(max_examples=40)
def test_it_climbs_to_a_stationary_point_of_em(seed, kind, method, prior):
    _, _, problem = make(seed, kind)
    if problem is None:
        return
    args = arguments(problem, prior)
    start = random_start(problem.sub_network, seed, 0)
    solution, status, _ = run_gradient(*args, start, 1e-6, 2000, method)
    assert (np.diff(solution.log_posterior) >= -1e-13 * (1 + abs(solution.log_posterior[0]))).all()
    assert len(solution.log_posterior) == len(solution.log_likelihood) == solution.iterations + 1
    assert solution.converged == (status == CONVERGED)
    if prior > 1:  # no optimum at zero, where gradient methods may creep
        assert solution.converged
    if solution.converged:
        again, _, _ = run_em(*args, solution.theta, 0.0, 1)
        assert np.abs(again.theta - solution.theta).max() <= 1e-6 * (1 + 1e-6)
        assert again.log_posterior[0] == pytest.approx(solution.log_posterior[-1], rel=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_map_equals_brute_force(algorithm, seed):
    """The objective by enumeration, climbed by scipy without a gradient, from where the algorithm ended and nearby."""
    network, _, rows = incomplete_data(seed, 3, 25, "at random", max_states=2)
    problem = problem_of(network, rows)
    s = problem.sub_network
    solution = solve(problem, Settings(prior=2.0, tolerance=1e-9, max_iterations=20000, algorithm=algorithm))
    assert solution.converged
    shapes = [network.tables[network.variables.index(name)].shape for name in s.component]

    def objective(eta):
        tables, at = [None] * len(shapes), 0
        for name, shape in zip(s.component, shapes, strict=True):
            size = int(np.prod(shape))
            e = np.exp(eta[at : at + size].reshape(shape))
            tables[network.variables.index(name)] = e / e.sum(axis=-1, keepdims=True)
            at += size
        net = type(network)("x", network.variables, network.states, network.parents, tuple(tables))
        return -oracle.log_likelihood(net, rows) - oracle.log_prior(net, 2.0)

    at = np.log(solution.theta)
    assert -objective(at) == pytest.approx(solution.log_posterior[-1], rel=1e-12)
    noise = 0.1 * np.random.default_rng(seed).normal(size=len(at))
    climbed = minimize(objective, at + noise, method="BFGS", options={"gtol": 1e-6})
    # Differences leave BFGS some 1e-6 from the optimum's value.
    assert climbed.fun == pytest.approx(-solution.log_posterior[-1], abs=1e-5)


def test_the_limit_is_not_convergence_and_the_start_is_not_mutated():
    network, start, rows = incomplete_data(9, 6, 40)
    problem = problem_of(network, rows)
    theta = flat(problem.sub_network, start)
    before = theta.copy()
    for limit in (1, 2, 4):
        solution, status, _ = run_gradient(*arguments(problem, 1.0), theta, 0.0, limit)
        assert (status, solution.converged, solution.iterations) == (LIMIT, False, limit)
    assert np.array_equal(theta, before)


def test_zeros_in_the_start():
    """A zero that the data or the prior lift is lifted by the first update; impossible rows are named."""
    network, start, rows = incomplete_data(28, 6, 60, "hidden")
    problem = problem_of(network, rows)
    theta = flat(problem.sub_network, start)
    unseen = np.flatnonzero(problem.counts.complete == 0)
    table = theta.copy()
    table[unseen[0]] = 0.0
    solution, status, _ = run_gradient(*arguments(problem, 2.0), table, 1e-6, 2000)
    assert status == CONVERGED
    assert (solution.theta > 0).all()
    _, status, where = run_gradient(*arguments(problem, 1.0), np.zeros_like(theta), 1e-6, 500)
    assert (status, where) == (IMPOSSIBLE_INSTANCE, 0)
