"""What an instance says of each parameter set: the votes of EDML (thesis 3.3 and 4.2, equation 4.1).

As a function of one set θ_{.|u} alone, an instance's probability is linear (Theorem 5):

    Z_i(θ_{.|u}) = C_u + Σ_x C_{x|u} θ_x,    C_{x|u} = ∂Z_i/∂θ_{x|u},    C_u = Z_i − Σ_x C_{x|u} θ_x

The derivatives are products that leave one factor out, never quotients, so parameters at zero can come back. A vote
matters only up to a positive factor: it is kept as λ_x = C_u + C_{x|u} (equation 4.1), scaled to a maximum of one.
Where the child is observed, λ takes two values, and the vote is one number, r = C_u / (C_u + C_{x|u}). Votes lie
sorted by set, each with its weight before it, so that the sets' problems read memory in sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.em import Floats
from tasks.errors import TooLargeError
from tasks.inference import TINY, Evidence
from tasks.kernel import kernel
from tasks.subnetwork import Ints, SubNetwork

# A vote whose λ differ by no more than this share says nothing: what remains is rounding of the inference.
NEUTRAL = 1e-12
# Log likelihoods are summed inside blocks of so many instances first: less rounding than one running sum.
BLOCK = 1024


@dataclass(frozen=True)
class Votes:
    """Which instance votes on which parameter set, and room for the votes: prepared once, for all iterations.

    Attributes
    ----------
    set_ptr : int64 array, shape (n_sets + 1,)
        Set s is the parameters `set_ptr[s]:set_ptr[s + 1]`.
    child_ptr, child : int32 arrays, shapes (n_clusters + 1,) and (n_messages,)
        The clusters that send each cluster a message.
    cell_maps : int32 array, shape of `Programs.maps`
        Beside each parameter offset of an entry of a cluster: which of the signature's derivatives it is.
    cell_ptr, width, group_ptr : int64 arrays, shapes (n_factors + 1,), (n_factors,), (n_factors + 1,)
        A factor's derivatives; how many of them share a parameter set (the child's states where it is hidden, else
        one); its groups, one a parameter set.
    group : int32 array, shape (n_groups,)
        Offset of each group's first parameter.
    place_ptr, place : int64 arrays, shapes (n_instances + 1,) and (n_votes,)
        Where in `values` each instance's votes lie.
    narrow_ptr : int64 array, shape (n_parameters + 1,)
        Votes of instances whose child is observed, by parameter: pairs (weight, r).
    wide_ptr : int64 array, shape (n_sets + 1,)
        Votes of instances whose child is hidden, by set of k parameters: (weight, λ_1 … λ_k); λ_1 = −1 is neutral.
    values : float64 array
        The votes: rewritten by every iteration.
    """

    set_ptr: NDArray[np.int64]
    child_ptr: Ints
    child: Ints
    cell_maps: Ints
    cell_ptr: NDArray[np.int64]
    width: NDArray[np.int64]
    group_ptr: NDArray[np.int64]
    group: Ints
    place_ptr: NDArray[np.int64]
    place: NDArray[np.int64]
    narrow_ptr: NDArray[np.int64]
    wide_ptr: NDArray[np.int64]
    values: Floats

    @property
    def layout(self) -> tuple[NDArray[np.generic], ...]:
        """The arrays of the structure in the order the kernels take them."""
        return (self.child_ptr, self.child, self.cell_maps, self.cell_ptr, self.width, self.group_ptr, self.group,
                self.place_ptr, self.place)  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes held by votes and their places, which are nearly all of it."""
        return int(self.values.nbytes + self.place.nbytes)

    def on(self, s: int) -> tuple[Floats, Floats]:
        """Weights, shape (n,), and λ, shape (n, k), of all votes on set s that are not neutral, as they stand."""
        lo, hi = int(self.set_ptr[s]), int(self.set_ptr[s + 1])
        k = hi - lo
        weights, rows = [], []
        for x in range(lo, hi):
            for weight, r in self.values[self.narrow_ptr[x] : self.narrow_ptr[x + 1]].reshape(-1, 2):
                if r < 1:
                    row = np.full(k, r)
                    row[x - lo] = 1.0
                    weights.append(weight)
                    rows.append(row)
        for vote in self.values[self.wide_ptr[s] : self.wide_ptr[s + 1]].reshape(-1, k + 1):
            if vote[1] >= 0:
                weights.append(vote[0])
                rows.append(vote[1:])
        return np.array(weights), np.array(rows).reshape(-1, k)


# --- structure -----------------------------------------------------------------------------------------------------


