"""EDML and the hybrid: votes against enumeration, the sets' problems against scipy, and the theorems."""

import itertools
import math
import random
import sys

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.network import Network
from tasks.edml import run_edml
from tasks.em import CONVERGED, IMPOSSIBLE_INSTANCE, LIMIT, run_em
from tasks.errors import TooLargeError
from tasks.soft_evidence import fixed_point, solve_votes
from tasks.solving import Settings, solve
from tasks.votes import cast_votes, make_votes
from tests import oracle
from tests.benchmarks import edml_against_em
from tests.oracle import KINDS, flat, incomplete_data, problem_of

INCOMPLETE = [k for k in KINDS if k != "complete"]


def run(problem, start, prior=1.0, tolerance=1e-9, iterations=20_000, **options):
    s = problem.sub_network
    pseudo = np.full(s.n_parameters, prior - 1.0)
    return run_edml(s, problem.counts.complete.astype(float), problem.evidence, pseudo, start, tolerance, iterations,
                    **options)  # fmt: skip


def run_plain(problem, start, prior=1.0, tolerance=1e-9, iterations=20_000):
    s = problem.sub_network
    pseudo = np.full(s.n_parameters, prior - 1.0)
    return run_em(s, problem.counts.complete.astype(float), problem.evidence, pseudo, start, tolerance, iterations)


def cast(problem, theta):
    votes = make_votes(problem.sub_network, problem.evidence)
    return votes, *cast_votes(problem.evidence, votes, theta)


def with_zeros(rng, network, rows, share=0.3):
    """Parameters of which some are zero, every row still possible; None where none can be."""
    tables = [t.copy() for t in network.tables]
    zeroed = 0
    for t in tables:
        for u in itertools.product(*(range(k) for k in t.shape[:-1])):
            if rng.random() < share:
                kept = t[u].copy()
                x = rng.randrange(len(kept))
                t[u][x] = 0.0
                t[u] /= t[u].sum()
                tried = Network(network.name, network.variables, network.states, network.parents, tuple(tables))
                if math.isinf(oracle.log_likelihood(tried, rows)):
                    t[u] = kept
                else:
                    zeroed += 1
    return Network(network.name, network.variables, network.states, network.parents, tuple(tables)), zeroed


def with_set(network, v, u, values):
    tables = list(network.tables)
    tables[v] = tables[v].copy()
    tables[v][u] = values
    return Network(network.name, network.variables, network.states, network.parents, tuple(tables))


def sets_of(problem, network):
    """Each parameter set's variable, parent instantiation and number."""
    s = problem.sub_network
    number = 0
    for name in s.component:
        v = network.variables.index(name)
        for u in itertools.product(*(range(k) for k in network.tables[v].shape[:-1])):
            yield number, v, u
            number += 1


# --- votes ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 6), st.sampled_from(INCOMPLETE), st.booleans(), st.booleans())
@settings(max_examples=40)
def test_expected_counts_and_likelihood(seed, n, kind, drop_barren, by_row):
    network, start, rows = incomplete_data(seed, n, 20, kind)
    problem = problem_of(network, rows, None, drop_barren, by_row)
    if problem.evidence is None:
        return
    s = problem.sub_network
    start, _ = with_zeros(random.Random(seed), start, rows)
    _, expected, log_likelihood, where = cast(problem, flat(s, start))
    assert where == -1
    complete = problem.counts.complete
    counts = oracle.expected_counts(start, rows, None, drop_barren)
    np.testing.assert_allclose(expected + complete, flat(s, start, counts), rtol=1e-9, atol=1e-12)
    theta = flat(s, start)
    log_likelihood += sum(c * math.log(x) for c, x in zip(complete, theta, strict=True) if c)
    assert log_likelihood == pytest.approx(oracle.log_likelihood(start, rows), rel=1e-10)


