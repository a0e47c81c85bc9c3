"""Plain counts of fully observed families: all that complete data needs (thesis 2.3.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.kernel import kernel
from tasks.subnetwork import SubNetwork

# Rows are taken in blocks so that a block's columns stay in the second-level cache while its families are counted.
BLOCK = 4096


@kernel
def _count(codes, weights, columns, may_miss, family_ptr, members, strides, bases, counts):
    n_rows = codes.shape[1]
    weighted = weights.shape[0] > 0
    offsets = np.empty(BLOCK, np.int32)
    missing = np.empty(BLOCK, np.bool_)
    for begin in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - begin)
        for f in range(family_ptr.shape[0] - 1):
            lo, hi = family_ptr[f], family_ptr[f + 1]
            hidden, partly = False, False
            for k in range(lo, hi):
                hidden |= columns[members[k]] < 0
                partly |= may_miss[members[k]]
            if hidden:
                continue
            # The child has stride one: it starts the sum. A missing code is negative, so a sign test finds it.
            column = codes[columns[members[hi - 1]], begin : begin + n]
            for r in range(n):
                offsets[r] = column[r]
            for k in range(lo, hi - 1):
                column = codes[columns[members[k]], begin : begin + n]
                step = strides[k]
                for r in range(n):
                    offsets[r] += step * np.int32(column[r])
            table = counts[bases[f] : bases[f + 1]]
            if partly:
                missing[:n] = False
                for k in range(lo, hi):
                    if may_miss[members[k]]:
                        column = codes[columns[members[k]], begin : begin + n]
                        for r in range(n):
                            missing[r] |= column[r] < 0
                for r in range(n):
                    if not missing[r]:
                        table[offsets[r]] += weights[begin + r] if weighted else 1
            elif weighted:
                for r in range(n):
                    table[offsets[r]] += weights[begin + r]
            else:
                for r in range(n):
                    table[offsets[r]] += 1


def count_families(
    codes: NDArray[np.int8] | NDArray[np.int16],
    weights: NDArray[np.int64] | NDArray[np.float64],
    sub_network: SubNetwork,
) -> NDArray[np.int64] | NDArray[np.float64]:
    """Count, for every free family, the rows that observe all its members.

    Parameters
    ----------
    codes : int8 or int16 array, shape (n_columns, n_rows)
        State codes of a partition; -1 is missing.
    weights : int64 or float64 array, shape (n_rows,) or (0,)
        How many examples each row stands for; empty where each stands for one.
    sub_network : SubNetwork
        Whose families are counted.

    Returns
    -------
    int64 or float64 array, shape (n_parameters,)
        Counts in the layout of the sub-network's parameters, in the type of `weights`. They add up over
        partitions; the identity is a vector of zeros.
    """
    counts: NDArray[Any] = np.zeros(sub_network.n_parameters, weights.dtype)
    s = sub_network
    _count(codes, weights, s.columns, s.may_miss, s.family_ptr, s.members, s.strides, s.bases, counts)
    return counts