@kernel
def _groups(bases, child_cardinalities, first_instance, offset_ptr, offsets, cluster_ptr, size, factor_ptr, slot,
            relative, maps):  # fmt: skip
    """Number the derivatives of each signature: those of a factor together, in the order of their parameters."""
    n_factors = slot.shape[0]
    cell_maps = np.zeros(maps.shape[0], np.int32)
    cell_ptr = np.zeros(n_factors + 1, np.int64)
    width = np.ones(n_factors, np.int64)
    group_ptr = np.zeros(n_factors + 1, np.int64)
    group = np.empty(1024, np.int32)
    cell_of = np.full(bases[bases.shape[0] - 1] + 1, -1, np.int64)
    for s in range(cluster_ptr.shape[0] - 1):
        i = first_instance[s]
        if i < 0 or cluster_ptr[s] == cluster_ptr[s + 1]:
            for q in range(factor_ptr[cluster_ptr[s]], factor_ptr[cluster_ptr[s + 1]]):
                cell_ptr[q + 1], group_ptr[q + 1] = cell_ptr[q], group_ptr[q]
            continue
        origin = cell_ptr[factor_ptr[cluster_ptr[s]]]
        for c in range(cluster_ptr[s], cluster_ptr[s + 1]):
            n_own = factor_ptr[c + 1] - factor_ptr[c]
            for j in range(n_own):
                q = factor_ptr[c] + j
                f = np.searchsorted(bases, offsets[offset_ptr[i] + slot[q]], side="right") - 1
                k = child_cardinalities[f]
                last = 0
                for t in range(size[c]):
                    at = maps[relative[c] + t * n_own + j]
                    cell_of[at] = 0
                    last = max(last, at)
                # The child runs fastest: its second state is one step from its first.
                if k > 1 and cell_of[1] == 0:
                    width[q] = k
                n, n_groups = cell_ptr[q] - origin, group_ptr[q]
                first = n
                for at in range(last + 1):
                    if cell_of[at] == 0:
                        if (n - first) % width[q] == 0:
                            if n_groups == group.shape[0]:
                                longer = np.empty(2 * n_groups, np.int32)
                                longer[:n_groups] = group
                                group = longer
                            group[n_groups] = at
                            n_groups += 1
                        cell_of[at] = n
                        n += 1
                    else:
                        cell_of[at] = -1
                for t in range(size[c]):
                    cell_maps[relative[c] + t * n_own + j] = cell_of[maps[relative[c] + t * n_own + j]]
                for at in range(last + 1):
                    cell_of[at] = -1
                cell_ptr[q + 1] = origin + n
                group_ptr[q + 1] = n_groups
    return cell_maps, cell_ptr, width, group_ptr, group[: group_ptr[n_factors]].copy()


@kernel
def _places(set_ptr, n_parameters, signature, counts, offset_ptr, offsets, cluster_ptr, factor_ptr, slot, width,
            group_ptr, group):  # fmt: skip
    """Sort the votes of all instances by what they vote on."""
    set_of = np.empty(n_parameters, np.int64)
    for s in range(set_ptr.shape[0] - 1):
        for x in range(set_ptr[s], set_ptr[s + 1]):
            set_of[x] = s
    narrow_ptr = np.zeros(n_parameters + 1, np.int64)
    wide_ptr = np.zeros(set_ptr.shape[0], np.int64)
    place_ptr = np.zeros(signature.shape[0] + 1, np.int64)
    place = np.empty(0, np.int64)
    values = np.empty(0)
    for fill in range(2):
        if fill == 1:
            place = np.empty(place_ptr[signature.shape[0]], np.int64)
            total = 0
            for x in range(n_parameters + 1):
                n = narrow_ptr[x]
                narrow_ptr[x] = total
                total += 2 * n
            for s in range(set_ptr.shape[0]):
                n = wide_ptr[s]
                wide_ptr[s] = total
                if s < set_ptr.shape[0] - 1:
                    total += n * (set_ptr[s + 1] - set_ptr[s] + 1)
            values = np.zeros(total)
            next_narrow, next_wide = narrow_ptr.copy(), wide_ptr.copy()
        for i in range(signature.shape[0]):
            s = signature[i]
            at = place_ptr[i]
            for q in range(factor_ptr[cluster_ptr[s]], factor_ptr[cluster_ptr[s + 1]]):
                for g in range(group_ptr[q], group_ptr[q + 1]):
                    x = offsets[offset_ptr[i] + slot[q]] + group[g]
                    if fill == 0:
                        if width[q] == 1:
                            narrow_ptr[x] += 1
                        else:
                            wide_ptr[set_of[x]] += 1
                    elif width[q] == 1:
                        place[at] = next_narrow[x] + 1
                        values[next_narrow[x]] = counts[i]
                        next_narrow[x] += 2
                    else:
                        place[at] = next_wide[set_of[x]] + 1
                        values[next_wide[set_of[x]]] = counts[i]
                        next_wide[set_of[x]] += width[q] + 1
                    at += 1
            if fill == 0:
                place_ptr[i + 1] = at
    return place_ptr, place, narrow_ptr, wide_ptr, values


