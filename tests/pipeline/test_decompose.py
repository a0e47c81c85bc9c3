"""Decomposition: the thesis's example, what is pruned, what stays together, and that the likelihood factors."""

import math
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import plan
from pipeline.decompose import decompose
from pipeline.family_learning import start_parameters
from pipeline.markov import MarkovNetwork
from pipeline.network import Network
from tasks.projection import project
from tasks.reading import Partition
from tasks.scopes import pack_scopes
from tasks.solving import evaluate, prepare
from tests import oracle
from tests.oracle import KINDS, incomplete_data


def chain(names, k=2):
    n = len(names)
    return Network(
        "chain",
        tuple(names),
        ((tuple("abcdefgh"[:k])),) * n,
        tuple((i - 1,) if i else () for i in range(n)),
        (np.full(k, 1 / k), *[np.full((k, k), 1 / k)] * (n - 1)),
    )


def shape(decomposition):
    return [(s.component, s.boundary) for s in decomposition.sub_networks]


def test_the_running_example():
    """Thesis, Figures 6.1 and 6.2: V -> X -> Y -> Z with V, X and Z observed."""
    pieces = decompose(chain("VXYZ"), {"V": 0, "X": 1, "Z": 2}, {"V", "X", "Z"}, {"Y"})
    assert shape(pieces) == [(("V",), ()), (("X",), ("V",)), (("Y", "Z"), ("X",))]
    assert pieces.pruned == ()
    third = pieces.sub_networks[2]
    assert third.names == ("X", "Y", "Z")
    assert third.columns.tolist() == [1, -1, 2]
    assert third.may_miss.tolist() == [False, True, False]
    assert third.bases.tolist() == [0, 4, 8]
    assert [s.is_complete for s in pieces.sub_networks] == [True, True, False]


def test_the_running_examples_projected_datasets():
    """The thesis's table: three rows, projected on the sub-networks and counted."""
    network = chain("VXYZ")
    codes = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1]], np.int8)  # V, X, Z; state 0 is v, 1 is v-bar
    pieces = decompose(network, {"V": 0, "X": 1, "Z": 2}, {"V", "X", "Z"}, {"Y"}).sub_networks
    v, x, yz = project(Partition(codes, None), pack_scopes(pieces), by_row=True).counts
    assert v.complete.tolist() == [2, 1]
    assert x.complete.tolist() == [1, 1, 1, 0]  # v x, v x-bar, v-bar x
    table = yz.instances
    assert table.counts.tolist() == [2, 1]
    assert table.values.tolist() == [0, 1, 1, 0]  # x z-bar twice, x-bar z once


def test_hidden_leaves_are_pruned_repeatedly():
    """A hidden leaf, then its parent that has become one; a hidden variable above an observed one stays."""
    states = (("0", "1"),) * 6
    parents = ((), (0,), (1,), (1, 2), (0,), (4,))
    tables = tuple(np.full([2] * (len(p) + 1), 0.5) for p in parents)
    network = Network("n", tuple("abcdef"), states, parents, tables)
    pieces = decompose(network, {"a": 0, "f": 1}, {"a"}, {"b", "c", "d", "e"})
    assert pieces.pruned == ("b", "c", "d")
    assert shape(pieces) == [(("a",), ()), (("e", "f"), ("a",))]
    together = decompose(network, {"a": 0, "f": 1}, {"a"}, {"b", "c", "d", "e"}, whole=True)
    assert together.pruned == ("b", "c", "d")
    assert shape(together) == [(("a", "e", "f"), ())]
    partly = decompose(network, {"a": 0, "d": 1, "f": 2}, {"a"}, {"b", "c", "e"})
    assert partly.pruned == ()
    assert shape(partly) == [(("a",), ()), (("b", "c", "d"), ("a",)), (("e", "f"), ("a",))]
    everything = decompose(network, {}, set(), set("abcdef"))
    assert (everything.sub_networks, everything.pruned) == ((), tuple("abcdef"))


def test_partly_observed_parents_tie_and_observed_ones_do_not():
    parents = ((), (), (0, 1), (1,))
    tables = tuple(np.full([2] * (len(p) + 1), 0.5) for p in parents)
    network = Network("n", tuple("abcd"), (("0", "1"),) * 4, parents, tables)
    columns = {n: i for i, n in enumerate("abcd")}
    assert shape(decompose(network, columns, set("bcd"), ())) == [(("a", "c"), ("b",)), (("b",), ()), (("d",), ("b",))]
    assert shape(decompose(network, columns, set("acd"), ())) == [(("a",), ()), (("b", "c", "d"), ("a",))]
    assert shape(decompose(network, columns, set("abcd"), ())) == [
        (("a",), ()), (("b",), ()), (("c",), ("a", "b")), (("d",), ("b",)),
    ]  # fmt: skip
    assert shape(decompose(network, columns, set("abcd"), (), whole=True)) == [(tuple("abcd"), ())]


