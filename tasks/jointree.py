"""A jointree of a Markov random field's whole graph, laid out for the model term's kernels.

    elimination order ──► clusters ──► absorb the non-maximal ──► flat tables

Where `tasks.elimination` prepares many small inferences, this prepares one large one. A cluster's table has its
separator towards the parent as the slow axes and the variables that it sums out as the fast ones, so that a message is
a sum over runs. The factors that a cluster holds are multiplied on a table over their own variables first, which is
often far smaller than the cluster's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.elimination_order import EliminationOrder
from tasks.subnetwork import Ints

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

# A cluster has no factors of its own; its factors span its whole table.
NONE, WHOLE = -2, -1


@dataclass(frozen=True)
class Jointree:
    """A jointree of the whole graph, laid out for the kernels.

    Attributes
    ----------
    members : tuple of tuple of int
        Each cluster's variables, the separator towards its parent first, in the order of its table's axes.
    n_separator : tuple of int
        How many of them are the separator.
    size, runs : int64 arrays, shape (n_clusters,)
        Entries of a cluster's table, and how many of them fall on one entry of its separator. Children come before
        parents.
    table, message : int64 arrays, shape (n_clusters + 1,)
        Where a cluster's table lies among the tables, and its message among the messages.
    parent : int32 array, shape (n_clusters,)
        -1 at a root.
    down : int64 array, shape (n_clusters,)
        Where in `maps` the separator's entry of each entry of the parent's table is found.
    own : int64 array, shape (n_clusters,)
        Where in `maps` the product's entry of each entry of the table is found; or NONE, or WHOLE.
    product : int64 array, shape (n_clusters + 1,)
        Where the cluster's product of factors lies among the products.
    factor_ptr, factor : int32 arrays, shapes (n_clusters + 1,) and (n_factors,)
        Each cluster's factors.
    place : int64 array, shape (n_factors,)
        Where in `maps` the parameter of each entry of the product is found.
    maps : int32 array
        The look-up tables named above.
    tour : int32 array, shape (2 * n_clusters,)
        A walk along every edge, there and back: c + 1 on entering cluster c, -(c + 1) on leaving it.
    bases : int64 array, shape (n_factors + 1,)
        Each factor's entries in the flat vector of parameters, its scope's last variable running fastest.
    """

    members: tuple[tuple[int, ...], ...]
    n_separator: tuple[int, ...]
    size: Longs
    runs: Longs
    table: Longs
    message: Longs
    parent: Ints
    down: Longs
    own: Longs
    product: Longs
    factor_ptr: Ints
    factor: Ints
    place: Longs
    maps: Ints
    tour: Ints
    bases: Longs

    @property
    def treewidth(self) -> int:
        """Variables of the largest cluster, less one: an upper bound of the graph's treewidth."""
        return max(len(m) for m in self.members) - 1

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays and by an evaluation."""
        held = sum(int(a.nbytes) for f in fields(self) if isinstance(a := getattr(self, f.name), np.ndarray))
        return held + 8 * int(self.table[-1] + 2 * self.message[-1] + 2 * self.product[-1])

    @cached_property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """The arrays in the order the kernels take them."""
        return (
            self.size, self.runs, self.table, self.message, self.parent, self.down, self.own, self.product,
            self.factor_ptr, self.place, self.maps,
        )  # fmt: skip

    def scratch(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Room for the tables, the messages, the messages' scales and the products of one evaluation."""
        return (
            np.empty(int(self.table[-1])),
            np.empty(2 * int(self.message[-1])),
            np.empty(2 * len(self.size)),
            np.empty(2 * int(self.product[-1])),
        )


def _offsets(members: Sequence[int], cardinalities: Sequence[int], steps: dict[int, int]) -> Ints:
    """For every entry of a table over `members`, the sum of its digits times their steps."""
    out = np.zeros([1] * len(members), np.int64)
    for axis, v in enumerate(members):
        shape = [1] * len(members)
        shape[axis] = cardinalities[v]
        out = out + (steps.get(v, 0) * np.arange(cardinalities[v])).reshape(shape)
    return np.broadcast_to(out, [cardinalities[v] for v in members]).ravel().astype(np.int32)


def _steps(members: Sequence[int], cardinalities: Sequence[int]) -> dict[int, int]:
    steps, step = {}, 1
    for v in reversed(members):
        steps[v] = step
        step *= cardinalities[v]
    return steps


