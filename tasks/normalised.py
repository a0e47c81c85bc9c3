"""Log potentials in normalised form, zero wherever a variable is at its first state, and back.

    φ_S(x_S) = Σ over T ⊆ S of (−1)^|S − T| log θ(x_T, the rest at their first states)

A table's sets S are the subsets of its axes, and each entry belongs to one: the axes that are not at their first state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def to_normalised(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log potentials by Möbius inversion: an entry holds φ_S of the set S of axes that are not at their first state."""
    out = table
    for axis in range(table.ndim):
        first = out.take([0], axis=axis)
        with np.errstate(invalid="ignore"):
            out = np.concatenate([first, out.take(range(1, out.shape[axis]), axis=axis) - first], axis=axis)
    return out


def from_normalised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse of `to_normalised`."""
    out = values
    for axis in range(values.ndim):
        first = out.take([0], axis=axis)
        out = np.concatenate([first, out.take(range(1, out.shape[axis]), axis=axis) + first], axis=axis)
    return out


def subsets(n: int) -> list[tuple[int, ...]]:
    """The non-empty subsets of the numbers below n."""
    return [tuple(k for k in range(n) if bits >> k & 1) for bits in range(1, 1 << n)]


def slots(chosen: Sequence[int], n: int) -> tuple[slice | int, ...]:
    """Where in an array of n axes a subset's normalised potentials lie."""
    return tuple(slice(1, None) if k in chosen else 0 for k in range(n))
