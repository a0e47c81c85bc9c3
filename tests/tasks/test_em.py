"""EM on one sub-network: against EM by enumeration, iteration by iteration, and against closed forms."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decompose import decompose
from pipeline.network import Network
from tasks.em import CONVERGED, FELL, LIMIT, Solution, best_of, closed_form, explain, run_em
from tasks.errors import ImpossibleDataError, LikelihoodFellError
from tasks.solving import Settings, evaluate, measure, random_start, solve
from tests import oracle
from tests.oracle import KINDS, flat, incomplete_data, problem_of

INCOMPLETE = [k for k in KINDS if k != "complete"]


def run(problem, start, iterations, prior=1.0, tolerance=0.0):
    s = problem.sub_network
    pseudo = np.full(s.n_parameters, prior - 1.0)
    complete = problem.counts.complete.astype(float)
    return run_em(s, complete, problem.evidence, pseudo, start, tolerance, iterations)


@given(
    st.integers(0, 10**6),
    st.integers(2, 6),
    st.sampled_from(INCOMPLETE),
    st.sampled_from([1.0, 1.5, 2.0]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60)
def test_against_em_by_enumeration(seed, n, kind, prior, drop_barren, by_row):
    """Parameters, likelihood and posterior after each of four iterations."""
    network, start, rows = incomplete_data(seed, n, 25, kind)
    problem = problem_of(network, rows, None, drop_barren, by_row)
    if problem.evidence is None:
        return
    s = problem.sub_network
    path = oracle.em(start, rows, 4, prior, drop_barren)
    solution, status, _ = run(problem, flat(s, start), 4, prior)
    assert status in (LIMIT, CONVERGED)
    likelihoods = [oracle.log_likelihood(net, rows) for net in path[: solution.iterations + 1]]
    # Each iteration starts from parameters equal to some 1e-15; five of them leave ten digits.
    np.testing.assert_allclose(solution.log_likelihood, likelihoods, rtol=1e-10, atol=1e-12)
    posteriors = [x + oracle.log_prior(net, prior) for x, net in zip(likelihoods, path, strict=False)]
    np.testing.assert_allclose(solution.log_posterior, posteriors, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(solution.theta, flat(s, path[solution.iterations]), rtol=1e-9, atol=1e-12)
    counts = oracle.expected_counts(path[solution.iterations], rows, None, drop_barren)
    np.testing.assert_allclose(solution.expected, flat(s, start, counts), rtol=1e-9, atol=1e-11)


@given(st.integers(0, 10**6), st.sampled_from(INCOMPLETE), st.sampled_from([1.0, 2.0]), st.booleans())
@settings(max_examples=60)
def test_it_climbs_and_ends_at_a_fixed_point(seed, kind, prior, drop_barren):
    network, _, rows = incomplete_data(seed, 6, 40, kind)
    problem = problem_of(network, rows, drop_barren=drop_barren)
    if problem.evidence is None:
        return
    s = problem.sub_network
    solution, status, _ = run(problem, random_start(s, seed, 0), 3000, prior, 1e-9)
    steps = np.diff(solution.log_posterior)
    # A sum of forty logarithms: rounding is some 1e-14 of it.
    assert (steps >= -1e-12 * np.abs(solution.log_posterior[0])).all()
    assert len(solution.log_likelihood) == len(solution.log_posterior) == solution.iterations + 1
    assert solution.converged == (status == CONVERGED)
    for lo, hi, k in zip(s.bases, s.bases[1:], s.family_cardinalities, strict=False):
        np.testing.assert_allclose(solution.theta[lo:hi].reshape(-1, k).sum(axis=1), 1, rtol=1e-14)
    if solution.converged:
        again, _, _ = run(problem, solution.theta, 1, prior)
        # The last step was at most 1e-9, and steps shrink; twice that is let pass for one that does not.
        assert np.abs(again.theta - solution.theta).max() <= 2e-9


def test_a_single_hidden_variable_by_hand():
    """h -> x, h hidden, from (1/2, 1/2) and two tables: one iteration on paper."""
    network = Network(
        "mixture",
        ("h", "x"),
        (("0", "1"), ("0", "1")),
        ((), (0,)),
        (np.full(2, 0.5), np.array([[0.8, 0.2], [0.4, 0.6]])),
    )
    rows = [(-1, 0)] * 3 + [(-1, 1)]
    problem = problem_of(network, rows)
    solution, status, _ = run(problem, flat(problem.sub_network, network), 1)
    # Pr(h=0 | x=0) = 0.4 / 0.6, Pr(h=0 | x=1) = 0.1 / 0.4.
    h0 = 3 * 2 / 3 + 1 / 4
    wanted = [h0 / 4, 1 - h0 / 4, 2 / h0, 0.25 / h0, 1 / (4 - h0), 0.75 / (4 - h0)]
    np.testing.assert_allclose(solution.theta, wanted, rtol=1e-14)
    assert solution.log_likelihood[0] == pytest.approx(3 * math.log(0.6) + math.log(0.4), rel=1e-14)
    assert (status, solution.converged, solution.iterations) == (LIMIT, False, 1)


@pytest.mark.parametrize("prior", [1.0, 2.0, 1.25])
def test_complete_data_are_counted(prior):
    """No iteration, and the parameters are shares of counts plus pseudo counts."""
    network, _, rows = incomplete_data(1, 6, 60, "complete")
    problem = problem_of(network, rows)
    s = problem.sub_network
    assert problem.evidence is None
    solution = solve(problem, Settings(prior=prior))
    learned = oracle.maximise(network, oracle.expected_counts(network, rows), prior)
    np.testing.assert_allclose(solution.theta, flat(s, learned), rtol=1e-14)
    assert (solution.iterations, solution.converged) == (0, True)
    assert solution.log_likelihood.tolist() == pytest.approx([oracle.log_likelihood(learned, rows)], rel=1e-12)
    posterior = oracle.log_likelihood(learned, rows) + oracle.log_prior(learned, prior)
    assert solution.log_posterior.tolist() == pytest.approx([posterior], rel=1e-12)
    # No other parameters do better.
    for seed in range(20):
        other = oracle.structure(network, seed)
        assert oracle.log_likelihood(other, rows) + oracle.log_prior(other, prior) < posterior


def test_missing_leaves_cost_a_step_only_where_barren_variables_are_kept():
    """Dropped, the optimum is counted; kept, EM creeps towards the same one (thesis, Proposition 2)."""
    network, start, rows = incomplete_data(5, 6, 60, "leaves", max_states=2)
    assert any(x < 0 for row in rows for x in row)
    dropped, kept = problem_of(network, rows), problem_of(network, rows, drop_barren=False)
    counted = solve(dropped, Settings())
    assert (counted.iterations, counted.converged, len(dropped.counts.instances)) == (0, True, 0)
    theta = flat(kept.sub_network, start)
    crept = solve(kept, Settings(tolerance=1e-10, max_iterations=5000), theta)
    assert crept.iterations > 3
    # EM gains a constant factor a step: within a hundred tolerances of its limit here.
    # Every configuration is seen with its leaf: else EM would stay where it began, and counting says uniform.
    assert (counted.expected.reshape(-1, 2).sum(axis=1) > 0).all()
    np.testing.assert_allclose(crept.theta, counted.theta, atol=1e-8)
    assert crept.log_likelihood[-1] == pytest.approx(counted.log_likelihood[-1], rel=1e-12)


def test_one_em_iteration_solves_missing_leaves_where_another_variable_is_hidden():
    """The leaf's own family is optimal after one iteration, whatever the rest still has to do."""
    names, states = ("h", "x", "c", "leaf"), (("0", "1"),) * 4
    network = Network("two", names, states, ((), (), (0, 1), (1,)), (np.full(2, 0.5),) * 2 + (None, None))
    rng = random.Random(3)
    network = replace(network, tables=tuple(oracle.random_table(rng, [2] * (len(p) + 1)) for p in network.parents))
    full = oracle.sample(rng, network, 80)
    rows = [(-1 if i % 3 == 0 else h, x, c, -1 if i % 2 else leaf) for i, (h, x, c, leaf) in enumerate(full)]
    problem = problem_of(network, rows)
    s = problem.sub_network
    start = flat(s, oracle.structure(network, 4))
    one, nine = run(problem, start, 1)[0], run(problem, start, 9)[0]
    own = slice(int(s.bases[s.component.index("leaf")]), int(s.bases[s.component.index("leaf") + 1]))
    assert np.array_equal(one.theta[own], nine.theta[own])
    assert np.abs(one.theta - nine.theta).max() > 1e-3
    kept = problem_of(network, rows, drop_barren=False)
    assert np.abs(run(kept, start, 1)[0].theta[own] - run(kept, start, 9)[0].theta[own]).max() > 1e-3


