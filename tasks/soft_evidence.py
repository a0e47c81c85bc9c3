"""Estimation from soft observations: the concave problem that each parameter set solves (thesis 4.2.2, Theorem 2).

    minimise  −Σ_i n_i log(C_u^i + Σ_x C_{x|u}^i θ_x) − Σ_x (#_x + ψ_x − 1) log θ_x   on the simplex

by Newton's method with an active set for parameters at zero; `fixed_point` is the thesis's own update (equations 4.3
and 5.5), which has the same optimum and never lowers the objective (Theorem 3).
"""

from __future__ import annotations

import numpy as np

from tasks.em import Floats
from tasks.kernel import kernel
from tasks.votes import Votes

# Newton's matrix is made definite by this share of its diagonal: directions that no vote speaks of stay put.
RIDGE = 1e-7
# A Newton step this small, and small beside every parameter, squares its error below 1e-10: the last one.
LAST_STEP, LAST_SHARE = 1e-7, 1e-3
MAX_STEPS = 200
# Of curvatures: the smallest normal double.
SMALLEST = float(np.finfo(np.float64).tiny)


@kernel
def _is_open(values, narrow_ptr, wide_ptr, s, lo, hi):
    """Whether any vote on a set is not neutral."""
    for v in range(narrow_ptr[lo], narrow_ptr[hi], 2):
        if values[v + 1] < 1.0:
            return True
    for v in range(wide_ptr[s], wide_ptr[s + 1], hi - lo + 1):  # noqa: SIM110 - a generator compiles for longer
        if values[v + 1] >= 0.0:
            return True
    return False


@kernel
def _slopes(values, narrow_ptr, wide_ptr, s, lo, hi, weights, theta, slope, bend):
    """Gradient and negative Hessian of a set's objective; False where it is minus infinity.

    Both are of a function that equals the objective on the simplex: a narrow vote is taken as r + (1 - r) θ_x, a wide
    one as Σ λ_x θ_x. Only differences between the gradient's entries mean anything.
    """
    k = hi - lo
    for x in range(k):
        slope[x] = 0.0
        for y in range(k):
            bend[x, y] = 0.0
    for x in range(k):
        g, h = 0.0, 0.0
        if weights[lo + x] > 0:
            if theta[x] <= 0:
                return False
            g = weights[lo + x] / theta[x]
            h = g / theta[x]
        for v in range(narrow_ptr[lo + x], narrow_ptr[lo + x + 1], 2):
            r = values[v + 1]
            if r < 1.0:
                form = r + (1.0 - r) * theta[x]
                if form <= 0:
                    return False
                a = (1.0 - r) / form
                g += values[v] * a
                h += values[v] * a * a
        slope[x] += g
        bend[x, x] += h
    for v in range(wide_ptr[s], wide_ptr[s + 1], k + 1):
        if values[v + 1] < 0:
            continue
        form = 0.0
        for x in range(k):
            form += values[v + 1 + x] * theta[x]
        if form <= 0:
            return False
        for x in range(k):
            a = values[v] * values[v + 1 + x] / form
            slope[x] += a
            for y in range(x + 1):
                bend[x, y] += a * values[v + 1 + y] / form
    for x in range(k):
        for y in range(x):
            bend[y, x] = bend[x, y]
    return True


@kernel
def fixed_point(values, narrow_ptr, wide_ptr, s, lo, hi, weights, theta, new):
    """One local iteration, equations 4.3 and 5.5: `new` from `theta`, both of shape (k,); never lowers the objective.

    θ_x ← (weight_x + Σ_i n_i λ_x^i θ_x / Σ_y λ_y^i θ_y) / (Σ_x weight_x + Σ_i n_i), neutral votes left out.
    """
    k = hi - lo
    total = 0.0
    for x in range(k):
        new[x] = weights[lo + x]
        total += weights[lo + x]
    for x in range(k):
        for v in range(narrow_ptr[lo + x], narrow_ptr[lo + x + 1], 2):
            n, r = values[v], values[v + 1]
            if r < 1.0:
                share = n / (r + (1.0 - r) * theta[x])
                for y in range(k):
                    new[y] += share * (1.0 if y == x else r) * theta[y]
                total += n
    for v in range(wide_ptr[s], wide_ptr[s + 1], k + 1):
        if values[v + 1] >= 0:
            form = 0.0
            for x in range(k):
                form += values[v + 1 + x] * theta[x]
            for x in range(k):
                new[x] += values[v] * values[v + 1 + x] * theta[x] / form
            total += values[v]
    for x in range(k):
        new[x] = new[x] / total if total > 0 else theta[x]


