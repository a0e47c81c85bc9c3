"""Rows reduced to instances: against the definition, spelled out in plain Python."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.instances import merge_instances
from tasks.reduction import DENSE, reduce_rows
from tasks.subnetwork import make_sub_network
from tests.oracle import (
    KINDS,
    blank,
    incomplete_data,
    instances,
    listed,
    random_network,
    sample,
    whole,
)

UNWEIGHTED = np.empty(0, np.int64)


def local_rows(network, rows):
    """Rows in the order of `whole`'s variables."""
    return [tuple(row[v] for v in network.topological_order) for row in rows]


def codes_of(sub_network, rows, dtype="int8"):
    """Codes of rows over a sub-network's own variables, each where the sub-network expects it."""
    codes = np.full((int(sub_network.columns.max(initial=-1)) + 1, len(rows)), -1, dtype)
    for v, column in enumerate(sub_network.columns.tolist()):
        if column >= 0:
            codes[column] = [row[v] for row in rows]
    return codes


def reduce(sub_network, rows, weights=UNWEIGHTED, dtype="int8", **options):
    return reduce_rows(codes_of(sub_network, rows, dtype), np.asarray(weights), sub_network, **options)


def identical(a, b):
    """Every array equal, in value and in type."""
    return all(
        np.array_equal(getattr(a, f), getattr(b, f)) and getattr(a, f).dtype == getattr(b, f).dtype
        for f in a.__dataclass_fields__
    )


@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from(KINDS), st.booleans(), st.booleans())
@settings(max_examples=150)
def test_against_the_definition(seed, n, kind, drop_barren, by_row):
    network, _, rows = incomplete_data(seed, n, 30, kind)
    s = whole(network, rows)
    found = listed(reduce(s, local_rows(network, rows), drop_barren=drop_barren, by_row=by_row))
    expected = instances(s, local_rows(network, rows), None, drop_barren, by_row)
    assert len(found) == len(expected)
    assert dict(found) == dict(expected)


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_a_component_with_boundary_variables_from_outside(seed, drop_barren, by_row):
    """Only some families are free: the others' variables are always observed and stand as parents."""
    rng = random.Random(seed)
    network = random_network(rng, 6)
    order = network.topological_order
    local = {v: k for k, v in enumerate(order)}
    outside = set(rng.sample(range(6), 2))
    rows = [
        tuple(x if v in outside else b for v, (x, b) in enumerate(zip(full, row, strict=True)))
        for full, row in ((r, blank(rng, network, [r], "at random")[0]) for r in sample(rng, network, 40))
    ]
    s = make_sub_network(
        [network.variables[v] for v in order],
        [len(network.states[v]) for v in order],
        list(order),
        [v not in outside for v in order],
        [[*(local[p] for p in network.parents[v]), local[v]] for v in order if v not in outside],
    )
    found = listed(reduce(s, local_rows(network, rows), drop_barren=drop_barren, by_row=by_row))
    assert dict(found) == dict(instances(s, local_rows(network, rows), None, drop_barren, by_row))


def chain(n=4, k=2, hidden=()):
    """v0 -> v1 -> ..., k states each."""
    families = [[0], *([i, i + 1] for i in range(n - 1))]
    columns, at = [], 0
    for i in range(n):
        columns.append(-1 if i in hidden else at)
        at += i not in hidden
    return make_sub_network([f"v{i}" for i in range(n)], [k] * n, columns, [True] * n, families)


def test_by_hand():
    """A chain of four, written out: what is tied, what is barren, what is boundary."""
    rows = [(0, -1, 1, 1), (0, -1, 1, 0), (0, 1, -1, -1), (-1, 0, -1, 1), (1, 1, 1, 1), (-1, -1, -1, -1)]
    found = dict(listed(reduce(chain(), rows)))
    assert found == {
        # v1 missing between v0 and v2: v3 is no neighbour, so the first two rows are one instance.
        ((1,), (1, 2), (0, 2), (0, 1)): 2,
        # v0 missing above v1, and apart from it v2 between v1 and v3.
        ((0,), (0, 1), (1,), (0,)): 1,
        ((2,), (2, 3), (1, 3), (0, 1)): 1,
    }
    kept = dict(listed(reduce(chain(), rows, drop_barren=False)))
    assert kept == {
        **found,
        ((2, 3), (2, 3), (1,), (1,)): 1,
        ((0, 1, 2, 3), (0, 1, 2, 3), (), ()): 1,
    }
    whole_rows = dict(listed(reduce(chain(), rows, by_row=True)))
    assert whole_rows == {
        ((1,), (1, 2), (0, 2, 3), (0, 1, 1)): 1,
        ((1,), (1, 2), (0, 2, 3), (0, 1, 0)): 1,
        # Barren v2 and v3: the row stays, without a hidden variable to sum out.
        ((), (), (0, 1), (0, 1)): 1,
        ((0, 2), (0, 1, 2, 3), (1, 3), (0, 1)): 1,
        ((), (), (0, 1, 2, 3), (1, 1, 1, 1)): 1,
        ((), (), (), ()): 1,
    }