def test_the_limit_is_not_convergence():
    network, start, rows = incomplete_data(9, 6, 40)
    problem = problem_of(network, rows)
    theta = flat(problem.sub_network, start)
    for limit in (1, 2, 5):
        solution = solve(problem, Settings(max_iterations=limit, tolerance=0.0), theta)
        assert (solution.iterations, solution.converged) == (limit, False)
        assert len(solution.log_likelihood) == limit + 1
    solution = solve(problem, Settings(tolerance=1e-4), theta)
    assert solution.converged
    before = run(problem, theta, solution.iterations - 1)[0]
    assert np.abs(solution.theta - before.theta).max() <= 1e-4
    earlier = run(problem, theta, solution.iterations - 2)[0]
    assert np.abs(before.theta - earlier.theta).max() > 1e-4


def test_histories_longer_than_their_first_array():
    network, start, rows = incomplete_data(9, 6, 40)
    problem = problem_of(network, rows)
    long = run(problem, flat(problem.sub_network, start), 200)[0]
    short = run(problem, flat(problem.sub_network, start), 10)[0]
    assert len(long.log_likelihood) == 201
    assert np.array_equal(long.log_likelihood[:11], short.log_likelihood)


def test_the_start_is_not_mutated():
    network, start, rows = incomplete_data(9, 6, 40)
    problem = problem_of(network, rows)
    theta = flat(problem.sub_network, start)
    before = theta.copy()
    solve(problem, Settings(), theta)
    assert np.array_equal(theta, before)


