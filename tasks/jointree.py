"""The model term of a Markov random field: log Z and every factor's marginals by one jointree evaluation.

    factor scopes ──► min-fill order ──► clusters ──► absorb the non-maximal ──► flat tables ──► up, down ──► log Z, marginals

Where `tasks.elimination` prepares many small inferences, this prepares one large one. A cluster's table has its separator
towards the parent as the slow axes and the variables that it sums out as the fast ones, so that a message is a sum
over runs. The factors that a cluster holds are multiplied on a table over their own variables first, which is often
far smaller than the cluster's.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.errors import TooLargeError
from tasks.kernel import kernel
from tasks.subnetwork import Ints

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

# As in tasks.inference: products below this may have lost digits, which matters where Z itself is below LOG_TINY.
LOSSY = 1e-290
LOG_TINY = -575.0
# Orders tried where ties decide how large the tables get, and the size from which on that pays.
TRIES, WORTH_TRYING = 16, 4096
# No factors of its own; its factors span the whole table.
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
            np.empty(len(self.size)),
            np.empty(2 * int(self.product[-1])),
        )


# --- elimination order ---------------------------------------------------------------------------------------------


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
        if len(best[0]) == n and best[2] < WORTH_TRYING or n > 1000:
            break
        rank = np.random.default_rng(attempt).permutation(n).tolist()
        found = _eliminate(cardinalities, scopes, rank, min(limit, best[2]) if len(best[0]) == n else limit)
        if len(found[0]) == n and (len(best[0]) < n or found[2] < best[2]):
            best = found
    return best


# --- layout --------------------------------------------------------------------------------------------------------


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
    names: Sequence[str],
    cardinalities: Sequence[int],
    scopes: Sequence[Sequence[int]],
    allowed_bytes: int = 1 << 34,
) -> Jointree:
    """Prepare the evaluation of a Markov random field's partition function.

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

    Returns
    -------
    Jointree

    Raises
    ------
    TooLargeError
        The tables need more. Names the treewidth found, the memory, and what to do.

    References
    ----------
    Darwiche (2009), *Modeling and Reasoning with Bayesian Networks*, chapters 7 and 9.
    """
    n = len(cardinalities)
    limit = allowed_bytes / 24  # 8 bytes a table entry, and 4 a look-up: its own, and some children's
    order, cliques, total = _best_order(cardinalities, scopes, limit)
    if len(order) < n or total > limit:
        width = max(len(c) for c in cliques)
        raise TooLargeError(
            f"the partition function of {n} variables needs a jointree of treewidth {width} or more and at least "
            f"{24 * total / 2**30:.3g} GiB ({names[order[-1]]!r} is summed out together with {len(cliques[-1])} "
            f"others), allowed {allowed_bytes / 2**30:.3g} GiB; give it more memory, remove factors that close "
            "loops, or estimate from local counts (LAP, pseudo-likelihood) instead of exactly"
        )
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
        shared = (cliques[s] | {order[s]}) - set(own)
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


# --- kernels -------------------------------------------------------------------------------------------------------


@kernel
def upward(theta, tables, messages, scales, products, arrays):
    """Fill the clusters and send every message to the roots: log Z, and whether the result can be trusted.

    A root's table ends normalised; every other's is its own factors times its children's messages.
    """
    size, runs, table, message, parent, down, own, product, factor_ptr, place, maps = arrays
    n_clusters = size.shape[0]
    lossy = False
    for c in range(n_clusters):
        first, last = factor_ptr[c], factor_ptr[c + 1]
        begin = product[c]
        for g in range(product[c + 1] - begin):
            x = 1.0
            for j in range(first, last):
                x *= theta[maps[place[j] + g]]
            if x < LOSSY:
                possible = True
                for j in range(first, last):
                    possible = possible and theta[maps[place[j] + g]] > 0.0
                lossy = lossy or possible
            products[begin + g] = x
        here = tables[table[c] : table[c + 1]]
        if own[c] == NONE:
            for t in range(size[c]):
                here[t] = 1.0
        elif own[c] == WHOLE:
            for t in range(size[c]):
                here[t] = products[begin + t]
        else:
            look = maps[own[c] : own[c] + size[c]]
            for t in range(size[c]):
                here[t] = products[begin + look[t]]
    log_z = 0.0
    for c in range(n_clusters):
        here = tables[table[c] : table[c + 1]]
        p = parent[c]
        if p < 0:
            total = 0.0
            for t in range(size[c]):
                total += here[t]
            if not total >= LOSSY:
                return -np.inf, False
            log_z += np.log(total)
            divide = 1.0 / total
            for t in range(size[c]):
                here[t] *= divide
            continue
        sent = messages[message[c] : message[c + 1]]
        n = runs[c]
        top = 0.0
        for e in range(sent.shape[0]):
            total = 0.0
            for t in range(e * n, e * n + n):
                total += here[t]
            sent[e] = total
            top = max(top, total)
        if not top >= LOSSY:
            return -np.inf, False
        # Scaled to a maximum of one, so that no product of many can overflow.
        scales[c] = top
        log_z += np.log(top)
        divide = 1.0 / top
        for e in range(sent.shape[0]):
            sent[e] *= divide
        above = tables[table[p] : table[p + 1]]
        look = maps[down[c] : down[c] + size[p]]
        for t in range(size[p]):
            x, m = above[t], sent[look[t]]
            y = x * m
            if y < LOSSY and x > 0.0 and m > 0.0:
                lossy = True
            above[t] = y
    return log_z, not (lossy and log_z < LOG_TINY)


@kernel
def receive(c, tables, messages, scales, arrays):
    """Make cluster c's table its belief, from its parent's: the separator's belief is left as its message."""
    size, runs, table, message, parent, down, own, product, factor_ptr, place, maps = arrays
    p = parent[c]
    width = message[c + 1] - message[c]
    sent = messages[message[c] : message[c + 1]]
    # The second half of the messages is room for separators' beliefs.
    half = messages.shape[0] // 2
    belief = messages[half : half + width]
    above = tables[table[p] : table[p + 1]]
    look = maps[down[c] : down[c] + size[p]]
    for e in range(width):
        belief[e] = 0.0
    for t in range(size[p]):
        belief[look[t]] += above[t]
    here = tables[table[c] : table[c + 1]]
    n = runs[c]
    for e in range(width):
        ratio = belief[e] / (sent[e] * scales[c]) if sent[e] > 0.0 else 0.0
        for t in range(e * n, e * n + n):
            here[t] *= ratio
        sent[e] = belief[e]


