"""Accelerated EM: never falls, ends at EM's fixed points, with fewer inferences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.accelerate import run_accelerated_em
from tasks.em import CONVERGED, IMPOSSIBLE_INSTANCE, LIMIT, run_em
from tasks.solving import Settings, random_start, solve
from tests.benchmarks.acceleration import CASES, compare, problems
from tests.oracle import KINDS, flat, incomplete_data, problem_of

INCOMPLETE = [k for k in KINDS if k != "complete"]


def arguments(problem, prior):
    s = problem.sub_network
    return s, problem.counts.complete.astype(float), problem.evidence, np.full(s.n_parameters, prior - 1.0)


@given(st.integers(0, 10**6), st.sampled_from(INCOMPLETE), st.sampled_from([1.0, 2.0]), st.booleans())
@settings(max_examples=80)
def test_it_never_falls_and_ends_at_a_fixed_point_of_em(seed, kind, prior, drop_barren):
    network, _, rows = incomplete_data(seed, 6, 40, kind)
    problem = problem_of(network, rows, drop_barren=drop_barren)
    if problem.evidence is None:
        return
    args = arguments(problem, prior)
    start = random_start(problem.sub_network, seed, 0)
    solution, status, _ = run_accelerated_em(*args, start, 1e-7, 5000)
    # A sum of forty logarithms: rounding is some 1e-14 of it.
    assert (np.diff(solution.log_posterior) >= -1e-12 * abs(solution.log_posterior[0])).all()
    assert len(solution.log_likelihood) == len(solution.log_posterior) == solution.iterations + 1
    assert solution.converged == (status == CONVERGED)
    assert solution.converged
    again, _, _ = run_em(*args, solution.theta, 0.0, 1)
    assert np.abs(again.theta - solution.theta).max() <= 2e-7
    assert again.log_posterior[0] == pytest.approx(solution.log_posterior[-1], rel=1e-13)
    assert again.log_likelihood[0] == pytest.approx(solution.log_likelihood[-1], rel=1e-13)
    for lo, hi, k in zip(args[0].bases, args[0].bases[1:], args[0].family_cardinalities, strict=False):
        np.testing.assert_allclose(solution.theta[lo:hi].reshape(-1, k).sum(axis=1), 1, rtol=1e-14)


@given(st.integers(0, 10**6), st.sampled_from(["at random", "partly", "mar"]))
@settings(max_examples=40)
def test_where_the_optimum_is_single_it_is_not_worse_than_plain_em(seed, kind):
    """A strong prior leaves one optimum; plain EM stops at the same tolerance, further off."""
    network, _, rows = incomplete_data(seed, 5, 30, kind)
    problem = problem_of(network, rows)
    if problem.evidence is None:
        return
    args = arguments(problem, 20.0)
    start = random_start(problem.sub_network, seed, 0)
    plain, _, _ = run_em(*args, start, 1e-6, 5000)
    solution, _, _ = run_accelerated_em(*args, start, 1e-6, 5000)
    assert solution.log_posterior[-1] >= plain.log_posterior[-1] - 1e-12 * abs(plain.log_posterior[-1])


def test_the_first_updates_are_plain():
    network, start, rows = incomplete_data(9, 6, 40)
    problem = problem_of(network, rows)
    theta = flat(problem.sub_network, start)
    plain, _, _ = run_em(*arguments(problem, 1.0), theta, 0.0, 3)
    solution, status, _ = run_accelerated_em(*arguments(problem, 1.0), theta, 0.0, 3)
    assert (status, solution.converged, solution.iterations) == (LIMIT, False, 3)
    np.testing.assert_allclose(solution.theta, plain.theta, rtol=1e-13)
    np.testing.assert_allclose(solution.log_likelihood, plain.log_likelihood, rtol=1e-13)
    np.testing.assert_allclose(solution.expected, plain.expected, rtol=1e-12, atol=1e-13)


def test_every_limit_is_kept_and_what_is_held_belongs_together():
    network, start, rows = incomplete_data(28, 6, 60, "hidden")
    problem = problem_of(network, rows)
    args = arguments(problem, 1.0)
    theta = flat(problem.sub_network, start)
    before = theta.copy()
    for limit in range(1, 40):
        solution, status, _ = run_accelerated_em(*args, theta, 1e-9, limit)
        assert solution.iterations <= limit
        again, _, _ = run_em(*args, solution.theta, 0.0, 0)
        np.testing.assert_allclose(again.expected, solution.expected, rtol=1e-12, atol=1e-13)
        assert again.log_likelihood[0] == pytest.approx(solution.log_likelihood[-1], rel=1e-13)
        if status == CONVERGED:
            break
    assert np.array_equal(theta, before)


def test_an_impossible_start_is_named():
    network, _, rows = incomplete_data(9, 6, 40)
    problem = problem_of(network, rows)
    theta = np.zeros(problem.sub_network.n_parameters)
    _, status, where = run_accelerated_em(*arguments(problem, 1.0), theta, 1e-6, 10)
    assert (status, where) == (IMPOSSIBLE_INSTANCE, 0)


def test_solve_accelerates_when_told():
    network, _, rows = incomplete_data(28, 6, 60, "hidden")
    problem = problem_of(network, rows)
    plain = solve(problem, Settings(seed=7, restarts=4, tolerance=1e-7, max_iterations=20000))
    fast = solve(problem, Settings(seed=7, restarts=4, tolerance=1e-7, max_iterations=20000, accelerate=True))
    assert len(fast.restarts) == 4
    assert fast.log_posterior[-1] >= plain.log_posterior[-1] - 1e-6
    assert fast.iterations < plain.iterations


@pytest.mark.parametrize(
    ("name", "rows", "missing", "times"),
    [("alarm", 5000, {"hidden": 0.2}, 4.0), ("hailfinder", 1000, {"hidden": ["Scenario"]}, 0.5)],
)
def test_fewer_inferences_and_no_worse_on_real_networks(name, rows, missing, times):
    """With a prior both find the same optimum. The second is quick for plain EM: here it may cost double."""
    found = [compare(p, seed, 2.0, 1e-6, 50_000) for p in problems(name, rows, 1, **missing) for seed in range(3)]
    assert sum(r.plain for r in found) >= times * sum(r.accelerated for r in found)
    assert min(r.difference for r in found) >= -1e-6


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hidden_variable_in_many_families_takes_a_fifth_of_the_inferences():
    """Hailfinder with its hidden variable in 17 families, maximum likelihood: where plain EM creeps."""
    name, rows, missing = CASES["hailfinder"]
    (problem,) = problems(name, rows, 1, **missing)
    found = [compare(problem, seed, 1.0, 1e-5, 20_000) for seed in range(4)]
    assert sum(r.plain for r in found) >= 5 * sum(r.accelerated for r in found)
