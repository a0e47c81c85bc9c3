"""Every algorithm ends where the gradient is zero: at one distribution where data are complete."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tasks.decomposable import find_clique_tree
from tasks.errors import ImpossibleDataError
from tasks.markov_em import match_moments
from tasks.markov_solving import MarkovSettings, random_potentials, solve_markov
from tasks.markov_terms import Penalty
from tests.oracle import FIELD_KINDS, Enumeration, incomplete_field, local_terms, make_field

INCOMPLETE = [k for k in FIELD_KINDS if k != "complete"]


def solved(field, rows, algorithm, penalty=None, weights=None, start=None, tolerance=1e-7, limit=20_000, **options):
    terms = local_terms(field, rows, weights, penalty=penalty)
    how = MarkovSettings(algorithm, penalty or Penalty(), tolerance=tolerance, max_iterations=limit, **options)
    return solve_markov(terms, how, start, find_clique_tree(field.graph))


@pytest.mark.parametrize("penalty", [Penalty(), Penalty(1.0)], ids=["likelihood", "pseudo count"])
def test_complete_data_have_one_distribution(penalty):
    """All algorithms, the closed form where there is one; against the enumerated gradient and each other."""
    closed = 0
    for seed in range(10):
        field, rows = incomplete_field(seed, 4, 400, "complete", max_states=2, max_arity=3, spread=0.7)
        here = Enumeration(field)
        algorithms = ["lbfgs", "cg", "em", "edml", "ipf"]
        if find_clique_tree(field.graph) is not None:
            algorithms.append("closed-form")
            closed += 1
        found = {a: solved(field, rows, a, penalty) for a in algorithms}
        examples = len(rows) + penalty.pseudo_count
        for algorithm, s in found.items():
            assert s.converged, algorithm
            assert s.moment_error <= 1e-7
            gradient = here.objective(s.eta, rows, pseudo_count=penalty.pseudo_count)[1]
            assert np.abs(gradient).max() <= 1.01e-7 * examples, algorithm
            # An error of 1e-7 in the moments is one of that times a few in the states.
            np.testing.assert_allclose(
                here.probabilities(s.eta), here.probabilities(found["lbfgs"].eta), atol=1e-5, err_msg=algorithm
            )
            assert s.log_likelihood[-1] == pytest.approx(here.log_likelihood(s.eta, rows)[0], rel=1e-10)
            assert s.objective[-1] == pytest.approx(found["lbfgs"].objective[-1], rel=1e-9)
            assert s.log_z == pytest.approx(here.log_z(s.eta), rel=1e-10, abs=1e-10)
    assert 2 <= closed <= 8


@pytest.mark.parametrize("algorithm", ["em", "lbfgs", "cg", "edml"])
@pytest.mark.parametrize("kind", INCOMPLETE)
def test_incomplete_data_end_at_a_stationary_point(kind, algorithm):
    for seed in range(4):
        field, rows = incomplete_field(seed, 5, 80, kind, max_states=2)
        s = solved(field, rows, algorithm, Penalty(1.0), tolerance=1e-5)
        assert s.converged
        here = Enumeration(field)
        value, gradient = here.objective(s.eta, rows, pseudo_count=1.0)
        assert np.abs(gradient).max() <= 1.01e-5 * (len(rows) + 1)
        assert s.objective[-1] == pytest.approx(value, rel=1e-10)
        assert s.objective[-1] >= s.objective[0]


@given(st.integers(0, 10**6), st.sampled_from(FIELD_KINDS), st.sampled_from([0.0, 0.5]))
@settings(max_examples=25)
def test_em_never_falls(seed, kind, pseudo_count):
    field, rows = incomplete_field(seed, 5, 30, kind)
    s = solved(field, rows, "em", Penalty(pseudo_count), tolerance=1e-6, limit=60)
    assert np.diff(s.objective).min(initial=0.0) >= -1e-12 * abs(s.objective[-1])


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5]))
@settings(max_examples=25)
def test_ipf_never_falls(seed, pseudo_count):
    field, rows = incomplete_field(seed, 5, 30, "complete")
    s = solved(field, rows, "ipf", Penalty(pseudo_count), tolerance=1e-9, limit=60)
    assert np.diff(s.objective).min(initial=0.0) >= -1e-12 * abs(s.objective[-1])


@pytest.mark.parametrize("kind", ["complete", "at random", "hidden", "mixture"])
def test_an_m_step_matches_the_moments(kind):
    field, rows = incomplete_field(7, 5, 50, kind)
    terms = local_terms(field, rows, penalty=Penalty(1.0))
    here = Enumeration(field)
    eta = random_potentials(field.graph, 3, 0)
    targets = here.data_term(eta, rows)[1]
    first = np.abs((targets + here.moments(np.full(len(here.states), 1 / len(here.states)))) / 51 - here.marginals(eta))
    new = match_moments(terms.model, eta, targets, len(rows), Penalty(1.0), 1e-9)
    wanted = (targets + here.moments(np.full(len(here.states), 1 / len(here.states)))) / 51
    assert np.abs(wanted - here.marginals(new)).max() <= 0.2 * first.max()


@pytest.mark.parametrize("algorithm", ["lbfgs", "cg", "em"])
@pytest.mark.parametrize("kind", ["complete", "partly", "mixture"])
def test_a_penalised_optimum_against_scipy_on_the_enumerated_objective(kind, algorithm):
    """λ keeps the potentials finite, and those of least norm: each factor's sum to zero."""
    for seed in range(3):
        field, rows = incomplete_field(seed, 4, 12, kind, max_states=2)
        here = Enumeration(field)

        def negative(eta, here=here, rows=rows):
            value, gradient = here.objective(eta, rows, l2=0.5)
            return -value, -gradient

        s = solved(field, rows, algorithm, Penalty(l2=0.5), tolerance=1e-8)
        assert s.converged
        # They are returned with their tops taken off, which the likelihood does not notice.
        sizes = np.diff(field.graph.bases)
        eta = s.eta - np.repeat(np.add.reduceat(s.eta, field.graph.bases[:-1]) / sizes, sizes)
        value, gradient = here.objective(eta, rows, l2=0.5)
        assert s.objective[-1] == pytest.approx(value, rel=1e-10)
        assert np.abs(gradient).max() <= 1.1e-8 * len(rows)
        options = {"gtol": 1e-9, "ftol": 0.0}
        if kind == "complete":  # concave: one optimum, from anywhere
            wanted = minimize(negative, np.zeros(len(eta)), jac=True, method="L-BFGS-B", options=options)
            assert value == pytest.approx(-wanted.fun, rel=1e-10)
            np.testing.assert_allclose(eta, wanted.x, atol=1e-5)
        else:  # nothing better nearby
            wanted = minimize(negative, eta, jac=True, method="L-BFGS-B", options=options)
            assert value == pytest.approx(-wanted.fun, rel=1e-10)


