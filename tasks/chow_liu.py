"""Chow–Liu trees: from the counts of all pairs of variables to the tree of largest likelihood.

References
----------
Chow & Liu (1968), *Approximating discrete probability distributions with dependence trees*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from tasks.kernel import kernel
from tasks.pairs import PairCounts, state_bases

# Where n·N and n_a·n_b differ by less than this share, the cell is independent: so small a difference is rounding where
# weights have fractions, and worth 1e-24 nats elsewhere.
EQUAL = 1e-12
# Binary digits in which mutual information is compared: the same tables with their states in another order must tie,
# though their sums are rounded otherwise.
DIGITS = 40


@dataclass(frozen=True)
class Tree:
    """A directed tree, or a forest, over all variables.

    Attributes
    ----------
    parents : int64 array, shape (n_variables,)
        Each variable's parent; -1 where it is the root of its tree.
    information : float64 array, shape (n_variables, n_variables)
        Mutual information of every pair, nats; symmetric, zero on the diagonal.
    available : int64 or float64 array, shape (n_variables, n_variables)
        Examples that observe both; on the diagonal those that observe the variable.
    families : tuple of (int64 or float64 array)
        By variable its counts: shape (n_states,) of a root, else (parent's states, n_states).
    n_rows : int
        Rows that were read.
    total_weight : int or float
        Examples they stand for.
    """

    parents: NDArray[np.int64]
    information: NDArray[np.float64]
    available: NDArray[Any]
    families: tuple[NDArray[Any], ...]
    n_rows: int
    total_weight: int | float


def fit_tree(pairs: PairCounts, cardinalities: Sequence[int], names: Sequence[str], root: int | None = None) -> Tree:
    """The spanning tree of largest mutual information, with the counts that its parameters need.

    Parameters
    ----------
    pairs : PairCounts
        Of all variables.
    cardinalities : sequence of int
        How many states each has.
    names : sequence of str
        Their names, all different: they break ties.
    root : int, optional
        The variable from which its tree is directed. Every other tree's root, and this one's by default, is the
        variable with most neighbours in it, the first by name of several.

    Returns
    -------
    Tree
        A forest where no pair ties two parts together: no edge has mutual information zero. On complete data its
        likelihood is the largest that any tree has.
    """
    information, available = mutual_information(pairs.counts, cardinalities)
    edges = spanning_tree(information, names)
    parents = direct(edges, names, root)
    bases = state_bases(cardinalities)
    families = []
    for v, p in enumerate(parents):
        own = slice(bases[v], bases[v + 1])
        if p < 0:
            families.append(np.diagonal(pairs.counts)[own].copy())
        else:
            families.append(pairs.counts[bases[p] : bases[p + 1], own].copy())
    return Tree(parents, information, available, tuple(families), pairs.n_rows, pairs.total_weight)


def mutual_information(counts: NDArray[Any], cardinalities: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Mutual information of every pair, nats, over the rows that observe both; and how many examples those are.

    Returns
    -------
    information : float64 array, shape (n_variables, n_variables)
        Symmetric and never negative. Zero on the diagonal, where counts are those of independent variables, and where
        no row observes both.
    available : array of the counts' type, shape (n_variables, n_variables)
    """
    n = len(cardinalities)
    information = np.zeros((n, n))
    available = np.zeros((n, n), counts.dtype)
    _information(counts, state_bases(cardinalities), information, available)
    return information, available


@kernel
def _information(counts, bases, information, available):
    n = bases.shape[0] - 1
    widest = 0
    for i in range(n):
        widest = max(widest, bases[i + 1] - bases[i])
    rows = np.empty(widest, counts.dtype)
    columns = np.empty(widest, counts.dtype)
    for i in range(n):
        for j in range(i + 1):
            block = counts[bases[i] : bases[i + 1], bases[j] : bases[j + 1]]
            rows[:] = 0
            columns[:] = 0
            for a in range(block.shape[0]):
                for b in range(block.shape[1]):
                    rows[a] += block[a, b]
                    columns[b] += block[a, b]
            total = rows[: block.shape[0]].sum()
            available[i, j] = available[j, i] = total
            if i == j or total <= 0:
                continue
            # A power of two, so that nothing is rounded; products of weights of any size stay within a double's range.
            scale = math.ldexp(1.0, -math.frexp(float(total))[1])
            whole = float(total) * scale
            # N·I = Σ e φ(n / e), e the count expected of independent variables, φ(x) = x log x - x + 1: no term is
            # negative, and one is zero, not nearly so, where n·N = n_a·n_b.
            divergence = 0.0
            for a in range(block.shape[0]):
                for b in range(block.shape[1]):
                    product = (float(rows[a]) * scale) * (float(columns[b]) * scale)
                    if product <= 0:
                        continue
                    excess = ((float(block[a, b]) * scale) * whole - product) / product
                    if abs(excess) <= EQUAL:
                        continue
                    if abs(excess) < 1e-4:
                        # The logarithm's series: its first terms cancel.
                        phi = excess * excess * (1 / 2 - excess * (1 / 6 - excess / 12))
                    elif excess <= -1:
                        phi = 1.0
                    else:
                        phi = (1 + excess) * np.log1p(excess) - excess
                    divergence += product * phi
            information[i, j] = information[j, i] = divergence / (whole * whole)


def spanning_tree(information: NDArray[np.float64], names: Sequence[str]) -> list[tuple[int, int]]:
    """Edges of the maximum-weight spanning forest; of equal ones the first by name, pairs without weight left out.

    Returns
    -------
    list of (int, int)
        Each edge's variables as the first and the second by name; strongest first.
    """
    n = len(names)
    alphabetical = np.array(sorted(range(n), key=lambda v: names[v]), np.int64)
    first, second = np.triu_indices(n, 1)
    weight = information[np.ix_(alphabetical, alphabetical)][first, second]
    some = weight > 0
    first, second, weight = first[some], second[some], weight[some]
    mantissa, exponent = np.frexp(weight)
    rounded = np.ldexp(np.round(mantissa * 2.0**DIGITS), exponent)
    # Pairs stand in the order of their names, and sorting keeps it among equals. Ranks all differ: one tree is best.
    rank = np.empty(len(weight), np.int64)
    rank[np.argsort(-rounded, kind="stable")] = np.arange(1, len(weight) + 1)
    tree = minimum_spanning_tree(coo_array((rank.astype(np.float64), (first, second)), (n, n)).tocsr()).tocoo()
    chosen = sorted(zip(tree.data.tolist(), tree.row.tolist(), tree.col.tolist(), strict=True))
    return [(int(alphabetical[min(a, b)]), int(alphabetical[max(a, b)])) for _, a, b in chosen]


def direct(edges: Sequence[tuple[int, int]], names: Sequence[str], root: int | None = None) -> NDArray[np.int64]:
    """Each variable's parent when a forest's edges lead away from its roots; -1 for these. See `fit_tree`."""
    n = len(names)
    ends = np.array(edges, np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends), np.int64), (ends[:, 0], ends[:, 1])), (n, n)).tocsr()
    n_trees, tree_of = connected_components(graph, directed=False)
    degree = np.bincount(ends.ravel(), minlength=n)
    roots = [-1] * n_trees
    for v in sorted(range(n), key=lambda v: (v != root, -int(degree[v]), names[v])):
        if roots[tree_of[v]] < 0:
            roots[tree_of[v]] = v
    parents = np.full(n, -1, np.int64)
    for r in roots:
        order, before = breadth_first_order(graph, r, directed=False)
        parents[order[1:]] = before[order[1:]]
    return parents


def tree_parameters(tree: Tree, prior: float = 1.0) -> list[NDArray[np.float64]]:
    """Each variable's table in closed form, shape as its family's counts; uniform where nothing is known (eq. 2.1)."""
    tables = []
    for counts in tree.families:
        mass = counts + (prior - 1.0)
        total = mass.sum(axis=-1, keepdims=True)
        tables.append(np.where(total > 0, mass / np.where(total > 0, total, 1), 1.0 / counts.shape[-1]))
    return tables


def tree_log_likelihood(tree: Tree, tables: Sequence[NDArray[np.float64]]) -> float:
    """Log likelihood of complete data, nats, summed over examples."""
    terms = [
        counts[counts > 0] * np.log(table[counts > 0]) for counts, table in zip(tree.families, tables, strict=True)
    ]
    return math.fsum(np.concatenate(terms).tolist())
