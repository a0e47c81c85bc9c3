"""Closed form of complete data over a decomposable graph (Pichotta 2012, sections 2 and 3; trees are the simplest).

    θ_C(x_C) = μ_C(x_C) / μ_S(x_S)

for the maximal scopes C along a jointree, S being what C shares with its parent: exact, Z = 1, whatever the number of
rows. It needs the factors' maximal scopes themselves to form a jointree. A chordal graph whose cliques no factor spans
(a triangle of pairs) is not enough: there the maximum has no closed form.
"""

from __future__ import annotations

import heapq
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
    Maximum cardinality search over scopes: next comes always one with most variables that earlier ones hold. There is
    a jointree exactly if what each shares with earlier ones lies in the one that first held the latest of it. Linear
    in the sizes of the scopes, but for a logarithm.

    References
    ----------
    Tarjan & Yannakakis (1984), *Simple linear-time algorithms to test chordality of graphs, test acyclicity of
    hypergraphs, and selectively reduce acyclic hypergraphs*, section 4.
    """
    cliques = maximal_scopes(graph.scopes)
    holders: dict[int, list[int]] = {}
    for f in cliques:
        for v in graph.scopes[f]:
            holders.setdefault(v, []).append(f)
    # The scope that first held each variable, and each scope's place among those taken.
    first: dict[int, int] = {}
    place: dict[int, int] = {}
    held = dict.fromkeys(cliques, 0)
    heap = [(0, f) for f in cliques]
    separators = []
    while heap:
        _, f = heapq.heappop(heap)
        if f in place:
            continue
        scope = graph.scopes[f]
        separator = tuple(v for v in scope if v in first)
        if separator:
            parent = max((first[v] for v in separator), key=place.__getitem__)
            if not set(separator) <= set(graph.scopes[parent]):
                return None
        place[f] = len(place)
        separators.append(separator)
        for v in scope:
            if v not in first:
                first[v] = f
                for g in holders[v]:
                    held[g] += 1
                    heapq.heappush(heap, (-held[g], g))
    return CliqueTree(tuple(place), tuple(separators))


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
