"""Iterative proportional fitting: one factor's moments at a time, exactly, along a jointree (Pichotta 2012, section 4).

    θ_f(x) ← θ_f(x) · target_f(x) / Pr(x)

A sweep updates every factor once. It walks the jointree along every edge and back, so that each update is made under
the current distribution at the cost of about two evaluations, not of one an update. No sweep lowers the likelihood. It
is the Gauss-Seidel form of EDML (thesis 5.7).
"""

from __future__ import annotations

import numpy as np

from tasks.jointree import NONE, WHOLE, Floats, Jointree
from tasks.kernel import kernel
from tasks.model_term import own_marginal, receive, upward

# Moments below this are taken for it: a ratio to what a double can hardly tell from zero would be infinite.
SMALLEST = 1e-290


@kernel
def _sweep(theta, targets, ratio, tables, messages, scales, products, factor, bases, tour, arrays):
    """Update `theta` in place; log Z before, the largest moment's error met, and whether this can be trusted."""
    size, runs, table, message, parent, down, own, product, factor_ptr, place, maps = arrays
    log_z, trusted = upward(theta, tables, messages, scales, products, arrays)
    if not trusted:
        return log_z, 0.0, False
    error = 0.0
    for step in range(tour.shape[0]):
        c = abs(tour[step]) - 1
        here = tables[table[c] : table[c + 1]]
        if tour[step] > 0:
            if parent[c] >= 0:
                receive(c, tables, messages, scales, arrays)
            if own[c] == NONE:
                continue
            belief = own_marginal(c, tables, products, arrays)
            change = products[product[c] : product[c + 1]]
            for g in range(belief.shape[0]):
                change[g] = 1.0
            for j in range(factor_ptr[c], factor_ptr[c + 1]):
                f = factor[j]
                look = maps[place[j] : place[j] + belief.shape[0]]
                for x in range(bases[f], bases[f + 1]):
                    ratio[x] = 0.0
                for g in range(belief.shape[0]):
                    ratio[look[g]] += belief[g]
                for x in range(bases[f], bases[f + 1]):
                    now = ratio[x]
                    error = max(error, abs(now - targets[x]))
                    ratio[x] = targets[x] / max(now, SMALLEST)
                    theta[x] *= ratio[x]
                for g in range(belief.shape[0]):
                    belief[g] *= ratio[look[g]]
                    change[g] *= ratio[look[g]]
            if own[c] == WHOLE:
                for t in range(size[c]):
                    here[t] *= change[t]
            else:
                look = maps[own[c] : own[c] + size[c]]
                for t in range(size[c]):
                    here[t] *= change[look[t]]
        elif parent[c] >= 0:
            # Back over the edge: what changed below, to the parent.
            p = parent[c]
            before = messages[message[c] : message[c + 1]]
            n = runs[c]
            for e in range(before.shape[0]):
                total = 0.0
                for t in range(e * n, e * n + n):
                    total += here[t]
                before[e] = total / before[e] if before[e] > 0.0 else 0.0
            above = tables[table[p] : table[p + 1]]
            look = maps[down[c] : down[c] + size[p]]
            for t in range(size[p]):
                above[t] *= before[look[t]]
    return log_z, error, True


def sweep_factors(tree: Jointree, theta: Floats, targets: Floats) -> tuple[Floats, float, float, bool]:
    """One sweep of iterative proportional fitting.

    Parameters
    ----------
    tree : Jointree
        Of all factors.
    theta : float64 array, shape (n_parameters,)
        Potentials, none above one; not mutated.
    targets : float64 array, shape (n_parameters,)
        The moments to match: each factor's sum to one, and they agree on what factors share.

    Returns
    -------
    theta : float64 array, shape (n_parameters,)
        Updated potentials, not scaled.
    log_z : float
        Of the potentials given, nats.
    error : float
        Largest difference between a moment and its target, each as it was when its factor's turn came.
    trusted : bool
        False where a product left the range of a double: then nothing was done.
    """
    new = theta.copy()
    log_z, error, trusted = _sweep(
        new, targets, np.empty(len(theta)), *tree.scratch(), tree.factor, tree.bases, tree.tour, tree.arrays
    )
    return new, float(log_z), float(error), bool(trusted)


@kernel
def _fit(theta, targets, tolerance, max_sweeps, ratio, tables, messages, scales, products, factor, bases, tour,
         arrays):  # fmt: skip
    """Sweep until every moment matches; sweeps made, the last error, and whether it can be trusted."""
    error = np.inf
    for n in range(max_sweeps):
        _, error, trusted = _sweep(
            theta, targets, ratio, tables, messages, scales, products, factor, bases, tour, arrays
        )
        for f in range(bases.shape[0] - 1):
            top = 0.0
            for x in range(bases[f], bases[f + 1]):
                top = max(top, theta[x])
            if not top > 0.0:
                return n, error, False
            for x in range(bases[f], bases[f + 1]):
                theta[x] /= top
        if not trusted:
            return n, error, False
        if error <= tolerance:
            return n + 1, error, True
    return max_sweeps, error, True


def fit_moments(tree: Jointree, targets: Floats, tolerance: float, max_sweeps: int) -> tuple[Floats, int, float, bool]:
    """Potentials whose moments match the targets, by sweeps from uniform ones: maximum likelihood of complete data.

    Parameters
    ----------
    tree : Jointree
        Of all factors.
    targets : float64 array, shape (n_parameters,)
        As in `sweep_factors`.
    tolerance : float
        Error of a moment at which to stop.
    max_sweeps : int
        Sweeps after which to give up.

    Returns
    -------
    theta : float64 array, shape (n_parameters,)
        Scaled to a maximum of one in each factor.
    sweeps : int
    error : float
        The last sweep's.
    trusted : bool
        False where a product left the range of a double.
    """
    theta = np.ones(len(targets))
    sweeps, error, trusted = _fit(
        theta, targets, tolerance, max_sweeps, np.empty(len(theta)), *tree.scratch(), tree.factor, tree.bases,
        tree.tour, tree.arrays,
    )  # fmt: skip
    return theta, int(sweeps), float(error), bool(trusted)
