"""In what order to sum out a graph's variables, and how large the tables get: min-fill, the best of a few ties."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.errors import TooLargeError

# Orders tried where ties decide how large the tables get, and the size from which on that pays.
TRIES, WORTH_TRYING = 16, 4096
# 8 bytes a table entry, and 4 a look-up: its own, and some children's.
ENTRY_BYTES = 24


@dataclass(frozen=True)
class EliminationOrder:
    """In what order a graph's variables are summed out: what a jointree is built from, without its tables.

    Attributes
    ----------
    order : tuple of int
        Variables.
    cliques : tuple of frozenset of int
        The neighbours that each of them has when its turn comes.
    treewidth : int
        The most neighbours: an upper bound of the graph's treewidth.
    n_bytes : int
        Memory of the tables and look-ups, about.
    """

    order: tuple[int, ...]
    cliques: tuple[frozenset[int], ...]
    treewidth: int
    n_bytes: int


def find_order(
    names: Sequence[str],
    cardinalities: Sequence[int],
    scopes: Sequence[Sequence[int]],
    allowed_bytes: int = 1 << 34,
) -> EliminationOrder:
    """Find an order that keeps the tables small: the best of some min-fill orders.

    Parameters
    ----------
    names : sequence of str
        The variables', for messages.
    cardinalities : sequence of int
        Their numbers of states.
    scopes : sequence of sequences of int
        Each factor's variables in the order of its table's axes; none is empty.
    allowed_bytes : int
        Memory the tables may take.

    Raises
    ------
    TooLargeError
        The tables need more. Names the treewidth found, the memory, and what to do.

    References
    ----------
    Darwiche (2009), *Modeling and Reasoning with Bayesian Networks*, chapter 9.
    """
    n = len(cardinalities)
    limit = allowed_bytes / ENTRY_BYTES
    order, cliques, total = _best_order(cardinalities, scopes, limit)
    width = max(len(c) for c in cliques)
    if len(order) < n or total > limit:
        raise TooLargeError(
            f"the partition function of {n} variables needs a jointree of treewidth {width} or more and at least "
            f"{ENTRY_BYTES * total / 2**30:.3g} GiB ({names[order[-1]]!r} is summed out together with "
            f"{len(cliques[-1])} others), allowed {allowed_bytes / 2**30:.3g} GiB; give it more memory, remove factors "
            "that close loops, or estimate from local counts (--estimator lap)"
        )
    return EliminationOrder(tuple(order), tuple(map(frozenset, cliques)), width, int(ENTRY_BYTES * total))


def _neighbours(n_variables: int, scopes: Sequence[Sequence[int]]) -> list[set[int]]:
    adjacent: list[set[int]] = [set() for _ in range(n_variables)]
    for scope in scopes:
        for v in scope:
            adjacent[v].update(scope)
    for v, own in enumerate(adjacent):
        own.discard(v)
    return adjacent


def _eliminate(
    cardinalities: Sequence[int], scopes: Sequence[Sequence[int]], rank: Sequence[int], limit: float
) -> tuple[list[int], list[set[int]], float]:
    """Min-fill order, each variable's neighbours when it goes, and the entries of all those cliques.

    Ends early, its lists incomplete, where a clique alone has more than `limit` entries, or all together have.
    """
    n = len(cardinalities)
    adjacent = _neighbours(n, scopes)
    logs = [math.log2(c) for c in cardinalities]

    def cost(v: int) -> tuple[int, float, int, int]:
        own = adjacent[v]
        linked = sum(len(own & adjacent[u]) for u in own)
        missing = (len(own) * (len(own) - 1) - linked) // 2
        return missing, logs[v] + sum(logs[u] for u in own), rank[v], v

    current = [cost(v) for v in range(n)]
    heap = list(current)
    heapq.heapify(heap)
    order: list[int] = []
    cliques: list[set[int]] = []
    total = 0.0
    gone = [False] * n
    while len(order) < n:
        entry = heapq.heappop(heap)
        v = entry[3]
        if gone[v] or entry != current[v]:
            continue
        total += 2.0 ** min(entry[1], 1000.0)
        order.append(v)
        own = adjacent[v]
        cliques.append(set(own))
        if total > limit:
            return order, cliques, total
        gone[v] = True
        touched = set(own)
        for u in own:
            adjacent[u].discard(v)
            new = own - adjacent[u]
            new.discard(u)
            if new:
                # A new edge changes the fill of the common neighbours of its ends.
                for w in new:
                    touched |= adjacent[u] & adjacent[w]
                adjacent[u] |= new
        for u in touched:
            now = cost(u)
            if now != current[u]:
                current[u] = now
                heapq.heappush(heap, now)
    return order, cliques, total


def _best_order(
    cardinalities: Sequence[int], scopes: Sequence[Sequence[int]], limit: float
) -> tuple[list[int], list[set[int]], float]:
    n = len(cardinalities)
    best = _eliminate(cardinalities, scopes, range(n), limit)
    for attempt in range(1, TRIES):
        if (len(best[0]) == n and best[2] < WORTH_TRYING) or n > 1000:
            break
        rank = np.random.default_rng(attempt).permutation(n).tolist()
        found = _eliminate(cardinalities, scopes, rank, min(limit, best[2]) if len(best[0]) == n else limit)
        if len(found[0]) == n and (len(best[0]) < n or found[2] < best[2]):
            best = found
    return best
