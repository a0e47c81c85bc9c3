"""Counts of fully observed families: against counting them one by one."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.counting import BLOCK, count_families
from tasks.projection import find_row, merge, project
from tasks.reading import Partition
from tasks.scopes import pack_scopes
from tasks.subnetwork import make_sub_network
from tests.oracle import KINDS, as_partition, complete_counts, incomplete_data, whole

UNWEIGHTED = np.empty(0, np.int64)


def local(network, rows):
    return [tuple(row[v] for v in network.topological_order) for row in rows]


@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from(KINDS))
def test_against_the_definition(seed, n, kind):
    network, _, rows = incomplete_data(seed, n, 30, kind)
    s = whole(network, rows)
    counts = count_families(as_partition(rows).codes, UNWEIGHTED, s)
    assert counts.dtype == np.int64
    assert counts.tolist() == complete_counts(s, local(network, rows))


def test_by_hand():
    """a -> b with three and two states: the child's states run fastest."""
    s = make_sub_network("ab", [3, 2], [1, 0], [True, True], [[0], [0, 1]])
    codes = np.array([[0, 1, 1, -1, 1], [2, 2, -1, 0, 2]], np.int8)  # b, then a
    assert count_families(codes, UNWEIGHTED, s).tolist() == [1, 0, 3, 0, 0, 0, 0, 1, 2]
    weights = np.array([5, 7, 11, 13, 17])
    assert count_families(codes, weights, s).tolist() == [13, 0, 29, 0, 0, 0, 0, 5, 24]
    assert count_families(codes, weights / 4, s).tolist() == [3.25, 0, 7.25, 0, 0, 0, 0, 1.25, 6.0]


@pytest.mark.parametrize("n_rows", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_blocks_of_rows(n_rows):
    rng = random.Random(n_rows)
    s = make_sub_network("abc", [2, 3, 2], range(3), [False, True, False], [[0], [0, 1], [0, 1, 2]])
    rows = [(rng.randrange(2), rng.randrange(-1, 3), rng.randrange(2)) for _ in range(n_rows)]
    codes = np.array(rows, np.int8).reshape(n_rows, 3).T.copy()
    assert count_families(codes, UNWEIGHTED, s).tolist() == complete_counts(s, rows)


@pytest.mark.parametrize(("dtype", "k"), [("int8", 127), ("int16", 300), ("int32", 40_000)])
def test_code_types(dtype, k):
    """Offsets are wider than codes: 126 * 3 + 2 does not fit where 126 does."""
    s = make_sub_network("ab", [k, 3], range(2), [True, True], [[0], [0, 1]])
    rows = [(k - 1, 2), (k - 1, 2), (-1, 0), (k - 1, -1), (0, 1)]
    counts = count_families(np.array(rows, dtype).T.copy(), UNWEIGHTED, s)
    assert {int(i): int(counts[i]) for i in np.flatnonzero(counts)} == {0: 1, k - 1: 3, k + 1: 1, 4 * k - 1: 2}


@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.integers(1, 5), st.booleans(), st.randoms())
@settings(max_examples=60)
def test_any_partitioning_adds_up(seed, kind, n_parts, by_row, rnd):
    """A group's projection: counts, rows and weights alike, in any order and any tree."""
    network, _, rows = incomplete_data(seed, 5, 40, kind)
    s = whole(network, rows)
    weights = [rnd.randrange(4) for _ in rows]
    # Columns that are hidden in all rows only: a part must not leave out one that happens to be empty there.
    codes = as_partition(rows).codes
    scopes = pack_scopes([s, s], 0 if by_row else rnd.choice([0, 100, 1 << 14]))
    owner = np.array([rnd.randrange(n_parts) for _ in rows])
    parts = [
        project(Partition(codes[:, owner == p].copy(), np.array(weights)[owner == p]), scopes, by_row=by_row)
        for p in range(n_parts)
    ]
    once = project(Partition(codes, np.array(weights)), scopes, by_row=by_row)
    rnd.shuffle(parts)
    for merged in (merge(parts), merge([merge(parts[:2]), merge(parts[2:])]) if n_parts > 2 else merge(parts)):
        assert (merged.n_rows, merged.total_weight) == (once.n_rows, once.total_weight) == (len(rows), sum(weights))
        for a, b in zip(merged.counts, once.counts, strict=True):
            assert np.array_equal(a.complete, b.complete)
            assert (a.instances is None) == (b.instances is None) == s.is_complete
            if a.instances is not None:
                for f in a.instances.__dataclass_fields__:
                    assert np.array_equal(getattr(a.instances, f), getattr(b.instances, f))


def test_merging_mutates_nothing():
    network, _, rows = incomplete_data(1, 5, 40)
    projection = project(as_partition(rows), pack_scopes([whole(network, rows)]))
    before = projection.counts[0].complete.copy()
    twice = merge([projection, projection])
    assert np.array_equal(projection.counts[0].complete, before)
    assert np.array_equal(twice.counts[0].complete, 2 * before)
    assert (twice.n_rows, twice.total_weight) == (80, 80)


def test_total_weight_is_kept():
    """Every row that observes a root is in one of its counts."""
    network, _, rows = incomplete_data(2, 5, 200, "complete")
    s = whole(network, rows)
    weights = np.arange(200)
    counts = count_families(as_partition(rows).codes, weights, s)
    for f in range(5):
        assert counts[s.bases[f] : s.bases[f + 1]].sum() == weights.sum()


def test_find_row():
    codes = np.array([[0, 1, 1, 1], [-1, -1, -1, 2], [0, 0, 1, 1]], np.int8)
    assert find_row(Partition(codes, None), [(0, 1)], [1]) == 1
    assert find_row(Partition(codes, None), [(0, 1), (2, 1)], [1]) == 2
    assert find_row(Partition(codes, np.array([1, 0, 0, 1])), [(0, 1)], []) == 3
    assert find_row(Partition(codes, None), [(0, 0), (2, 1)], []) == -1
    assert find_row(Partition(codes, None), [], []) == 0
