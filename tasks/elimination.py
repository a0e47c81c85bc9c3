"""From a signature to a program: how to sum out its hidden variables, once for all instances that share it.

    hidden variables, families ──► min-fill order ──► clusters ──► absorb the non-maximal ──► flat integer tables

A cluster is a table over some hidden variables; a family is multiplied into the cluster where its first hidden
variable is eliminated; clusters form a forest, children before parents, joined by separators. A hidden component with
few joint states is one cluster. Everything an inference has to look up is an offset prepared here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tasks.errors import TooLargeError
from tasks.instances import InstanceTable, grow
from tasks.kernel import kernel
from tasks.subnetwork import Ints, SubNetwork

# Up to this many joint states one table beats a jointree: no messages, no divisions.
ONE_TABLE = 16


@dataclass(frozen=True)
class Programs:
    """Elimination programs of all signatures of an instance table, flat.

    Attributes
    ----------
    cluster_ptr : int32 array, shape (n_signatures + 1,)
        Each signature's clusters, children before parents.
    size : int64 array, shape (n_clusters,)
        Entries of a cluster's table.
    table : int64 array, shape (n_clusters,)
        Where the cluster's table lies in its signature's scratch.
    parent : int32 array, shape (n_clusters,)
        The cluster's parent, or -1 at a root.
    separator_size, message : int64 arrays, shape (n_clusters,)
        Entries of the separator towards the parent, and where the message lies in scratch.
    up, down : int64 arrays, shape (n_clusters,)
        Where in `maps` the separator entry of each entry of the cluster's own, and of its parent's, table is found.
    factor_ptr : int32 array, shape (n_clusters + 1,)
        Each cluster's factors.
    slot : int32 array, shape (n_factors,)
        Position of the factor among its signature's families.
    relative : int64 array, shape (n_clusters,)
        Where in `maps` the cluster's parameter offsets begin, entry by entry, all factors of an entry together.
    maps : int32 array
        The look-up tables named above.
    scratch : int64 array, shape (n_signatures,)
        Entries of scratch an inference needs.
    """

    cluster_ptr: Ints
    size: NDArray[np.int64]
    table: NDArray[np.int64]
    parent: Ints
    separator_size: NDArray[np.int64]
    message: NDArray[np.int64]
    up: NDArray[np.int64]
    down: NDArray[np.int64]
    factor_ptr: Ints
    slot: Ints
    relative: NDArray[np.int64]
    maps: Ints
    scratch: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays and by the largest scratch."""
        return sum(int(getattr(self, f.name).nbytes) for f in fields(self)) + 24 * int(self.scratch.max(initial=0))

    def work(self) -> NDArray[np.float64]:
        """Multiplications of one inference, by signature, shape (n_signatures,): what an instance costs."""
        per_cluster = self.size * (2.0 * np.diff(self.factor_ptr) + 4.0)
        total = np.concatenate([[0.0], np.cumsum(per_cluster)])
        return total[self.cluster_ptr[1:]] - total[self.cluster_ptr[:-1]]


@kernel
def _fill(adjacent, alive, v, neighbours):
    n = 0
    for u in range(adjacent.shape[0]):
        if alive[u] and adjacent[v, u]:
            neighbours[n] = u
            n += 1
    missing_edges = 0
    for a in range(n):
        for b in range(a + 1, n):
            if not adjacent[neighbours[a], neighbours[b]]:
                missing_edges += 1
    return missing_edges, n


@kernel
def _members(inside, c, own, cardinalities, inner, radix):
    """List the members of cluster c in `inner`, their numbers of states in `radix`; how many they are."""
    n = 0
    for v in range(inside.shape[1]):
        if inside[c, v]:
            inner[n] = v
            radix[n] = cardinalities[own[v]]
            n += 1
    return n


@kernel
def _spell(maps, begin, stride, n_entries, n, radix, step_of_digit, digits):
    """Write the offset of every entry of a table: its digits, the last running fastest, times their steps."""
    for k in range(n):
        digits[k] = 0
    offset = 0
    for t in range(n_entries):
        maps[begin + t * stride] = offset
        k = n - 1
        while k >= 0:
            digits[k] += 1
            offset += step_of_digit[k]
            if digits[k] < radix[k]:
                break
            offset -= digits[k] * step_of_digit[k]
            digits[k] = 0
            k -= 1


