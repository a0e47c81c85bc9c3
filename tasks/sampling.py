"""Forward sampling of complete rows from a Bayesian network, and blanking of their entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.kernel import kernel

Codes = NDArray[np.int8] | NDArray[np.int16] | NDArray[np.int32]

# The unit of randomness: row r is always the (r % CHUNK)-th of chunk r // CHUNK, however the rows are partitioned.
# 65 536 uniforms are 512 kB, so that a column is drawn and inverted within the second-level cache.
CHUNK = 65_536

# First words of the spawn keys: one stream of random numbers for each purpose.
_VALUES, _BLANKS, _CHOICE = 0, 1, 2


@dataclass(frozen=True)
class Sampler:
    """What forward sampling needs of a network.

    Attributes
    ----------
    cardinalities : int32 array, shape (n_variables,)
        Number of states.
    order : tuple of int
        Variables, parents before children.
    parents : tuple of int32 array
        Each variable's parents, in the order of its table's axes.
    strides : tuple of int64 array
        Step of each parent in the rows of `cumulative`.
    cumulative : tuple of float64 array, shape (n_parent_configurations, cardinality)
        Pr(state <= x | parents), the last of each row exactly one.
    """

    cardinalities: NDArray[np.int32]
    order: tuple[int, ...]
    parents: tuple[NDArray[np.int32], ...]
    strides: tuple[NDArray[np.int64], ...]
    cumulative: tuple[NDArray[np.float64], ...]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The smallest of int8, int16 and int32 that holds every variable's codes."""
        return np.dtype(np.min_scalar_type(-int(self.cardinalities.max())))

    def make_codes(self, n_rows: int) -> Codes:
        """Return room for `n_rows` rows, shape (n_variables, n_rows)."""
        return np.empty((len(self.order), n_rows), self.dtype)


def make_sampler(
    order: Sequence[int], parents: Sequence[Sequence[int]], tables: Sequence[NDArray[np.float64]]
) -> Sampler:
    """Lay out a network for sampling.

    Parameters
    ----------
    order : sequence of int
        Variables, parents before children.
    parents : sequence of sequences of int
        Each variable's parents.
    tables : sequence of float64 arrays, shape (parents' cardinalities ..., cardinality)
        Pr(variable | parents). Rows are taken relative to their sum: published tables are rounded.
    """
    all_strides, cumulative = [], []
    for table in tables:
        *given, own = table.shape
        strides = np.ones(len(given), np.int64)
        strides[:-1] = np.cumprod(given[:0:-1], dtype=np.int64)[::-1]
        sums = np.cumsum(table.reshape(-1, own), axis=1)
        all_strides.append(strides)
        # Dividing by itself gives exactly one, so that a uniform below one never runs off the end, nor ends in a
        # trailing state of probability zero.
        cumulative.append(sums / sums[:, -1:])
    return Sampler(
        cardinalities=np.array([t.shape[-1] for t in tables], np.int32),
        order=tuple(order),
        parents=tuple(np.array(p, np.int32) for p in parents),
        strides=tuple(all_strides),
        cumulative=tuple(cumulative),
    )


@kernel
def _invert(codes, parents, strides, cumulative, uniforms, variable, begin):
    n_states = cumulative.shape[1]
    for r in range(uniforms.shape[0]):
        row = 0
        for k in range(parents.shape[0]):
            row += strides[k] * codes[parents[k], begin + r]
        state = 0
        # Tables have few states: at these lengths a scan beats bisection.
        while state < n_states - 1 and uniforms[r] >= cumulative[row, state]:
            state += 1
        codes[variable, begin + r] = state


@kernel
def _blank(codes, uniforms, rate, variable, begin):
    for r in range(uniforms.shape[0]):
        if uniforms[r] < rate:
            codes[variable, begin + r] = -1


def draw_rows(sampler: Sampler, seed: int, first: int, codes: Codes) -> None:
    """Fill `codes` with rows `first`, `first + 1`, ... of the endless dataset that `seed` stands for.

    Parameters
    ----------
    sampler : Sampler
        The network.
    seed : int
        Not negative.
    first : int
        Number of the first row.
    codes : int8, int16 or int32 array, shape (n_variables, n_rows)
        Overwritten with state codes.

    Notes
    -----
    One uniform a cell. A generator steps over the numbers of rows not asked for, which costs nothing, so many small
    partitions cost no more than one large one.
    """
    for chunk, begin, lo, n in _pieces(first, codes.shape[1]):
        bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_VALUES, chunk)))
        uniform = np.random.Generator(bits)
        bits.advance(lo)
        for v in sampler.order:
            _invert(codes, sampler.parents[v], sampler.strides[v], sampler.cumulative[v], uniform.random(n), v, begin)
            bits.advance(CHUNK - n)


def blank_entries(codes: Codes, seed: int, first: int, variables: Sequence[int], rate: float) -> None:
    """Blank each entry of some variables with probability `rate`; a blank is -1.

    Parameters
    ----------
    codes : int8, int16 or int32 array, shape (n_variables, n_rows)
        Complete rows `first`, `first + 1`, ...; changed in place.
    seed, first
        As in `draw_rows`. The same entries are blanked however the rows are partitioned.
    variables : sequence of int
        Whose entries.
    rate : float
        Between zero and one.
    """
    if rate == 0:
        return
    for chunk, begin, lo, n in _pieces(first, codes.shape[1]):
        for v in variables:
            bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_BLANKS, chunk, v)))
            bits.advance(lo)
            _blank(codes, np.random.Generator(bits).random(n), rate, v, begin)


def choose(candidates: Sequence[int], n: int, seed: int, purpose: int) -> tuple[int, ...]:
    """Pick `n` of the candidates at random, returned in the order given; `purpose` separates several such choices."""
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_CHOICE, purpose)))
    picked = generator.choice(len(candidates), size=n, replace=False)
    return tuple(candidates[int(k)] for k in np.sort(picked))


def _pieces(first: int, n_rows: int) -> list[tuple[int, int, int, int]]:
    """Cut rows at chunk borders: (chunk, place among these rows, place in the chunk, length)."""
    pieces, row = [], first
    while row < first + n_rows:
        chunk, lo = divmod(row, CHUNK)
        n = min(CHUNK - lo, first + n_rows - row)
        pieces.append((chunk, row - first, lo, n))
        row += n
    return pieces
