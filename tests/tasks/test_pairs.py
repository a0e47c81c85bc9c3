"""All pairwise counts: exact, whatever counts them, however the rows are cut up."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import pairs as module
from tasks.pairs import count_pairs, merge_pairs, state_bases
from tasks.reading import Partition


def by_one_hot(codes, cardinalities, weights=None):
    """The same matrix as a product of one-hot codes."""
    hot = np.concatenate([codes[v] == np.arange(k)[:, None] for v, k in enumerate(cardinalities)])
    hot = hot.astype(np.int64 if weights is None else weights.dtype)
    return (hot if weights is None else hot * weights) @ hot.T


def random_codes(rng, cardinalities, n_rows, missing=0.2, dtype=np.int8):
    """Every other column incomplete."""
    codes = np.stack([rng.integers(0, k, n_rows) for k in cardinalities]).astype(dtype)
    codes[::2][rng.random(codes[::2].shape) < missing] = -1
    return codes


# Around whole words of 64 rows, and around a block.
@pytest.mark.parametrize("n_rows", [0, 1, 7, 63, 64, 65, 1000, module.BLOCK - 1, module.BLOCK, module.BLOCK + 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_product_of_one_hot_codes(n_rows, weighted):
    rng = np.random.default_rng(n_rows)
    # Few states and many: both engines, and pairs of one of each; a constant.
    cardinalities = [2, 3, 1, 18, 17, 40, 2]
    codes = random_codes(rng, cardinalities, n_rows)
    weights = rng.integers(0, 9, n_rows) if weighted else None
    found = count_pairs(Partition(codes, weights), cardinalities)
    wanted = by_one_hot(codes, cardinalities, weights)
    assert found.counts.dtype == np.int64
    assert (found.counts == wanted).all()
    assert (found.n_rows, found.total_weight) == (n_rows, int(weights.sum()) if weighted else n_rows)


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
def test_wide_codes(dtype):
    rng = np.random.default_rng(0)
    cardinalities = [300, 2, 5]
    codes = random_codes(rng, cardinalities, 5000, dtype=dtype)
    assert (count_pairs(Partition(codes, None), cardinalities).counts == by_one_hot(codes, cardinalities)).all()


@pytest.mark.parametrize("largest", [0, 1, 2**20, 2**52])
def test_integer_weights_are_exact(largest):
    """Also where a double would have rounded their sums."""
    rng = np.random.default_rng(1)
    cardinalities = [2, 4, 3]
    codes = random_codes(rng, cardinalities, 900)
    weights = rng.integers(0, largest, 900, endpoint=True)
    found = count_pairs(Partition(codes, weights), cardinalities)
    assert (found.counts == by_one_hot(codes, cardinalities, weights)).all()
    assert found.total_weight == sum(weights.tolist())


def test_fractional_weights():
    rng = np.random.default_rng(2)
    cardinalities = [2, 4, 3, 20]
    codes = random_codes(rng, cardinalities, 2000)
    weights = rng.random(2000)
    found = count_pairs(Partition(codes, weights), cardinalities)
    # 2000 additions of numbers below one in another order.
    assert found.counts == pytest.approx(by_one_hot(codes, cardinalities, weights), rel=1e-12)
    assert (found.counts == found.counts.T).all()


def test_halves_count_as_half_of_ones():
    codes = random_codes(np.random.default_rng(3), [2, 3, 30], 500)
    whole = count_pairs(Partition(codes, None), [2, 3, 30])
    half = count_pairs(Partition(codes, np.full(500, 0.5)), [2, 3, 30])
    assert (whole.counts == 2 * half.counts).all()
    assert half.total_weight == 250


def test_more_planes_than_a_tile():
    rng = np.random.default_rng(4)
    cardinalities = rng.integers(1, 5, 3 * module.TILE).tolist()
    codes = random_codes(rng, cardinalities, 300)
    assert (count_pairs(Partition(codes, None), cardinalities).counts == by_one_hot(codes, cardinalities)).all()


@given(st.lists(st.integers(0, 200), max_size=4), st.booleans())
def test_any_partitioning_gives_the_same_counts(cuts, weighted):
    rng = np.random.default_rng(5)
    cardinalities = [2, 3, 18]
    codes = random_codes(rng, cardinalities, 200)
    weights = rng.integers(0, 50, 200) if weighted else None
    whole = count_pairs(Partition(codes, weights), cardinalities)
    borders = [0, *sorted(cuts), 200]
    parts = [
        count_pairs(
            Partition(np.ascontiguousarray(codes[:, a:b]), None if weights is None else weights[a:b]), cardinalities
        )
        for a, b in pairwise(borders)
    ]
    before = parts[0].counts.copy()
    merged = merge_pairs([merge_pairs(parts[:2]), *parts[2:]])
    assert (merged.counts == whole.counts).all()
    assert (merged.n_rows, merged.total_weight) == (200, whole.total_weight)
    assert (parts[0].counts == before).all()


def test_weights_of_both_types_merge():
    codes = np.zeros((2, 4), np.int8)
    parts = [count_pairs(Partition(codes, w), [1, 1]) for w in (np.full(4, 2), np.full(4, 0.25))]
    for order in (parts, parts[::-1]):
        assert merge_pairs(order).counts.tolist() == [[9.0, 9.0], [9.0, 9.0]]


def test_state_bases():
    assert state_bases([2, 1, 3]).tolist() == [0, 2, 3, 6]