@given(st.integers(0, 10**6), st.integers(2, 5), st.sampled_from(INCOMPLETE), st.booleans(), st.booleans())
@settings(max_examples=40)
def test_a_set_alone_is_what_its_votes_say(seed, n, kind, drop_barren, zeros):
    """Theorem 5: with the other sets held, ΔLL is Σ n log(Σ λ_x θ_x) plus the hard votes' term, wherever θ is moved."""
    rng = random.Random(seed)
    network, start, rows = incomplete_data(seed, n, 12, kind)
    problem = problem_of(network, rows, None, drop_barren)
    if problem.evidence is None:
        return
    if zeros:
        start, _ = with_zeros(rng, start, rows)
    s = problem.sub_network
    votes, *_ = cast(problem, flat(s, start))
    complete = problem.counts.complete.astype(float)
    before = oracle.log_likelihood(start, rows)

    def term(number, theta):
        weights, rows_of = votes.on(number)
        hard = complete[votes.set_ptr[number] : votes.set_ptr[number + 1]]
        return sum(w * math.log(f) for w, f in zip(weights, rows_of @ theta, strict=True)) + sum(
            c * math.log(x) for c, x in zip(hard, theta, strict=True) if c
        )

    for number, v, u in sets_of(problem, network):
        now = start.tables[v][u]
        new = oracle.random_table(rng, [len(now)])
        moved = oracle.log_likelihood(with_set(start, v, u, new), rows)
        assert term(number, new) - term(number, now) == pytest.approx(moved - before, rel=1e-9, abs=1e-9)


def loopy(rng, n_layers=4):
    """A ladder: hidden, its treewidth is two, so messages carry two variables; a leaf under each rung."""
    parents, states = [], []
    for k in range(n_layers):
        a = len(parents)
        parents += [() if k == 0 else (a - 3, a - 2), (a,) if k == 0 else (a, a - 2), (a, a + 1)]
        states += [2, 3, 2]
    tables = tuple(oracle.random_table(rng, [states[j] for j in (*p, v)]) for v, p in enumerate(parents))
    names = tuple(f"v{i:02}" for i in range(len(parents)))
    labels = tuple(tuple(f"s{x}" for x in range(k)) for k in states)
    return Network("ladder", names, labels, tuple(parents), tables)


@pytest.mark.parametrize("zeros", [False, True])
def test_jointrees(zeros):
    rng = random.Random(5)
    network = loopy(rng)
    rows = [tuple(x if v % 3 == 2 else -1 for v, x in enumerate(row)) for row in oracle.sample(rng, network, 8)]
    problem = problem_of(network, rows)
    assert (np.diff(problem.evidence.programs.cluster_ptr) > 2).any()
    start = oracle.structure(network, 3)
    if zeros:
        start, zeroed = with_zeros(rng, start, rows)
        assert zeroed > 3
    s = problem.sub_network
    votes, expected, *_ = cast(problem, flat(s, start))
    np.testing.assert_allclose(
        expected + problem.counts.complete, flat(s, start, oracle.expected_counts(start, rows)), rtol=1e-9, atol=1e-13
    )
    before = oracle.log_likelihood(start, rows)
    for number, v, u in sets_of(problem, network):
        new = oracle.random_table(rng, [len(start.tables[v][u])])
        weights, rows_of = votes.on(number)
        moved = oracle.log_likelihood(with_set(start, v, u, new), rows) - before
        if len(weights):
            assert weights @ np.log(rows_of @ new) - weights @ np.log(rows_of @ start.tables[v][u]) == pytest.approx(
                moved, abs=1e-10
            )
        else:
            assert moved == pytest.approx(0, abs=1e-9)


def test_products_below_the_range_of_a_double():
    """Sixty observed children of a hidden variable, each of probability 1e-6 or less: Z is about 1e-370."""
    rng = random.Random(1)
    n = 60
    states = (("0", "1", "2"), *((("0", "1"),) * n))
    likely = oracle.random_table(rng, [3])
    children = []
    for _ in range(n):
        p = np.array([rng.uniform(0.5, 1.5) * 1e-6 for _ in range(3)])
        children.append(np.stack([p, 1 - p], axis=1))
    network = Network("star", ("h", *(f"c{i:02}" for i in range(n))), states, ((), *(((0,),) * n)), (likely, *children))
    rows = [(-1, *([0] * n)), (-1, *([0] * (n - 1)), 1)]
    problem = problem_of(network, rows)
    s = problem.sub_network
    votes, expected, log_likelihood, where = cast(problem, flat(s, network))
    assert where == -1
    assert log_likelihood < 2 * math.log(sys.float_info.min)
    assert log_likelihood == pytest.approx(oracle.log_likelihood(network, rows), rel=1e-12)
    np.testing.assert_allclose(
        expected + problem.counts.complete, flat(s, network, oracle.expected_counts(network, rows)), rtol=1e-9
    )
    weights, rows_of = votes.on(0)
    new = np.array([0.2, 0.5, 0.3])
    moved = oracle.log_likelihood(with_set(network, 0, (), new), rows) - log_likelihood
    assert weights @ np.log(rows_of @ new) - weights @ np.log(rows_of @ likely) == pytest.approx(moved, rel=1e-9)


