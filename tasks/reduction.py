"""From rows to instances, in one pass over a partition.

row ──► which variables are missing ──► drop barren ones ──► tie those that share a family ──► components
                                                                                               │
           instance = (component's signature, values of its observed neighbours)  ◄────────────┘   + 1
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.instances import InstanceTable, canonical, grow, mix
from tasks.kernel import kernel
from tasks.subnetwork import SubNetwork

# A signature with at most this many boundary values counts into a dense block instead of the hash table (3 ns against
# 20 ns a row); all blocks together stay below DENSE_TOTAL entries.
DENSE = 1024
DENSE_TOTAL = 1 << 22
# Patterns of missingness remembered: beyond, a pattern is analysed anew (about 0.2 µs) rather than stored.
MAX_PATTERNS = 1 << 16
BLOCK = 2048


@kernel
def _new_slots(size, hashes, n):
    slots = np.full(size, -1, np.int64)
    mask = np.uint64(size - 1)
    for i in range(n):
        at = hashes[i] & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = i
    return slots


@kernel
def _sort(items, begin, end):
    # Insertion sort in place: a component has a handful of members, and numpy's sort would allocate.
    for i in range(begin + 1, end):
        x = items[i]
        j = i - 1
        while j >= begin and items[j] > x:
            items[j + 1] = items[j]
            j -= 1
        items[j + 1] = x


@kernel
def _reduce(codes, weights, cardinalities, columns, may_miss, family_ptr, members, incidence_ptr, incidence,
            drop_barren, by_row):  # fmt: skip
    # One function: handing this many arrays to another would cost as much as what it does for a row.
    n_variables = cardinalities.shape[0]
    n_families = family_ptr.shape[0] - 1
    n_rows = codes.shape[1]
    weighted = weights.shape[0] > 0
    missable = np.flatnonzero(may_miss).astype(np.int32)
    n_words = (missable.shape[0] + 63) // 64
    base_mask = np.zeros(n_words, np.uint64)
    for j in range(missable.shape[0]):
        if columns[missable[j]] < 0:
            base_mask[j >> 6] |= np.uint64(1) << np.uint64(j & 63)

    # Scratch of the analysis of one pattern. A stamp marks what belongs to the component being built.
    is_missing = np.zeros(n_variables, np.bool_)
    relevant = np.zeros(n_variables, np.bool_)
    missing = np.empty(n_variables, np.int32)
    hidden = np.empty(n_variables, np.int32)
    tied = np.empty(n_families, np.int32)
    variable_stamp = np.full(n_variables, -1, np.int64)
    family_stamp = np.full(n_families, -1, np.int64)
    stamp = 0

    # Signatures: hidden, families and boundary lie one after another in the arena, split at s_split.
    s_ptr = np.zeros(64, np.int64)
    s_arena = np.empty(1024, np.int32)
    s_hash = np.empty(64, np.uint64)
    s_hidden = np.empty(64, np.int64)
    s_families = np.empty(64, np.int64)
    s_dense = np.empty(64, np.int64)
    s_slots = _new_slots(1024, s_hash, 0)
    n_signatures = 0
    dense = np.empty(1024, weights.dtype)
    n_dense = 0

    # Patterns: mask of missing variables -> its signatures.
    p_arena = np.empty(64 * n_words, np.uint64)
    p_hash = np.empty(64, np.uint64)
    p_slots = _new_slots(256, p_hash, 0)
    p_sig_ptr = np.zeros(64, np.int64)
    p_sig = np.empty(256, np.int32)
    n_patterns, n_pattern_sigs = 0, 0

    # Instances.
    i_ptr = np.zeros(1024, np.int64)
    i_arena = np.empty(8192, np.int32)
    i_tag = np.empty(1024, np.int32)
    i_hash = np.empty(1024, np.uint64)
    i_count = np.empty(1024, weights.dtype)
    i_slots = _new_slots(4096, i_hash, 0)
    n_instances = 0
    values = np.empty(max(n_variables, 1), np.int32)

    masks = np.empty((BLOCK, n_words), np.uint64)
    last = -1
    for begin in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - begin)
        for w in range(n_words):
            for r in range(n):
                masks[r, w] = base_mask[w]
        for j in range(missable.shape[0]):
            c = columns[missable[j]]
            if c >= 0:
                w = j >> 6
                shift = np.uint64(j & 63)
                column = codes[c, begin : begin + n]
                for r in range(n):
                    masks[r, w] |= np.uint64(column[r] < 0) << shift
        for r in range(n):
            if weighted and weights[begin + r] == 0:
                continue
            anything = np.uint64(0)
            same = last >= 0
            for w in range(n_words):
                m = masks[r, w]
                anything |= m
                same = same and m == p_arena[last * n_words + w]
            if anything == 0 and not by_row:
                continue
            free_slot = np.uint64(0)
            h = np.uint64(7)
            if not same:
                for w in range(n_words):
                    h = mix(h, masks[r, w])
                slot_mask = np.uint64(p_slots.shape[0] - 1)
                free_slot = h & slot_mask
                last = -1
                while p_slots[free_slot] >= 0:
                    p = p_slots[free_slot]
                    if p_hash[p] == h:
                        same = True
                        for w in range(n_words):
                            same = same and masks[r, w] == p_arena[p * n_words + w]
                        if same:
                            last = p
                            break
                    free_slot = (free_slot + np.uint64(1)) & slot_mask
            if last >= 0:
                sig_begin, sig_end = p_sig_ptr[last], p_sig_ptr[last + 1]
            else:
                # A new pattern. Its missing variables ascend and parents come before children, so a backward sweep
                # knows each child's relevance in time: missing, and no child relevant, is barren.
                n_missing = 0
                for w in range(n_words):
                    m = masks[r, w]
                    j = 64 * w
                    while m != 0:
                        if m & np.uint64(255) == 0:
                            m >>= np.uint64(8)
                            j += 8
                            continue
                        if m & np.uint64(1):
                            missing[n_missing] = missable[j]
                            is_missing[missable[j]] = True
                            n_missing += 1
                        m >>= np.uint64(1)
                        j += 1
                for k in range(n_missing - 1, -1, -1):
                    v = missing[k]
                    keep = not drop_barren
                    for j in range(incidence_ptr[v], incidence_ptr[v + 1]):
                        if keep:
                            break
                        child = members[family_ptr[incidence[j] + 1] - 1]
                        if child != v:
                            keep = (not is_missing[child]) or relevant[child]
                    relevant[v] = keep
                sig_begin = n_pattern_sigs
                sig_end = sig_begin
                row_stamp = stamp
                k = 0
                while k < n_missing or (by_row and k == n_missing and sig_end == sig_begin):
                    n_hidden, n_tied, at = 0, 0, 0
                    h2 = np.uint64(0)
                    if k < n_missing:
                        root = missing[k]
                        if not relevant[root] or variable_stamp[root] > row_stamp:
                            k += 1
                            continue
                        stamp += 1
                        hidden[0] = root
                        variable_stamp[root] = stamp
                        n_hidden = 1
                        if by_row:
                            for j in range(k + 1, n_missing):
                                if relevant[missing[j]]:
                                    hidden[n_hidden] = missing[j]
                                    variable_stamp[missing[j]] = stamp
                                    n_hidden += 1
                    else:
                        stamp += 1
                    k += 1
                    # The list is never popped: once it is worked off it holds the whole component. The hash is a sum,
                    # so that it does not depend on the order in which members are met.
                    while at < n_hidden:
                        v = hidden[at]
                        at += 1
                        h2 += mix(np.uint64(3), v)
                        for j in range(incidence_ptr[v], incidence_ptr[v + 1]):
                            f = incidence[j]
                            if family_stamp[f] == stamp:
                                continue
                            child = members[family_ptr[f + 1] - 1]
                            if is_missing[child] and not relevant[child]:
                                continue
                            family_stamp[f] = stamp
                            tied[n_tied] = f
                            n_tied += 1
                            h2 += mix(np.uint64(5), f)
                            for m2 in range(family_ptr[f], family_ptr[f + 1]):
                                u = members[m2]
                                if is_missing[u] and variable_stamp[u] != stamp:
                                    variable_stamp[u] = stamp
                                    hidden[n_hidden] = u
                                    n_hidden += 1
                    if by_row:
                        for j in range(n_missing):
                            h2 += mix(np.uint64(9), missing[j])
                    h2 = mix(h2, n_hidden)
                    slot_mask = np.uint64(s_slots.shape[0] - 1)
                    place = h2 & slot_mask
                    s = -1
                    while s_slots[place] >= 0:
                        t = s_slots[place]
                        if s_hash[t] == h2 and s_hidden[t] == n_hidden and s_families[t] == n_tied:
                            equal = True
                            lo = s_ptr[t]
                            for j in range(lo, lo + n_hidden):
                                equal = equal and variable_stamp[s_arena[j]] == stamp
                            for j in range(lo + n_hidden, lo + n_hidden + n_tied):
                                equal = equal and family_stamp[s_arena[j]] == stamp
                            if by_row:
                                # The boundary is everything observed: barren variables tell patterns apart too.
                                equal = equal and s_ptr[t + 1] - lo - n_hidden - n_tied == n_variables - n_missing
                                for j in range(lo + n_hidden + n_tied, s_ptr[t + 1]):
                                    equal = equal and not is_missing[s_arena[j]]
                            if equal:
                                s = t
                                break
                        place = (place + np.uint64(1)) & slot_mask
                    if s < 0:
                        s = n_signatures
                        s_slots[place] = s
                        n_signatures += 1
                        s_ptr = grow(s_ptr, n_signatures + 1)
                        s_hash = grow(s_hash, n_signatures)
                        s_dense = grow(s_dense, n_signatures)
                        s_hidden = grow(s_hidden, n_signatures)
                        s_families = grow(s_families, n_signatures)
                        s_arena = grow(s_arena, s_ptr[s] + n_hidden + n_tied + max(n_variables, members.shape[0]))
                        end = s_ptr[s]
                        for j in range(n_hidden):
                            s_arena[end + j] = hidden[j]
                        _sort(s_arena, end, end + n_hidden)
                        end += n_hidden
                        for j in range(n_tied):
                            s_arena[end + j] = tied[j]
                        _sort(s_arena, end, end + n_tied)
                        end += n_tied
                        first = end
                        if by_row:
                            for v in range(n_variables):
                                if not is_missing[v]:
                                    s_arena[end] = v
                                    end += 1
                        else:
                            for j in range(n_tied):
                                for m2 in range(family_ptr[tied[j]], family_ptr[tied[j] + 1]):
                                    u = members[m2]
                                    if not is_missing[u] and variable_stamp[u] != stamp:
                                        variable_stamp[u] = stamp
                                        s_arena[end] = u
                                        end += 1
                            _sort(s_arena, first, end)
                        s_ptr[s + 1] = end
                        s_hash[s] = h2
                        s_hidden[s] = n_hidden
                        s_families[s] = n_tied
                        size = 1
                        for j in range(first, end):
                            if size <= DENSE:
                                size *= cardinalities[s_arena[j]]
                        s_dense[s] = -1
                        if size <= DENSE and n_dense + size <= DENSE_TOTAL:
                            s_dense[s] = n_dense
                            dense = grow(dense, n_dense + size)
                            for j in range(n_dense, n_dense + size):
                                dense[j] = 0
                            n_dense += size
                        if 2 * n_signatures > s_slots.shape[0]:
                            s_slots = _new_slots(2 * s_slots.shape[0], s_hash, n_signatures)
                    p_sig = grow(p_sig, sig_end + 1)
                    p_sig[sig_end] = s
                    sig_end += 1
                for k in range(n_missing):
                    is_missing[missing[k]] = False
                if n_patterns < MAX_PATTERNS:
                    p_slots[free_slot] = n_patterns
                    p_hash = grow(p_hash, n_patterns + 1)
                    p_sig_ptr = grow(p_sig_ptr, n_patterns + 2)
                    p_arena = grow(p_arena, (n_patterns + 1) * n_words)
                    for w in range(n_words):
                        p_arena[n_patterns * n_words + w] = masks[r, w]
                    p_hash[n_patterns] = h
                    p_sig_ptr[n_patterns + 1] = sig_end
                    n_pattern_sigs = sig_end
                    last = n_patterns
                    n_patterns += 1
                    if 2 * n_patterns > p_slots.shape[0]:
                        p_slots = _new_slots(2 * p_slots.shape[0], p_hash, n_patterns)
            weight = weights[begin + r] if weighted else weights.dtype.type(1)
            for k in range(sig_begin, sig_end):
                s = p_sig[k]
                lo = s_ptr[s] + s_hidden[s] + s_families[s]
                n_values = s_ptr[s + 1] - lo
                if s_dense[s] >= 0:
                    key = 0
                    for j in range(n_values):
                        v = s_arena[lo + j]
                        key = key * cardinalities[v] + codes[columns[v], begin + r]
                    dense[s_dense[s] + key] += weight
                    continue
                h = mix(np.uint64(13), s)
                for j in range(n_values):
                    x = codes[columns[s_arena[lo + j]], begin + r]
                    values[j] = x
                    h = mix(h, x)
                slot_mask = np.uint64(i_slots.shape[0] - 1)
                place = h & slot_mask
                i = -1
                while i_slots[place] >= 0:
                    t = i_slots[place]
                    if i_hash[t] == h and i_tag[t] == s:
                        equal = True
                        for j in range(n_values):
                            equal = equal and i_arena[i_ptr[t] + j] == values[j]
                        if equal:
                            i = t
                            break
                    place = (place + np.uint64(1)) & slot_mask
                if i >= 0:
                    i_count[i] += weight
                    continue
                i = n_instances
                i_slots[place] = i
                n_instances += 1
                i_ptr = grow(i_ptr, n_instances + 1)
                i_tag = grow(i_tag, n_instances)
                i_hash = grow(i_hash, n_instances)
                i_count = grow(i_count, n_instances)
                i_arena = grow(i_arena, i_ptr[i] + n_values)
                for j in range(n_values):
                    i_arena[i_ptr[i] + j] = values[j]
                i_ptr[i + 1] = i_ptr[i] + n_values
                i_tag[i] = s
                i_hash[i] = h
                i_count[i] = weight
                if 2 * n_instances > i_slots.shape[0]:
                    i_slots = _new_slots(2 * i_slots.shape[0], i_hash, n_instances)

    # Dense blocks become ordinary instances.
    for s in range(n_signatures):
        if s_dense[s] < 0:
            continue
        lo = s_ptr[s] + s_hidden[s] + s_families[s]
        n_values = s_ptr[s + 1] - lo
        size = 1
        for j in range(n_values):
            size *= cardinalities[s_arena[lo + j]]
        for key in range(size):
            if dense[s_dense[s] + key] == 0:
                continue
            i = n_instances
            n_instances += 1
            i_ptr = grow(i_ptr, n_instances + 1)
            i_tag = grow(i_tag, n_instances)
            i_count = grow(i_count, n_instances)
            i_arena = grow(i_arena, i_ptr[i] + n_values)
            rest = key
            for j in range(n_values - 1, -1, -1):
                cardinality = cardinalities[s_arena[lo + j]]
                i_arena[i_ptr[i] + j] = rest % cardinality
                rest //= cardinality
            i_ptr[i + 1] = i_ptr[i] + n_values
            i_tag[i] = s
            i_count[i] = dense[s_dense[s] + key]
    split = np.empty((n_signatures, 2), np.int64)
    split[:, 0] = s_hidden[:n_signatures]
    split[:, 1] = s_families[:n_signatures]
    return (
        s_arena[: s_ptr[n_signatures]].copy(), s_ptr[: n_signatures + 1].copy(), split,
        i_tag[:n_instances].astype(np.int64), i_ptr[: n_instances + 1].copy(), i_arena[: i_ptr[n_instances]].copy(),
        i_count[:n_instances].copy(),
    )  # fmt: skip


def reduce_rows(
    codes: NDArray[np.int8] | NDArray[np.int16],
    weights: NDArray[np.int64] | NDArray[np.float64],
    sub_network: SubNetwork,
    drop_barren: bool = True,
    by_row: bool = False,
) -> InstanceTable:
    """Reduce a partition to the distinct instances of a sub-network.

    Parameters
    ----------
    codes : int8 or int16 array, shape (n_columns, n_rows)
        State codes of a partition; -1 is missing.
    weights : int64 or float64 array, shape (n_rows,) or (0,)
        How many examples each row stands for; empty where each stands for one.
    sub_network : SubNetwork
        The learning problem.
    drop_barren : bool
        Leave out missing variables without an observed descendant, and their families: they sum to one.
    by_row : bool
        Keep whole projected rows instead, one instance a distinct row: the reference that the papers compare with.

    Returns
    -------
    InstanceTable
        In canonical order. Rows that observe everything add nothing unless `by_row`.

    Notes
    -----
    One pass over the rows; patterns of missingness, signatures and instances are each found in a hash table whose
    matches are confirmed exactly. Nothing is mutated.

    References
    ----------
    Refaat (2015), sections 6.2 (projected datasets) and 7.4; barren variables: Shachter (1986).
    """
    s = sub_network
    arena, ptr, split, tag, value_ptr, values, counts = _reduce(
        codes,
        weights,
        s.cardinalities,
        s.columns,
        s.may_miss,
        s.family_ptr,
        s.members,
        *s.incidence,
        drop_barren,
        by_row,
    )
    return canonical(split, ptr, arena, tag, value_ptr, values, counts)
