"""Gradient ascent on softmax parameters: scipy's L-BFGS and conjugate gradients on one sub-network.

A family's distribution is theta_xu = exp(eta_xu) / sum over x' of exp(eta_x'u). The log posterior's gradient is

    d / d eta_xu = E#(x,u) + psi - 1 - m_u theta_xu ,    m_u = sum over x of E#(x,u) + psi - 1:

expected counts less row totals times theta, so that one inference yields value and gradient. (psi - 1 is the exponent
on theta: the prior is the Dirichlet over theta, as for EM, not over eta.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.accelerate import row_bounds
from tasks.blas import one_thread
from tasks.em import (
    CONVERGED,
    IMPOSSIBLE_FAMILY,
    IMPOSSIBLE_INSTANCE,
    LIMIT,
    Floats,
    Solution,
    expected_counts,
    log_terms,
    maximise,
)
from tasks.inference import Evidence, block_size
from tasks.subnetwork import SubNetwork

METHODS = {"lbfgs": "L-BFGS-B", "cg": "CG"}
# A softmax is positive: trial steps end at the smallest normal double, not at zero.
SMALLEST = float(np.finfo(np.float64).tiny)


# EM's update never lowers the log posterior by more than the last bits of its sum.
ROUNDED = 1e-14


class _Stop(Exception):
    """Ends scipy's loop: converged, or out of iterations."""


class _Point:
    """Parameters with their log likelihood, log posterior, expected counts and gradient."""

    def __init__(self, problem: _Objective, theta: Floats) -> None:
        p = problem
        self.theta = theta
        self.where, self.status = -1, LIMIT
        self.log_likelihood = self.log_posterior = -np.inf
        counts, log_likelihood, where = expected_counts(p.evidence, theta, p.block)
        if where >= 0:
            self.where, self.status = where, IMPOSSIBLE_INSTANCE
            return
        observed, where = log_terms(p.complete, theta)
        if where >= 0:
            self.where, self.status = int(where), IMPOSSIBLE_FAMILY
            return
        self.expected = counts + p.complete
        self.log_likelihood = log_likelihood + float(observed)
        self.log_posterior = self.log_likelihood + float(log_terms(p.prior, theta)[0])
        weights = self.expected + p.prior
        mass = p.spread(np.add.reduceat(weights, p.first))
        self.gradient = weights - mass * theta
        self.mass = mass
        # What EM's update would change: the gradient by the examples its distribution rests on.
        has_mass = mass > 0
        self.change = float(np.abs(self.gradient[has_mass] / mass[has_mass]).max(initial=0.0))


class _Objective:
    """The problem, and how often it was evaluated."""

    def __init__(self, sub_network: SubNetwork, complete: Floats, evidence: Evidence, prior: Floats) -> None:
        self.sub_network, self.complete, self.evidence, self.prior = sub_network, complete, evidence, prior
        self.block = block_size(len(evidence.counts), sub_network.n_parameters)
        bounds = row_bounds(sub_network)
        self.first, self.lengths = bounds[:-1], np.diff(bounds)

    def spread(self, by_row: Floats) -> Floats:
        """A value a distribution as a value a parameter."""
        return np.repeat(by_row, self.lengths)

    def softmax(self, eta: Floats, is_free: np.ndarray[Any, np.dtype[np.bool_]]) -> Floats:
        """The distributions of log parameters; zero where not free."""
        shifted = eta - self.spread(np.maximum.reduceat(np.where(is_free, eta, -np.inf), self.first))
        theta = np.where(is_free, np.maximum(np.exp(np.minimum(shifted, 0.0)), SMALLEST), 0.0)
        return theta / self.spread(np.add.reduceat(theta, self.first))

    def em_update(self, point: _Point) -> Floats:
        """Equation 2.1 from a point."""
        theta = point.theta.copy()
        maximise(point.expected, self.prior, self.sub_network.bases, self.sub_network.family_cardinalities, theta)
        return theta


