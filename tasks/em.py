"""Expectation maximisation on one sub-network, the whole loop compiled (thesis 2.3.1, equation 2.1).

One iteration: expected counts of all instances under the current parameters, plus the plain counts of fully observed
families, plus the prior's pseudo counts; normalise. `maximise` is the closed form that also solves complete data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks.errors import ImpossibleDataError, LikelihoodFellError
from tasks.inference import Evidence, block_size, sweep, tree_add
from tasks.kernel import kernel
from tasks.subnetwork import SubNetwork

Floats = NDArray[np.float64]

# EM never lowers its objective; what a sum over blocks can lose to rounding is far below this share of it.
ROUNDING = 1e-10
# And what each example's logarithm can lose: it shows where some count for so much that the others are nothing beside.
EPSILON = 1e-14

CONVERGED, LIMIT, FELL, IMPOSSIBLE_INSTANCE, IMPOSSIBLE_FAMILY = range(5)


@dataclass(frozen=True)
class Solution:
    """The parameters learned for one sub-network.

    Attributes
    ----------
    theta : float64 array, shape (n_parameters,)
        Learned parameters.
    expected : float64 array, shape (n_parameters,)
        Expected counts under them, the prior not included: what evidence each parameter rests on.
    log_likelihood : float64 array, shape (iterations + 1,)
        Nats, at the start and after each iteration.
    log_posterior : float64 array, shape (iterations + 1,)
        The same with the prior's term; equal to it where the prior is one.
    iterations : int
        Updates made; 0 where counting was the whole solution.
    converged : bool
        The last update moved no parameter by more than the tolerance.
    restart : int
        Which of the starts this is the result of.
    restarts : tuple of float
        The final log posterior of every start.
    """

    theta: Floats
    expected: Floats
    log_likelihood: Floats
    log_posterior: Floats
    iterations: int
    converged: bool
    restart: int = 0
    restarts: tuple[float, ...] = ()


@kernel
def maximise(expected, prior, bases, child_cardinalities, theta):
    """Equation 2.1, in place: normalise counts plus pseudo counts; the largest change of a parameter.

    A parent configuration without mass has no estimate and is left uniform.
    """
    change = 0.0
    for f in range(child_cardinalities.shape[0]):
        k = child_cardinalities[f]
        for at in range(bases[f], bases[f + 1], k):
            mass = 0.0
            for x in range(at, at + k):
                mass += expected[x] + prior[x]
            for x in range(at, at + k):
                new = (expected[x] + prior[x]) / mass if mass > 0 else 1.0 / k
                change = max(change, abs(new - theta[x]))
                theta[x] = new
    return change


@kernel
def log_terms(weights, theta):
    """Sum of weight times log parameter, nats, and the first parameter that is zero under a positive weight, or -1."""
    total = 0.0
    for x in range(theta.shape[0]):
        if weights[x] > 0:
            if theta[x] <= 0:
                return -np.inf, x
            total += weights[x] * np.log(theta[x])
    return total, -1


@kernel
def fell(before, now, weight):
    """Whether an objective fell by more than rounding, on data of this many examples."""
    return not now >= before - ROUNDING * (1.0 + abs(before)) - EPSILON * weight


@kernel
def _em(theta, complete, prior, bases, child_cardinalities, tolerance, max_iterations, block, n_blocks, n_scratch,
        arrays):  # fmt: skip
    expected = np.empty((n_blocks, theta.shape[0]))
    scratch, belief = np.empty(n_scratch), np.empty(n_scratch)
    history = np.empty((64, 2))
    iteration, status = 0, LIMIT
    change = np.inf
    weight = complete.sum() + arrays[1].sum()
    while True:
        likelihoods, where = sweep(theta, expected, block, scratch, belief, arrays)
        if where >= 0:
            return expected[0], history[:iteration], iteration, IMPOSSIBLE_INSTANCE, where
        tree_add(expected, likelihoods)
        observed, where = log_terms(complete, theta)
        if where >= 0:
            return expected[0], history[:iteration], iteration, IMPOSSIBLE_FAMILY, where
        prior_term, where = log_terms(prior, theta)
        expected[0] += complete
        if iteration == history.shape[0]:
            longer = np.empty((2 * iteration, 2))
            longer[:iteration] = history
            history = longer
        history[iteration, 0] = likelihoods[0] + observed
        history[iteration, 1] = history[iteration, 0] + prior_term
        if iteration > 0:
            before, now = history[iteration - 1, 1], history[iteration, 1]
            if fell(before, now, weight):
                return expected[0], history[: iteration + 1], iteration, FELL, -1
        if change <= tolerance:
            status = CONVERGED
            break
        if iteration == max_iterations:
            break
        change = maximise(expected[0], prior, bases, child_cardinalities, theta)
        iteration += 1
    return expected[0], history[: iteration + 1], iteration, status, -1


def expected_counts(evidence: Evidence, theta: Floats, block: int) -> tuple[Floats, float, int]:
    """Expected family counts of instances under given parameters.

    Parameters
    ----------
    evidence : Evidence
        The instances: a sub-network's, or an aligned run of 2^k of its blocks.
    theta : float64 array, shape (n_parameters,)
        Parameters; not mutated.
    block : int
        Instances summed in sequence, see `block_size`.

    Returns
    -------
    expected : float64 array, shape (n_parameters,)
    log_likelihood : float, nats
    impossible : int
        The first instance of probability zero, or -1; with one, the other two results mean nothing.

    Notes
    -----
    Runs the compiled loop for no iteration, so that its machine code, and with it the last bit, is that of EM.
    """
    nothing = np.zeros(len(theta))
    n_blocks = max(1, -(-len(evidence.counts) // block))
    expected, history, _, status, where = _em(
        theta, nothing, nothing, np.zeros(1, np.int64), np.zeros(0, np.int64), 0.0, 0, block, n_blocks,
        evidence.scratch_size, evidence.arrays,
    )  # fmt: skip
    if status == IMPOSSIBLE_INSTANCE:
        return expected, -np.inf, int(where)
    return expected.copy(), float(history[0, 0]), -1


def closed_form(sub_network: SubNetwork, complete: Floats, prior: Floats) -> Solution:
    """Solve a sub-network whose variables are all always observed: count and normalise (thesis 2.3.1)."""
    theta = np.zeros(sub_network.n_parameters)
    maximise(complete, prior, sub_network.bases, sub_network.family_cardinalities, theta)
    likelihood = log_terms(complete, theta)[0]
    posterior = likelihood + log_terms(prior, theta)[0]
    return Solution(theta, complete, np.array([likelihood]), np.array([posterior]), 0, True)


def run_em(
    sub_network: SubNetwork,
    complete: Floats,
    evidence: Evidence,
    prior: Floats,
    start: Floats,
    tolerance: float,
    max_iterations: int,
) -> tuple[Solution, int, int]:
    """Iterate from one start until no parameter moves by more than the tolerance.

    Parameters
    ----------
    sub_network : SubNetwork
        The learning problem.
    complete : float64 array, shape (n_parameters,)
        Counts of fully observed families.
    evidence : Evidence
        The sub-network's instances.
    prior : float64 array, shape (n_parameters,)
        Pseudo counts: Dirichlet exponents minus one, not negative.
    start : float64 array, shape (n_parameters,)
        Initial parameters; not mutated.
    tolerance : float
        Largest absolute change of a parameter that counts as converged.
    max_iterations : int
        Updates after which the run stops unconverged.

    Returns
    -------
    solution : Solution
    status, where : int
        How it ended, and the instance or parameter at fault if the data are impossible.
    """
    theta = start.copy()
    block = block_size(len(evidence.counts), len(theta))
    n_blocks = max(1, -(-len(evidence.counts) // block))
    expected, history, iterations, status, where = _em(
        theta, complete, prior, sub_network.bases, sub_network.family_cardinalities, tolerance, max_iterations,
        block, n_blocks, evidence.scratch_size, evidence.arrays,
    )  # fmt: skip
    solution = Solution(
        theta, expected.copy(), history[:, 0].copy(), history[:, 1].copy(), int(iterations), int(status) == CONVERGED
    )
    return solution, int(status), int(where)


def explain(
    sub_network: SubNetwork,
    describe: Callable[[int], tuple[tuple[str, ...], dict[str, int]]],
    status: int,
    where: int,
    solution: Solution | None = None,
) -> ImpossibleDataError | LikelihoodFellError:
    """The error for a run that could not go on; states are given by number, the driver words them by name.

    `describe` tells an instance's hidden variables and boundary values.
    """
    name = ", ".join(sub_network.component[:4]) + (", …" if len(sub_network.component) > 4 else "")
    if status == FELL and solution is not None:
        before, now = (float(x) for x in solution.log_posterior[-2:])
        return LikelihoodFellError(
            f"sub-network of {name}: the log posterior fell from {before!r} to {now!r} in iteration "
            f"{solution.iterations}; this is a bug, please report it"
        )
    if status == IMPOSSIBLE_INSTANCE:
        hidden, values = describe(where)
        codes = tuple(values.items())
    else:
        hidden, codes = (), sub_network.entry_codes(where)
    return ImpossibleDataError(f"sub-network of {name}: rows of probability zero", hidden, codes)


def best_of(
    starts: int, run: Callable[[int], tuple[Solution, int, int]], fail: Callable[[int, int, Solution], Exception]
) -> Solution:
    """The best of several starts by log posterior; the first among equals.

    Parameters
    ----------
    starts : int
        How many.
    run : callable
        Runs start number r.
    fail : callable
        Makes the error for a status and place that allow no solution.
    """
    best: Solution | None = None
    posteriors = []
    for r in range(starts):
        solution, status, where = run(r)
        if status not in (CONVERGED, LIMIT):
            raise fail(status, where, solution)
        posteriors.append(float(solution.log_posterior[-1]))
        if best is None or posteriors[-1] > float(best.log_posterior[-1]):
            best = replace(solution, restart=r)
    assert best is not None
    return replace(best, restarts=tuple(posteriors))
