"""All pairwise counts of a partition in one go (Chow–Liu's sufficient statistics).

    codes ──► bit planes: a bit a row, a plane a state ──► AND and popcount of every two planes ──► counts
      └─────► one histogram a pair: where weights have fractions, or a variable many states ─────────┘

Integer weights are planes too, a plane a binary digit: a digit's rows count twice what those of the digit before do.

The counts of all pairs are one symmetric matrix over the concatenated states of all variables: block (i, j) is the
table of variables i and j over the rows that observe both, block (i, i) has variable i's own counts on its diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from tasks.kernel import kernel
from tasks.reading import Partition

# Rows whose planes are made at a time: 8 KiB a plane, so that one stays in the first-level cache.
BLOCK = 1 << 16
# Planes that are met with as many others at a time: both in the second-level cache.
TILE = 32
# Histograms take 1.0 ns a row and pair whatever the states are; planes take 0.0016 ns a row for every two planes (of 17
# states: 256 meetings, for each digit of the weights) with AVX-512's popcount (measured).
MOST_MEETINGS = 256


@dataclass(frozen=True)
class PairCounts:
    """Counts of all pairs of variables.

    Attributes
    ----------
    n_rows : int
        Rows that were read.
    total_weight : int or float
        Examples they stand for.
    counts : int64 or float64 array, shape (n_states, n_states)
        Symmetric, over the states of all variables one after another; a row counts for a pair that it observes.
    """

    n_rows: int
    total_weight: int | float
    counts: NDArray[Any]


def state_bases(cardinalities: Sequence[int]) -> NDArray[np.int64]:
    """Where each variable's states begin among those of all, and their number at the end."""
    return np.concatenate([[0], np.cumsum(np.asarray(cardinalities, np.int64))]).astype(np.int64)


def count_pairs(partition: Partition, cardinalities: Sequence[int]) -> PairCounts:
    """Count every pair of a partition's columns.

    Parameters
    ----------
    partition : Partition
        Codes, shape (n_columns, n_rows), and weights.
    cardinalities : sequence of int
        How many states each column has.

    Returns
    -------
    PairCounts
        Exact, but for weights with fractions, which are summed in the order of the rows.

    Notes
    -----
    500 binary variables and a million rows take 0.5 s on one core without weights (half of it popcounts), four times
    that where all have missing values, about as much again for each binary digit of integer weights, and 130 s where
    weights have fractions.
    """
    codes, weights = partition.codes, partition.weights
    bases = state_bases(cardinalities)
    n_rows = codes.shape[1]
    own = weights if weights is not None else np.empty(0, np.int64)
    counts: NDArray[Any] = np.zeros((int(bases[-1]), int(bases[-1])), own.dtype)
    n_digits = int(own.max()).bit_length() if len(own) and own.dtype == np.int64 else 1
    in_planes = np.array([own.dtype == np.int64 and n_digits * (k - 1) ** 2 <= MOST_MEETINGS for k in cardinalities])
    _add_histograms(codes, own, bases, in_planes, counts)
    if in_planes.any():
        chosen = np.flatnonzero(in_planes)
        states = np.concatenate([np.arange(bases[v], bases[v + 1]) for v in chosen])
        counts[np.ix_(states, states)] = _count_planes(codes, own, n_digits, chosen, np.asarray(cardinalities)[chosen])
    counts += np.tril(counts, -1).T
    return PairCounts(n_rows, n_rows if weights is None else own.sum().item(), counts)


def merge_pairs(parts: Sequence[PairCounts]) -> PairCounts:
    """The counts of several partitions together: associative; of integers in any order the same."""
    counts = parts[0].counts.copy()
    for part in parts[1:]:
        # Weights may be integers in one file and fractions in the next.
        counts = counts + part.counts if counts.dtype != part.counts.dtype else np.add(counts, part.counts, out=counts)
    return PairCounts(sum(p.n_rows for p in parts), sum(p.total_weight for p in parts), counts)


