"""IPF on complete data, and EM on incomplete data, whose M-step it is (algorithms of Markov random fields).

EM: expected counts of the data under the current potentials (E-step), then potentials whose moments match them
(M-step): sweeps of iterative proportional fitting, until they match far better than they did. Every sweep raises the
expected log likelihood, so the likelihood never falls, however many sweeps are made.
"""

from __future__ import annotations

import numpy as np

from tasks.em import fell
from tasks.errors import LikelihoodFellError
from tasks.ipf import SMALLEST, sweep_factors
from tasks.jointree import Floats
from tasks.markov_terms import LocalTerms, Model, Penalty, Point, Terms, pseudo_counts, scaled
from tasks.markov_trace import Trace

# An M-step ends when its moments' error is this share of what it was: better waits for a better E-step.
M_STEP_SHARE = 0.1
M_STEP_SWEEPS = 100


def sweep_anyhow(model: Model, theta: Floats, targets: Floats) -> tuple[Floats, float, float]:
    """A sweep as `tasks.ipf.sweep_factors` makes it; factor by factor where a product leaves the range of a double."""
    bases = model.graph.bases
    new, log_z, error, trusted = sweep_factors(model.tree, theta, targets)
    if trusted:
        return new, log_z, error
    new, error = theta.copy(), 0.0
    for f in range(len(bases) - 1):
        own = slice(int(bases[f]), int(bases[f + 1]))
        z, marginals = model.evaluate(new)
        if f == 0:
            log_z = z
        error = max(error, float(np.abs(marginals[own] - targets[own]).max()))
        part = new[own] * (targets[own] / np.maximum(marginals[own], SMALLEST))
        # Only zeros and what nobody has seen become zero: what a double can't hold may come back in a later sweep.
        new[own] = np.where((new[own] > 0) & (targets[own] > 0), np.maximum(part / part.max(), SMALLEST), 0.0)
    return new, log_z, error


def log_of(theta: Floats) -> Floats:
    """Log potentials; zero has minus infinity, without a warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(theta))


def match_moments(
    model: Model, eta: Floats, targets: Floats, n_examples: float, penalty: Penalty, tolerance: float
) -> Floats:
    """Potentials whose moments match given counts: the M-step.

    Parameters
    ----------
    model : Model
        The whole graph.
    eta : float64 array, shape (n_parameters,)
        Log potentials to begin with; not mutated.
    targets : float64 array, shape (n_parameters,)
        Expected counts, pseudo counts not included.
    n_examples : float
        What every factor's targets sum to.
    penalty : Penalty
        With an L2 term the M-step is L-BFGS's, else IPF's.
    tolerance : float
        Error of a moment, as a share of the examples, from which on nothing is gained.
    """
    if penalty.l2:
        from tasks.markov_gradient import run_gradient

        problem = LocalTerms(model, (), targets, n_examples, penalty)
        trace = run_gradient(problem, eta, 0.1 * tolerance, M_STEP_SWEEPS, "lbfgs", share_of_first=M_STEP_SHARE)
        return trace.last.eta
    share = (targets + pseudo_counts(model.graph, penalty.pseudo_count)) / (n_examples + penalty.pseudo_count)
    theta, _ = scaled(eta, model.graph.bases)
    first = -1.0
    for _ in range(M_STEP_SWEEPS):
        theta, _, error = sweep_anyhow(model, theta, share)
        theta, _ = scaled(log_of(theta), model.graph.bases)
        if first < 0:
            first = error
        elif error <= max(M_STEP_SHARE * first, 0.1 * tolerance):
            break
    return log_of(theta)


def moment_error(terms: Terms, point: Point) -> float:
    """Largest difference between a moment of the data and of the model: the gradient by example, l2 included."""
    share = terms.n_examples + terms.penalty.pseudo_count
    counts = point.expected + pseudo_counts(terms.graph, terms.penalty.pseudo_count)
    gradient = counts - share * point.marginals
    free = point.eta > -np.inf
    if terms.penalty.l2:
        gradient = np.where(free, gradient - terms.penalty.l2 * np.where(free, point.eta, 0.0), 0.0)
    return float(np.abs(gradient[free]).max(initial=0.0)) / share


def run_em(terms: Terms, start: Floats, tolerance: float, max_iterations: int) -> Trace:
    """EM from one start, until data's and model's moments agree.

    Parameters
    ----------
    terms : Terms
        The problem.
    start : float64 array, shape (n_parameters,)
        Log potentials; not mutated.
    tolerance : float
        Largest error of a moment, as a share of the examples.
    max_iterations : int
        E-steps after the first.

    Raises
    ------
    LikelihoodFellError
        A bug.
    """
    trace = Trace(terms.evaluate(start))
    while not trace.settle(moment_error(terms, trace.last), tolerance) and trace.iterations < max_iterations:
        eta = terms.match(trace.last.eta, trace.last.expected, tolerance)
        point = terms.evaluate(eta)
        if fell(trace.last.objective, point.objective, terms.n_examples):
            raise LikelihoodFellError(
                f"EM's objective fell from {trace.last.objective!r} to {point.objective!r} in iteration "
                f"{trace.iterations + 1}; this is a bug, please report it"
            )
        trace.add(point)
    return trace


def run_ipf(terms: LocalTerms, start: Floats, tolerance: float, max_iterations: int) -> Trace:
    """Iterative proportional fitting on complete data: `run_em` with one sweep an iteration, and nothing to expect."""
    share = (terms.complete + pseudo_counts(terms.graph, terms.penalty.pseudo_count)) / (
        terms.n_examples + terms.penalty.pseudo_count
    )
    trace = Trace(terms.evaluate(start))
    theta, _ = scaled(start, terms.graph.bases)
    while not trace.settle(moment_error(terms, trace.last), tolerance) and trace.iterations < max_iterations:
        theta, _, _ = sweep_anyhow(terms.model, theta, share)
        theta, _ = scaled(log_of(theta), terms.graph.bases)
        trace.add(terms.evaluate(log_of(theta)))
    return trace
