"""EDML and hybrid EDML/EM on one sub-network, the whole loop compiled (thesis chapters 3 to 5).

One iteration: every instance votes on every parameter set its program touches (`tasks.votes`); each set is then moved
to the optimum of its votes (`tasks.soft_evidence`), the other sets held where they were.

    inference ──► dZ_i/dθ ──► votes, sorted by parameter set ──► one concave problem a set ──► damped step
                     │
                     └──► expected counts ──► EM's update, for the hybrid to compare with
"""

from __future__ import annotations

import numpy as np

from tasks.em import (
    CONVERGED,
    FELL,
    IMPOSSIBLE_FAMILY,
    IMPOSSIBLE_INSTANCE,
    LIMIT,
    Floats,
    Solution,
    fell,
    log_terms,
    maximise,
)
from tasks.inference import Evidence
from tasks.kernel import kernel
from tasks.soft_evidence import _is_open, _room, solve_set
from tasks.subnetwork import SubNetwork
from tasks.votes import Votes, _scratch_sizes, make_votes, vote

# The step's share of the way to the optimum shrinks by these factors when the log posterior fell, and when a step
# points back along the one before it.
TIGHTEN_FALL, TIGHTEN_TURN = 0.5, 0.8
# Log posteriors this close, relatively, are equal: the hybrid can't tell which update is the better.
TIE = 1e-14
SHORT = 0.1


@kernel
def _edml(theta, complete, prior, bases, child_cardinalities, set_ptr, tolerance, max_iterations, damping, hybrid,
          narrow_ptr, wide_ptr, values, n_scratch, n_factors, n_cells, arrays, layout):  # fmt: skip
    n_parameters, n_sets = theta.shape[0], set_ptr.shape[0] - 1
    expected = np.zeros(n_parameters)
    scratch = (np.empty(n_scratch), np.empty(n_scratch), np.empty(n_factors), np.empty(n_factors), np.empty(n_cells))
    largest = 1
    for s in range(n_sets):
        largest = max(largest, set_ptr[s + 1] - set_ptr[s])
    room = _room(largest)
    weights = complete + prior
    way = np.zeros(n_parameters)  # from the current parameters to the sets' optima
    way_before = np.zeros(n_parameters)
    is_open = np.zeros(n_sets, np.bool_)
    here = theta.copy()
    rival = np.empty(n_parameters)
    history = np.empty((64, 2))
    iteration, status = 0, LIMIT
    share = 1.0 - damping
    change, em_change = np.inf, np.inf
    weight = complete.sum() + arrays[1].sum()
    edml_ahead = True

    likelihood, where = vote(theta, True, expected, values, scratch, arrays, layout)
    if where >= 0:
        return expected, history[:0], 0, IMPOSSIBLE_INSTANCE, where
    while True:
        observed, where = log_terms(complete, theta)
        if where >= 0:
            return expected, history[:iteration], iteration, IMPOSSIBLE_FAMILY, where
        prior_term, _ = log_terms(prior, theta)
        if iteration == history.shape[0]:
            longer = np.empty((2 * iteration, 2))
            longer[:iteration] = history
            history = longer
        history[iteration, 0] = likelihood + observed
        history[iteration, 1] = history[iteration, 0] + prior_term
        now = history[iteration, 1]
        if iteration > 0:
            before = history[iteration - 1, 1]
            if fell(before, now, weight):
                if hybrid:
                    status = FELL
                    break
                share *= TIGHTEN_FALL
        if change <= tolerance:
            status = CONVERGED
            break
        if iteration == max_iterations:
            break

        # ---- where each set's votes would have it
        change, turn = 0.0, 0.0
        for s in range(n_sets):
            lo, hi = set_ptr[s], set_ptr[s + 1]
            is_open[s] = _is_open(values, narrow_ptr, wide_ptr, s, lo, hi)
            target = rival[lo:hi]
            for x in range(lo, hi):
                here[x] = theta[x]
                rival[x] = theta[x]
            if is_open[s]:
                solve_set(values, narrow_ptr, wide_ptr, s, lo, hi, weights, target, room)
            else:
                total, mass = 0.0, 0.0
                for x in range(lo, hi):
                    total += weights[x]
                    mass += expected[x]
                for x in range(lo, hi):
                    if total > 0:
                        rival[x] = weights[x] / total
                    elif mass <= 0:
                        rival[x] = 1.0 / (hi - lo)
            for x in range(lo, hi):
                way[x] = rival[x] - theta[x]
                change = max(change, abs(way[x]))
                if is_open[s]:
                    turn += way[x] * way_before[x]
        if turn < 0 and edml_ahead:
            share *= TIGHTEN_TURN
        for x in range(n_parameters):
            way_before[x] = way[x]

        # ---- the step; sets that no instance has an opinion on are exact already and go all the way
        retreats = 0
        while True:
            for s in range(n_sets):
                for x in range(set_ptr[s], set_ptr[s + 1]):
                    part = share if is_open[s] or retreats > 0 else 1.0
                    # All the way is the optimum itself: a sum would lose what is small beside the old parameter.
                    theta[x] = here[x] + part * way[x] if part < 1.0 else rival[x]
                    theta[x] = max(theta[x], 0.0)
            if hybrid:
                break
            likelihood, where = vote(theta, True, expected, values, scratch, arrays, layout)
            if where < 0:
                break
            # Sets that moved all the way together can make an instance impossible, and half way they can not.
            share *= TIGHTEN_FALL
            retreats += 1
            if retreats > 60:
                return expected, history[: iteration + 1], iteration, IMPOSSIBLE_INSTANCE, where
        iteration += 1
        if not hybrid:
            continue

        # ---- hybrid: EM's update from the same inference; the likely winner is voted on, the other only evaluated
        for x in range(n_parameters):
            rival[x] = here[x]
            expected[x] += complete[x]
        em_change = maximise(expected, prior, bases, child_cardinalities, rival)
        if not edml_ahead:
            for x in range(n_parameters):
                theta[x], rival[x] = rival[x], theta[x]
        rival_likelihood, where = vote(rival, False, expected, values, scratch, arrays, layout)
        rival_posterior = rival_likelihood
        if where < 0:
            rival_posterior += log_terms(complete, rival)[0] + log_terms(prior, rival)[0]
        likelihood, where = vote(theta, True, expected, values, scratch, arrays, layout)
        posterior = likelihood
        if where < 0:
            posterior += log_terms(complete, theta)[0] + log_terms(prior, theta)[0]
        edml_posterior = posterior if edml_ahead else rival_posterior
        em_posterior = rival_posterior if edml_ahead else posterior
        even = TIE * (1.0 + abs(now))
        if edml_posterior < now - even:
            share *= TIGHTEN_FALL
        better = edml_posterior > em_posterior
        if abs(edml_posterior - em_posterior) <= even:
            # Equal up to rounding: EDML goes on while its steps are worth their name, EM's are sure to converge.
            better = edml_ahead and share >= SHORT
        if edml_ahead != better:
            edml_ahead = not edml_ahead
            for x in range(n_parameters):
                theta[x] = rival[x]
            likelihood, where = vote(theta, True, expected, values, scratch, arrays, layout)
        if where >= 0:
            return expected, history[:iteration], iteration, IMPOSSIBLE_INSTANCE, where
        if not edml_ahead:
            change = em_change
    expected += complete
    return expected, history[: iteration + 1], iteration, status, -1


