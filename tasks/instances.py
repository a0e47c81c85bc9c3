"""A sub-network's data, reduced to what learning depends on: distinct (hidden component, boundary values) pairs.

    row ──► which variables are missing ──► drop barren ones ──► tie those that share a family ──► components
                                                                                                   │
               instance = (component's signature, values of its observed neighbours)  ◄────────────┘   + 1

A *signature* is a hidden component with the families it takes part in; an *instance* is a signature with the values
of the observed variables in those families (its boundary). Rows repeat few of them, and an iteration of EM costs one
small inference per instance, however many rows stand behind it. Fully observed families are counted apart
(`tasks.counting`). Tables add up over partitions like any counts; `merge_instances` puts them in canonical order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.subnetwork import Ints, SubNetwork

# A signature with at most this many boundary values counts into a dense block instead of the hash table (3 ns against
# 20 ns a row); all blocks together stay below DENSE_TOTAL entries.
DENSE = 1024
DENSE_TOTAL = 1 << 22
# Patterns of missingness remembered: beyond, a pattern is analysed anew (about 0.2 µs) rather than stored.
MAX_PATTERNS = 1 << 16
BLOCK = 2048


@dataclass(frozen=True)
class InstanceTable:
    """Distinct instances of a sub-network and how many examples each stands for.

    Attributes
    ----------
    hidden_ptr, family_ptr, boundary_ptr : int32 arrays, shape (n_signatures + 1,)
        Where each signature's part of the next three arrays begins.
    hidden, families, boundary : int32 arrays
        Local variables of the hidden component; numbers of the free families it takes part in; observed variables
        of those families. Each ascending within a signature.
    signature : int32 array, shape (n_instances,)
        Each instance's signature, ascending.
    value_ptr : int64 array, shape (n_instances + 1,)
        Where each instance's part of `values` begins.
    values : int16 array
        State codes of the signature's boundary variables.
    counts : int64 or float64 array, shape (n_instances,)
        Examples each instance stands for.
    """

    hidden_ptr: Ints
    hidden: Ints
    family_ptr: Ints
    families: Ints
    boundary_ptr: Ints
    boundary: Ints
    signature: Ints
    value_ptr: NDArray[np.int64]
    values: NDArray[np.int16]
    counts: NDArray[np.int64] | NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def n_signatures(self) -> int:
        """How many kinds of hidden component there are."""
        return len(self.hidden_ptr) - 1

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return sum(int(getattr(self, f.name).nbytes) for f in fields(self))

    def describe(self, instance: int, sub_network: SubNetwork) -> tuple[tuple[str, ...], dict[str, int]]:
        """The hidden variables' names and the boundary's values of an instance, for messages."""
        s = int(self.signature[instance])
        hidden = tuple(sub_network.names[int(v)] for v in self.hidden[self.hidden_ptr[s] : self.hidden_ptr[s + 1]])
        boundary = self.boundary[self.boundary_ptr[s] : self.boundary_ptr[s + 1]]
        values = self.values[self.value_ptr[instance] : self.value_ptr[instance + 1]]
        return hidden, {sub_network.names[int(v)]: int(x) for v, x in zip(boundary, values, strict=True)}


@njit(cache=True, nogil=True)
def _grow(array, need):  # type: ignore[no-untyped-def]
    if need <= array.shape[0]:
        return array
    larger = np.empty(max(need, 2 * array.shape[0]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@njit(cache=True, nogil=True)
def _mix(h, x):  # type: ignore[no-untyped-def]
    # A 64-bit multiply-xorshift step. Hashes only place entries: every match is confirmed by an exact comparison.
    h = (h ^ np.uint64(x)) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@njit(cache=True, nogil=True)
def _new_slots(size, hashes, n):  # type: ignore[no-untyped-def]
    slots = np.full(size, -1, np.int64)
    mask = np.uint64(size - 1)
    for i in range(n):
        at = hashes[i] & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = i
    return slots


@njit(cache=True, nogil=True)
def _find(slots, hashes, h, ptr, arena, items, n_items, tags, tag):  # type: ignore[no-untyped-def]
    """The entry whose slice of the arena equals the items and whose tag equals the tag; -1 - free slot if none."""
    mask = np.uint64(slots.shape[0] - 1)
    at = h & mask
    while True:
        i = slots[at]
        if i < 0:
            return -1 - np.int64(at)
        if hashes[i] == h and tags[i] == tag and ptr[i + 1] - ptr[i] == n_items:
            same = True
            for k in range(n_items):
                if arena[ptr[i] + k] != items[k]:
                    same = False
                    break
            if same:
                return i
        at = (at + np.uint64(1)) & mask


@njit(cache=True, nogil=True)
def _components(is_missing, missing, n_missing, drop_barren, by_row, n_variables, family_ptr, members,
                incidence_ptr, incidence, relevant, variable_mark, family_mark, stack, items, lengths):  # type: ignore[no-untyped-def]  # fmt: skip
    """Split a row's missing variables into hidden components; write their signatures one after another to `items`.

    `missing` ascends and parents come before children, so a backward sweep knows each child's relevance in time.
    `lengths[c]` holds component c's numbers of hidden variables, families and boundary variables. The marks are all
    zero on entry and again on exit.
    """
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
    n_components, end = 0, 0
    for k in range(n_missing):
        root = missing[k]
        if not relevant[root] or variable_mark[root]:
            continue
        begin = end
        n_stack = 0
        if by_row:
            for j in range(k, n_missing):
                if relevant[missing[j]]:
                    stack[n_stack] = missing[j]
                    n_stack += 1
                    variable_mark[missing[j]] = True
        else:
            stack[0] = root
            n_stack = 1
            variable_mark[root] = True
        # The stack is never popped: once it is worked off it holds the whole component.
        at, n_families = 0, 0
        while at < n_stack:
            v = stack[at]
            at += 1
            for j in range(incidence_ptr[v], incidence_ptr[v + 1]):
                f = incidence[j]
                if family_mark[f]:
                    continue
                child = members[family_ptr[f + 1] - 1]
                if is_missing[child] and not relevant[child]:
                    continue
                family_mark[f] = True
                n_families += 1
                for m in range(family_ptr[f], family_ptr[f + 1]):
                    u = members[m]
                    if is_missing[u] and not variable_mark[u]:
                        variable_mark[u] = True
                        stack[n_stack] = u
                        n_stack += 1
        hidden = np.sort(stack[:n_stack])
        items[end : end + n_stack] = hidden
        end += n_stack
        first = end
        for v in hidden:
            for j in range(incidence_ptr[v], incidence_ptr[v + 1]):
                f = incidence[j]
                if family_mark[f]:
                    family_mark[f] = False
                    items[end] = f
                    end += 1
        items[first:end] = np.sort(items[first:end])
        second = end
        if by_row:
            for v in range(n_variables):
                if not is_missing[v]:
                    items[end] = v
                    end += 1
        else:
            for k2 in range(first, second):
                f = items[k2]
                for m in range(family_ptr[f], family_ptr[f + 1]):
                    u = members[m]
                    if not is_missing[u] and not variable_mark[u]:
                        variable_mark[u] = True
                        items[end] = u
                        end += 1
            items[second:end] = np.sort(items[second:end])
            for k2 in range(second, end):
                variable_mark[items[k2]] = False
        lengths[n_components, 0] = first - begin
        lengths[n_components, 1] = second - first
        lengths[n_components, 2] = end - second
        n_components += 1
    for k in range(n_missing):
        variable_mark[missing[k]] = False
    if by_row and n_components == 0:
        # A row without a hidden component still is a row: it keeps its values and has nothing to infer.
        for v in range(n_variables):
            if not is_missing[v]:
                items[end] = v
                end += 1
        lengths[0, 0] = 0
        lengths[0, 1] = 0
        lengths[0, 2] = end
        n_components = 1
    return n_components


@njit(cache=True, nogil=True)
def _reduce(codes, weights, cardinalities, columns, may_miss, family_ptr, members, incidence_ptr, incidence,
            drop_barren, by_row):  # type: ignore[no-untyped-def]  # fmt: skip
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

    # Scratch of the analysis of one pattern.
    is_missing = np.zeros(n_variables, np.bool_)
    relevant = np.zeros(n_variables, np.bool_)
    variable_mark = np.zeros(n_variables, np.bool_)
    family_mark = np.zeros(n_families, np.bool_)
    missing = np.empty(n_variables, np.int32)
    stack = np.empty(n_variables, np.int32)
    widest = n_variables + n_families + max(n_variables, members.shape[0])
    items = np.empty(widest, np.int32)
    lengths = np.empty((max(n_variables, 1), 3), np.int64)

    # Signatures: hidden, families and boundary lie one after another in the arena; the tag is where the parts end.
    s_ptr = np.zeros(64, np.int64)
    s_arena = np.empty(1024, np.int32)
    s_tag = np.empty(64, np.int64)
    s_hash = np.empty(64, np.uint64)
    s_split = np.empty((64, 2), np.int64)
    s_dense = np.empty(64, np.int64)
    s_slots = _new_slots(256, s_hash, 0)
    n_signatures = 0
    dense = np.zeros(1024, weights.dtype)
    n_dense = 0

    # Patterns: mask of missing variables -> its signatures.
    p_ptr = np.zeros(64, np.int64)
    p_arena = np.empty(64 * n_words, np.uint64)
    p_tag = np.zeros(64, np.int64)
    p_hash = np.empty(64, np.uint64)
    p_slots = _new_slots(256, p_hash, 0)
    p_sig_ptr = np.zeros(64, np.int64)
    p_sig = np.empty(256, np.int32)
    n_patterns, n_pattern_sigs = 0, 0

    # Instances.
    i_ptr = np.zeros(1024, np.int64)
    i_arena = np.empty(8192, np.int16)
    i_tag = np.empty(1024, np.int64)
    i_hash = np.empty(1024, np.uint64)
    i_count = np.empty(1024, weights.dtype)
    i_slots = _new_slots(4096, i_hash, 0)
    n_instances = 0
    values = np.empty(max(n_variables, 1), np.int16)

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
            if not same:
                h = np.uint64(7)
                for w in range(n_words):
                    h = _mix(h, masks[r, w])
                last = _find(p_slots, p_hash, h, p_ptr, p_arena, masks[r], n_words, p_tag, 0)
            if last < 0:
                # A new pattern: find its components, and their signatures among those known.
                n_missing = 0
                for j in range(missable.shape[0]):
                    if (masks[r, j >> 6] >> np.uint64(j & 63)) & np.uint64(1):
                        missing[n_missing] = missable[j]
                        is_missing[missable[j]] = True
                        n_missing += 1
                n_components = _components(
                    is_missing, missing, n_missing, drop_barren, by_row, n_variables, family_ptr, members,
                    incidence_ptr, incidence, relevant, variable_mark, family_mark, stack, items, lengths,
                )  # fmt: skip
                for k in range(n_missing):
                    is_missing[missing[k]] = False
                first_sig = n_pattern_sigs
                p_sig = _grow(p_sig, n_pattern_sigs + n_components)
                at = 0
                for c in range(n_components):
                    n_items = lengths[c, 0] + lengths[c, 1] + lengths[c, 2]
                    tag = lengths[c, 0] * (n_families + 1) + lengths[c, 1]
                    h2 = _mix(np.uint64(11), tag)
                    for k in range(n_items):
                        h2 = _mix(h2, items[at + k])
                    s = _find(s_slots, s_hash, h2, s_ptr, s_arena, items[at : at + n_items], n_items, s_tag, tag)
                    if s < 0:
                        s_slots[-1 - s] = n_signatures
                        s = n_signatures
                        n_signatures += 1
                        s_ptr = _grow(s_ptr, n_signatures + 1)
                        s_tag = _grow(s_tag, n_signatures)
                        s_hash = _grow(s_hash, n_signatures)
                        s_dense = _grow(s_dense, n_signatures)
                        if n_signatures > s_split.shape[0]:
                            wider = np.empty((2 * s_split.shape[0], 2), np.int64)
                            wider[: s_split.shape[0]] = s_split
                            s_split = wider
                        s_arena = _grow(s_arena, s_ptr[s] + n_items)
                        s_arena[s_ptr[s] : s_ptr[s] + n_items] = items[at : at + n_items]
                        s_ptr[s + 1] = s_ptr[s] + n_items
                        s_tag[s] = tag
                        s_hash[s] = h2
                        s_split[s, 0] = lengths[c, 0]
                        s_split[s, 1] = lengths[c, 1]
                        size = 1
                        for k in range(at + lengths[c, 0] + lengths[c, 1], at + n_items):
                            if size <= DENSE:
                                size *= cardinalities[items[k]]
                        s_dense[s] = -1
                        if size <= DENSE and n_dense + size <= DENSE_TOTAL:
                            s_dense[s] = n_dense
                            old = dense.shape[0]
                            dense = _grow(dense, n_dense + size)
                            dense[old:] = 0
                            n_dense += size
                        if 2 * n_signatures > s_slots.shape[0]:
                            s_slots = _new_slots(2 * s_slots.shape[0], s_hash, n_signatures)
                    p_sig[first_sig + c] = s
                    at += n_items
                sig_begin, sig_end = first_sig, first_sig + n_components
                if n_patterns < MAX_PATTERNS:
                    p_slots[-1 - last] = n_patterns
                    p_ptr = _grow(p_ptr, n_patterns + 2)
                    p_tag = _grow(p_tag, n_patterns + 1)
                    p_hash = _grow(p_hash, n_patterns + 1)
                    p_sig_ptr = _grow(p_sig_ptr, n_patterns + 2)
                    p_arena = _grow(p_arena, (n_patterns + 1) * n_words)
                    p_arena[n_patterns * n_words : (n_patterns + 1) * n_words] = masks[r]
                    p_ptr[n_patterns + 1] = (n_patterns + 1) * n_words
                    p_tag[n_patterns] = 0
                    p_hash[n_patterns] = h
                    p_sig_ptr[n_patterns + 1] = sig_end
                    n_pattern_sigs = sig_end
                    last = n_patterns
                    n_patterns += 1
                    if 2 * n_patterns > p_slots.shape[0]:
                        p_slots = _new_slots(2 * p_slots.shape[0], p_hash, n_patterns)
            else:
                sig_begin, sig_end = p_sig_ptr[last], p_sig_ptr[last + 1]
            weight = weights[begin + r] if weighted else weights.dtype.type(1)
            for k in range(sig_begin, sig_end):
                s = p_sig[k]
                lo = s_ptr[s] + s_split[s, 0] + s_split[s, 1]
                n_values = s_ptr[s + 1] - lo
                if s_dense[s] >= 0:
                    key = 0
                    for j in range(n_values):
                        v = s_arena[lo + j]
                        key = key * cardinalities[v] + codes[columns[v], begin + r]
                    dense[s_dense[s] + key] += weight
                    continue
                h = _mix(np.uint64(13), s)
                for j in range(n_values):
                    x = codes[columns[s_arena[lo + j]], begin + r]
                    values[j] = x
                    h = _mix(h, x)
                i = _find(i_slots, i_hash, h, i_ptr, i_arena, values, n_values, i_tag, s)
                if i >= 0:
                    i_count[i] += weight
                    continue
                i_slots[-1 - i] = n_instances
                i = n_instances
                n_instances += 1
                i_ptr = _grow(i_ptr, n_instances + 1)
                i_tag = _grow(i_tag, n_instances)
                i_hash = _grow(i_hash, n_instances)
                i_count = _grow(i_count, n_instances)
                i_arena = _grow(i_arena, i_ptr[i] + n_values)
                i_arena[i_ptr[i] : i_ptr[i] + n_values] = values[:n_values]
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
        lo = s_ptr[s] + s_split[s, 0] + s_split[s, 1]
        n_values = s_ptr[s + 1] - lo
        size = 1
        for j in range(n_values):
            size *= cardinalities[s_arena[lo + j]]
        for key in range(size):
            if dense[s_dense[s] + key] == 0:
                continue
            i = n_instances
            n_instances += 1
            i_ptr = _grow(i_ptr, n_instances + 1)
            i_tag = _grow(i_tag, n_instances)
            i_count = _grow(i_count, n_instances)
            i_arena = _grow(i_arena, i_ptr[i] + n_values)
            rest = key
            for j in range(n_values - 1, -1, -1):
                cardinality = cardinalities[s_arena[lo + j]]
                i_arena[i_ptr[i] + j] = rest % cardinality
                rest //= cardinality
            i_ptr[i + 1] = i_ptr[i] + n_values
            i_tag[i] = s
            i_count[i] = dense[s_dense[s] + key]
    return (
        s_arena[: s_ptr[n_signatures]].copy(), s_ptr[: n_signatures + 1].copy(), s_split[:n_signatures].copy(),
        i_tag[:n_instances].copy(), i_ptr[: n_instances + 1].copy(), i_arena[: i_ptr[n_instances]].copy(),
        i_count[:n_instances].copy(),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _before(a, b, rank, ptr, arena):  # type: ignore[no-untyped-def]
    if rank[a] != rank[b]:
        return rank[a] < rank[b]
    na, nb = ptr[a + 1] - ptr[a], ptr[b + 1] - ptr[b]
    for k in range(min(na, nb)):
        x, y = arena[ptr[a] + k], arena[ptr[b] + k]
        if x != y:
            return x < y
    return na < nb


@njit(cache=True, nogil=True)
def _order(rank, ptr, arena):  # type: ignore[no-untyped-def]
    """Merge sort of slices by (rank, items): the permutation that sorts them."""
    n = rank.shape[0]
    order = np.arange(n)
    spare = np.empty(n, np.int64)
    width = 1
    while width < n:
        for lo in range(0, n, 2 * width):
            mid, hi = min(lo + width, n), min(lo + 2 * width, n)
            a, b = lo, mid
            for k in range(lo, hi):
                if a < mid and (b >= hi or not _before(order[b], order[a], rank, ptr, arena)):
                    spare[k] = order[a]
                    a += 1
                else:
                    spare[k] = order[b]
                    b += 1
        order, spare = spare, order
        width *= 2
    return order


@njit(cache=True, nogil=True)
def _gather(order, ptr, arena):  # type: ignore[no-untyped-def]
    new_ptr = np.zeros(order.shape[0] + 1, np.int64)
    for k in range(order.shape[0]):
        new_ptr[k + 1] = new_ptr[k] + ptr[order[k] + 1] - ptr[order[k]]
    out = np.empty(new_ptr[-1], arena.dtype)
    for k in range(order.shape[0]):
        out[new_ptr[k] : new_ptr[k + 1]] = arena[ptr[order[k]] : ptr[order[k] + 1]]
    return new_ptr, out


@njit(cache=True, nogil=True)
def _unite(rank, ptr, arena):  # type: ignore[no-untyped-def]
    """Number equal (rank, items) slices alike, in order of first appearance: each slice's number, each number's first."""
    n = rank.shape[0]
    number = np.empty(n, np.int64)
    first = np.empty(n, np.int64)
    hashes = np.empty(n, np.uint64)
    size = 256
    while size < 2 * n:
        size *= 2
    slots = np.full(size, -1, np.int64)
    n_distinct = 0
    mask = np.uint64(size - 1)
    for i in range(n):
        h = _mix(np.uint64(17), rank[i])
        for k in range(ptr[i], ptr[i + 1]):
            h = _mix(h, arena[k])
        hashes[i] = h
        at = h & mask
        while True:
            j = slots[at]
            if j < 0:
                slots[at] = i
                number[i] = n_distinct
                first[n_distinct] = i
                n_distinct += 1
                break
            length = ptr[i + 1] - ptr[i]
            if hashes[j] == h and rank[j] == rank[i] and ptr[j + 1] - ptr[j] == length:
                same = True
                for k in range(length):
                    if arena[ptr[i] + k] != arena[ptr[j] + k]:
                        same = False
                        break
                if same:
                    number[i] = number[j]
                    break
            at = (at + np.uint64(1)) & mask
    return number, first[:n_distinct]


@njit(cache=True, nogil=True)
def _add_counts(number, counts, n_distinct):  # type: ignore[no-untyped-def]
    out = np.zeros(n_distinct, counts.dtype)
    for i in range(counts.shape[0]):
        out[number[i]] += counts[i]
    return out


def _canonical(split, s_ptr, s_arena, signature, value_ptr, values, counts) -> InstanceTable:  # type: ignore[no-untyped-def]
    """Drop doubles and sort: signatures by (hidden, families), instances by (signature, values)."""
    # The boundary follows from the other two parts, so (hidden count, family count, items) identifies a signature.
    tag = split[:, 0] * (np.int64(1) << 32) + split[:, 1]
    number, first = _unite(tag, s_ptr, s_arena)
    kept_ptr, kept = _gather(first, s_ptr, s_arena)
    order = _order(tag[first], kept_ptr, kept)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    s_ptr, s_arena = _gather(order, kept_ptr, kept)
    split = split[first][order]
    signature = rank[number][signature]

    number, first = _unite(signature, value_ptr, values)
    counts = _add_counts(number, counts, len(first))
    kept_ptr, kept = _gather(first, value_ptr, values)
    order = _order(signature[first], kept_ptr, kept)
    value_ptr, values = _gather(order, kept_ptr, kept)

    lengths = np.diff(s_ptr)
    parts = np.stack([split[:, 0], split[:, 1], lengths - split[:, 0] - split[:, 1]]) if len(split) else np.zeros((3, 0), np.int64)
    part = np.repeat(np.tile([0, 1, 2], len(split)), parts.T.ravel())
    ptrs = [np.concatenate([[0], np.cumsum(p)]).astype(np.int32) for p in parts]
    return InstanceTable(
        hidden_ptr=ptrs[0], hidden=s_arena[part == 0], family_ptr=ptrs[1], families=s_arena[part == 1],
        boundary_ptr=ptrs[2], boundary=s_arena[part == 2], signature=signature[first][order].astype(np.int32),
        value_ptr=value_ptr, values=values, counts=counts[order],
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
        codes, weights, s.cardinalities, s.columns, s.may_miss, s.family_ptr, s.members, *s.incidence, drop_barren, by_row
    )
    return _canonical(split, ptr, arena, tag, value_ptr, values, counts)


def merge_instances(tables: Sequence[InstanceTable]) -> InstanceTable:
    """Add instance tables of the same sub-network: associative, commutative, in canonical order.

    Parameters
    ----------
    tables : sequence of InstanceTable
        One or more; none is mutated.
    """
    if len(tables) == 1:
        return tables[0]
    offsets = np.cumsum([0, *(t.n_signatures for t in tables)])
    split = np.concatenate([np.stack([np.diff(t.hidden_ptr), np.diff(t.family_ptr)], axis=1) for t in tables]).astype(np.int64)
    arenas = [_interleave(t) for t in tables]
    s_ptr = _joined_ptr([p for p, _ in arenas])
    return _canonical(
        split,
        s_ptr,
        np.concatenate([a for _, a in arenas]),
        np.concatenate([t.signature.astype(np.int64) + o for t, o in zip(tables, offsets[:-1], strict=True)]),
        _joined_ptr([t.value_ptr for t in tables]),
        np.concatenate([t.values for t in tables]),
        np.concatenate([t.counts for t in tables]),
    )


def _joined_ptr(ptrs: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(p) for p in ptrs]))]).astype(np.int64)


def _interleave(t: InstanceTable) -> tuple[NDArray[np.int64], Ints]:
    """The signatures' parts one after another, as the kernels hold them."""
    parts = [(t.hidden_ptr, t.hidden), (t.family_ptr, t.families), (t.boundary_ptr, t.boundary)]
    owner = np.concatenate([np.repeat(np.arange(t.n_signatures), np.diff(p)) for p, _ in parts])
    order = np.argsort(owner, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=t.n_signatures))]).astype(np.int64)
    return ptr, np.concatenate([a for _, a in parts])[order]
