"""The E-step: one small inference an instance, and the expected counts it yields.

For each instance, clusters are filled children first, each from its families' parameters and its children's messages,
and scaled so that its own message has a maximum of one; the way back down turns tables into beliefs, which are added to
the expected counts. Where a product loses digits at the end of a double's range, and the instance's probability is so
small that they may matter, it is done again in logarithms: nothing underflows silently.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.elimination import Programs
from tasks.instances import InstanceTable
from tasks.kernel import kernel
from tasks.subnetwork import Ints, SubNetwork

TINY = 1e-250
LOG_TINY = -575.0
# Products below this are near the end of a double's range, where digits go missing.
LOSSY = 1e-290
# Expected counts are summed inside fixed blocks of instances and then over a fixed binary tree of blocks: the same
# additions in the same order whether one call or many workers do them.
MIN_BLOCK = 1024
MAX_BLOCKS = 64
MAX_PARTIALS = 1 << 22


@dataclass(frozen=True)
class Evidence:
    """Everything the E-step of a sub-network needs, besides the parameters.

    Attributes
    ----------
    signature : int32 array, shape (n_instances,)
        Which program runs each instance.
    counts : float64 array, shape (n_instances,)
        Examples each instance stands for.
    offset_ptr : int64 array, shape (n_instances + 1,)
        Each instance's part of `offsets`.
    offsets : int32 array
        For each of the signature's families, the parameter at which the observed members place it.
    programs : Programs
        By signature.
    """

    signature: Ints
    counts: NDArray[np.float64]
    offset_ptr: NDArray[np.int64]
    offsets: Ints
    programs: Programs

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """The arrays in the order the kernels take them."""
        p = self.programs
        return (
            self.signature, self.counts, self.offset_ptr, self.offsets, p.cluster_ptr, p.size, p.table, p.parent,
            p.separator_size, p.message, p.up, p.down, p.factor_ptr, p.slot, p.relative, p.maps,
        )  # fmt: skip

    @property
    def scratch_size(self) -> int:
        """Entries of scratch that the largest inference needs."""
        return int(self.programs.scratch.max(initial=1))


def block_size(n_instances: int, n_parameters: int) -> int:
    """Instances a block: a function of the problem alone, so that sums do not depend on who does them."""
    blocks = max(1, min(MAX_BLOCKS, MAX_PARTIALS // max(n_parameters, 1)))
    return max(MIN_BLOCK, -(-n_instances // blocks))


@kernel
def _offsets(signature, value_ptr, values, family_ptr, families, boundary_ptr, boundary, net_ptr, members, strides,
             bases, n_variables):  # fmt: skip
    n = signature.shape[0]
    ptr = np.zeros(n + 1, np.int64)
    for i in range(n):
        ptr[i + 1] = ptr[i] + family_ptr[signature[i] + 1] - family_ptr[signature[i]]
    out = np.empty(ptr[n], np.int32)
    value = np.zeros(n_variables, np.int64)
    for i in range(n):
        s = signature[i]
        for k in range(boundary_ptr[s], boundary_ptr[s + 1]):
            value[boundary[k]] = values[value_ptr[i] + k - boundary_ptr[s]]
        for k in range(family_ptr[s], family_ptr[s + 1]):
            f = families[k]
            offset = bases[f]
            for m in range(net_ptr[f], net_ptr[f + 1]):
                offset += strides[m] * value[members[m]]
            out[ptr[i] + k - family_ptr[s]] = offset
        for k in range(boundary_ptr[s], boundary_ptr[s + 1]):
            value[boundary[k]] = 0
    return ptr, out


def make_evidence(sub_network: SubNetwork, instances: InstanceTable, programs: Programs) -> Evidence:
    """Place every instance's families in the flat vector of parameters."""
    n, t = sub_network, instances
    ptr, offsets = _offsets(
        t.signature, t.value_ptr, t.values, t.family_ptr, t.families, t.boundary_ptr, t.boundary,
        n.family_ptr, n.members, n.strides, n.bases, len(n.names),
    )  # fmt: skip
    return Evidence(t.signature, t.counts.astype(np.float64), ptr, offsets, programs)