def run_edml(
    sub_network: SubNetwork,
    complete: Floats,
    evidence: Evidence,
    prior: Floats,
    start: Floats,
    tolerance: float,
    max_iterations: int,
    damping: float = 0.5,
    hybrid: bool = False,
    votes: Votes | None = None,
) -> tuple[Solution, int, int]:
    """Iterate EDML, or the hybrid of EDML and EM, from one start (thesis, Algorithm 4 and section 4.5).

    Parameters
    ----------
    sub_network : SubNetwork
        The learning problem.
    complete : float64 array, shape (n_parameters,)
        Counts of fully observed families: hard votes.
    evidence : Evidence
        The sub-network's instances.
    prior : float64 array, shape (n_parameters,)
        Pseudo counts: Dirichlet exponents minus one, not negative.
    start : float64 array, shape (n_parameters,)
        Initial parameters; not mutated.
    tolerance : float
        Largest absolute change of a parameter that counts as converged, damping left out: the distance to the sets'
        optima, or of EM's update where the hybrid took that.
    max_iterations : int
        Updates after which the run stops unconverged.
    damping : float
        Share of the old parameters kept at first, 0 ≤ damping < 1. It grows as iterations go, see Notes.
    hybrid : bool
        Take each iteration the better of EDML's and EM's update by log posterior: never falls.
    votes : Votes, optional
        From `make_votes`, for the next start of the same problem; its values are overwritten.

    Returns
    -------
    solution : Solution
    status, where : int
        As of `tasks.em.run_em`. Only the hybrid can end with `FELL`: EDML by itself may lower the log posterior.

    Notes
    -----
    The way from the parameters to the sets' optima leads uphill: by concavity of each set's objective f_s the log
    posterior climbs along it by at least Σ_s f_s(optimum) - f_s(here). So steps that are short enough converge. The
    step starts at 1 - damping and is tightened (thesis, footnote 13 of chapter 5) by a factor when the log posterior
    fell, and by a smaller one when a way points against the way before it. Sets whose votes are all hard or neutral
    are not damped: with complete data, or only leaves missing, one iteration is exact (Theorem 1).

    A set on which no vote is left and no prior acts keeps its parameters, or becomes uniform where no expected count
    falls on it, as in EM.

    Cost of an iteration: about three times EM's inference, and a Newton step for every set; the hybrid adds one or
    two inferences. Memory: a number for each derivative of each instance.

    References
    ----------
    Refaat (2015), equations 3.2, 4.1 to 4.3, 5.2 and 5.5; Algorithm 4; sections 4.5 and 5.3.
    """
    votes = make_votes(sub_network, evidence) if votes is None else votes
    theta = start.copy()
    expected, history, iterations, status, where = _edml(
        theta, complete, prior, sub_network.bases, sub_network.family_cardinalities, votes.set_ptr, tolerance,
        max_iterations, float(damping), bool(hybrid), votes.narrow_ptr, votes.wide_ptr, votes.values,
        evidence.scratch_size, *_scratch_sizes(evidence, votes), evidence.arrays, votes.layout,
    )  # fmt: skip
    solution = Solution(
        theta, expected, history[:, 0].copy(), history[:, 1].copy(), int(iterations), int(status) == CONVERGED
    )
    return solution, int(status), int(where)