def make_jointree(
    cardinalities: Sequence[int], scopes: Sequence[Sequence[int]], elimination: EliminationOrder
) -> Jointree:
    """Prepare the evaluation of a Markov random field's partition function.

    Parameters
    ----------
    cardinalities, scopes
        As in `find_order`.
    elimination : EliminationOrder
        From `find_order`.

    References
    ----------
    Darwiche (2009), *Modeling and Reasoning with Bayesian Networks*, chapter 7.
    """
    n = len(cardinalities)
    order, cliques = elimination.order, elimination.cliques
    step_of = [0] * n
    for step, v in enumerate(order):
        step_of[v] = step
    # A cluster whose clique is wholly the separator of a child's is taken up by that child.
    step_parent = [min((step_of[u] for u in clique), default=-1) for clique in cliques]
    into = list(range(n))
    summed: list[list[int]] = [[v] for v in order]
    for step in range(n):
        if into[step] != step:
            continue
        p = step_parent[step]
        separator = len(cliques[step])
        while p >= 0 and into[p] == p and len(cliques[p]) + 1 == separator:
            into[p] = step
            summed[step].append(order[p])
            separator -= 1
            p = step_parent[p]
        step_parent[step] = p

    def home(step: int) -> int:
        while into[step] != step:
            step = into[step]
        return step

    kept = [s for s in range(n) if into[s] == s]
    above = {s: home(step_parent[s]) if step_parent[s] >= 0 else -1 for s in kept}
    depth: dict[int, int] = {}
    for s in reversed(kept):
        chain = [s]
        while chain[-1] not in depth and above[chain[-1]] >= 0:
            chain.append(above[chain[-1]])
        start = depth.get(chain[-1], 0)
        for k, t in enumerate(reversed(chain)):
            depth[t] = start + k
    kept.sort(key=lambda s: (-depth[s], s))
    number = {s: c for c, s in enumerate(kept)}
    parent = np.array([number[above[s]] if above[s] >= 0 else -1 for s in kept], np.int32)

    # Axes follow the parent's, so that its table is read nearly in order.
    members: list[tuple[int, ...]] = [()] * len(kept)
    n_separator = [0] * len(kept)
    for c in range(len(kept) - 1, -1, -1):
        s = kept[c]
        own = summed[s]
        shared = set(cliques[s]) - set(own)
        outer = [v for v in members[parent[c]] if v in shared] if parent[c] >= 0 else []
        members[c] = (*outer, *reversed(own))
        n_separator[c] = len(outer)
    homes: list[list[int]] = [[] for _ in kept]
    for f, scope in enumerate(scopes):
        homes[number[home(min(step_of[v] for v in scope))]].append(f)

    counts = [math.prod(cardinalities[v] for v in m) for m in members]
    runs = [math.prod(cardinalities[v] for v in m[k:]) for m, k in zip(members, n_separator, strict=True)]
    maps: list[Ints] = []
    used = 0

    def put(entries: Ints) -> int:
        nonlocal used
        maps.append(entries)
        used += len(entries)
        return used - len(entries)

    bases = np.concatenate([[0], np.cumsum([math.prod(cardinalities[v] for v in s) for s in scopes])]).astype(np.int64)
    down, own_map, product, place, factor_ptr, factor = [], [], [0], [], [0], []
    for c, m in enumerate(members):
        down.append(-1)
        if parent[c] >= 0:
            steps = _steps(m[: n_separator[c]], cardinalities)
            down[c] = put(_offsets(members[parent[c]], cardinalities, steps))
        spanned = {v for f in homes[c] for v in scopes[f]}
        inner = [v for v in m if v in spanned]
        if not homes[c]:
            own_map.append(NONE)
            product.append(product[-1])
        else:
            whole = len(inner) == len(m)
            own_map.append(WHOLE if whole else put(_offsets(m, cardinalities, _steps(inner, cardinalities))))
            product.append(product[-1] + math.prod(cardinalities[v] for v in inner))
        for f in homes[c]:
            factor.append(f)
            place.append(put(_offsets(inner, cardinalities, _steps(scopes[f], cardinalities)) + np.int32(bases[f])))
        factor_ptr.append(len(factor))

    children: list[list[int]] = [[] for _ in members]
    for c, p in enumerate(parent):
        if p >= 0:
            children[p].append(c)
    tour: list[int] = []
    for root in np.flatnonzero(parent < 0):
        stack = [int(root) + 1]
        while stack:
            move = stack.pop()
            tour.append(move)
            if move > 0:
                stack.append(-move)
                stack.extend(c + 1 for c in children[move - 1])
    sizes = np.array(counts, np.int64)
    lengths = np.array(runs, np.int64)
    return Jointree(
        members=tuple(members),
        n_separator=tuple(n_separator),
        size=sizes,
        runs=lengths,
        table=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        message=np.concatenate([[0], np.cumsum(sizes // lengths)]).astype(np.int64),
        parent=parent,
        down=np.array(down, np.int64),
        own=np.array(own_map, np.int64),
        product=np.array(product, np.int64),
        factor_ptr=np.array(factor_ptr, np.int32),
        factor=np.array(factor, np.int32),
        place=np.array(place, np.int64),
        maps=np.concatenate(maps) if maps else np.empty(0, np.int32),
        tour=np.array(tour, np.int32),
        bases=bases,
    )