def run_gradient(
    sub_network: SubNetwork,
    complete: Floats,
    evidence: Evidence,
    prior: Floats,
    start: Floats,
    tolerance: float,
    max_iterations: int,
    method: str = "lbfgs",
) -> tuple[Solution, int, int]:
    """Climb the log posterior from one start by its gradient.

    Parameters
    ----------
    sub_network, complete, evidence, prior, start
        As in `tasks.em.run_em`.
    tolerance : float
        Converged where max |g_xu| / m_u is at most this: the gradient by example of the distribution. It is the change
        that EM's update would make, and so the same test as EM's.
    max_iterations : int
        Iterations after which the run stops unconverged. One takes at least one inference, and more where the line
        search needs them.
    method : {"lbfgs", "cg"}
        scipy's L-BFGS-B or CG.

    Returns
    -------
    solution : Solution
        One entry of the history an iteration; never a point worse than the start, but for rounding.
    status, where : int
        As in `tasks.em.run_em`.

    Notes
    -----
    The first iteration is EM's update: it makes distributions without expected mass uniform, and settles zeros, which a
    softmax cannot express. A parameter that is zero after it stays zero, as in EM; all others stay positive, an optimum
    at zero is approached. Log parameters are scaled by the root of their distribution's mass, so that the curvature is
    about one in each. A long step can park a parameter beside zero, where its gradient vanishes although it ought to
    rise: without a prior, ends below EM's from the same start are common. Where a line search fails, as it must once
    gains drown in rounding, the memory of earlier steps is dropped and EM's update made; where neither gains anything
    the run ends, unconverged.
    """
    from scipy.optimize import minimize

    objective = _Objective(sub_network, complete, evidence, prior)
    point = _Point(objective, start.copy())
    if point.where >= 0:
        nothing = np.zeros(0)
        return Solution(point.theta, np.zeros(len(start)), nothing, nothing, 0, False), point.status, point.where
    held = [point]
    history = [(point.log_likelihood, point.log_posterior)]

    def accept(new: _Point, slack: float = 0.0) -> bool:
        """Take a point as the end of an iteration, unless it is worse."""
        if not new.log_posterior >= held[0].log_posterior - slack * (1.0 + abs(held[0].log_posterior)):
            return False
        held[0] = new
        history.append((new.log_likelihood, new.log_posterior))
        return True

    # At the start itself nothing has converged: EM too makes an update before it says so.
    converged = False
    improved = True
    while improved and not converged and len(history) <= max_iterations:
        before = held[0]
        accept(_Point(objective, objective.em_update(held[0])), ROUNDED)
        converged = held[0].change <= tolerance
        if not converged and len(history) <= max_iterations:
            _climb(objective, held, accept, history, tolerance, max_iterations, METHODS[method], minimize)
            converged = held[0].change <= tolerance
        improved = held[0].log_posterior > before.log_posterior or held[0].change < before.change
    best = held[0]
    curve = np.array(history)
    solution = Solution(best.theta, best.expected, curve[:, 0].copy(), curve[:, 1].copy(), len(history) - 1, converged)
    return solution, CONVERGED if converged else LIMIT, -1


def _climb(
    objective: _Objective,
    held: list[_Point],
    accept: Any,
    history: list[tuple[float, float]],
    tolerance: float,
    max_iterations: int,
    method: str,
    minimize: Any,
) -> None:
    """One run of scipy's minimiser from the point that is held, ended by our own tests."""
    begin = held[0]
    is_free = begin.theta > 0
    eta = np.log(np.where(is_free, begin.theta, 1.0))
    # Half an example: distributions that rest on less are not steered by it.
    scale = np.sqrt(np.maximum(begin.mass, 0.5))
    examples = max(1.0, float(begin.mass.sum()))
    seen: dict[bytes, _Point] = {}

    def value(z: Floats) -> tuple[float, Floats]:
        at = _Point(objective, objective.softmax(eta + z / scale, is_free))
        if at.where >= 0 or not np.isfinite(at.log_posterior):
            return np.inf, np.zeros_like(z)
        seen.clear()
        seen[z.tobytes()] = at
        return -at.log_posterior / examples, -at.gradient / scale / examples

    def after(z: Floats) -> None:
        at = seen.get(z.tobytes()) or _Point(objective, objective.softmax(eta + z / scale, is_free))
        if at.where < 0:
            accept(at)
        if held[0].change <= tolerance or len(history) > max_iterations:
            raise _Stop

    options: dict[str, float] = {"maxiter": max_iterations, "gtol": 0.0}
    if method == "L-BFGS-B":
        options |= {"ftol": 0.0, "maxfun": 50 * max_iterations, "maxcor": 10}
    try:
        with np.errstate(all="ignore"), one_thread():
            minimize(value, np.zeros(len(eta)), jac=True, method=method, callback=after, options=options)
    except _Stop:
        pass