def test_configurations_without_mass_are_uniform():
    names, states = ("a", "b", "c"), (("0", "1", "2"), ("0", "1", "2"), ("0", "1"))
    tables = (np.full(3, 1 / 3), np.full((3, 3), 1 / 3), np.full((3, 2), 0.5))
    network = Network("gap", names, states, ((), (0,), (1,)), tables)
    rows = [(0, 1, 0), (1, -1, 1), (0, -1, 0), (1, 1, 1), (1, 2, 0)]
    problem = problem_of(network, rows)
    solution = solve(problem, Settings())
    s = problem.sub_network
    b = solution.theta[s.bases[1] : s.bases[2]].reshape(3, 3)
    assert b[2].tolist() == [1 / 3] * 3
    assert solution.expected[s.bases[1] : s.bases[2]].reshape(3, 3)[2].sum() == 0
    assert solution.theta[0:3].tolist() == [0.4, 0.6, 0.0]
    smoothed = solve(problem, Settings(prior=2.0))
    np.testing.assert_allclose(smoothed.theta[0:3], np.array([3, 4, 1]) / 8, rtol=1e-14)


# --- starts --------------------------------------------------------------------------------------------------------


def test_restarts_keep_the_best():
    network, _, rows = incomplete_data(28, 6, 60, "hidden")
    problem = problem_of(network, rows)
    single = [run(problem, random_start(problem.sub_network, 7, r), 1000, tolerance=1e-5)[0] for r in range(6)]
    posteriors = [float(s.log_posterior[-1]) for s in single]
    best = int(np.argmax(posteriors))
    assert best > 0  # or the test shows nothing
    assert len({round(p, 3) for p in posteriors}) > 1
    solution = solve(problem, Settings(seed=7, restarts=6))
    assert solution.restarts == tuple(posteriors)
    assert solution.restart == best
    assert np.array_equal(solution.theta, single[best].theta)
    one = solve(problem, Settings(seed=7))
    assert (one.restart, one.restarts) == (0, (posteriors[0],))