def make_votes(sub_network: SubNetwork, evidence: Evidence, allowed_bytes: int = 1 << 34) -> Votes:
    """Prepare which instance votes on which parameter set.

    Parameters
    ----------
    sub_network : SubNetwork
        The learning problem.
    evidence : Evidence
        Its instances.
    allowed_bytes : int
        Memory the votes may take.

    Returns
    -------
    Votes

    Raises
    ------
    TooLargeError
        The votes need more: EDML holds every instance's vote on every set, where EM adds them up as they come.
    """
    n, p = sub_network, evidence.programs
    sizes = np.repeat(n.family_cardinalities, np.diff(n.bases) // n.family_cardinalities)
    set_ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    senders = np.flatnonzero(p.parent >= 0).astype(np.int32)
    by_parent = np.argsort(p.parent[senders], kind="stable")
    child_ptr = np.searchsorted(p.parent[senders][by_parent], np.arange(len(p.parent) + 1)).astype(np.int32)
    first_instance = np.full(len(p.cluster_ptr) - 1, -1, np.int64)
    first_instance[evidence.signature[::-1]] = np.arange(len(evidence.signature))[::-1]
    cell_maps, cell_ptr, width, group_ptr, group = _groups(
        n.bases, n.family_cardinalities, first_instance, evidence.offset_ptr, evidence.offsets, p.cluster_ptr, p.size,
        p.factor_ptr, p.slot, p.relative, p.maps,
    )  # fmt: skip
    ends = p.factor_ptr[p.cluster_ptr]
    cells, groups = np.diff(cell_ptr[ends]), np.diff(group_ptr[ends])
    need = int((8 * cells + 16 * groups)[evidence.signature].sum())
    if need > allowed_bytes:
        raise TooLargeError(
            f"EDML holds {int(groups[evidence.signature].sum()):,} votes of {len(evidence.signature):,} instances: "
            f"{need / 2**30:.3g} GiB, allowed {allowed_bytes / 2**30:.3g} GiB; use EM, which holds none, or give the "
            "worker more memory"
        )
    placed = _places(
        set_ptr, n.n_parameters, evidence.signature, evidence.counts, evidence.offset_ptr, evidence.offsets,
        p.cluster_ptr, p.factor_ptr, p.slot, width, group_ptr, group,
    )  # fmt: skip
    return Votes(set_ptr, child_ptr, senders[by_parent], cell_maps, cell_ptr, width, group_ptr, group, *placed)


# --- derivatives ---------------------------------------------------------------------------------------------------


@kernel
def _add_logs(a, b):
    if a < b:
        a, b = b, a
    return a if b == -np.inf else a + np.log1p(np.exp(b - a))


@kernel
def _differentiate_in_logs(i, theta, up, down, factor, before, cells, signature, offset_ptr, offsets, cluster_ptr,
                           size, parent, separator_size, message, up_map, down_map, factor_ptr, slot, relative, maps,
                           child_ptr, child, cell_maps, cell_ptr):  # fmt: skip
    """The two sweeps of `vote` in logarithms, products become sums: for the instance that leaves a double's range."""
    first, last = cluster_ptr[signature[i]], cluster_ptr[signature[i] + 1]
    origin = cell_ptr[factor_ptr[first]]
    base = offset_ptr[i]
    log_z = 0.0
    for e in range(cell_ptr[factor_ptr[last]] - origin):
        cells[e] = -np.inf
    for c in range(first, last):
        if parent[c] >= 0:
            for e in range(message[c], message[c] + separator_size[c]):
                up[e] = -np.inf
                down[e] = -np.inf
    for c in range(first, last):
        if parent[c] < 0:
            continue
        n_own = factor_ptr[c + 1] - factor_ptr[c]
        for t in range(size[c]):
            x = 0.0
            for j in range(n_own):
                at = relative[c] + t * n_own + j
                x += np.log(theta[offsets[base + slot[factor_ptr[c] + j]] + maps[at]])
            for b in range(child_ptr[c], child_ptr[c + 1]):
                x += up[message[child[b]] + maps[down_map[child[b]] + t]]
            e = message[c] + maps[up_map[c] + t]
            up[e] = _add_logs(up[e], x)
    for c in range(last - 1, first - 1, -1):
        n_own = factor_ptr[c + 1] - factor_ptr[c]
        n_all = n_own + child_ptr[c + 1] - child_ptr[c]
        z = -np.inf
        for t in range(size[c]):
            x = 0.0
            if parent[c] >= 0:
                x = down[message[c] + maps[up_map[c] + t]]
            for j in range(n_all):
                if j < n_own:
                    at = relative[c] + t * n_own + j
                    factor[j] = np.log(theta[offsets[base + slot[factor_ptr[c] + j]] + maps[at]])
                else:
                    b = child[child_ptr[c] + j - n_own]
                    factor[j] = up[message[b] + maps[down_map[b] + t]]
                before[j] = x
                x += factor[j]
            z = _add_logs(z, x)
            after = 0.0
            for j in range(n_all - 1, -1, -1):
                if j < n_own:
                    e = cell_maps[relative[c] + t * n_own + j]
                    cells[e] = _add_logs(cells[e], before[j] + after)
                else:
                    b = child[child_ptr[c] + j - n_own]
                    e = message[b] + maps[down_map[b] + t]
                    down[e] = _add_logs(down[e], before[j] + after)
                after += factor[j]
        if z == -np.inf:
            return z
        if parent[c] < 0:
            log_z += z
        # Nothing is rescaled, so every cluster of a tree has the same z.
        for e in range(cell_ptr[factor_ptr[c]] - origin, cell_ptr[factor_ptr[c + 1]] - origin):
            cells[e] = np.exp(cells[e] - z)
    return log_z


@kernel
def vote(theta, wanted, expected, values, scratch, arrays, layout):
    """Log likelihood of all instances; if wanted their votes into `values`, and expected counts.

    Returns the log likelihood and the first instance of probability zero, or -1.
    """
    (signature, counts, offset_ptr, offsets, cluster_ptr, size, _, parent, separator_size, message, up_map,
     down_map, factor_ptr, slot, relative, maps) = arrays  # fmt: skip
    child_ptr, child, cell_maps, cell_ptr, width, group_ptr, group, place_ptr, place = layout
    up, down, factor, before, cells = scratch
    total, part = 0.0, 0.0
    if wanted:
        for x in range(expected.shape[0]):
            expected[x] = 0.0
    for i in range(signature.shape[0]):
        if i % BLOCK == 0:
            total += part
            part = 0.0
        first, last = cluster_ptr[signature[i]], cluster_ptr[signature[i] + 1]
        if first == last:
            continue
        base = offset_ptr[i]
        origin = cell_ptr[factor_ptr[first]]
        in_range = True
        log_z = 0.0
        # ---- messages upwards, each scaled to a maximum of one; a root waits for the way down if there is one
        for c in range(first, last):
            root = parent[c] < 0
            if root and wanted:
                continue
            n_own = factor_ptr[c + 1] - factor_ptr[c]
            if not root:
                for e in range(message[c], message[c] + separator_size[c]):
                    up[e] = 0.0
            at = relative[c]
            z = 0.0
            for t in range(size[c]):
                x = 1.0
                for j in range(n_own):
                    x *= theta[offsets[base + slot[factor_ptr[c] + j]] + maps[at + j]]
                at += n_own
                for b in range(child_ptr[c], child_ptr[c + 1]):
                    x *= up[message[child[b]] + maps[down_map[child[b]] + t]]
                if root:
                    z += x
                else:
                    up[message[c] + maps[up_map[c] + t]] += x
            if not root:
                for e in range(message[c], message[c] + separator_size[c]):
                    z = max(z, up[e])
            if not z >= TINY:
                in_range = False
                break
            if not root:
                for e in range(message[c], message[c] + separator_size[c]):
                    up[e] /= z
            log_z += np.log(z)
        # ---- downwards: every factor's cofactor, and so every message down, leaves out what it is for
        if wanted and in_range:
            for e in range(cell_ptr[factor_ptr[last]] - origin):
                cells[e] = 0.0
            for c in range(last - 1, first - 1, -1):
                n_own = factor_ptr[c + 1] - factor_ptr[c]
                first_child, n_children = child_ptr[c], child_ptr[c + 1] - child_ptr[c]
                for b in range(first_child, first_child + n_children):
                    for e in range(message[child[b]], message[child[b]] + separator_size[child[b]]):
                        down[e] = 0.0
                at = relative[c]
                z = 0.0
                for t in range(size[c]):
                    x = 1.0
                    if parent[c] >= 0:
                        x = down[message[c] + maps[up_map[c] + t]]
                    for j in range(n_own):
                        factor[j] = theta[offsets[base + slot[factor_ptr[c] + j]] + maps[at + j]]
                        before[j] = x
                        x *= factor[j]
                    after = 1.0
                    if n_children > 0:
                        for j in range(n_children):
                            b = child[first_child + j]
                            factor[n_own + j] = up[message[b] + maps[down_map[b] + t]]
                            before[n_own + j] = x
                            x *= factor[n_own + j]
                        for j in range(n_children - 1, -1, -1):
                            b = child[first_child + j]
                            down[message[b] + maps[down_map[b] + t]] += before[n_own + j] * after
                            after *= factor[n_own + j]
                    z += x
                    for j in range(n_own - 1, -1, -1):
                        cells[cell_maps[at + j]] += before[j] * after
                        after *= factor[j]
                    at += n_own
                if not z >= TINY:
                    in_range = False
                    break
                if parent[c] < 0:
                    log_z += np.log(z)
                for e in range(cell_ptr[factor_ptr[c]] - origin, cell_ptr[factor_ptr[c + 1]] - origin):
                    cells[e] /= z
                for j in range(first_child, first_child + n_children):
                    b = child[j]
                    top = 0.0
                    for e in range(message[b], message[b] + separator_size[b]):
                        top = max(top, down[e])
                    for e in range(message[b], message[b] + separator_size[b]):
                        down[e] /= top if top > 0 else 1.0
        if not in_range:
            log_z = _differentiate_in_logs(i, theta, up, down, factor, before, cells, signature, offset_ptr, offsets,
                                           cluster_ptr, size, parent, separator_size, message, up_map, down_map,
                                           factor_ptr, slot, relative, maps, child_ptr, child, cell_maps,
                                           cell_ptr)  # fmt: skip
            if log_z == -np.inf:
                return log_z, i
        part += counts[i] * log_z
        if not wanted:
            continue
        # ---- from derivatives of log Z to votes
        at = place_ptr[i]
        e = 0
        for q in range(factor_ptr[first], factor_ptr[last]):
            k = width[q]
            offset = offsets[base + slot[q]]
            alone = group_ptr[q + 1] - group_ptr[q] == 1
            for g in range(group_ptr[q], group_ptr[q + 1]):
                p = offset + group[g]
                to = place[at]
                at += 1
                mass = 0.0
                for x in range(k):
                    share = theta[p + x] * cells[e + x]
                    expected[p + x] += counts[i] * share
                    mass += share
                other = 0.0 if alone else max(0.0, 1.0 - mass)
                if k == 1:
                    values[to] = other / (other + cells[e]) if cells[e] > NEUTRAL else 1.0
                else:
                    low, top = cells[e], cells[e]
                    for x in range(1, k):
                        low, top = min(low, cells[e + x]), max(top, cells[e + x])
                    if top - low <= NEUTRAL * (other + top):
                        values[to] = -1.0
                    else:
                        for x in range(k):
                            values[to + x] = (other + cells[e + x]) / (other + top)
                e += k
    return total + part, -1


# --- one parameter set ---------------------------------------------------------------------------------------------


def _scratch_sizes(evidence: Evidence, votes: Votes) -> tuple[int, int]:
    """Most factors and messages that meet in a cluster, and most derivatives of a signature."""
    p = evidence.programs
    factors = np.diff(p.factor_ptr) + np.diff(votes.child_ptr)
    cells = np.diff(votes.cell_ptr[p.factor_ptr[p.cluster_ptr]])
    return int(factors.max(initial=1)), int(cells.max(initial=1))


def cast_votes(evidence: Evidence, votes: Votes, theta: Floats) -> tuple[Floats, float, int]:
    """Cast all votes under given parameters, into `votes.values`.

    Parameters
    ----------
    evidence : Evidence
        The instances.
    votes : Votes
        From `make_votes`; its values are overwritten.
    theta : float64 array, shape (n_parameters,)
        Parameters; not mutated.

    Returns
    -------
    expected : float64 array, shape (n_parameters,)
        Expected counts of the instances.
    log_likelihood : float, nats
    impossible : int
        The first instance of probability zero, or -1; with one, nothing else means anything.
    """
    expected = np.zeros(len(theta))
    n_factors, n_cells = _scratch_sizes(evidence, votes)
    n = evidence.scratch_size
    scratch = (np.empty(n), np.empty(n), np.empty(n_factors), np.empty(n_factors), np.empty(n_cells))
    log_likelihood, where = vote(theta, True, expected, votes.values, scratch, evidence.arrays, votes.layout)
    return expected, float(log_likelihood), int(where)