@kernel
def _compile(cardinalities, family_ptr, members, strides, hidden_ptr, hidden, sig_family_ptr, families,
             limit):  # fmt: skip
    n_signatures = hidden_ptr.shape[0] - 1
    position = np.full(cardinalities.shape[0], -1, np.int64)

    cluster_ptr = np.zeros(n_signatures + 1, np.int32)
    size = np.empty(64, np.int64)
    table = np.empty(64, np.int64)
    parent = np.empty(64, np.int32)
    separator_size = np.empty(64, np.int64)
    message = np.empty(64, np.int64)
    up = np.empty(64, np.int64)
    down = np.empty(64, np.int64)
    factor_ptr = np.zeros(64, np.int32)
    slot = np.empty(256, np.int32)
    relative = np.empty(64, np.int64)
    maps = np.empty(4096, np.int32)
    scratch = np.zeros(n_signatures, np.int64)
    n_clusters, n_factors, n_maps = 0, 0, 0
    inner = np.empty(cardinalities.shape[0], np.int64)
    radix = np.empty(cardinalities.shape[0], np.int64)
    step_of_digit = np.empty(cardinalities.shape[0], np.int64)
    digits = np.empty(cardinalities.shape[0], np.int64)

    for s in range(n_signatures):
        h = hidden_ptr[s + 1] - hidden_ptr[s]
        own = hidden[hidden_ptr[s] : hidden_ptr[s + 1]]
        fams = families[sig_family_ptr[s] : sig_family_ptr[s + 1]]
        n_fams = fams.shape[0]
        for k in range(h):
            position[own[k]] = k

        # ---- clusters: members (as a matrix row), parent, and each family's home
        joint = 1
        for k in range(h):
            if joint <= ONE_TABLE:
                joint *= cardinalities[own[k]]
        home = np.zeros(n_fams, np.int64)
        if joint <= ONE_TABLE:
            n_local = 1 if h > 0 else 0
            inside = np.ones((n_local, h), np.bool_)
            local_parent = np.full(n_local, -1, np.int64)
            visit = np.zeros(n_local, np.int64)
        else:
            adjacent = np.zeros((h, h), np.bool_)
            for j in range(n_fams):
                f = fams[j]
                for a in range(family_ptr[f], family_ptr[f + 1]):
                    pa = position[members[a]]
                    for b in range(a + 1, family_ptr[f + 1]):
                        pb = position[members[b]]
                        if pa >= 0 and pb >= 0:
                            adjacent[pa, pb] = True
                            adjacent[pb, pa] = True
            alive = np.ones(h, np.bool_)
            neighbours = np.empty(h, np.int64)
            fill = np.empty(h, np.int64)
            weight = np.empty(h, np.float64)
            stale = np.ones(h, np.bool_)
            step_of = np.empty(h, np.int64)
            members_of = np.zeros((h, h), np.bool_)  # row: elimination step
            for step in range(h):
                best = -1
                for v in range(h):
                    if not alive[v]:
                        continue
                    if stale[v]:
                        fill[v], n = _fill(adjacent, alive, v, neighbours)
                        weight[v] = np.log(cardinalities[own[v]])
                        for a in range(n):
                            weight[v] += np.log(cardinalities[own[neighbours[a]]])
                        stale[v] = False
                    # Least fill; among equals the smaller table, then the earlier variable.
                    if best < 0 or fill[v] < fill[best] or (fill[v] == fill[best] and weight[v] < weight[best] - 1e-9):
                        best = v
                _, n = _fill(adjacent, alive, best, neighbours)
                step_of[best] = step
                members_of[step, best] = True
                alive[best] = False
                for a in range(n):
                    members_of[step, neighbours[a]] = True
                    stale[neighbours[a]] = True
                    for b in range(a + 1, n):
                        if not adjacent[neighbours[a], neighbours[b]]:
                            adjacent[neighbours[a], neighbours[b]] = True
                            adjacent[neighbours[b], neighbours[a]] = True
                            # A new edge changes the fill of the common neighbours of its ends.
                            for u in range(h):
                                if alive[u] and adjacent[u, neighbours[a]] and adjacent[u, neighbours[b]]:
                                    stale[u] = True
            step_parent = np.full(h, -1, np.int64)
            for v in range(h):
                step = step_of[v]
                for u in range(h):
                    if u != v and members_of[step, u] and (step_parent[step] < 0 or step_of[u] < step_parent[step]):
                        step_parent[step] = step_of[u]
            # A cluster whose separator is the whole parent takes the parent's place.
            merged = np.arange(h)
            for step in range(h):
                if merged[step] != step:
                    continue
                p = step_parent[step]
                while p >= 0 and merged[p] == p:
                    contained = True
                    for u in range(h):
                        contained = contained and (members_of[step, u] or not members_of[p, u])
                    if not contained:
                        break
                    merged[p] = step
                    p = step_parent[p]
                    step_parent[step] = p
            for step in range(h):
                root = step
                while merged[root] != root:
                    root = merged[root]
                merged[step] = root
            n_local = 0
            number = np.full(h, -1, np.int64)
            for step in range(h):
                if merged[step] == step:
                    number[step] = n_local
                    n_local += 1
            inside = np.zeros((n_local, h), np.bool_)
            local_parent = np.full(n_local, -1, np.int64)
            for step in range(h):
                if merged[step] == step:
                    inside[number[step]] = members_of[step]
                    if step_parent[step] >= 0:
                        local_parent[number[step]] = number[merged[step_parent[step]]]
            for j in range(n_fams):
                first = h
                for a in range(family_ptr[fams[j]], family_ptr[fams[j] + 1]):
                    pa = position[members[a]]
                    if pa >= 0 and step_of[pa] < first:
                        first = step_of[pa]
                home[j] = number[merged[first]]
            # Children before parents: sort by depth, deepest first; stable, so the order is the same everywhere.
            depth = np.zeros(n_local, np.int64)
            for c in range(n_local):
                p = local_parent[c]
                while p >= 0:
                    depth[c] += 1
                    p = local_parent[p]
            visit = np.argsort(-depth, kind="mergesort")

        # ---- flat tables
        place = np.empty(n_local, np.int64)
        for k in range(n_local):
            place[visit[k]] = n_clusters + k
        need = n_clusters + n_local
        size, table, parent = grow(size, need), grow(table, need), grow(parent, need)
        separator_size, message = grow(separator_size, need), grow(message, need)
        up, down, relative = grow(up, need), grow(down, need), grow(relative, need)
        factor_ptr = grow(factor_ptr, need + 1)
        used = 0
        for k in range(n_local):
            c = visit[k]
            at = n_clusters + k
            entries = 1
            for v in range(h):
                if inside[c, v]:
                    entries *= cardinalities[own[v]]
                    if entries > limit:
                        return (False, s, entries, cluster_ptr, size, table, parent, separator_size, message, up, down,
                                factor_ptr, slot, relative, maps, scratch)  # fmt: skip
            size[at] = entries
            table[at] = used
            used += entries
            p = local_parent[c]
            parent[at] = place[p] if p >= 0 else -1
            n_sep = 1
            if p >= 0:
                for v in range(h):
                    if inside[c, v] and inside[p, v]:
                        n_sep *= cardinalities[own[v]]
            separator_size[at] = n_sep
            message[at] = used
            used += n_sep
        scratch[s] = used
        for k in range(n_local):
            c = visit[k]
            at = n_clusters + k
            n_own = 0
            for j in range(n_fams):
                if home[j] == c:
                    n_own += 1
            slot = grow(slot, n_factors + n_own)
            total = n_maps + size[at] * (n_own + 1) + (size[parent[at]] if parent[at] >= 0 else 0)
            if total > limit:
                return (False, s, total, cluster_ptr, size, table, parent, separator_size, message, up, down,
                        factor_ptr, slot, relative, maps, scratch)  # fmt: skip
            maps = grow(maps, total)
            relative[at] = n_maps
            mine = 0
            wide = _members(inside, c, own, cardinalities, inner, radix)
            for j in range(n_fams):
                if home[j] != c:
                    continue
                slot[n_factors + mine] = j
                for v in range(wide):
                    step_of_digit[v] = 0
                    for a in range(family_ptr[fams[j]], family_ptr[fams[j] + 1]):
                        if members[a] == own[inner[v]]:
                            step_of_digit[v] = strides[a]
                _spell(maps, n_maps + mine, n_own, size[at], wide, radix, step_of_digit, digits)
                mine += 1
            n_factors += n_own
            n_maps += size[at] * n_own
            factor_ptr[at + 1] = n_factors
            up[at] = n_maps
            down[at] = n_maps
            p = local_parent[c]
            if p >= 0:
                # Separator entry of every entry of this table, then of every entry of the parent's.
                for side in range(2):
                    wide = _members(inside, c if side == 0 else p, own, cardinalities, inner, radix)
                    step_size = 1
                    for v in range(wide - 1, -1, -1):
                        shared = inside[c, inner[v]] and inside[p, inner[v]]
                        step_of_digit[v] = step_size if shared else 0
                        if shared:
                            step_size *= radix[v]
                    entries = size[at] if side == 0 else size[parent[at]]
                    if side == 1:
                        down[at] = n_maps
                    _spell(maps, n_maps, 1, entries, wide, radix, step_of_digit, digits)
                    n_maps += entries
        n_clusters += n_local
        cluster_ptr[s + 1] = n_clusters
        for k in range(h):
            position[own[k]] = -1
    return (True, -1, np.int64(0), cluster_ptr, size[:n_clusters].copy(), table[:n_clusters].copy(),
            parent[:n_clusters].copy(), separator_size[:n_clusters].copy(), message[:n_clusters].copy(),
            up[:n_clusters].copy(), down[:n_clusters].copy(), factor_ptr[: n_clusters + 1].copy(),
            slot[:n_factors].copy(), relative[:n_clusters].copy(), maps[:n_maps].copy(), scratch)  # fmt: skip