@kernel
def _infer_in_logs(i, log_theta, expected, scratch, belief, signature, counts, offset_ptr, offsets, cluster_ptr, size,
                   table, parent, separator_size, message, up, down, factor_ptr, slot, relative, maps):  # fmt: skip
    """The same two sweeps in logarithms: for the rare instance whose products leave the range of a double."""
    s = signature[i]
    log_z = 0.0
    for e in range(scratch.shape[0]):
        scratch[e] = -np.inf
    for c in range(cluster_ptr[s], cluster_ptr[s + 1]):
        n_own = factor_ptr[c + 1] - factor_ptr[c]
        for t in range(size[c]):
            x = 0.0
            for j in range(n_own):
                x += log_theta[offsets[offset_ptr[i] + slot[factor_ptr[c] + j]] + maps[relative[c] + t * n_own + j]]
            scratch[table[c] + t] = x
    for c in range(cluster_ptr[s], cluster_ptr[s + 1]):
        own = scratch[table[c] : table[c] + size[c]]
        p = parent[c]
        if p < 0:
            top, total = -np.inf, 0.0
            for t in range(size[c]):
                top = max(top, own[t])
            if top == -np.inf:
                return top
            for t in range(size[c]):
                total += np.exp(own[t] - top)
            log_z += top + np.log(total)
            continue
        sums = np.zeros(separator_size[c])
        for t in range(size[c]):
            e = message[c] + maps[up[c] + t]
            scratch[e] = max(scratch[e], own[t])
        for t in range(size[c]):
            e = maps[up[c] + t]
            if own[t] > -np.inf:
                sums[e] += np.exp(own[t] - scratch[message[c] + e])
        for e in range(separator_size[c]):
            if sums[e] > 0:
                scratch[message[c] + e] += np.log(sums[e])
        for t in range(size[p]):
            scratch[table[p] + t] += scratch[message[c] + maps[down[c] + t]]
    for c in range(cluster_ptr[s + 1] - 1, cluster_ptr[s] - 1, -1):
        own = scratch[table[c] : table[c] + size[c]]
        total = 0.0
        if parent[c] < 0:
            top = -np.inf
            for t in range(size[c]):
                top = max(top, own[t])
            for t in range(size[c]):
                belief[table[c] + t] = np.exp(own[t] - top)
                total += belief[table[c] + t]
        else:
            p = parent[c]
            marginal = np.zeros(separator_size[c])
            for t in range(size[p]):
                marginal[maps[down[c] + t]] += belief[table[p] + t]
            for t in range(size[c]):
                e = maps[up[c] + t]
                x = 0.0
                if own[t] > -np.inf and marginal[e] > 0:
                    x = marginal[e] * np.exp(own[t] - scratch[message[c] + e])
                belief[table[c] + t] = x
                total += x
        n_own = factor_ptr[c + 1] - factor_ptr[c]
        for t in range(size[c]):
            belief[table[c] + t] /= total
            for j in range(n_own):
                at = offsets[offset_ptr[i] + slot[factor_ptr[c] + j]] + maps[relative[c] + t * n_own + j]
                expected[at] += counts[i] * belief[table[c] + t]
    return log_z


