"""Scopes counted at once: distinct rows lose nothing, and packing changes no count."""

import random
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decompose import decompose
from tasks.projection import project
from tasks.reading import Partition
from tasks.scopes import BLOCK, MAX_ALONE, MAX_ENTRIES, distinct_rows, pack_scopes
from tasks.subnetwork import make_sub_network
from tests.oracle import KINDS, incomplete_data

UNWEIGHTED = np.empty(0, np.int64)


def scope_of(cardinalities, may_miss, columns=None):
    n = len(cardinalities)
    s = make_sub_network(
        [f"v{i}" for i in range(n)], cardinalities, columns or range(n), may_miss, [[i] for i in range(n)]
    )
    (scope,) = pack_scopes([s])
    return scope


@pytest.mark.parametrize("n_rows", [0, 1, 100, BLOCK, 2 * BLOCK + 7])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_distinct_rows(n_rows, dtype):
    rng = random.Random(n_rows)
    scope = scope_of([2, 3, 5, 2], [True, False, True, False], [3, 0, 2, 5])
    rows = [tuple(rng.randrange(0 if m else -1, 2) for m in (1, 0, 0, 0, 0, 1)) for _ in range(n_rows)]
    rows = [(*r[:3], r[3], *r[4:]) for r in rows]
    codes = np.array(rows, dtype).reshape(n_rows, 6).T.copy()
    found, counts = distinct_rows(codes, UNWEIGHTED, scope)
    assert scope.columns.tolist() == [0, 2, 3, 5]
    assert (found.dtype, counts.dtype) == (codes.dtype, np.int64)
    wanted = Counter((r[0], r[2], r[3], r[5]) for r in rows)
    assert dict(zip(map(tuple, found.T.tolist()), counts.tolist(), strict=True)) == dict(wanted)
    weights = np.array([rng.randrange(3) for _ in rows]) / 4
    found, counts = distinct_rows(codes, weights, scope)
    heavy: Counter = Counter()
    for r, w in zip(rows, weights.tolist(), strict=True):
        heavy[(r[0], r[2], r[3], r[5])] += w
    # Quarters add without rounding.
    assert dict(zip(map(tuple, found.T.tolist()), counts.tolist(), strict=True)) == {
        k: w for k, w in heavy.items() if w
    }


def test_the_extreme_codes_of_a_scope():
    """First and last entry of the histogram: all missing where that may be, all at the last state."""
    scope = scope_of([3, 127, 2], [True, True, False])
    codes = np.array([[-1, 2], [-1, 126], [0, 1]], np.int8)
    found, counts = distinct_rows(codes, UNWEIGHTED, scope)
    assert found.tolist() == codes.tolist()
    assert counts.tolist() == [1, 1]


@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.booleans(), st.booleans())
@settings(max_examples=80)
def test_packing_changes_no_count(seed, kind, drop_barren, weighted):
    """Sub-networks counted from the rows, one by one in histograms, and packed together."""
    network, _, rows = incomplete_data(seed, 8, 60, kind)
    shown = [v for v in range(8) if any(row[v] >= 0 for row in rows)]
    always = {network.variables[v] for v in shown if all(row[v] >= 0 for row in rows)}
    columns = {network.variables[v]: c for c, v in enumerate(shown)}
    sub_networks = decompose(network, columns, always, set(network.variables) - set(columns)).sub_networks
    codes = np.array([[row[v] for row in rows] for v in shown], np.int8).reshape(len(shown), len(rows))
    weights = np.arange(len(rows)) % 3 if weighted else None
    results = [
        project(Partition(codes, weights), pack_scopes(sub_networks, most), drop_barren)
        for most in (0, 30, MAX_ENTRIES)
    ]
    for other in results[1:]:
        assert (other.n_rows, other.total_weight) == (results[0].n_rows, results[0].total_weight)
        assert len(other.counts) == len(sub_networks)
        for a, b in zip(other.counts, results[0].counts, strict=True):
            assert np.array_equal(a.complete, b.complete)
            assert (a.instances is None) == (b.instances is None)
            for f in b.instances.__dataclass_fields__ if b.instances is not None else ():
                assert np.array_equal(getattr(a.instances, f), getattr(b.instances, f))


def pair(a, b, k):
    """A sub-network on two columns of k states that never miss."""
    return make_sub_network([f"c{a}", f"c{b}"], [k, k], [a, b], [False, False], [[0, 1]])


def test_how_sub_networks_are_packed():
    wide = pair(90, 91, 400)  # 160 000 rows are possible: too many for any histogram
    alone = pair(80, 81, 200)  # 40 000: a histogram of its own
    chain = [pair(i, i + 1, 10) for i in range(5)]
    assert MAX_ENTRIES < 200**2
    assert 200**2 <= MAX_ALONE < 400**2
    scopes = pack_scopes([wide, *chain, alone])
    # 10^4 entries fit and 10^5 do not: neighbours share columns, so three pairs make a scope of four columns.
    assert [s.members for s in scopes] == [(1, 2, 3), (4, 5), (6,), (0,)]
    assert [s.columns.tolist() for s in scopes] == [[0, 1, 2, 3], [3, 4, 5], [80, 81], []]
    for scope in scopes:
        for k, s in zip(scope.members, scope.sub_networks, strict=True):
            original = [wide, *chain, alone][k]
            columns = scope.columns[s.columns] if len(scope.columns) else s.columns
            assert columns.tolist() == original.columns.tolist()
    assert [s.members for s in pack_scopes(chain, 0)] == [(0,), (1,), (2,), (3,), (4,)]
    assert all(len(s.columns) == 0 for s in pack_scopes(chain, 0))


def test_packing_is_linear():
    def seconds(n):
        chain = [pair(i, i + 1, 3) for i in range(n)]
        began = time.perf_counter()
        pack_scopes(chain)
        return time.perf_counter() - began

    # Twice the sub-networks, twice the time; four times would be quadratic. The better of three, against noise.
    assert min(seconds(4000) for _ in range(3)) < 3.5 * min(seconds(2000) for _ in range(3))
