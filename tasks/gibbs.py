"""Approximate samples of a Markov random field too wide for a jointree: one Gibbs chain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.jointree import Floats
from tasks.kernel import kernel
from tasks.markov_graph import Graph


@kernel
def _chain(codes, eta, uniforms, cardinalities, ptr, factors, factor_ptr, members, strides, bases, sweeps):
    """Run `sweeps` sweeps over all variables, in place."""
    weights = np.empty(cardinalities.max())
    at = 0
    for _ in range(sweeps):
        for v in range(codes.shape[0]):
            top = -np.inf
            for x in range(cardinalities[v]):
                codes[v] = x
                total = 0.0
                for k in range(ptr[v], ptr[v + 1]):
                    f = factors[k]
                    offset = bases[f]
                    for m in range(factor_ptr[f], factor_ptr[f + 1]):
                        offset += strides[m] * codes[members[m]]
                    total += eta[offset]
                weights[x] = total
                top = max(top, total)
            whole = 0.0
            for x in range(cardinalities[v]):
                weights[x] = np.exp(weights[x] - top)
                whole += weights[x]
            u = uniforms[at] * whole
            at += 1
            x = 0
            while x < cardinalities[v] - 1 and u >= weights[x]:
                u -= weights[x]
                x += 1
            codes[v] = x


def gibbs_rows(
    graph: Graph, eta: Floats, n_rows: int, seed: int, burn_in: int = 500, thinning: int = 10
) -> NDArray[np.int8]:
    """Rows of one Gibbs chain.

    Parameters
    ----------
    graph : Graph
        Structure.
    eta : float64 array, shape (n_parameters,)
        Log potentials, all finite.
    n_rows : int
        How many rows.
    seed : int
        Of the chain, its start included.
    burn_in : int
        Sweeps over all variables before the first row.
    thinning : int
        Sweeps from row to row; neighbouring rows are dependent all the same.

    Returns
    -------
    int8 array, shape (n_variables, n_rows)
    """
    rng = np.random.default_rng(seed)
    n = len(graph.names)
    cardinalities = np.array(graph.cardinalities, np.int64)
    codes = (rng.random(n) * cardinalities).astype(np.int64)
    ptr = np.cumsum([0, *(len(f) for f in graph.incidence)]).astype(np.int64)
    factors = np.array([f for own in graph.incidence for f in own], np.int64)
    factor_ptr = np.cumsum([0, *(len(s) for s in graph.scopes)]).astype(np.int64)
    members = np.array([v for s in graph.scopes for v in s], np.int64)
    strides = np.empty(len(members), np.int64)
    for f in range(len(graph.scopes)):
        step = 1
        for m in range(int(factor_ptr[f + 1]) - 1, int(factor_ptr[f]) - 1, -1):
            strides[m] = step
            step *= int(cardinalities[members[m]])
    out = np.empty((n, n_rows), np.int8)
    for row in range(n_rows):
        for sweeps in [1] * (burn_in if row == 0 else thinning):
            _chain(
                codes,
                eta,
                rng.random(n),
                cardinalities,
                ptr,
                factors,
                factor_ptr,
                members,
                strides,
                graph.bases,
                sweeps,
            )
        out[:, row] = codes
    return out
