"""The E-step: expected counts and log likelihood against enumeration of the joint."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.network import Network
from pipeline.stages import Prepared, expect, slice_problem
from tasks.em import expected_counts
from tasks.inference import MAX_BLOCKS, MAX_PARTIALS, MIN_BLOCK, TINY, block_size, tree_add
from tests import oracle
from tests.oracle import KINDS, flat, incomplete_data, problem_of

ALL = 1 << 30  # a block that holds every instance


def e_step(problem, theta):
    """Expected counts and log likelihood of all rows: what EM adds up in an iteration."""
    complete = problem.counts.complete.astype(float)
    total = math.fsum(c * math.log(t) for c, t in zip(complete, theta, strict=True) if c)
    if problem.evidence is None:
        return complete, total
    expected, log_likelihood, bad = expected_counts(problem.evidence, theta, ALL)
    assert bad == -1
    return expected + complete, log_likelihood + total


@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from(KINDS), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=150)
def test_against_enumeration(seed, n, kind, drop_barren, by_row, weighted):
    network, start, rows = incomplete_data(seed, n, 20, kind, max_parents=3)
    weights = [(7 * i) % 4 for i in range(len(rows))] if weighted else None
    problem = problem_of(network, rows, weights, drop_barren, by_row)
    expected, log_likelihood = e_step(problem, flat(problem.sub_network, start))
    # Sums of at most 3^7 products of 7 factors: roundings of 1e-16 leave eleven digits and more.
    assert log_likelihood == pytest.approx(oracle.log_likelihood(start, rows, weights), rel=1e-10)
    wanted = flat(problem.sub_network, start, oracle.expected_counts(start, rows, weights, drop_barren))
    np.testing.assert_allclose(expected, wanted, rtol=1e-10, atol=1e-12)


def test_total_mass():
    """With barren variables kept, every family's expected counts sum to the number of rows."""
    network, start, rows = incomplete_data(2, 7, 50)
    problem = problem_of(network, rows, drop_barren=False)
    s = problem.sub_network
    expected, _ = e_step(problem, flat(s, start))
    for lo, hi in itertools.pairwise(s.bases):
        assert expected[lo:hi].sum() == pytest.approx(50, rel=1e-13)


def star(n, k, probability, hidden_root=True):
    """A hidden root of k states with n observed or missing children, and tables made by `probability`(child, root)."""
    names = ("root", *(f"x{i}" for i in range(n)))
    states = (tuple("abcdefghij"[:k]), *([("0", "1")] * n))
    children = [np.array([[p, 1 - p] for p in (probability(i, r) for r in range(k))]) for i in range(n)]
    return Network("star", names, states, ((), *([(0,)] * n)), (np.full(k, 1 / k), *children))


@pytest.mark.parametrize("k", [2, 9])
def test_products_far_below_the_smallest_double(k):
    """400 factors of about 1e-3: 1e-1200 in a cluster, in one table and from messages alike."""
    network = star(400, k, lambda i, r: 1e-3 * (1 + (i * (r + 1)) % 7))
    row = (-1, *([0] * 400))
    problem = problem_of(network, [row, (-1, *([1] * 400))])
    theta = flat(problem.sub_network, network)
    expected, log_likelihood = e_step(problem, theta)
    assert oracle.log_probability(network, row) < 3 * math.log(TINY)
    assert log_likelihood == pytest.approx(oracle.log_likelihood(network, [row, (-1, *([1] * 400))]), rel=1e-12)
    wanted = flat(problem.sub_network, network, oracle.expected_counts(network, [row, (-1, *([1] * 400))]))
    # A posterior is the exponential of a sum of 400 logarithms near -2500: 1e-16 of that is 3e-13, and some more.
    np.testing.assert_allclose(expected, wanted, rtol=1e-10, atol=1e-12)


def chain_with_tiny_steps(n, tiny):
    """A hidden chain of three states with an observed child each, whose every emission is improbable."""
    names = (*(f"h{i}" for i in range(n)), *(f"x{i}" for i in range(n)))
    transition = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    emission = np.array([[tiny, 1 - tiny], [tiny / 2, 1 - tiny / 2], [tiny / 5, 1 - tiny / 5]])
    parents = ((), *((i,) for i in range(n - 1)), *((i,) for i in range(n)))
    tables = (np.array([0.2, 0.3, 0.5]), *([transition] * (n - 1)), *([emission] * n))
    states = (*([("a", "b", "c")] * n), *([("0", "1")] * n))
    return Network("chain", names, states, parents, tables)


