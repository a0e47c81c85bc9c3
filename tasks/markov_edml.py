"""EDML for Markov random fields (thesis 5.4 and 5.5, Theorems 7 and 8).

Each factor a has a sub-problem of its own, all others held fixed (equation 5.8):

    minimise  −Σ_i n_i log Σ_x C_x^i θ_x    subject to  Σ_x C_x θ_x = α,    C_x^i θ*_x = Z(x, d_i),  C_x θ*_x = Z(x)

In terms of ρ_x = θ_x / θ*_x and α = Z, Σ_x C_x θ_x = α reads Σ_x Pr(x) ρ_x = 1, and the optimum satisfies

    ρ_x = Σ_i n_i Pr_i(x) ρ_x / Σ_y Pr_i(y) ρ_y  /  (N Pr(x)),

whose right side, iterated, never lowers the objective. On complete data it is the closed form #(x) / (N Pr(x)) at once
(equation in 5.5). All factors are updated together; that may overshoot, so that log potentials go a share γ of the
way. The slope along the way, before and after it, tells what share would have been best, and the next update goes that
far; where the likelihood fell all the same, the step is taken back. Feasibility (Theorem 7) is the factors' scaling to
a maximum of one, by which Pr does not change.
"""

from __future__ import annotations

import numpy as np

from tasks.jointree import Floats
from tasks.markov_em import moment_error
from tasks.markov_terms import DataTerm, Point, Terms, pseudo_counts
from tasks.markov_trace import Trace
from tasks.markov_votes import collect_votes

# The inner problem is solved to this relative change of a ratio: an outer step moves the constants by far more.
INNER_TOLERANCE, INNER_STEPS = 1e-6, 500
# By how much a share may change after an update, and must after one that lost.
LEAST, MOST, RETREAT = 0.5, 1.5, 0.7
MIN_SHARE = 1e-6
# Moments below this are taken for it; and no log potential moves further at once, unless it is a zero's.
SMALLEST, LONGEST = 1e-100, 10.0
# What the last bits of a sum can take away from an objective.
ROUNDING = 1e-13


def solve_term(term: DataTerm, theta: Floats, weights: Floats, moments: Floats) -> Floats:
    """Solve the sub-problems of one sub-network's factors.

    Parameters
    ----------
    term : DataTerm
        The sub-network.
    theta : float64 array, shape (the sub-network's n_parameters,)
        Its potentials.
    weights : float64 array, same shape
        Counts of the rows that observe the whole factor, and pseudo counts.
    moments : float64 array, same shape
        N Pr(x).

    Returns
    -------
    float64 array, same shape
        ρ, by which each potential would be multiplied.
    """
    if not term.has_instances:
        # The closed form, to the last bit as `Terms.vote` has it where such a term is left out.
        return weights / np.maximum(moments, SMALLEST)
    votes = collect_votes(term, theta)
    inverse = 1.0 / np.maximum(moments, SMALLEST)
    ratio = np.ones(len(theta))
    for _ in range(INNER_STEPS):
        new = np.minimum((weights + votes.respond(ratio)) * inverse, 1.0 / SMALLEST)
        change = float(np.abs(new - ratio).max(initial=0.0))
        ratio = new
        if change <= INNER_TOLERANCE * max(1.0, float(ratio.max(initial=0.0))):
            break
    # Only what no row can show is impossible; what is merely out of a double's reach may come back.
    return np.where(votes.open, np.maximum(ratio, SMALLEST), ratio)


def run_edml(terms: Terms, start: Floats, tolerance: float, max_iterations: int, damping: float) -> Trace:
    """EDML from one start, until data's and model's moments agree.

    Parameters
    ----------
    terms : Terms
        The problem.
    start : float64 array, shape (n_parameters,)
        Log potentials; not mutated.
    tolerance : float
        Largest error of a moment, as a share of the examples.
    max_iterations : int
        Updates, those taken back included.
    damping : float
        Share of the old log potentials that is kept at first.

    Notes
    -----
    A fixed point is a stationary point of the likelihood (thesis, Theorem 7 and section 5.2). Damping is of log
    potentials, along which the update is always uphill at first: the gradient's product with it is
    Σ (E# − N Pr) log ρ, which cannot be negative where ρ = E# / (N Pr).
    """
    point, ratio = terms.vote(start)
    trace = Trace(point)
    share = 1.0 - damping
    while not trace.settle(moment_error(terms, trace.last), tolerance) and trace.iterations < max_iterations:
        way = _direction(trace.last, ratio)
        uphill = _slope(terms, trace.last, way)
        gained = False
        while not gained and share >= MIN_SHARE:
            proposed, next_ratio = terms.vote(trace.last.eta + share * way)
            slope = _slope(terms, proposed, way)
            gained = proposed.objective >= trace.last.objective - ROUNDING * abs(trace.last.objective)
            if gained:
                trace.add(proposed)
                ratio = next_ratio
            else:
                trace.evaluations += 1
            # Where the slope along the way would have come to zero, had it fallen evenly: the share to try next.
            factor = uphill / (uphill - slope) if uphill > max(slope, 0.0) else MOST
            share = min(1.0, share * min(max(factor, LEAST), MOST if gained else RETREAT))
        if not gained:
            break
    return trace


def _direction(point: Point, ratio: Floats) -> Floats:
    """The update in log potentials; zeros stay."""
    with np.errstate(divide="ignore"):
        way = np.log(ratio)
    way = np.where(ratio > 0, np.clip(way, -LONGEST, LONGEST), way)
    return np.where(point.eta > -np.inf, way, 0.0)


def _slope(terms: Terms, point: Point, way: Floats) -> float:
    """Derivative of the likelihood along the update, by example."""
    share = terms.n_examples + terms.penalty.pseudo_count
    gradient = point.expected + pseudo_counts(terms.graph, terms.penalty.pseudo_count) - share * point.marginals
    finite = np.isfinite(way)
    return float((gradient[finite] * way[finite]).sum()) / share
