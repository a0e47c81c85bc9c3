"""EDML: the thesis's example, the sub-problem's optimality, and that no accepted step lowers the objective."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.markov_edml import run_edml, solve_term
from tasks.markov_em import moment_error
from tasks.markov_terms import DataTerm, Penalty
from tasks.markov_votes import collect_votes
from tasks.projection import Counts
from tests.oracle import FIELD_KINDS, Enumeration, field_pieces, incomplete_field, local_terms, make_field

# Thesis, section 5.5: D#(a, b, c), D#(a, b, c-bar), ...
COUNTS = {
    (0, 0, 0): 4, (0, 0, 1): 18, (0, 1, 0): 2, (0, 1, 1): 13, (1, 0, 0): 1, (1, 0, 1): 1, (1, 1, 0): 42, (1, 1, 1): 19,
}  # fmt: skip


def example():
    """The example's network over A, B and C, and its terms."""
    field = make_field([2, 2, 2], [(0, 1), (1, 2), (0, 2)])
    return field, local_terms(field, list(COUNTS), list(COUNTS.values()))


def test_the_thesiss_first_sub_problem():
    """From the uniform start, equation 5.8 has α = 2 and C = 2 for θ_AB: (22, 15, 2, 61) / 100."""
    field, terms = example()
    point, ratio = terms.vote(np.zeros(12))
    # Our ratio leaves Z as it is, which is 8 for θ* = 1: a feasible point for α = 2 is θ* times 2 / 8.
    np.testing.assert_allclose(ratio[:4] * 2 / 8, np.array([22, 15, 2, 61]) / 100, rtol=1e-14)
    np.testing.assert_allclose(ratio[4:8] * 2 / 8, np.array([5, 19, 44, 32]) / 100, rtol=1e-14)
    np.testing.assert_allclose(ratio[8:] * 2 / 8, np.array([6, 31, 43, 20]) / 100, rtol=1e-14)
    assert point.log_z == pytest.approx(np.log(8), rel=1e-15)
    np.testing.assert_allclose(field.graph.bases, [0, 4, 8, 12])


def test_the_thesiss_optimum():
    """The three pairwise tables fitted in turn on the whole joint, the textbook way, give the same distribution."""
    field, terms = example()
    counts = np.zeros((2, 2, 2))
    for state, n in COUNTS.items():
        counts[state] = n
    joint = np.full((2, 2, 2), 1 / 8)
    for _ in range(5000):
        for axis in (2, 0, 1):
            joint *= counts.sum(axis, keepdims=True) / 100 / joint.sum(axis, keepdims=True)
    trace = run_edml(terms, np.zeros(12), 1e-10, 10_000, 0.5)
    assert trace.converged
    found = Enumeration(field).probabilities(trace.last.eta).reshape(2, 2, 2)
    np.testing.assert_allclose(found, joint, atol=1e-8)
    assert trace.last.log_likelihood == pytest.approx(float((counts * np.log(joint)).sum()), rel=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(FIELD_KINDS), st.sampled_from([0.0, 1.5]))