def test_the_first_among_equals():
    def same(r):
        return Solution(np.array([float(r)]), np.zeros(1), np.zeros(1), np.zeros(1), 0, True), CONVERGED, -1

    assert best_of(3, same, lambda *_: AssertionError()).restart == 0


def test_a_given_start_replaces_the_first_only():
    network, start, rows = incomplete_data(28, 6, 60, "hidden")
    problem = problem_of(network, rows)
    theta = flat(problem.sub_network, start)
    given_start = solve(problem, Settings(seed=7, restarts=3), theta)
    at_random = solve(problem, Settings(seed=7, restarts=3))
    assert given_start.restarts[1:] == at_random.restarts[1:]
    assert given_start.restarts[0] == solve(problem, Settings(seed=3), theta).restarts[0] != at_random.restarts[0]


def test_starts_depend_on_seed_restart_and_name_alone():
    network, _, rows = incomplete_data(8, 7, 60, "partly")
    columns = {name: v for v, name in enumerate(network.variables)}
    always = {network.variables[v] for v in range(7) if all(row[v] >= 0 for row in rows)}
    pieces = decompose(network, columns, always, ()).sub_networks
    (together,) = decompose(network, columns, always, (), whole=True).sub_networks
    assert len(pieces) > 2

    def by_name(s, seed, restart):
        theta = random_start(s, seed, restart)
        return {name: theta[s.bases[f] : s.bases[f + 1]].tolist() for f, name in enumerate(s.component)}

    for seed, restart in ((0, 0), (0, 1), (5, 0), (2**40, 3)):
        parts: dict = {}
        for s in pieces:
            parts.update(by_name(s, seed, restart))
        assert parts == by_name(together, seed, restart)
    draws = [tuple(by_name(together, *key)[network.variables[0]]) for key in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert len(set(draws)) == 4
    renamed = replace(together, names=tuple(n + "'" for n in together.names))
    assert not np.array_equal(random_start(renamed, 0, 0), random_start(together, 0, 0))


def test_starts_are_uniform_on_the_simplex():
    names = tuple(f"v{i}" for i in range(4000))
    wide = Network("wide", names, ((("a", "b", "c"),) * 4000), ((),) * 4000, (np.full(3, 1 / 3),) * 4000)
    (s,) = decompose(wide, {}, (), (), whole=True).sub_networks
    theta = random_start(s, 0, 0).reshape(-1, 3)
    np.testing.assert_allclose(theta.sum(axis=1), 1, rtol=1e-14)
    assert (theta > 0).all()
    # Dirichlet(1, 1, 1): mean 1/3, variance 1/18, Pr(x > 1/2) = 1/4; four standard errors of 4 000 draws.
    assert theta.mean(axis=0) == pytest.approx(1 / 3, abs=4 * math.sqrt(1 / 18 / 4000))
    assert theta.var(axis=0) == pytest.approx(1 / 18, rel=0.1)
    assert (theta > 0.5).mean(axis=0) == pytest.approx(0.25, abs=4 * math.sqrt(3 / 16 / 4000))


# --- runs that cannot go on ----------------------------------------------------------------------------------------


def test_a_falling_likelihood_stops_the_run():
    """From the optimum, an M-step for another objective can only fall: here one with negative pseudo counts."""
    network = Network(
        "pair", ("a", "b"), (("0", "1"),) * 2, ((), (0,)), (np.array([0.3, 0.7]), np.array([[0.6, 0.4], [0.2, 0.8]]))
    )
    rng = random.Random(2)
    rows = oracle.blank(rng, network, oracle.sample(rng, network, 400), "at random")
    problem = problem_of(network, rows)
    s = problem.sub_network
    best = solve(problem, Settings(tolerance=1e-9, max_iterations=5000)).theta
    complete = problem.counts.complete.astype(float)
    solution, status, where = run_em(s, complete, problem.evidence, np.full(s.n_parameters, -0.9), best, 1e-9, 100)
    assert (status, where) == (FELL, -1)
    error = explain(s, lambda i: ((), {}), status, where, solution)
    assert isinstance(error, LikelihoodFellError)
    assert str(error) == (
        "sub-network of a, b: the log posterior fell from "
        f"{float(solution.log_posterior[-2])!r} to {float(solution.log_posterior[-1])!r} in iteration "
        f"{solution.iterations}; this is a bug, please report it"
    )
    with pytest.raises(LikelihoodFellError, match=r"the log posterior fell from -\d+\.\d+ to -\d+\.\d+ in iteration"):
        best_of(1, lambda r: (solution, status, where), lambda *a: explain(s, lambda i: ((), {}), *a))


def zeros(network, v, u, x):
    """The network with one entry of a table moved to the next state."""
    tables = list(network.tables)
    table = tables[v].copy()
    table[(*u, (x + 1) % table.shape[-1])] += table[(*u, x)]
    table[(*u, x)] = 0.0
    tables[v] = table
    return Network(network.name, network.variables, network.states, network.parents, tuple(tables))


def test_impossible_rows_are_described():
    states = (("0", "1"),) * 3
    tables = (np.array([0.5, 0.5]), np.array([[0.5, 0.5]] * 2), np.array([[0.5, 0.5]] * 2))
    network = Network("chain", ("a", "b", "c"), states, ((), (0,), (1,)), tables)
    rows = [(0, -1, 1), (0, 0, 0), (1, 1, -1)]
    problem = problem_of(network, rows)
    s = problem.sub_network
    # b is 0 given a=0, and then c can't be 1: no instance of (a=0, b missing, c=1).
    start = zeros(zeros(network, 1, (0,), 1), 2, (0,), 1)
    with pytest.raises(ImpossibleDataError, match=r"^sub-network of a, b, c: rows of probability zero$") as caught:
        solve(problem, Settings(), flat(s, start))
    assert caught.value.hidden == ("b",)
    assert caught.value.codes == (("a", 0), ("c", 1))
    # A fully observed family: b is 1 given a=1 in the third row.
    start = zeros(network, 1, (1,), 1)
    for call in (lambda: solve(problem, Settings(), flat(s, start)), lambda: evaluate(problem, flat(s, start))):
        with pytest.raises(ImpossibleDataError, match="rows of probability zero") as caught:
            call()
        assert (caught.value.hidden, caught.value.codes) == ((), (("a", 1), ("b", 1)))


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_evaluate_is_the_log_likelihood(seed, kind):
    network, start, rows = incomplete_data(seed, 6, 30, kind)
    problem = problem_of(network, rows)
    value = evaluate(problem, flat(problem.sub_network, start))
    assert value == pytest.approx(oracle.log_likelihood(start, rows), rel=1e-11)


def test_measure():
    network, _, rows = incomplete_data(8, 6, 60)
    problem = problem_of(network, rows)
    size = measure(problem, by_row=False)
    table = problem.counts.instances
    assert (size.instances, size.signatures, size.distinct_rows) == (len(table), table.n_signatures, None)
    assert size.work > len(table)
    assert size.n_bytes > table.nbytes
    by_row = problem_of(network, rows, by_row=True)
    assert measure(by_row, by_row=True).distinct_rows == len(set(rows))
    complete = problem_of(network, oracle.sample(random.Random(0), network, 50))
    assert (measure(complete, False).instances, measure(complete, False).distinct_rows) == (0, None)
    assert closed_form(complete.sub_network, complete.counts.complete.astype(float), np.zeros(1)).iterations == 0