def _count_planes(
    codes: NDArray[Any], weights: NDArray[Any], n_digits: int, chosen: NDArray[Any], cardinalities: NDArray[Any]
) -> NDArray[np.int64]:
    """The pairs among some columns, lower triangle; `weights` of so many binary digits, or none."""
    # No plane is made for a variable's last state. Where it has a plane of the rows that observe it, or, complete,
    # shares the plane of all rows, the last state is that plane less the other states'. For binary variables that is
    # a quarter of the work.
    observed, first, n_planes = [], [], 1
    for v, k in zip(chosen, cardinalities, strict=True):
        complete = codes.shape[1] == 0 or int(codes[v].min()) >= 0
        observed.append(0 if complete else n_planes)
        n_planes += not complete
        first.append(n_planes)
        n_planes += int(k) - 1
    n_rows = codes.shape[1]
    found = np.zeros((n_planes, n_planes), np.int64)
    for begin in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - begin)
        planes = np.zeros((n_planes, -(-n // 64) * 8), np.uint8)
        n_bytes = -(-n // 8)
        planes[0, :n_bytes] = np.packbits(np.ones(n, np.bool_), bitorder="little")
        for v, k, o, f in zip(chosen, cardinalities, observed, first, strict=True):
            column = codes[v, begin : begin + n]
            if o:
                planes[o, :n_bytes] = np.packbits(column >= 0, bitorder="little")
            for s in range(int(k) - 1):
                planes[f + s, :n_bytes] = np.packbits(column == s, bitorder="little")
        if len(weights) == 0:
            _add_planes(planes.view(np.uint64), 0, found)
            continue
        for digit in range(n_digits):
            rows_with_it = np.zeros(planes.shape[1], np.uint8)
            rows_with_it[:n_bytes] = np.packbits(weights[begin : begin + n] >> digit & 1 == 1, bitorder="little")
            _add_planes((planes & rows_with_it).view(np.uint64), digit, found)
    found += np.tril(found, -1).T
    bases = state_bases(cardinalities.tolist())
    rows = np.empty((int(bases[-1]), n_planes), np.int64)
    for f, o, lo, hi in zip(first, observed, bases[:-1], bases[1:], strict=True):
        rows[lo : hi - 1] = found[f : f + hi - lo - 1]
        rows[hi - 1] = found[o] - rows[lo : hi - 1].sum(axis=0)
    counts = np.empty((int(bases[-1]), int(bases[-1])), np.int64)
    for f, o, lo, hi in zip(first, observed, bases[:-1], bases[1:], strict=True):
        counts[:, lo : hi - 1] = rows[:, f : f + hi - lo - 1]
        counts[:, hi - 1] = rows[:, o] - counts[:, lo : hi - 1].sum(axis=1)
    return np.tril(counts)


@intrinsic
def _popcount(typing_context, x):
    """How many bits are set: LLVM's ctpop, which becomes SIMD in a loop."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@kernel
def _add_planes(planes, digit, counts):
    n = planes.shape[0]
    for tile_a in range(0, n, TILE):
        for tile_b in range(0, tile_a + 1, TILE):
            for a in range(tile_a, min(n, tile_a + TILE)):
                x = planes[a]
                for b in range(tile_b, min(a + 1, tile_b + TILE)):
                    y = planes[b]
                    total = np.uint64(0)
                    for w in range(planes.shape[1]):
                        total += _popcount(x[w] & y[w])
                    counts[a, b] += np.int64(total) << digit


@kernel
def _add_histograms(codes, weights, bases, in_planes, counts):
    """The lower triangle's blocks of all pairs but those among columns counted in planes."""
    n_rows = codes.shape[1]
    weighted = weights.shape[0] > 0
    for i in range(codes.shape[0]):
        for j in range(i + 1):
            if in_planes[i] and in_planes[j]:
                continue
            # A column and a row in front take what is missing, so that no branch is needed.
            width = bases[j + 1] - bases[j] + 1
            height = bases[i + 1] - bases[i] + 1
            table = np.zeros(height * width, counts.dtype)
            a, b = codes[i], codes[j]
            if weighted:
                for r in range(n_rows):
                    table[(np.int64(a[r]) + 1) * width + np.int64(b[r]) + 1] += weights[r]
            else:
                for r in range(n_rows):
                    table[(np.int64(a[r]) + 1) * width + np.int64(b[r]) + 1] += 1
            for s in range(1, height):
                for t in range(1, width):
                    counts[bases[i] + s - 1, bases[j] + t - 1] = table[s * width + t]