@pytest.mark.parametrize("algorithm", ["lbfgs", "cg", "em", "edml", "ipf", "closed-form"])
def test_pseudo_counts_keep_potentials_finite(algorithm):
    """No row shows (s1, s1); against scipy on the enumerated objective, with rows spread evenly over all states."""
    field = make_field([2, 2, 3], [(0, 1), (1, 2)])
    rows = [(0, 0, 0)] * 5 + [(0, 1, 2)] * 3 + [(1, 0, 1)] * 4
    here = Enumeration(field)
    wanted = minimize(
        lambda eta: tuple(-x for x in here.objective(eta, rows, pseudo_count=2.0)),
        np.zeros(10), jac=True, method="L-BFGS-B", options={"gtol": 1e-10, "ftol": 0.0},
    )  # fmt: skip
    s = solved(field, rows, algorithm, Penalty(2.0), tolerance=1e-9)
    assert np.isfinite(s.eta).all()
    assert s.objective[-1] == pytest.approx(-wanted.fun, rel=1e-10)
    np.testing.assert_allclose(here.probabilities(s.eta), here.probabilities(wanted.x), atol=1e-6)


@pytest.mark.parametrize("algorithm", ["em", "edml", "ipf", "closed-form", "lbfgs", "cg"])
def test_without_them_what_is_never_seen_becomes_impossible(algorithm):
    field = make_field([2, 2, 3], [(0, 1), (1, 2)])
    rows = [(0, 0, 0)] * 5 + [(0, 1, 2)] * 3 + [(1, 0, 1)] * 4
    s = solved(field, rows, algorithm, tolerance=1e-5)
    assert s.converged
    here = Enumeration(field)
    counts = here.data_term(s.eta, rows)[1]
    assert here.marginals(s.eta)[counts == 0].max() <= 1e-5
    assert (s.expected[counts == 0] == 0).all()
    # p(v0, v1) p(v2 | v1); moments off by 1e-5 cost no more than that times the rows' log probabilities.
    wanted = 5 * np.log(5 / 12 * 5 / 9) + 3 * np.log(3 / 12) + 4 * np.log(4 / 12 * 4 / 9)
    assert s.log_likelihood[-1] == pytest.approx(wanted, abs=1e-2)