@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from(KINDS))
@settings(max_examples=80)
def test_what_holds_of_every_decomposition(seed, n, kind):
    network, start, rows = incomplete_data(seed, n, 25, kind)
    shown = [v for v in range(n) if any(row[v] >= 0 for row in rows)]
    columns = {network.variables[v]: c for c, v in enumerate(shown)}
    always = {network.variables[v] for v in shown if all(row[v] >= 0 for row in rows)}
    hidden = set(network.variables) - set(columns)
    codes = np.array([[row[v] for row in rows] for v in shown], np.int8).reshape(len(shown), len(rows))
    number = {v: i for i, v in enumerate(network.variables)}
    for whole in (False, True):
        pieces = decompose(network, columns, always, hidden, whole)
        learned = [v for s in pieces.sub_networks for v in s.component]
        assert sorted([*learned, *pieces.pruned]) == sorted(network.variables)
        assert set(pieces.pruned) <= hidden
        total = 0.0
        projection = project(Partition(codes, None), pack_scopes(pieces.sub_networks))
        for s, counts in zip(pieces.sub_networks, projection.counts, strict=True):
            assert set(s.boundary) <= always
            place = {name: k for k, name in enumerate(s.names)}
            for f, name in enumerate(s.component):
                members = [s.names[int(m)] for m in s.members[s.family_ptr[f] : s.family_ptr[f + 1]]]
                assert members == [*(network.variables[p] for p in network.parents[number[name]]), name]
                assert max(members, key=place.__getitem__) == name
            assert [columns.get(name, -1) for name in s.names] == s.columns.tolist()
            assert [name not in always for name in s.names] == s.may_miss.tolist()
            total += evaluate(prepare(s, counts, 1 << 30), start_parameters(start, s))
        # Corollary 1: the likelihood is the product of the components'.
        assert total == pytest.approx(oracle.log_likelihood(start, rows), rel=1e-10, abs=1e-12)
        if not whole:
            # No smaller pieces would do: every two variables of a piece are tied by edges that are not cut.
            for s in pieces.sub_networks:
                reached, ends = set(), [s.component[0]]
                while ends:
                    v = ends.pop()
                    reached.add(v)
                    ends += [w for w in s.component if w not in reached and tied(network, v, w, always)]
                assert reached == set(s.component)


def tied(network, v, w, always):
    number = {x: i for i, x in enumerate(network.variables)}
    return (number[v] in network.parents[number[w]] and v not in always) or (
        number[w] in network.parents[number[v]] and w not in always
    )