@kernel
def _newton_step(theta, slope, bend, free, step, factor, work):
    """Solve for the step on the free parameters that sums to zero; parameters at zero are not pushed below it."""
    k = theta.shape[0]
    floor = 0.0
    for x in range(k):
        if free[x]:
            floor = max(floor, 1e-12 * bend[x, x])
    if floor < SMALLEST:
        # Votes that weigh so little beside one example that their curvature is no number: they move nothing.
        for x in range(k):
            step[x] = 0.0
        return
    while True:
        # Cholesky of the free rows; u = K⁻¹ g in `step`, v = K⁻¹ 1 in `work`.
        for x in range(k):
            if not free[x]:
                continue
            for y in range(x + 1):
                if not free[y]:
                    continue
                total = bend[x, y]
                if x == y:
                    total += RIDGE * bend[x, x]
                for m in range(y):
                    if free[m]:
                        total -= factor[x, m] * factor[y, m]
                if x == y:
                    factor[x, x] = np.sqrt(max(total, floor))
                else:
                    factor[x, y] = total / factor[y, y]
        for x in range(k):
            step[x], work[x] = 0.0, 0.0
            if free[x]:
                u, v = slope[x], 1.0
                for m in range(x):
                    if free[m]:
                        u -= factor[x, m] * step[m]
                        v -= factor[x, m] * work[m]
                step[x], work[x] = u / factor[x, x], v / factor[x, x]
        sum_u, sum_v = 0.0, 0.0
        for x in range(k - 1, -1, -1):
            if free[x]:
                u, v = step[x], work[x]
                for m in range(x + 1, k):
                    if free[m]:
                        u -= factor[m, x] * step[m]
                        v -= factor[m, x] * work[m]
                step[x], work[x] = u / factor[x, x], v / factor[x, x]
                sum_u += step[x]
                sum_v += work[x]
        again = False
        for x in range(k):
            step[x] -= work[x] / sum_v * sum_u if free[x] else 0.0
            if free[x] and theta[x] <= 0 and step[x] < 0:
                free[x] = False
                again = True
        if not again:
            return


@kernel
def solve_set(values, narrow_ptr, wide_ptr, s, lo, hi, weights, theta, room):
    """Move one set, `theta` of shape (k,), to its optimum (equation 4.2, Theorem 5), in place; the steps it took.

    Maximises Σ_x weight_x log θ_x + Σ_i n_i log Σ_x λ_x^i θ_x on the simplex: concave, by Newton's method on the
    parameters that are not held at zero. A step is shortened until it has not climbed down as steeply as it climbed.
    """
    k = hi - lo
    slope, bend, trial, step, work, factor, matrix, free = room
    total = 0.0
    for x in range(k):
        total += weights[lo + x]
    for x in range(k):
        if weights[lo + x] > 0 and theta[x] <= 0:
            for y in range(k):
                theta[y] = 0.5 * theta[y] + 0.5 * weights[lo + y] / total
            break
    if not _slopes(values, narrow_ptr, wide_ptr, s, lo, hi, weights, theta, slope, bend):
        # Not at a point where every vote is possible: cannot happen after an inference with these parameters.
        return -1
    for n in range(MAX_STEPS):
        level, steepest = 0.0, 0.0
        for x in range(k):
            level += theta[x] * slope[x]
            steepest = max(steepest, slope[x])
        worst = 0.0
        for x in range(k):
            free[x] = theta[x] > 0 or slope[x] > level + 1e-10 * steepest
            if free[x]:
                worst = max(worst, abs(slope[x] - level))
        if worst <= 1e-14 * steepest:
            return n
        _newton_step(theta[:k], slope, bend, free, step, factor, work)
        climb, longest, share, length = 0.0, 0.0, 0.0, 1.0
        blocking = -1
        for x in range(k):
            if not free[x]:
                continue
            climb += slope[x] * step[x]
            longest = max(longest, abs(step[x]))
            share = max(share, abs(step[x]) / theta[x] if theta[x] > 0 else np.inf)
            if theta[x] + step[x] <= 0 and step[x] < 0:
                # A barrier of counts is approached, not touched.
                reach = -theta[x] / step[x] * (0.95 if weights[lo + x] > 0 else 1.0)
                if reach < length:
                    length = reach
                    blocking = x if weights[lo + x] <= 0 else -1
        if climb <= 0 or longest == 0:
            return n
        last_one = length == 1.0 and longest <= LAST_STEP and share <= LAST_SHARE
        for _ in range(60):
            total = 0.0
            for x in range(k):
                trial[x] = max(0.0, theta[x] + length * step[x]) if free[x] else theta[x]
                if x == blocking:
                    trial[x] = 0.0
                total += trial[x]
            for x in range(k):
                trial[x] /= total
            if last_one:
                break
            if _slopes(values, narrow_ptr, wide_ptr, s, lo, hi, weights, trial, work, matrix):
                ahead = 0.0
                for x in range(k):
                    if free[x]:
                        ahead += work[x] * step[x]
                if ahead >= -0.5 * climb:
                    break
                length *= climb / (climb - ahead)
            else:
                length *= 0.5
            blocking = -1
        for x in range(k):
            theta[x] = trial[x]
        if last_one:
            return n + 1
        for x in range(k):
            slope[x] = work[x]
            for y in range(k):
                bend[x, y] = matrix[x, y]
    return MAX_STEPS


@kernel
def _room(k):
    return (np.empty(k), np.empty((k, k)), np.empty(k), np.empty(k), np.empty(k), np.empty((k, k)), np.empty((k, k)),
            np.empty(k, np.bool_))  # fmt: skip


# --- the loop ------------------------------------------------------------------------------------------------------


def solve_votes(votes: Votes, s: int, weights: Floats, start: Floats) -> tuple[Floats, int]:
    """Solve one parameter set under the votes as they stand.

    Parameters
    ----------
    votes : Votes
        With the values that `cast_votes` left.
    s : int
        The set.
    weights : float64 array, shape (n_parameters,)
        Hard votes and pseudo counts.
    start : float64 array, shape (k,)
        Where to begin; not mutated.

    Returns
    -------
    theta : float64 array, shape (k,)
    steps : int
        Newton steps taken.
    """
    lo, hi = int(votes.set_ptr[s]), int(votes.set_ptr[s + 1])
    theta = start.copy()
    steps = solve_set(votes.values, votes.narrow_ptr, votes.wide_ptr, s, lo, hi, weights, theta, _room(hi - lo))
    return theta, int(steps)