def test_impossible_data_are_named():
    pair = Network(
        "pair", ("a", "b"), (("0", "1"),) * 2, ((), (0,)), (np.array([0.5, 0.5]), np.array([[1.0, 0.0]] * 2))
    )
    problem = problem_of(pair, [(-1, 0), (-1, 1)])
    _, status, where = run(problem, flat(problem.sub_network, pair))
    assert status == IMPOSSIBLE_INSTANCE
    assert problem.counts.instances.describe(where, problem.sub_network)[1] == {"b": 1}


def test_too_many_votes_are_refused():
    network, _, rows = incomplete_data(3, 6, 40)
    problem = problem_of(network, rows)
    with pytest.raises(TooLargeError, match=r"EDML holds [\d,]+ votes of [\d,]+ instances: .* GiB, allowed"):
        make_votes(problem.sub_network, problem.evidence, 100)


# --- one set -------------------------------------------------------------------------------------------------------


def set_objective(votes, number, weights, theta):
    n, rows_of = votes.on(number)
    hard = weights[votes.set_ptr[number] : votes.set_ptr[number + 1]]
    with np.errstate(divide="ignore"):
        return float(n @ np.log(rows_of @ theta)) + float(hard[hard > 0] @ np.log(theta[hard > 0]))


@given(st.integers(0, 10**6), st.sampled_from(INCOMPLETE), st.sampled_from([1.0, 1.3, 2.0]))
@settings(max_examples=25)
def test_sets_are_solved(seed, kind, prior):
    """No direction climbs, and equation 4.3 rises to it (Theorem 3)."""
    network, start, rows = incomplete_data(seed, 5, 60, kind, max_states=4)
    problem = problem_of(network, rows)
    if problem.evidence is None:
        return
    theta = flat(problem.sub_network, start)
    votes, *_ = cast(problem, theta)
    weights = problem.counts.complete + (prior - 1.0)
    for number in range(len(votes.set_ptr) - 1):
        n, rows_of = votes.on(number)
        if len(n) == 0:
            continue
        lo, hi = votes.set_ptr[number : number + 2]
        found, steps = solve_votes(votes, number, weights, theta[lo:hi])
        assert 0 <= steps < 50
        assert found.sum() == pytest.approx(1, abs=1e-14)
        assert (found >= 0).all()
        hard = weights[lo:hi]
        slope = (n / (rows_of @ found)) @ rows_of + np.divide(hard, found, out=np.zeros(hi - lo), where=hard > 0)
        total = n.sum() + hard.sum()
        # Cover's bound: the optimum is at most max slope - total above what was found.
        assert slope.max() - total <= 1e-6 * total
        value = set_objective(votes, number, weights, found)
        current = theta[lo:hi].copy()
        new = np.empty(hi - lo)
        before = set_objective(votes, number, weights, current)
        for _ in range(100):
            fixed_point(votes.values, votes.narrow_ptr, votes.wide_ptr, number, lo, hi, weights, current, new)
            current, new = new.copy(), new
            after = set_objective(votes, number, weights, current)
            assert after >= before - 1e-12 * (1 + abs(before))
            before = after
        assert before <= value + 1e-9 * (1 + abs(value))
        fixed_point(votes.values, votes.narrow_ptr, votes.wide_ptr, number, lo, hi, weights, found, new)
        np.testing.assert_allclose(new, found, atol=1e-8)