@settings(max_examples=60)
def test_each_sub_problem_is_solved(seed, n, kind, pseudo_count):
    """One factor changed by its ratio, all others held: where it is free, its gradient is zero (Theorem 8)."""
    field, rows = incomplete_field(seed, n, 30, kind, spread=1.0)
    terms = local_terms(field, rows, penalty=Penalty(pseudo_count))
    here = Enumeration(field)
    _, ratio = terms.vote(here.eta)
    examples = len(rows) + pseudo_count
    for f in range(len(field.scopes)):
        own = slice(int(field.graph.bases[f]), int(field.graph.bases[f + 1]))
        eta = here.eta.copy()
        with np.errstate(divide="ignore"):
            eta[own] += np.log(ratio[own])
        value, gradient = here.objective(eta, rows, pseudo_count=pseudo_count)
        assert value >= here.objective(here.eta, rows, pseudo_count=pseudo_count)[0] - 1e-9
        # Its inner iteration stops at relative changes of 1e-6; slow ones of them are still that far from the end.
        kept = ratio[own] > 1e-3
        np.testing.assert_allclose(gradient[own][kept], 0, atol=2e-3 * examples)


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(FIELD_KINDS))
@settings(max_examples=40)
def test_votes_are_posteriors(seed, n, kind):
    """One factor at a time multiplied by the same number: the votes' response is the expected counts themselves."""
    field, rows = incomplete_field(seed, n, 30, kind)
    terms = local_terms(field, rows)
    eta = Enumeration(field).eta
    expected = Enumeration(field).data_term(eta, rows)[1]
    found = terms.complete.copy()
    for term in terms.data:
        theta = np.exp(eta - np.repeat(np.maximum.reduceat(eta, field.graph.bases[:-1]), np.diff(field.graph.bases)))
        votes = collect_votes(term, theta[term.place])
        found[term.place] += votes.respond(np.ones(len(term.place)))
        np.testing.assert_allclose(np.bincount(votes.vote, votes.weight, len(votes.counts)), votes.counts, rtol=1e-12)
    np.testing.assert_allclose(found, expected, atol=1e-10 * len(rows))


@pytest.mark.parametrize("kind", FIELD_KINDS)
def test_no_accepted_step_lowers_the_objective(kind):
    for seed in range(8):
        field, rows = incomplete_field(seed, 5, 60, kind)
        terms = local_terms(field, rows, penalty=Penalty(0.5))
        start = np.random.default_rng(seed).uniform(-1, 1, field.graph.n_parameters)
        trace = run_edml(terms, start, 1e-5, 4000, 0.5)
        steps = np.diff(trace.objective)
        # Nothing but rounding is ever given away.
        assert steps.min(initial=0.0) >= -1e-12 * abs(trace.objective[-1])
        assert trace.converged
        gradient = Enumeration(field).objective(trace.last.eta, rows, pseudo_count=0.5)[1]
        assert np.abs(gradient).max() <= 1.01e-5 * (len(rows) + 0.5)
        assert trace.evaluations >= len(trace.objective)


def test_a_fixed_point_is_left_alone():
    """At a stationary point every ratio is one (Theorem 7)."""
    _, terms = example()
    trace = run_edml(terms, np.zeros(12), 1e-12, 10_000, 0.5)
    _, ratio = terms.vote(trace.last.eta)
    np.testing.assert_allclose(ratio, 1.0, atol=1e-9)
    assert moment_error(terms, trace.last) <= 1e-12
    again = run_edml(terms, trace.last.eta, 1e-10, 10, 0.5)
    assert (again.iterations, again.converged) == (0, True)


def test_any_damping_ends_at_the_same_optimum():
    field, _ = incomplete_field(5, 5, 0)
    rows = [tuple(random.Random(i).randrange(len(s)) for i, s in enumerate(field.states))]
    rows += incomplete_field(5, 5, 200, "complete")[1]
    terms = local_terms(field, rows, penalty=Penalty(1.0))
    ends = [
        run_edml(terms, np.zeros(field.graph.n_parameters), 1e-8, 20_000, damping).last.objective
        for damping in (0.0, 0.3, 0.5, 0.9)
    ]
    np.testing.assert_allclose(ends, ends[0], rtol=1e-10)


def test_a_term_without_instances_has_the_closed_form():
    """Whether it is asked or left out: the same bits, so that where the terms are evaluated does not matter."""
    field, rows = incomplete_field(2, 4, 50, "complete")
    graph, whole = field.graph, local_terms(field, rows)
    point, wanted = whole.vote(np.zeros(graph.n_parameters))
    pieces = field_pieces(field, rows)
    for s in pieces:
        place = np.concatenate([np.arange(graph.bases[f], graph.bases[f + 1]) for f in s.factors])
        term = DataTerm(s, Counts(whole.complete[place], None), None, place)
        theta = np.ones(len(place))
        found = solve_term(term, theta, whole.complete[place], len(rows) * point.marginals[place])
        assert found.tobytes() == wanted[place].tobytes()