@kernel
def own_marginal(c, tables, products, arrays):
    """The belief of cluster c over the variables of its factors, in the second half of the products."""
    size, runs, table, message, parent, down, own, product, factor_ptr, place, maps = arrays
    half = products.shape[0] // 2
    belief = products[half + product[c] : half + product[c + 1]]
    here = tables[table[c] : table[c + 1]]
    if own[c] == WHOLE:
        for t in range(size[c]):
            belief[t] = here[t]
        return belief
    for g in range(belief.shape[0]):
        belief[g] = 0.0
    if own[c] >= 0:
        look = maps[own[c] : own[c] + size[c]]
        for t in range(size[c]):
            belief[look[t]] += here[t]
    return belief


@kernel
def _evaluate(theta, marginals, tables, messages, scales, products, arrays):
    log_z, trusted = upward(theta, tables, messages, scales, products, arrays)
    if not trusted:
        return log_z, False
    parent, factor_ptr, place, maps = arrays[4], arrays[8], arrays[9], arrays[10]
    for x in range(marginals.shape[0]):
        marginals[x] = 0.0
    for c in range(parent.shape[0] - 1, -1, -1):
        if parent[c] >= 0:
            receive(c, tables, messages, scales, arrays)
        belief = own_marginal(c, tables, products, arrays)
        for j in range(factor_ptr[c], factor_ptr[c + 1]):
            look = maps[place[j] : place[j] + belief.shape[0]]
            for g in range(belief.shape[0]):
                marginals[look[g]] += belief[g]
    return log_z, True


def model_term(tree: Jointree, theta: Floats) -> tuple[float, Floats, bool]:
    """Log partition function and factor marginals.

    Parameters
    ----------
    tree : Jointree
        Of all factors.
    theta : float64 array, shape (n_parameters,)
        Potentials, none above one: scale each factor to a maximum of one first, and add the logarithms of the scales.

    Returns
    -------
    log_z : float, nats
    marginals : float64 array, shape (n_parameters,)
        Pr(x_f) of every factor's every entry: the gradient of log Z in the log potentials.
    trusted : bool
        False where a product left the range of a double or Z is zero: then the other two mean nothing, and
        `tasks.markov` evaluates in logarithms.
    """
    marginals = np.empty(int(tree.bases[-1]))
    log_z, trusted = _evaluate(theta, marginals, *tree.scratch(), tree.arrays)
    return float(log_z), marginals, bool(trusted)