def test_a_parameter_at_zero_comes_back():
    """From a start at zero, EM can't return; the derivative is there, and EDML does (thesis 5.3.1, footnote 3)."""
    table = np.array([[0.9, 0.1], [0.2, 0.8]])
    network = Network("pair", ("a", "b"), (("0", "1"),) * 2, ((), (0,)), (np.array([0.4, 0.6]), table))
    rng = random.Random(0)
    rows = oracle.sample(rng, network, 400)
    rows = [(-1, b) for _, b in rows[:200]] + rows[200:]
    problem = problem_of(network, [(a, b) for a, b in rows])
    s = problem.sub_network
    votes, *_ = cast(problem, flat(s, with_set(network, 0, (), [1.0, 0.0])))
    found, _ = solve_votes(votes, 0, problem.counts.complete * 0.0, np.array([1.0, 0.0]))
    ones = sum(b == 1 for a, b in rows if a < 0)
    # Only the rows without a vote here: θ_a maximises Π (0.9 - 0.7 t)^zeros (0.1 + 0.7 t)^ones.
    assert found[1] == pytest.approx((ones / 200 - 0.1) / 0.7, abs=1e-9)


# --- theorems ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from([1.0, 2.0]))
@settings(max_examples=20)
def test_only_leaves_missing_takes_one_iteration(seed, drop_barren, hybrid, prior):
    """Theorem 1, with Proposition 2's estimates, from any start."""
    network, _, rows = incomplete_data(seed, 6, 60, "leaves")
    problem = problem_of(network, rows, None, drop_barren)
    if problem.evidence is None:
        return
    s = problem.sub_network
    complete = problem.counts.complete
    wanted = []
    for f, k in enumerate(s.family_cardinalities):
        table = (complete[s.bases[f] : s.bases[f + 1]] + prior - 1).reshape(-1, k)
        wanted.append(table / np.where(table.sum(1, keepdims=True) > 0, table.sum(1, keepdims=True), np.nan))
    wanted = np.concatenate([t.ravel() for t in wanted])
    for other in range(3):
        start = flat(s, oracle.structure(network, other))
        solution = run(problem, start, prior, 1e-12, 1, hybrid=hybrid)[0]
        known = ~np.isnan(wanted)
        np.testing.assert_allclose(solution.theta[known], wanted[known], rtol=1e-12, atol=1e-14)
        assert run(problem, start, prior, 1e-12, hybrid=hybrid)[0].iterations <= 2


def test_em_with_barren_variables_kept_is_not_exact_at_once():
    network, start, rows = incomplete_data(4, 6, 60, "leaves")
    problem = problem_of(network, rows, None, drop_barren=False)
    theta = flat(problem.sub_network, start)
    best = run(problem, theta, iterations=1)[0]
    em = run_plain(problem, theta, iterations=1)[0]
    assert np.abs(em.theta - best.theta).max() > 1e-3


def test_complete_data_take_one_iteration():
    network, start, rows = incomplete_data(6, 5, 80, "complete")
    problem = problem_of(network, rows, None, True, by_row=True)
    counted = solve(problem_of(network, rows), Settings(algorithm="edml"))
    if problem.evidence is not None:
        theta = flat(problem.sub_network, start)
        for hybrid in (False, True):
            one = run(problem, theta, iterations=1, hybrid=hybrid)[0]
            np.testing.assert_allclose(one.theta, counted.theta, rtol=1e-12)


@given(st.integers(0, 10**6), st.sampled_from(["at random", "partly", "hidden", "mar"]), st.sampled_from([1.5, 2.0]))
@settings(max_examples=25)
def test_fixed_points_are_shared(seed, kind, prior):
    """Theorem 4, both ways."""
    network, start, rows = incomplete_data(seed, 5, 60, kind)
    problem = problem_of(network, rows)
    if problem.evidence is None:
        return
    theta = flat(problem.sub_network, start)
    for hybrid in (False, True):
        solution, status, _ = run(problem, theta, prior, 1e-10, hybrid=hybrid)
        assert status == CONVERGED
        moved = run_plain(problem, solution.theta, prior, 0.0, 1)[0]
        np.testing.assert_allclose(moved.theta, solution.theta, atol=1e-8)
    solution, status, _ = run_plain(problem, theta, prior, 1e-12)
    assert status in (CONVERGED, LIMIT)
    moved = run(problem, solution.theta, prior, 0.0, 1, damping=0.0)[0]
    if status == CONVERGED:
        # EM may creep: what it leaves to go is its last change over one minus its rate.
        np.testing.assert_allclose(moved.theta, solution.theta, atol=1e-8)


