"""State codes: how a value is written as a small integer, and the kernels that write them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tasks.kernel import kernel

# The one sentinel for a missing value. Every other code is a position in the variable's states.
MISSING = -1

# In a look-up table: a value that is not a state. It is an error only where a row uses it.
NOT_A_STATE = -2


def code_dtype(cardinality: int) -> DTypeLike:
    """The smallest signed integer type that holds `cardinality` codes and the negative sentinels."""
    if cardinality <= np.iinfo(np.int8).max:
        return np.int8
    return np.int16 if cardinality <= np.iinfo(np.int16).max else np.int32


def translate(
    values: NDArray[Any], validity: NDArray[np.uint8], first_bit: int, low: int, table: NDArray[Any], out: NDArray[Any]
) -> bool:
    """Look every value up in a table; True if one of them is not a state.

    Parameters
    ----------
    values : integer array, shape (n_rows,)
        Dictionary indices, or integers themselves; anything at all where null.
    validity : uint8 array
        Arrow's validity bitmap, least significant bit first; empty where nothing is null.
    first_bit : int
        The bit of the first row.
    low : int
        The value of the table's first entry.
    table : array, shape (n_entries + 2,)
        Codes by value, then the one for a value out of range, then the one for a null.
    out : array, shape (n_rows,)
        Written.
    """
    if len(table) <= 16 and table.max() < 16 + NOT_A_STATE:
        word = sum((int(code) - NOT_A_STATE) << (4 * k) for k, code in enumerate(table))
        return _translate_small(values, validity, first_bit, low, np.uint64(len(table) - 2), np.uint64(word), out)
    return _translate_large(values, validity, first_bit, low, table, out)


@kernel
def _translate_small(
    values: NDArray[Any],
    validity: NDArray[np.uint8],
    first_bit: int,
    low: int,
    n: np.uint64,
    word: np.uint64,
    out: NDArray[Any],
) -> bool:  # pragma: no cover  (compiled)
    """`translate` with the table in one word, 4 bits an entry: no memory is looked up, so this becomes SIMD.

    Measured 0.2 ns a row without nulls and 0.4 ns with, against 0.5 and 2.7 ns from a table in memory.
    """
    worst = np.int8(0)
    n_rows = len(values)
    if len(validity) == 0:
        for i in range(n_rows):
            code = _nibble(word, min(np.uint64(np.int64(values[i]) - low), n))
            out[i] = code
            worst = min(worst, code)
        return bool(worst < MISSING)
    # Whole bytes of the bitmap, eight rows each, between a ragged head and tail.
    head = min(n_rows, (8 - first_bit % 8) % 8)
    n_bytes = (n_rows - head) // 8
    body = values[head:]
    body_out = out[head:]
    bitmap = validity[(first_bit + head) >> 3 :]
    for b in range(n_bytes):
        byte = np.uint64(bitmap[b])
        for k in range(8):
            i = 8 * b + k
            code = _nibble(word, _entry(body[i], low, n, byte >> np.uint64(k)))
            body_out[i] = code
            worst = min(worst, code)
    for start, stop in ((0, head), (head + 8 * n_bytes, n_rows)):
        for i in range(start, stop):
            bit = first_bit + i
            code = _nibble(word, _entry(values[i], low, n, np.uint64(validity[bit >> 3] >> (bit & 7))))
            out[i] = code
            worst = min(worst, code)
    return bool(worst < MISSING)


@kernel
def _translate_large(
    values: NDArray[Any], validity: NDArray[np.uint8], first_bit: int, low: int, table: NDArray[Any], out: NDArray[Any]
) -> bool:  # pragma: no cover  (compiled)
    """`translate` with the table in memory."""
    worst = np.int64(0)
    n = np.uint64(len(table) - 2)
    for i in range(len(values)):
        if len(validity) == 0:
            entry = min(np.uint64(np.int64(values[i]) - low), n)
        else:
            entry = _entry(values[i], low, n, np.uint64(validity[(first_bit + i) >> 3] >> ((first_bit + i) & 7)))
        code = np.int64(table[entry])
        out[i] = code
        worst = min(worst, code)
    return bool(worst < MISSING)


@kernel
def _entry(value: int, low: int, n: np.uint64, valid: int) -> np.uint64:  # pragma: no cover  (compiled)
    """The table entry of a value: `n` for one out of range, `n + 1` for a null (lowest bit of `valid` is 0)."""
    # Without a branch: it would be mispredicted at every other row of a half-missing column.
    mask = -(np.uint64(valid) & np.uint64(1))
    return (min(np.uint64(np.int64(value) - low), n) & mask) | ((n + np.uint64(1)) & ~mask)


@kernel
def _nibble(word: np.uint64, entry: np.uint64) -> np.int8:  # pragma: no cover  (compiled)
    return np.int8((word >> (entry << np.uint64(2))) & np.uint64(15)) + np.int8(NOT_A_STATE)


@kernel
def count_entries(
    indices: NDArray[Any], validity: NDArray[np.uint8], first_bit: int, counts: NDArray[np.int64]
) -> None:  # pragma: no cover  (compiled)
    """Add to `counts` how often every dictionary entry is used, and in its last place how many rows are null."""
    for i in range(len(indices)):
        bit = first_bit + i
        if len(validity) == 0 or (validity[bit >> 3] >> (bit & 7)) & 1:
            counts[indices[i]] += 1
        else:
            counts[len(counts) - 1] += 1
