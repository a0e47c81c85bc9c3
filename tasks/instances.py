"""A sub-network's data, reduced to what learning depends on: distinct (hidden component, boundary values) pairs.

A *signature* is a hidden component with the families it takes part in; an *instance* is a signature with the values
of the observed variables in those families (its boundary). Rows repeat few of them, and an iteration of EM costs one
small inference per instance, however many rows stand behind it. `tasks.reduction` makes them from rows; fully observed
families are counted apart (`tasks.counting`). Tables add up over partitions like any counts; `canonical` puts them in
one order, so that equal data gives equal tables however it was partitioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.kernel import kernel
from tasks.subnetwork import Ints, SubNetwork


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
    values : int32 array
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
    values: Ints
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


@kernel
def grow(array, need):
    """The array, or a copy at least twice as long if it holds fewer than `need` entries."""
    if need <= array.shape[0]:
        return array
    larger = np.empty(max(need, 2 * array.shape[0]), array.dtype)
    # A loop: assignment to a slice would add seconds of compiling wherever this is inlined.
    for i in range(array.shape[0]):
        larger[i] = array[i]
    return larger


@kernel
def mix(h, x):
    """Stir a value into a hash. Hashes only place entries: every match is confirmed by an exact comparison."""
    h = (h ^ np.uint64(x)) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@kernel
def _before(a, b, rank, ptr, arena):
    if rank[a] != rank[b]:
        return rank[a] < rank[b]
    na, nb = ptr[a + 1] - ptr[a], ptr[b + 1] - ptr[b]
    for k in range(min(na, nb)):
        x, y = arena[ptr[a] + k], arena[ptr[b] + k]
        if x != y:
            return x < y
    return na < nb


@kernel
def _order(rank, ptr, arena):
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


@kernel
def _gather(order, ptr, arena):
    new_ptr = np.zeros(order.shape[0] + 1, np.int64)
    for k in range(order.shape[0]):
        new_ptr[k + 1] = new_ptr[k] + ptr[order[k] + 1] - ptr[order[k]]
    out = np.empty(new_ptr[-1], arena.dtype)
    for k in range(order.shape[0]):
        out[new_ptr[k] : new_ptr[k + 1]] = arena[ptr[order[k]] : ptr[order[k] + 1]]
    return new_ptr, out


@kernel
def _unite(rank, ptr, arena):
    """Number equal (rank, items) slices alike: each slice's number, and the first slice of each number."""
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
        h = mix(np.uint64(17), rank[i])
        for k in range(ptr[i], ptr[i + 1]):
            h = mix(h, arena[k])
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


@kernel
def _add_counts(number, counts, n_distinct):
    out = np.zeros(n_distinct, counts.dtype)
    for i in range(counts.shape[0]):
        out[number[i]] += counts[i]
    return out


def canonical(
    split: NDArray[np.int64],
    s_ptr: NDArray[np.int64],
    s_arena: Ints,
    signature: NDArray[np.int64],
    value_ptr: NDArray[np.int64],
    values: Ints,
    counts: NDArray[Any],
) -> InstanceTable:
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
    parts = (
        np.stack([split[:, 0], split[:, 1], lengths - split[:, 0] - split[:, 1]])
        if len(split)
        else np.zeros((3, 0), np.int64)
    )
    part = np.repeat(np.tile([0, 1, 2], len(split)), parts.T.ravel())
    ptrs = [np.concatenate([[0], np.cumsum(p)]).astype(np.int32) for p in parts]
    return InstanceTable(
        hidden_ptr=ptrs[0], hidden=s_arena[part == 0], family_ptr=ptrs[1], families=s_arena[part == 1],
        boundary_ptr=ptrs[2], boundary=s_arena[part == 2], signature=signature[first][order].astype(np.int32),
        value_ptr=value_ptr, values=values, counts=counts[order],
    )  # fmt: skip


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
    split = np.concatenate([np.stack([np.diff(t.hidden_ptr), np.diff(t.family_ptr)], axis=1) for t in tables]).astype(
        np.int64
    )
    arenas = [_interleave(t) for t in tables]
    s_ptr = _joined_ptr([p for p, _ in arenas])
    return canonical(
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