@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.integers(1, 6), st.booleans(), st.randoms())
@settings(max_examples=60)
def test_any_partitioning_gives_equal_arrays(seed, kind, n_parts, by_row, rnd):
    network, _, rows = incomplete_data(seed, 6, 60, kind)
    s = whole(network, rows)
    local = local_rows(network, rows)
    once = reduce(s, local, by_row=by_row)
    shuffled = rnd.sample(local, len(local))
    cuts = sorted(rnd.choices(range(len(rows) + 1), k=n_parts - 1))
    parts = [reduce(s, shuffled[a:b], by_row=by_row) for a, b in itertools.pairwise([0, *cuts, len(rows)])]
    assert identical(merge_instances(parts), once)
    # In a tree of any shape, and in any order.
    while len(parts) > 1:
        rnd.shuffle(parts)
        parts = [*parts[2:], merge_instances(parts[:2])]
    assert identical(parts[0], once)


def test_the_identity_and_what_merging_leaves_alone():
    network, _, rows = incomplete_data(3, 5, 50)
    s = whole(network, rows)
    table, nothing = reduce(s, local_rows(network, rows)), reduce(s, [])
    assert len(table) > 5
    assert (len(nothing), nothing.n_signatures) == (0, 0)
    before = listed(table)
    for merged in ([table, nothing], [nothing, table], [nothing, nothing, table, nothing], [table]):
        assert identical(merge_instances(merged), table)
    assert identical(merge_instances([nothing, nothing]), nothing)
    assert [c for _, c in listed(merge_instances([table, table]))] == [2 * c for _, c in before]
    assert listed(table) == before


def test_the_order_is_canonical():
    """By hidden variables and families, then by boundary values: nothing of the rows' order is left."""
    network, _, rows = incomplete_data(4, 6, 80)
    found = [key for key, _ in listed(reduce(whole(network, rows), local_rows(network, rows)))]
    assert len({key[:2] for key in found}) > 3
    assert found == sorted(found, key=lambda k: (len(k[0]), len(k[1]), k[0], k[1], k[2], k[3]))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
@pytest.mark.parametrize("by_row", [False, True])
def test_code_types_agree(dtype, by_row):
    network, _, rows = incomplete_data(5, 6, 80)
    s, local = whole(network, rows), local_rows(network, rows)
    assert identical(reduce(s, local, dtype=dtype, by_row=by_row), reduce(s, local, by_row=by_row))


@pytest.mark.parametrize(("dtype", "k"), [("int8", 127), ("int16", 1000), ("int32", 40_000)])
def test_many_states(dtype, k):
    """The largest code of each type is a state like any other: in the dense block, in the hash table, and in rows."""
    rows = [(k - 1, -1, k - 1), (k - 1, -1, 0), (k - 1, -1, k - 1), (-1, k - 1, 0)]
    s = make_sub_network("abc", [k] * 3, range(3), [True] * 3, [[0], [1], [2]])
    tied = make_sub_network("abc", [k, 2, k], range(3), [True] * 3, [[0], [0, 1], [1, 2]])
    assert listed(reduce(s, rows, dtype=dtype)) == []
    low = [(a, min(b, 1), c) for a, b, c in rows]
    assert dict(listed(reduce(tied, low, dtype=dtype))) == {
        ((1,), (1, 2), (0, 2), (k - 1, k - 1)): 2,
        ((1,), (1, 2), (0, 2), (k - 1, 0)): 1,
        ((0,), (0, 1), (1,), (1,)): 1,
    }
    assert dict(listed(reduce(tied, low, dtype=dtype, by_row=True))) == dict(instances(tied, low, by_row=True))


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_weights(seed, by_row, drop_barren):
    rng = random.Random(seed)
    network, _, rows = incomplete_data(seed, 5, 40)
    s, local = whole(network, rows), local_rows(network, rows)
    weights = [rng.choice([0, 1, 2, 7]) for _ in rows]
    table = reduce(s, local, np.array(weights, np.int64), by_row=by_row, drop_barren=drop_barren)
    assert table.counts.dtype == np.int64
    assert dict(listed(table)) == dict(instances(s, local, weights, drop_barren, by_row))
    # As if each row stood there so many times; rows of weight zero are not there at all.
    repeated = [row for row, w in zip(local, weights, strict=True) for _ in range(w)]
    assert identical(reduce(s, repeated, by_row=by_row, drop_barren=drop_barren), table)
    # Eighths add without rounding, so fractions are held to equality too.
    eighths = reduce(s, local, np.array(weights) / 8, by_row=by_row, drop_barren=drop_barren)
    assert eighths.counts.dtype == np.float64
    assert [(k, 8 * c) for k, c in listed(eighths)] == listed(table)