def test_a_chain_of_two_thousand_in_linear_time():
    def seconds(n, always):
        names = [f"v{i}" for i in range(n)]
        network, columns = chain(names), {v: i for i, v in enumerate(names)}
        _ = network.topological_order
        began = time.perf_counter()
        pieces = decompose(network, columns, {v for i, v in enumerate(names) if always and i % 2}, ())
        assert len(pieces.sub_networks) == (n // 2 if always else 1)
        return time.perf_counter() - began

    for always in (True, False):
        # Four times the variables, four times the time; sixteen would be quadratic. The best of ten, against noise.
        few, many = (min(seconds(n, always) for _ in range(10)) for n in (500, 2000))
        assert many < 9 * few


def test_the_likelihood_of_a_long_chain_factors():
    """2 000 variables, decomposed and whole: 1e-10 relative, over some 10^5 terms."""
    n = 2000
    rng = random.Random(0)
    names = [f"v{i}" for i in range(n)]
    network = chain(names, 3)
    tables = [oracle.random_table(rng, list(t.shape)) for t in network.tables]
    network = Network("chain", network.variables, network.states, network.parents, tuple(tables))
    codes = np.array([[rng.randrange(3) for _ in range(30)] for _ in range(n)], np.int8)
    partly = [i for i in range(n) if rng.random() < 0.5]
    for i in partly:
        codes[i, rng.sample(range(30), 12)] = -1
    always = {names[i] for i in range(n) if (codes[i] >= 0).all()}
    totals = []
    for whole in (False, True):
        sub_networks = decompose(network, {v: i for i, v in enumerate(names)}, always, (), whole).sub_networks
        assert (len(sub_networks) == 1) == whole
        counts = project(Partition(codes, None), pack_scopes(sub_networks)).counts
        problems = [prepare(s, c, 1 << 30) for s, c in zip(sub_networks, counts, strict=True)]
        totals.append(math.fsum(evaluate(p, start_parameters(network, p.sub_network)) for p in problems))
    assert totals[0] == pytest.approx(totals[1], rel=1e-10)
    assert -2000 * 30 * 3 < totals[0] < -2000 * 30 * 0.2


# --- data terms of Markov random fields ----------------------------------------------------------------------------

# Refaat & Darwiche, Figure 1: a grid of nine variables, those in the middle of its rows and columns numbered by row.
GRID = [(1, 2), (2, 3), (4, 5), (5, 6), (7, 8), (8, 9), (1, 4), (2, 5), (3, 6), (4, 7), (5, 8), (6, 9)]
OBSERVED = (2, 3, 4, 5, 7, 9)
# The paper's table of examples; None is "?".
T, F = 0, 1
EXAMPLES = [
    (T, F, F, F, T, None, T, None, T),
    (None, T, T, F, T, None, F, None, F),
    (T, F, T, F, F, T, T, None, T),
    (None, T, T, F, F, None, F, F, T),
]


def grid_and_rows(times=(2, 7, 3, 8)):
    """The paper's grid; its examples as often as its compressed table has them: 5 of one kind, 15 of the other."""
    states = (("t", "f"),) * 9
    scopes = tuple((a - 1, b - 1) for a, b in GRID)
    field = MarkovNetwork("grid", tuple("123456789"), states, scopes, (np.ones((2, 2)),) * 12)
    rows = [
        tuple(-1 if x is None else x for x in row) for row, n in zip(EXAMPLES, times, strict=True) for _ in range(n)
    ]
    return field, rows


def sub_networks_of(field, rows, whole=False):
    return oracle.field_pieces(field, rows, whole)


def test_figure_1s_sub_networks():
    field, rows = grid_and_rows()
    # The first four examples alone show variable 5 and the rest as the figure has them.
    found = sub_networks_of(field, rows)
    by_factors = {tuple(sorted(GRID[f] for f in s.factors)): s for s in found}
    assert set(by_factors) == {
        ((1, 2), (1, 4)),
        ((3, 6), (5, 6), (6, 9)),
        ((5, 8), (7, 8), (8, 9)),
        ((2, 3),),
        ((2, 5),),
        ((4, 5),),
        ((4, 7),),
    }
    first = by_factors[(1, 2), (1, 4)]
    assert (first.names, first.component, first.boundary) == (("1", "2", "4"), ("1",), ("2", "4"))
    assert not first.directed
    assert by_factors[((2, 3),)].is_complete
    (together,) = sub_networks_of(field, rows, whole=True)
    assert together.factors.tolist() == list(range(12))


def test_figure_1s_compressed_table():
    """Projected on 1, 2 and 4: (t, f, f) five times and (?, t, f) fifteen times, as in the paper."""
    field, rows = grid_and_rows()
    found = sub_networks_of(field, rows)
    k = next(i for i, s in enumerate(found) if s.names == ("1", "2", "4"))
    counts = project(oracle.as_partition(rows), pack_scopes(found, 0), False, True).counts[k]
    table = oracle.listed(counts.instances)
    # (hidden, factors, observed variables, their values): variables numbered within the sub-network.
    assert table == [(((), (), (0, 1, 2), (T, F, F)), 5), (((0,), (0, 1), (1, 2), (T, F)), 15)]


def test_figure_1s_instances_and_counts():
    """Beyond the paper: rows that observe a factor count it, and only the other fifteen need an inference."""
    field, rows = grid_and_rows()
    found = sub_networks_of(field, rows)
    k = next(i for i, s in enumerate(found) if s.names == ("1", "2", "4"))
    counts = project(oracle.as_partition(rows), pack_scopes(found), False).counts[k]
    assert counts.complete.tolist() == [0, 5, 0, 0, 0, 5, 0, 0]
    assert oracle.listed(counts.instances) == [(((0,), (0, 1), (1, 2), (T, F)), 15)]


def test_the_papers_bounds_on_distinct_rows():
    """2^6 3^3 = 1728 of the whole and 2^2 3 = 12 of the first sub-network, in the plan."""
    field, rows = grid_and_rows((600, 700, 800, 900))
    table = oracle.as_table(field, rows)
    planned = {s.variables: s.max_rows for s in plan(field, table).sub_networks}
    assert planned[("1",)] == 12
    assert [s.max_rows for s in plan(field, table, decompose=False).sub_networks] == [1728]


@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from(oracle.FIELD_KINDS))
@settings(max_examples=80)
def test_data_terms_partition_the_factors(seed, n, kind):
    """By definition: factors are together where a path of shared variables that may miss joins them."""
    field, rows = oracle.incomplete_field(seed, n, 12, kind)
    may_miss = {v for v in range(n) if any(row[v] < 0 for row in rows)}
    found = {frozenset(s.factors.tolist()) for s in sub_networks_of(field, rows)}
    left, wanted = set(range(len(field.scopes))), set()
    while left:
        part = {min(left)}
        while True:
            shared = {v for f in part for v in field.scopes[f]} & may_miss
            larger = part | {f for f in left if shared & set(field.scopes[f])}
            if larger == part:
                break
            part = larger
        wanted.add(frozenset(part))
        left -= part
    assert found == wanted