def compile_programs(sub_network: SubNetwork, instances: InstanceTable, allowed_bytes: int = 1 << 34) -> Programs:
    """Prepare the elimination of every signature's hidden variables.

    Parameters
    ----------
    sub_network : SubNetwork
        The learning problem.
    instances : InstanceTable
        Only its signatures matter here.
    allowed_bytes : int
        Memory the programs and the scratch of an inference may take.

    Returns
    -------
    Programs

    Raises
    ------
    TooLargeError
        If a cluster's table, or all look-up tables together, need more than `allowed_bytes`. Names the hidden
        variables that are missing together, the memory they need and what to do.

    Notes
    -----
    Min-fill costs O(h^2) to O(h^3) in the number h of variables hidden together; the tables are exponential in the
    treewidth that it finds.

    References
    ----------
    Darwiche (2009), chapters 6 and 9; Refaat (2015), section 2.3.1: one run of the jointree algorithm an example.
    """
    n, t = sub_network, instances
    # 4 bytes a look-up, and 8 bytes a table entry, thrice: table, belief, logarithms.
    limit = max(allowed_bytes // 28, 1)
    ok, signature, entries, *arrays = _compile(
        n.cardinalities, n.family_ptr, n.members, n.strides, t.hidden_ptr, t.hidden, t.family_ptr, t.families, limit
    )
    if not ok:
        hidden = [n.names[int(v)] for v in t.hidden[t.hidden_ptr[signature] : t.hidden_ptr[signature + 1]]]
        shown = ", ".join(hidden[:8]) + (f" and {len(hidden) - 8} more" if len(hidden) > 8 else "")
        raise TooLargeError(
            f"{len(hidden)} variables are missing together ({shown}): exact inference on them needs at least "
            f"{28 * int(entries) / 2**30:.3g} GiB, allowed {allowed_bytes / 2**30:.3g} GiB; observe some of them, drop "
            "them from the network, or give the worker more memory"
        )
    return Programs(*arrays)