def test_total_weight_is_kept():
    """By row every example is in exactly one instance."""
    network, _, rows = incomplete_data(6, 6, 90)
    weights = np.arange(90)
    table = reduce(whole(network, rows), local_rows(network, rows), weights, by_row=True)
    assert table.counts.sum() == weights.sum()


def test_more_than_64_variables_that_may_miss():
    """Patterns of missingness longer than a machine word: bit 63, 64, 127 and 128 tell rows apart."""
    n = 150
    s = chain(n, 3)
    rng = random.Random(7)
    rows = [tuple(rng.randrange(3) for _ in range(n)) for _ in range(40)]
    rows = [tuple(-1 if rng.random() < 0.3 else x for x in row) for row in rows]
    full = tuple(0 for _ in range(n))
    for v in (0, 62, 63, 64, 65, 126, 127, 128, 148):
        rows.append((*full[:v], -1, *full[v + 1 :]))
    for drop_barren, by_row in itertools.product((True, False), repeat=2):
        found = listed(reduce(s, rows, drop_barren=drop_barren, by_row=by_row))
        assert dict(found) == dict(instances(s, rows, None, drop_barren, by_row))
    assert dict(listed(reduce(s, rows)))[((64,), (64, 65), (63, 65), (0, 0))] >= 1


def test_hidden_columns_beyond_the_first_word():
    s = chain(130, 2, hidden=range(60, 70))
    rng = random.Random(8)
    rows = [tuple(-1 if 60 <= v < 70 else rng.randrange(2) for v in range(130)) for _ in range(60)]
    found = dict(listed(reduce(s, rows)))
    assert found == dict(instances(s, rows))
    assert {key[0] for key in found} == {tuple(range(60, 70))}


@pytest.mark.parametrize("parents", [[8, 8, 16], [8, 8, 17], [31, 33], [32, 32], [40, 40, 40], [2, 3, 5, 7, 11]])
def test_dense_and_hashed_boundaries_agree(parents):
    """Boundaries just below, at and beyond the limit of the dense block, against the definition."""
    n = len(parents)
    s = make_sub_network(
        [f"p{i}" for i in range(n)] + ["h", "x"],
        [*parents, 2, 2],
        [*range(n), -1, n],
        [False] * n + [True, False],
        [[*range(n), n], [n, n + 1]],
    )
    assert max(np.prod([8, 8, 16]), 1024) == DENSE
    rng = random.Random(9)
    rows = [(*(rng.randrange(k) for k in parents), -1, rng.randrange(2)) for _ in range(3000)]
    rows += [(*(k - 1 for k in parents), -1, 1), (*(0 for _ in parents), -1, 0)] * 3
    table = reduce(s, rows)
    assert Counter(dict(listed(table))) == instances(s, rows)
    assert listed(table) == sorted(listed(table))
    half = len(rows) // 2
    assert identical(merge_instances([reduce(s, rows[half:]), reduce(s, rows[:half])]), table)


def test_many_patterns_and_signatures_grow_every_table():
    """More patterns, signatures and instances than any table begins with."""
    n = 14
    s = make_sub_network(
        [f"v{i}" for i in range(n)], [3] * n, range(n), [True] * n, [[0], *([i // 2, i] for i in range(1, n))]
    )
    rng = random.Random(10)
    rows = [tuple(rng.randrange(-1, 3) for _ in range(n)) for _ in range(6000)]
    assert len({tuple(x < 0 for x in row) for row in rows}) > 2000
    for by_row in (False, True):
        table = reduce(s, rows, by_row=by_row)
        assert dict(listed(table)) == dict(instances(s, rows, None, True, by_row))


def test_describe():
    rows = [(0, -1, 1, 1)]
    table = reduce(chain(), rows)
    assert table.describe(0, chain()) == (("v1",), {"v0": 0, "v2": 1})
    assert table.nbytes > 0


def test_nothing_is_mutated():
    network, _, rows = incomplete_data(11, 5, 50)
    s = whole(network, rows)
    codes, weights = codes_of(s, local_rows(network, rows)), np.arange(50)
    before = codes.copy(), weights.copy()
    reduce_rows(codes, weights, s)
    assert np.array_equal(codes, before[0])
    assert np.array_equal(weights, before[1])
