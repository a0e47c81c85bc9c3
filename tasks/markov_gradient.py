"""L-BFGS and conjugate gradients on log potentials (Refaat & Darwiche, section 2; thesis 5.6).

    ∂ℓ/∂η_f(x) = E#(x_f) − N Pr(x_f)

One evaluation of both terms yields value and gradient. Log potentials are scaled by the root of the larger of the
data's and the model's moment at the start, so that the curvature is at most about one in each.
"""

from __future__ import annotations

import numpy as np

from tasks.blas import one_thread
from tasks.jointree import Floats
from tasks.markov_em import moment_error
from tasks.markov_terms import Point, Terms, pseudo_counts
from tasks.markov_trace import Trace

METHODS = {"lbfgs": "L-BFGS-B", "cg": "CG"}
# Steps that L-BFGS remembers: on strongly coupled fields a hundred needs a third of the iterations that twenty do. All
# of them together take at most so many numbers.
MOST_PAIRS, MAX_NUMBERS = 100, 10_000_000
# What the last bits of a sum can take away from an objective: no line search sees less.
ROUNDING = 1e-13


class _Stop(Exception):
    """Ends scipy's loop."""


def run_gradient(
    terms: Terms,
    start: Floats,
    tolerance: float,
    max_iterations: int,
    method: str,
    warm: int = 0,
    share_of_first: float = 0.0,
) -> Trace:
    """Climb the objective from one start.

    Parameters
    ----------
    terms : Terms
        The problem.
    start : float64 array, shape (n_parameters,)
        Log potentials; those at minus infinity stay there.
    tolerance : float
        Largest error of a moment, as a share of the examples: the gradient by example.
    max_iterations : int
        Iterations; each takes at least one evaluation.
    method : {"lbfgs", "cg"}
        scipy's L-BFGS-B or CG.
    warm : int
        How many iterations at the beginning are EM's.
    share_of_first : float
        Also ends where the error is this share of the start's.

    Notes
    -----
    Where a line search fails, as it must once gains drown in rounding, the memory of earlier steps is dropped and the
    search begins anew; where that gains nothing either, the run ends, unconverged.
    """
    from scipy.optimize import minimize

    trace = Trace(terms.evaluate(start))
    first = moment_error(terms, trace.last)
    goal = max(tolerance, share_of_first * first)
    for _ in range(warm):
        if trace.settle(moment_error(terms, trace.last), goal) or trace.iterations >= max_iterations:
            return trace
        trace.add(terms.evaluate(terms.match(trace.last.eta, trace.last.expected, tolerance)))
    free = trace.last.eta > -np.inf
    examples = terms.n_examples + terms.penalty.pseudo_count
    seen: dict[bytes, Point] = {}
    counted = [0]
    improved = True
    memory = int(min(MOST_PAIRS, max(10, MAX_NUMBERS // max(1, len(start)))))
    while not trace.settle(moment_error(terms, trace.last), goal) and trace.iterations < max_iterations and improved:
        begin = trace.last
        data = (begin.expected + pseudo_counts(terms.graph, terms.penalty.pseudo_count)) / examples
        curvature = np.maximum(data, begin.marginals) + terms.penalty.l2 / examples
        scale = np.sqrt(np.maximum(curvature[free], 1.0 / max(examples, 1.0)))

        def place(z: Floats, begin: Point = begin, scale: Floats = scale) -> Floats:
            eta = begin.eta.copy()
            eta[free] += z / scale
            return eta

        def value(z: Floats, scale: Floats = scale) -> tuple[float, Floats]:
            eta = place(z)
            if not np.isfinite(eta[free]).all():
                return np.inf, np.zeros_like(z)
            point = terms.evaluate(eta)
            counted[0] += 1
            seen.clear()
            seen[z.tobytes()] = point
            return -point.objective / examples, -_gradient(terms, point)[free] / scale / examples

        def after(z: Floats) -> None:
            point = seen.get(z.tobytes()) or terms.evaluate(place(z))
            if point.objective >= trace.last.objective - ROUNDING * abs(trace.last.objective):
                trace.add(point, counted[0])
                counted[0] = 0
            if moment_error(terms, trace.last) <= goal or trace.iterations >= max_iterations:
                raise _Stop

        options: dict[str, float] = {"maxiter": max_iterations, "gtol": 0.0}
        if method == "lbfgs":
            options |= {"ftol": 0.0, "maxfun": 50 * max_iterations, "maxcor": memory}
        try:
            with np.errstate(all="ignore"), one_thread():
                minimize(
                    value, np.zeros(int(free.sum())), jac=True, method=METHODS[method], callback=after, options=options
                )
        except _Stop:
            pass
        improved = trace.last.objective > begin.objective or moment_error(terms, trace.last) < moment_error(
            terms, begin
        )
    return trace


def _gradient(terms: Terms, point: Point) -> Floats:
    """Of the objective in the log potentials, shape (n_parameters,)."""
    penalty = terms.penalty
    share = terms.n_examples + penalty.pseudo_count
    gradient = point.expected + pseudo_counts(terms.graph, penalty.pseudo_count) - share * point.marginals
    if penalty.l2:
        gradient -= penalty.l2 * np.where(point.eta > -np.inf, point.eta, 0.0)
    return gradient
