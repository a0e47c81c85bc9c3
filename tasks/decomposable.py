"""Closed form of complete data over a decomposable graph (Pichotta 2012, sections 2 and 3; trees are the simplest).

    θ_C(x_C) = μ_C(x_C) / μ_S(x_S)

for the maximal scopes C along a jointree, S being what C shares with its parent: exact, Z = 1, whatever the number of
rows. It needs the factors' maximal scopes themselves to form a jointree. A chordal graph whose cliques no factor spans
(a triangle of pairs) is not enough: there the maximum has no closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.jointree import Floats
from tasks.markov_graph import Graph


@dataclass(frozen=True)
class CliqueTree:
    """Maximal scopes as a jointree.

    Attributes
    ----------
    factors : tuple of int
        The factor that holds each clique; a clique comes after its parent.
    separators : tuple of tuple of int
        Variables that each clique shares with its parent; empty at a root.
    """

    factors: tuple[int, ...]
    separators: tuple[tuple[int, ...], ...]


def maximal_scopes(scopes: Sequence[Sequence[int]]) -> list[int]:
    """Numbers of the factors whose scope lies in no other's; of equal ones the first."""
    holders: dict[int, set[int]] = {}
    for f, scope in enumerate(scopes):
        for v in scope:
            holders.setdefault(v, set()).add(f)
    kept = []
    for f, scope in enumerate(scopes):
        if not scope:
            continue
        over = set.intersection(*(holders[v] for v in scope)) - {f}
        if not any(len(scopes[g]) > len(scope) or (len(scopes[g]) == len(scope) and g < f) for g in over):
            kept.append(f)
    return kept


def find_clique_tree(graph: Graph) -> CliqueTree | None:
    """A jointree of the graph's maximal scopes, or None where they have none.

    Notes
    -----
    A spanning tree that is heaviest by the number of shared variables is a jointree exactly if its weight is the sum
    of the scopes' sizes less the number of variables, and no tree of scopes is heavier than that.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    cliques = maximal_scopes(graph.scopes)
    sets = [frozenset(graph.scopes[f]) for f in cliques]
    wanted = sum(map(len, sets)) - len(frozenset().union(*sets))
    holders: dict[int, list[int]] = {}
    for c, members in enumerate(sets):
        for v in members:
            holders.setdefault(v, []).append(c)
    shared: dict[tuple[int, int], int] = {}
    for own in holders.values():
        for i, a in enumerate(own):
            for b in own[i + 1 :]:
                shared[a, b] = shared.get((a, b), 0) + 1
    n = len(cliques)
    ends = np.array(list(shared), np.int64).reshape(-1, 2)
    # Weights are negative, as the library looks for the lightest tree; and none is zero, which would be no edge.
    weights = -np.array(list(shared.values()), np.float64)
    tree = minimum_spanning_tree(coo_array((weights, (ends[:, 0], ends[:, 1])), shape=(n, n)).tocsr())
    if round(-float(tree.sum())) != wanted:
        return None
    factors: list[int] = []
    separators: list[tuple[int, ...]] = []
    seen = np.zeros(n, np.bool_)
    for root in range(n):
        if seen[root]:
            continue
        order, before = breadth_first_order(tree, root, directed=False)
        seen[order] = True
        for c in order:
            p = before[c]
            factors.append(cliques[c])
            separators.append(tuple(v for v in graph.scopes[cliques[c]] if p >= 0 and v in sets[p]))
    return CliqueTree(tuple(factors), tuple(separators))


def closed_form(graph: Graph, tree: CliqueTree, counts: Floats, n_examples: float) -> Floats:
    """Maximum likelihood log potentials of complete data.

    Parameters
    ----------
    graph : Graph
        Structure.
    tree : CliqueTree
        From `find_clique_tree`.
    counts : float64 array, shape (n_parameters,)
        Each factor's counts; all sum to the same.
    n_examples : float
        What they sum to.

    Returns
    -------
    float64 array, shape (n_parameters,)
        log(μ_C / μ_S) in the factors that hold cliques, zero elsewhere; minus infinity where the count is zero.
    """
    eta = np.zeros(graph.n_parameters)
    for f, separator in zip(tree.factors, tree.separators, strict=True):
        lo, hi = int(graph.bases[f]), int(graph.bases[f + 1])
        scope = graph.scopes[f]
        table = counts[lo:hi].reshape([graph.cardinalities[v] for v in scope])
        summed = tuple(axis for axis, v in enumerate(scope) if v not in separator)
        below = table.sum(axis=summed, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(below > 0, table / below, 1.0 / math.prod(table.shape[a] for a in summed))
            eta[lo:hi] = np.log(ratio).ravel()
    return eta