@kernel
def sweep(theta, expected, block, scratch, belief, arrays):
    """E-step of all instances, block by block: expected counts into row b of `expected`, log likelihoods.

    Returns the blocks' log likelihoods and the first instance of probability zero, or -1.
    """
    # One function: handing this many arrays to another would cost as much as a small inference.
    n_blocks = expected.shape[0]
    log_likelihood = np.zeros(n_blocks)
    log_theta = np.empty(0)
    (signature, counts, offset_ptr, offsets, cluster_ptr, size, table, parent, separator_size, message, up, down,
     factor_ptr, slot, relative, maps) = arrays  # fmt: skip
    for b in range(n_blocks):
        counted = expected[b]
        for x in range(counted.shape[0]):
            counted[x] = 0.0
        for i in range(b * block, min((b + 1) * block, arrays[0].shape[0])):
            s = signature[i]
            first, last = cluster_ptr[s], cluster_ptr[s + 1]
            if first == last:
                continue
            base = offset_ptr[i]
            in_range, lossy = True, False
            log_z = 0.0
            if last - first == 1:
                # One table: fill it, and spread it over the parameters it was made of.
                n_own = factor_ptr[last] - factor_ptr[first]
                at = relative[first]
                z, top = 0.0, 0.0
                for t in range(size[first]):
                    x = 1.0
                    for j in range(n_own):
                        x *= theta[offsets[base + j] + maps[at + j]]
                    at += n_own
                    scratch[t] = x
                    z += x
                    top = max(top, x)
                if top >= TINY:
                    share = counts[i] / z
                    at = relative[first]
                    for t in range(size[first]):
                        x = scratch[t] * share
                        for j in range(n_own):
                            counted[offsets[base + j] + maps[at + j]] += x
                        at += n_own
                    log_z = np.log(z)
                else:
                    in_range = False
            else:
                for c in range(first, last):
                    n_own = factor_ptr[c + 1] - factor_ptr[c]
                    at = relative[c]
                    own = slot[factor_ptr[c] : factor_ptr[c + 1]]
                    for t in range(size[c]):
                        x = 1.0
                        for j in range(n_own):
                            x *= theta[offsets[base + own[j]] + maps[at + j]]
                        if x < LOSSY:
                            possible = True
                            for j in range(n_own):
                                possible = possible and theta[offsets[base + own[j]] + maps[at + j]] > 0.0
                            lossy = lossy or possible
                        at += n_own
                        scratch[table[c] + t] = x
                scale = 1.0
                for c in range(first, last):
                    here, p = table[c], parent[c]
                    top = 0.0
                    if p < 0:
                        for t in range(size[c]):
                            top += scratch[here + t]
                    else:
                        for e in range(message[c], message[c] + separator_size[c]):
                            scratch[e] = 0.0
                        for t in range(size[c]):
                            scratch[message[c] + maps[up[c] + t]] += scratch[here + t]
                        for e in range(message[c], message[c] + separator_size[c]):
                            top = max(top, scratch[e])
                    if not top >= LOSSY:
                        in_range = False
                        break
                    if scale * top < TINY:
                        log_z += np.log(scale)
                        scale = 1.0
                    scale *= top
                    # Messages are scaled to a maximum of one, so that no product of many can overflow; the table is
                    # divided alike: a message scaled alone gives the right Z and wrong counts.
                    divide = 1.0 / top
                    for t in range(size[c]):
                        scratch[here + t] *= divide
                    if p >= 0:
                        for e in range(message[c], message[c] + separator_size[c]):
                            scratch[e] *= divide
                        for t in range(size[p]):
                            m = scratch[message[c] + maps[down[c] + t]]
                            x = scratch[table[p] + t]
                            lossy = lossy or (x * m < LOSSY and x > 0.0 and m > 0.0)
                            scratch[table[p] + t] = x * m
                log_z += np.log(scale)
                # Whatever was lost is below 1e-290 and cannot show in a larger sum; in a smaller one it may be all.
                in_range = in_range and not (lossy and log_z < LOG_TINY)
                if in_range:
                    for c in range(last - 1, first - 1, -1):
                        here, p = table[c], parent[c]
                        if p >= 0:
                            # The belief is the table times (parent's marginal / own message) on the separator.
                            for e in range(separator_size[c]):
                                belief[e] = 0.0
                            for t in range(size[p]):
                                belief[maps[down[c] + t]] += scratch[table[p] + t]
                            for e in range(separator_size[c]):
                                m = scratch[message[c] + e]
                                belief[e] = belief[e] / m if m > 0 else 0.0
                            for t in range(size[c]):
                                scratch[here + t] *= belief[maps[up[c] + t]]
                        n_own = factor_ptr[c + 1] - factor_ptr[c]
                        own = slot[factor_ptr[c] : factor_ptr[c + 1]]
                        at = relative[c]
                        for t in range(size[c]):
                            x = scratch[here + t] * counts[i]
                            for j in range(n_own):
                                counted[offsets[base + own[j]] + maps[at + j]] += x
                            at += n_own
            if not in_range:
                if log_theta.shape[0] == 0:
                    log_theta = np.empty(theta.shape[0])
                    for x in range(theta.shape[0]):
                        log_theta[x] = np.log(theta[x])
                log_z = _infer_in_logs(i, log_theta, counted, scratch, belief, signature, counts, offset_ptr, offsets,
                                       cluster_ptr, size, table, parent, separator_size, message, up, down, factor_ptr,
                                       slot, relative, maps)  # fmt: skip
                if log_z == -np.inf:
                    return log_likelihood, i
            log_likelihood[b] += counts[i] * log_z
    return log_likelihood, -1


@kernel
def tree_add(expected, log_likelihood):
    """Add rows pairwise, in place, along the fixed binary tree over blocks: the sum ends in row 0."""
    n = expected.shape[0]
    step = 1
    while step < n:
        for b in range(0, n - step, 2 * step):
            expected[b] += expected[b + step]
            log_likelihood[b] += log_likelihood[b + step]
        step *= 2