@given(
    st.integers(0, 10**6), st.integers(2, 6), st.sampled_from(INCOMPLETE), st.sampled_from([1.0, 2.0]), st.booleans()
)
@settings(max_examples=40)
def test_the_hybrid_never_falls(seed, n, kind, prior, drop_barren):
    network, start, rows = incomplete_data(seed, n, 40, kind)
    problem = problem_of(network, rows, None, drop_barren)
    if problem.evidence is None:
        return
    theta = flat(problem.sub_network, start)
    solution, status, _ = run(problem, theta, prior, 1e-7, 500, hybrid=True)
    assert status in (CONVERGED, LIMIT)
    rises = np.diff(solution.log_posterior)
    assert (rises >= -1e-11 * (1 + np.abs(solution.log_posterior[0]))).all()
    # The first iteration is at least EM's.
    em = run_plain(problem, theta, prior, 0.0, 1)[0]
    assert solution.log_posterior[min(1, solution.iterations)] >= em.log_posterior[-1] - 1e-9


@given(st.integers(0, 10**6), st.integers(2, 6), st.sampled_from(INCOMPLETE), st.sampled_from([1.0, 1.5, 2.0]))
@settings(max_examples=40)
def test_every_kind_reaches_a_stationary_point(seed, n, kind, prior):
    """No parameter can be moved towards its set's others to raise the log posterior: projected gradient near zero."""
    network, start, rows = incomplete_data(seed, n, 40, kind)
    problem = problem_of(network, rows)
    if problem.evidence is None:
        return
    s = problem.sub_network
    for hybrid in (False, True):
        solution, status, _ = run(problem, flat(s, start), prior, 1e-8, 3000, hybrid=hybrid)
        if status == LIMIT:
            continue  # ridges of the likelihood are crept along, by EM as well
        counts = solution.expected + (prior - 1.0)
        for a, b in itertools.pairwise(make_votes(s, problem.evidence).set_ptr):
            np.testing.assert_allclose(counts[a:b], counts[a:b].sum() * solution.theta[a:b], atol=1e-5 * len(rows))
        likelihood = oracle.log_likelihood(
            Network(network.name, network.variables, network.states, network.parents, tables_of(s, network, solution)),
            rows,
        )
        assert solution.log_likelihood[-1] == pytest.approx(likelihood, rel=1e-9, abs=1e-9)


def tables_of(s, network, solution):
    parts = {name: solution.theta[s.bases[f] : s.bases[f + 1]] for f, name in enumerate(s.component)}
    return tuple(parts[n].reshape(t.shape) for n, t in zip(network.variables, network.tables, strict=True))