@pytest.mark.parametrize("tiny", [1e-2, 1e-60, 1e-130, 1e-200, 1e-260, 1e-300])
def test_tiny_probabilities_in_a_jointree(tiny):
    """Scales, their products, and the way out through logarithms: held to enumeration in logs."""
    network = chain_with_tiny_steps(6, tiny)
    rows = [(-1,) * 6 + (0,) * 6, (-1,) * 6 + (0, 1, 0, 0, 1, 0), (-1,) * 3 + (1, -1, 2) + (0,) * 6]
    problem = problem_of(network, rows)
    assert problem.evidence.programs.size.max() == 9
    theta = flat(problem.sub_network, network)
    expected, log_likelihood = e_step(problem, theta)
    assert log_likelihood == pytest.approx(oracle.log_likelihood(network, rows), rel=1e-12)
    wanted = flat(problem.sub_network, network, oracle.expected_counts(network, rows))
    np.testing.assert_allclose(expected, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("far", range(-324, -280, 4))
def test_what_one_message_rules_out_another_may_bring_back(far):
    """Two subtrees that disagree by as much as a double can hold: neither opinion may lose its digits.

    Below a hidden root, a says 1e-240 against 10^far, and b takes it back: what is nearly nothing in a decides.
    """
    strong, weak = np.array([[1e-240, 0.5], [10.0 ** (far / 2) * 0.7, 0.5]]), 10.0 ** (far / 2)
    states = (("0", "1"), tuple("abcdefghi"), tuple("abcdefghi"), *([("0", "1")] * 4))
    parents = ((), (0,), (0,), (0, 1), (0, 1), (0, 2), (0, 2))
    evidence_a = np.stack([np.full(9, strong[0, 0]), np.full(9, strong[1, 0])])
    second = np.stack([np.full(9, 0.5), np.full(9, weak)])
    back = np.stack([np.full(9, 10.0 ** (far + 240)), np.full(9, 1.0)])
    tables = (
        np.array([0.5, 0.5]), np.full((2, 9), 1 / 9), np.full((2, 9), 1 / 9),
        *(np.stack([t, 1 - t], axis=-1) for t in (evidence_a, second, back, np.full((2, 9), 0.3))),
    )  # fmt: skip
    network = Network("tug", ("r", "a", "b", "a1", "a2", "b1", "b2"), states, parents, tables)
    row = (-1, -1, -1, 0, 0, 0, 0)
    problem = problem_of(network, [row])
    assert len(problem.evidence.programs.size) > 1
    expected, log_likelihood = e_step(problem, flat(problem.sub_network, network))
    assert log_likelihood == pytest.approx(oracle.log_probability(network, row), rel=1e-12)
    wanted = flat(problem.sub_network, network, oracle.expected_counts(network, [row]))
    assert wanted[:2].min() > 0.1  # both states matter, or the test shows nothing
    np.testing.assert_allclose(expected, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("n", "k"), [(40, 10), (400, 8), (600, 4), (1200, 2)])
def test_many_missing_children_do_not_overflow(n, k):
    """Messages are sums, so they exceed one: the product of many must not leave the range of a double either."""
    names = ("root", *(f"x{i}" for i in range(n)), "y")
    states = (("a", "b"), *([tuple("0123456789"[:k])] * n), ("0", "1"))
    tables = (np.array([0.4, 0.6]), *([np.full((2, k), 1 / k)] * n), np.array([[0.25, 0.75], [0.5, 0.5]]))
    network = Network("wide", names, states, ((), *([(0,)] * (n + 1))), tables)
    row = (-1,) * (n + 1) + (0,)
    problem = problem_of(network, [row], drop_barren=False)
    expected, log_likelihood = e_step(problem, flat(problem.sub_network, network))
    # Closed form: the missing children sum to one, so only root and y count.
    assert log_likelihood == pytest.approx(math.log(0.4 * 0.25 + 0.6 * 0.5), rel=1e-12)
    posterior = np.array([0.1, 0.3]) / 0.4
    s = problem.sub_network
    at = {name: int(s.bases[f]) for f, name in enumerate(s.component)}
    np.testing.assert_allclose(expected[at["root"] : at["root"] + 2], posterior, rtol=1e-12)
    child = expected[at["x0"] : at["x0"] + 2 * k].reshape(2, k)
    np.testing.assert_allclose(child, np.repeat(posterior[:, None] / k, k, axis=1), rtol=1e-11)


@pytest.mark.parametrize("by_row", [False, True])
def test_impossible_instances_are_named(by_row):
    """The first instance of probability zero, by its number, in one table and in a jointree."""
    for n in (1, 6):
        network = chain_with_tiny_steps(n, 0.25)
        emission = np.array([[0.0, 1.0]] * 3)
        tables = (*network.tables[: 2 * n - 1], emission)
        network = Network("impossible", network.variables, network.states, network.parents, tables)
        good, bad = (-1,) * n + (1,) * n, (-1,) * n + (1,) * (n - 1) + (0,)
        problem = problem_of(network, [good, good, bad], by_row=by_row)
        theta = flat(problem.sub_network, network)
        _, log_likelihood, where = expected_counts(problem.evidence, theta, ALL)
        assert log_likelihood == -math.inf
        hidden, values = problem.counts.instances.describe(where, problem.sub_network)
        assert hidden == network.variables[:n]
        assert values[f"x{n - 1}"] == 0
        _, log_likelihood, where = expected_counts(problem_of(network, [good], by_row=by_row).evidence, theta, ALL)
        assert where == -1
        assert log_likelihood == pytest.approx(oracle.log_probability(network, good), rel=1e-12)


def test_zero_parameters_that_rows_do_not_need():
    """States ruled out are no trouble: neither a NaN nor a count."""
    network = chain_with_tiny_steps(5, 0.25)
    transition = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    tables = (network.tables[0], *([transition] * 4), *network.tables[5:])
    network = Network("zeros", network.variables, network.states, network.parents, tables)
    rows = [(-1,) * 5 + (0, 1, 0, 1, 1), (-1, 0, -1, -1, -1, 1, 1, 0, 0, 1)]
    for tiny in (1.0, 1e-120):
        scaled = [t if v < 5 else np.stack([t[:, 0] * tiny, 1 - t[:, 0] * tiny], axis=1) for v, t in enumerate(tables)]
        scaled[0:5] = network.tables[0:5]
        net = Network("zeros", network.variables, network.states, network.parents, tuple(scaled))
        problem = problem_of(net, rows)
        expected, log_likelihood = e_step(problem, flat(problem.sub_network, net))
        assert log_likelihood == pytest.approx(oracle.log_likelihood(net, rows), rel=1e-12)
        wanted = flat(problem.sub_network, net, oracle.expected_counts(net, rows))
        np.testing.assert_allclose(expected, wanted, rtol=1e-10, atol=1e-12)


# --- sums over blocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, MIN_BLOCK, MIN_BLOCK + 1, 10**5, 10**7])
@pytest.mark.parametrize("parameters", [1, 1000, MAX_PARTIALS, 10**8])
def test_block_size(n, parameters):
    block = block_size(n, parameters)
    blocks = -(-n // block)
    assert block >= MIN_BLOCK
    assert blocks <= MAX_BLOCKS
    assert blocks <= 1 or blocks * parameters <= MAX_PARTIALS


def test_tree_add():
    for n in range(1, 20):
        rows = np.arange(2.0 * n).reshape(n, 2)
        likelihoods = np.arange(float(n))
        wanted = rows.sum(axis=0)
        tree_add(rows, likelihoods)
        assert rows[0].tolist() == wanted.tolist()
        assert likelihoods[0] == n * (n - 1) / 2


def many_instances():
    """A problem of thousands of instances, few enough parameters."""
    network, start, rows = incomplete_data(21, 10, 4000, "at random", max_states=4)
    problem = problem_of(network, rows, by_row=True)
    assert len(problem.counts.instances) > 3000
    return problem, flat(problem.sub_network, start)


def test_slices_sum_to_the_last_bit():
    """Aligned slices of 2^k blocks, added along the tree, are one call: the same bits, whoever does the work."""
    problem, theta = many_instances()
    n = len(problem.counts.instances)
    prepared = Prepared(4000, 4000, (problem,))
    for block in (100, 256, 1000):
        n_blocks = -(-n // block)
        once, likelihood, _ = expected_counts(problem.evidence, theta, block)
        for per_slice in (1, 2, 4, 8):
            step = per_slice * block
            parts = [expect(slice_problem(prepared, 0, b, min(b + step, n)), theta, block) for b in range(0, n, step)]
            assert len(parts) == -(-n_blocks // per_slice)
            sums, likelihoods = np.stack([p[0] for p in parts]), np.array([p[1] for p in parts])
            tree_add(sums, likelihoods)
            assert np.array_equal(sums[0], once)
            assert likelihoods[0] == likelihood
            assert [p[2] for p in parts] == [-1] * len(parts)


def test_the_sum_over_blocks_is_the_sum():
    """Whatever the blocks, to rounding: 4 000 additions of 1e-16 each."""
    problem, theta = many_instances()
    results = [expected_counts(problem.evidence, theta, block) for block in (64, 1000, ALL)]
    for expected, likelihood, _ in results[1:]:
        assert likelihood == pytest.approx(results[0][1], rel=1e-12)
        np.testing.assert_allclose(expected, results[0][0], rtol=1e-11, atol=1e-12)


def test_parameters_are_not_mutated():
    problem, theta = many_instances()
    before = theta.copy()
    expected_counts(problem.evidence, theta, 1000)
    assert np.array_equal(theta, before)