def test_weights_are_rows_said_once():
    field, rows = incomplete_field(3, 5, 60, "at random", max_states=2)
    distinct = sorted(set(rows))
    counts = [rows.count(row) for row in distinct]
    for algorithm in ("lbfgs", "em", "edml"):
        a = solved(field, rows, algorithm, Penalty(1.0), tolerance=1e-6)
        b = solved(field, distinct, algorithm, Penalty(1.0), counts, tolerance=1e-6)
        assert a.eta.tobytes() == b.eta.tobytes()
        half = solved(field, distinct, algorithm, Penalty(0.5), [c / 2 for c in counts], tolerance=1e-6)
        np.testing.assert_allclose(half.marginals, a.marginals, atol=1e-5)


def test_the_best_restart_wins():
    field, rows = incomplete_field(17, 5, 60, "hidden", max_states=2)
    how = {"tolerance": 1e-4, "limit": 300}
    each = [solved(field, rows, "lbfgs", seed=5, restarts=r + 1, **how) for r in range(4)]
    last = each[-1]
    assert last.restarts[:3] == each[2].restarts
    assert last.objective[-1] == max(last.restarts) == last.restarts[last.restart]


def test_starts_are_functions_of_seed_restart_and_factor():
    small = make_field([2, 3], [(0, 1)]).graph
    large = make_field([2, 3, 2], [(0, 1), (1, 2)]).graph
    a, b = random_potentials(small, 1, 2), random_potentials(large, 1, 2)
    assert a.tobytes() == b[:6].tobytes()
    assert a.tobytes() != random_potentials(small, 1, 3).tobytes()
    assert a.tobytes() != random_potentials(small, 2, 2).tobytes()
    assert np.abs(b).max() <= 0.5


def test_the_limit_is_reported_not_hidden():
    field, rows = incomplete_field(1, 5, 60, "at random")
    for algorithm in ("lbfgs", "cg", "em", "edml"):
        s = solved(field, rows, algorithm, tolerance=1e-12, limit=2)
        assert not s.converged
        assert s.iterations == 2
        assert s.moment_error > 1e-12


@pytest.mark.parametrize("algorithm", ["lbfgs", "cg", "em", "edml"])
def test_zeros_of_the_start_stay(algorithm):
    """Structural zeros: a potential at minus infinity is no parameter."""
    rng = random.Random(0)
    table = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    field = make_field([2, 3, 2], [(0, 1), (1, 2)], [table, np.ones((3, 2))])
    possible = [(a, b, c) for a in (0, 1) for b in (0, 1, 2) for c in (0, 1) if table[a, b]]
    rows = [rng.choice(possible) for _ in range(60)]
    rows = [tuple(x if rng.random() < 0.8 else -1 for x in row) for row in rows]
    start = Enumeration(field).eta
    s = solved(field, rows, algorithm, start=start, tolerance=1e-6)
    assert s.converged
    assert (np.isneginf(s.eta) == np.isneginf(start)).all()
    gradient = Enumeration(field).log_likelihood(s.eta, rows)[1]
    assert np.abs(gradient).max() <= 1.01e-6 * 60
    with pytest.raises(ImpossibleDataError) as refused:
        solved(field, [*rows, (0, 2, 1)], algorithm, start=start)
    assert dict(refused.value.codes).items() >= {"v0": 0, "v1": 2}.items()