# --- fractional weights --------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from(INCOMPLETE), st.sampled_from([1.0, 1.5]), st.booleans(), st.booleans())
@settings(max_examples=30)
def test_fractional_weights_are_rows_repeated(seed, kind, prior, drop_barren, hybrid):
    """Quarters of an example, and four times the pseudo counts' rows: every iteration is the same."""
    network, start, rows = incomplete_data(seed, 5, 30, kind)
    rng = random.Random(seed)
    quarters = [rng.choice([0, 1, 2, 3, 6, 9]) for _ in rows]
    quarters[0] = 1
    weighted = problem_of(network, rows, [q / 4 for q in quarters], drop_barren)
    if weighted.evidence is None:
        return
    # Rows of weight zero stay: they too say which variables may be missing.
    repeated = [row for row, q in zip(rows, quarters, strict=True) for _ in range(q)]
    zero = [row for row, q in zip(rows, quarters, strict=True) if not q]
    counted = problem_of(network, repeated + zero, [1] * len(repeated) + [0] * len(zero), drop_barren)
    theta = flat(weighted.sub_network, start)
    one = run(weighted, theta, prior, 0.0, 25, hybrid=hybrid)[0]
    four = run(counted, theta, 1 + 4 * (prior - 1), 0.0, 25, hybrid=hybrid)[0]
    np.testing.assert_allclose(one.theta, four.theta, atol=1e-9)
    np.testing.assert_allclose(4 * one.expected, four.expected, rtol=1e-8, atol=1e-9)
    assert len(one.log_posterior) == len(four.log_posterior)
    np.testing.assert_allclose(4 * one.log_posterior, four.log_posterior, rtol=1e-11)
    # And what is said of the parameters is what enumeration says of them.
    s = weighted.sub_network
    learned = Network(network.name, network.variables, network.states, network.parents, tables_of(s, network, one))
    weights = [q / 4 for q in quarters]
    assert one.log_likelihood[-1] == pytest.approx(oracle.log_likelihood(learned, rows, weights), rel=1e-9, abs=1e-9)
    counts = oracle.expected_counts(learned, rows, weights, drop_barren)
    np.testing.assert_allclose(one.expected, flat(s, learned, counts), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("scale", [2.0**-20, 2.0**20])
def test_the_unit_of_weights_is_no_matter(scale, hybrid):
    """By a power of two nothing is rounded: to the last bit the same parameters, of millionths or of millions."""
    network, start, rows = incomplete_data(11, 6, 60, "at random")
    rng = random.Random(11)
    weights = [rng.random() for _ in rows]
    found = []
    for by in (1.0, scale):
        problem = problem_of(network, rows, [w * by for w in weights])
        theta = flat(problem.sub_network, start)
        found.append(run(problem, theta, 1 + by / 2, 0.0, 15, hybrid=hybrid)[0])
    assert np.array_equal(found[0].theta, found[1].theta)
    np.testing.assert_allclose(found[0].log_posterior * scale, found[1].log_posterior, rtol=1e-12)


@pytest.mark.parametrize("hybrid", [False, True])
def test_weights_far_apart(hybrid):
    """Rows of a billionth of an example beside rows of a thousand millions: stationary all the same."""
    network, start, rows = incomplete_data(5, 5, 40, "partly")
    weights = [(1e-9, 1.0, 1e9)[i % 3] for i in range(len(rows))]
    problem = problem_of(network, rows, weights)
    s = problem.sub_network
    solution, status, _ = run(problem, flat(s, start), 2.0, 1e-10, hybrid=hybrid)
    assert status == CONVERGED
    learned = Network(network.name, network.variables, network.states, network.parents, tables_of(s, network, solution))
    again = oracle.maximise(learned, oracle.expected_counts(learned, rows, weights, drop_barren=True), 2.0)
    np.testing.assert_allclose(flat(s, again), solution.theta, atol=1e-8)


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_row_beside_a_heavy_one(hybrid):
    """The optimum of a set, 1e-18 here, is lost in a sum with the parameter it replaces: that made rows impossible."""
    half = np.full(2, 0.5)
    tables = (half, np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([[0.6, 0.4], [0.2, 0.8]]))
    network = Network("chain", ("a", "b", "c"), (("0", "1"),) * 3, ((), (0,), (1,)), tables)
    problem = problem_of(network, [(0, 0, 0), (1, 1, 1), (0, -1, 0), (0, -1, 1)], [2e17, 0.1, 1.0, 1.0])
    solution, status, _ = run(problem, flat(problem.sub_network, network), tolerance=1e-6, hybrid=hybrid)
    assert status == CONVERGED
    np.testing.assert_allclose(solution.theta[:2], [1.0, 5e-19], rtol=1e-9)


@pytest.mark.parametrize("hybrid", [False, True])
def test_weights_at_the_end_of_a_doubles_range(hybrid):
    """The curvature of votes that weigh 1e-310 vanishes: no division by it."""
    network, start, rows = incomplete_data(0, 4, 8, "at random")
    problem = problem_of(network, rows, [1e-310] * len(rows))
    solution, status, _ = run(problem, flat(problem.sub_network, start), tolerance=1e-6, hybrid=hybrid)
    assert status == CONVERGED
    assert np.isfinite(solution.theta).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hybrid", [False, True])
def test_map_is_what_brute_force_finds(seed, hybrid):
    """Three binary variables, partly missing, exponents of two: scipy on the enumerated posterior finds no better."""
    rng = random.Random(seed)
    states = (("0", "1"),) * 3
    parents = ((), (0,), (0, 1))
    tables = tuple(oracle.random_table(rng, [2] * (len(p) + 1)) for p in parents)
    network = Network("small", ("a", "b", "c"), states, parents, tables)
    rows = oracle.blank(rng, network, oracle.sample(rng, network, 80), "at random")
    problem = problem_of(network, rows)
    start = oracle.structure(network, seed)
    solution, status, _ = run(problem, flat(problem.sub_network, start), 2.0, 1e-10, hybrid=hybrid)
    assert status == CONVERGED

    def build(z):
        p = 1 / (1 + np.exp(-z))
        full = np.stack([p, 1 - p], axis=1)
        return Network("small", network.variables, states, parents,
                       (full[0], full[1:3], full[3:7].reshape(2, 2, 2)))  # fmt: skip

    def negative(z):
        candidate = build(z)
        return -oracle.log_likelihood(candidate, rows) - oracle.log_prior(candidate, 2.0)

    found = solution.theta.reshape(-1, 2)[:, 0]
    best = scipy.optimize.minimize(negative, np.log(found / (1 - found)), method="BFGS", options={"gtol": 1e-9})
    assert solution.log_posterior[-1] == pytest.approx(-best.fun, abs=1e-8)
    np.testing.assert_allclose(1 / (1 + np.exp(-best.x)), found, atol=1e-5)


# --- the loop ------------------------------------------------------------------------------------------------------


def test_history_and_start():
    network, start, rows = incomplete_data(9, 6, 40)
    problem = problem_of(network, rows)
    theta = flat(problem.sub_network, start)
    before = theta.copy()
    for hybrid in (False, True):
        long = run(problem, theta, 2.0, 0.0, 100, hybrid=hybrid)[0]
        short = run(problem, theta, 2.0, 0.0, 10, hybrid=hybrid)[0]
        assert np.array_equal(theta, before)
        assert long.log_posterior.shape == (101,)
        assert np.array_equal(long.log_posterior[:11], short.log_posterior)
        assert long.log_likelihood[0] == pytest.approx(oracle.log_likelihood(start, rows), rel=1e-11)


def test_undamped_sets_all_at_once():
    """Without damping every set jumps to its own optimum; where that overshoots, damping sets in by itself."""
    network, start, rows = incomplete_data(3, 6, 60, "hidden")
    problem = problem_of(network, rows)
    theta = flat(problem.sub_network, start)
    solution, status, _ = run(problem, theta, 2.0, 1e-9, damping=0.0)
    assert status == CONVERGED
    em = run_plain(problem, solution.theta, 2.0, 0.0, 1)[0]
    np.testing.assert_allclose(em.theta, solution.theta, atol=1e-8)


@pytest.mark.parametrize("algorithm", ["edml", "hybrid"])
def test_solve_dispatches(algorithm):
    network, _, rows = incomplete_data(28, 6, 60, "hidden")
    problem = problem_of(network, rows)
    solution = solve(problem, Settings(prior=2.0, seed=7, restarts=3, algorithm=algorithm, damping=0.3))
    em = solve(problem, Settings(prior=2.0, seed=7, restarts=3))
    assert len(solution.restarts) == 3
    assert solution.restarts != em.restarts
    assert solution.log_posterior[-1] == max(solution.restarts)


def test_the_benchmark_runs_small(capsys):
    outcomes = edml_against_em.main(["asia"], 1, 200, [0.25], 30, 1e6)
    assert len(outcomes["all"]) == 1
    assert "asia" in capsys.readouterr().out


def test_the_comparison_goes_on_where_it_stopped(tmp_path, monkeypatch):
    file = tmp_path / "outcomes.jsonl"
    first = edml_against_em.main(["asia"], 1, 200, [0.25], 10, 1e6, file)
    monkeypatch.setattr(edml_against_em, "make_problem", None)
    again = edml_against_em.main(["asia"], 1, 200, [0.25], 10, 1e6, file)
    assert edml_against_em.line("all", again["all"]) == edml_against_em.line("all", first["all"])
    assert len(file.read_text().splitlines()) == len(again["all"]) == 1
