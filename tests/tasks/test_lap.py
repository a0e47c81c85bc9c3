"""LAP: auxiliary fields against their definition, and the true parameters from true marginals."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.markov import MarkovNetwork
from pipeline.normalised import normalise
from tasks.elimination_order import find_order
from tasks.ipf import fit_moments
from tasks.jointree import make_jointree
from tasks.lap import (
    AUXILIARIES,
    CliqueSystem,
    make_auxiliaries,
    make_auxiliary,
    merge_cliques,
    outside_neighbours,
    read_off,
)
from tasks.normalised import from_normalised, to_normalised
from tests.oracle import chimera_pairs, lattice_pairs, make_field, marginal, random_field, uniform_field


def system_of(scopes, n=None):
    n = 1 + max(v for s in scopes for v in s) if n is None else n
    return CliqueSystem(make_field([2] * n, scopes).graph)


def fit(names, cardinalities, auxiliary, joint):
    """Log potentials of an auxiliary field whose moments are a joint's over its variables."""
    local = {v: k for k, v in enumerate(auxiliary.variables)}
    scopes = [tuple(local[v] for v in s) for s in auxiliary.scopes]
    cards = [cardinalities[v] for v in auxiliary.variables]
    tree = make_jointree(cards, scopes, find_order([names[v] for v in auxiliary.variables], cards, scopes, 1 << 30))
    targets = [joint.sum(axis=tuple(a for a in range(joint.ndim) if a not in s)) for s in scopes]
    theta, _, error, trusted = fit_moments(tree, np.concatenate([t.ravel() for t in targets]), 1e-13, 20_000)
    assert trusted
    assert error <= 1e-13
    ends = np.cumsum([t.size for t in targets])[:-1]
    return [part.reshape(t.shape) for part, t in zip(np.split(np.log(theta), ends), targets, strict=True)]


def lap(field, kind, joint_of=None):
    """LAP on a field's own marginals: its estimate as a field."""
    system = CliqueSystem(field.graph)
    read = [None] * len(system.cliques)
    for auxiliary in make_auxiliaries(system, range(len(read)), kind):
        joint = (joint_of or (lambda kept: marginal(field, kept)))(auxiliary.variables)
        tables = fit(field.variables, field.cardinalities, auxiliary, joint)
        for q in auxiliary.cliques:
            read[q] = read_off(system.cliques[q], auxiliary.scopes, tables)
    eta = merge_cliques(system, read)
    return MarkovNetwork(field.name, field.variables, field.states, field.scopes, tuple(np.exp(t) for t in eta))


def farthest(one, other):
    """The largest difference of two fields' normalised parameters."""
    a, b = normalise(one)[0], normalise(other)[0]
    assert list(a) == list(b)
    return max((float(np.abs(a[key] - b[key]).max()) for key in a), default=0.0)


# --- consistency (section 5.2) -------------------------------------------------------------------------------------

TREE = [(0, 1), (1, 2), (1, 3), (3, 4), (3, 5), (5, 6)]
# Triangles that share an edge (0 and 1), a vertex (1 and 2), and a pair beside them that closes a cycle.
TRIANGLES = [(0, 1, 2), (1, 2, 3), (3, 4, 5), (5, 6), (6, 0)]
FIELDS = {
    "chain": uniform_field([(v, v + 1) for v in range(7)], 1),
    "tree": uniform_field(TREE, 2),
    "tree of 3 states": uniform_field(TREE, 3, states=3),
    "cycle": uniform_field([(v, (v + 1) % 8) for v in range(8)], 4),
    "ising": uniform_field(lattice_pairs(4, 4), 5),
    "ising with unary terms": uniform_field(lattice_pairs(4, 4) + [(v,) for v in range(16)], 6),
    "ising of 3 states": uniform_field(lattice_pairs(3, 3), 7, states=3),
    "lattice 2 x 3 x 2": uniform_field(lattice_pairs(2, 3, 2), 8),
    "triangles": uniform_field(TRIANGLES, 9),
    "triangles of 3 states": uniform_field(TRIANGLES, 10, states=3),
    "chimera 2 x 2 x 2": uniform_field(chimera_pairs(2, 2, 2), 11),
    "apart": uniform_field([(0, 1), (1, 2), (2, 0), (3, 4), (5,)], 12),
    "one factor": uniform_field([(2, 0, 1)], 13),
    "bipartite": uniform_field([(a, b) for a in range(3) for b in range(3, 6)], 14),
}


@pytest.mark.parametrize("kind", ["exact", "dense"])
@pytest.mark.parametrize("name", FIELDS)
def test_true_marginals_give_the_true_parameters(name, kind):
    # Both contain every marginal. Moments match to 1e-13, and the smallest are above 1e-6.
    assert farthest(lap(FIELDS[name], kind), FIELDS[name]) < 1e-7


def test_chimera_gives_the_true_parameters():
    """Chimera 3 x 3 x 3, 54 variables, as in the paper's Figure 4."""
    field = uniform_field(chimera_pairs(3, 3, 3), 15)
    known: dict = {}

    def joint_of(kept):
        if kept not in known:
            known[kept] = marginal(field, kept)
        return known[kept]

    assert farthest(lap(field, "exact", joint_of), field) < 1e-7
    assert farthest(lap(field, "dense", joint_of), field) < 1e-7
    assert 1e-7 < farthest(lap(field, "pairwise", joint_of), field) < 1e-2


@pytest.mark.parametrize(
    ("name", "bias"),
    [
        # The marginal's terms of three and more variables around a clique are left out: so far off, forever.
        ("ising", 1.42e-6),
        ("ising with unary terms", 1.55e-5),
        ("ising of 3 states", 2.13e-6),
        ("lattice 2 x 3 x 2", 7.90e-5),
        ("triangles", 1.94e-3),
        ("triangles of 3 states", 4.37e-3),
        ("chimera 2 x 2 x 2", 1.46e-5),
    ],
)
def test_the_bias_of_pairwise(name, bias):
    assert farthest(lap(FIELDS[name], "pairwise"), FIELDS[name]) == pytest.approx(bias, rel=0.01)


@pytest.mark.parametrize("name", ["chain", "tree", "tree of 3 states", "cycle", "apart", "one factor", "bipartite"])
def test_pairwise_has_no_bias_where_the_marginal_is_pairwise(name):
    assert farthest(lap(FIELDS[name], "pairwise"), FIELDS[name]) < 1e-7


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=60)
def test_random_fields_give_their_true_parameters(seed, n):
    """Factors of any arity, inside one another, twice, apart, of one state."""
    field = random_field(random.Random(seed), n, max_states=3, spread=1.0)
    for kind in ("exact", "dense"):
        assert farthest(lap(field, kind), field) < 1e-6


# --- relation to maximum likelihood (section 5.3) ------------------------------------------------------------------


def test_theorem_6():
    """Where the estimate of Proposition 4 is in the family, LAP is maximum likelihood; the data need not be.

    Counts are integers: a chain's, and a term on variables 1, 3 and 5 that neither any A_q nor any S without q holds
    together, and so no marginal of Proposition 4 shows.
    """
    rng = random.Random(3)
    n = 6
    pairs = [(v, v + 1) for v in range(n - 1)]
    field = make_field([2] * n, pairs, [[[rng.randint(2, 5) for _ in "01"] for _ in "01"] for _ in pairs])
    system = CliqueSystem(field.graph)
    beyond = {1, 3, 5}
    for q, clique in enumerate(system.cliques):
        assert not beyond <= set(system.neighbourhood(q))
        assert beyond & set(clique)
    counts = np.zeros([2] * n)
    for x in np.ndindex(counts.shape):
        product = np.prod([table[x[a], x[b]] for (a, b), table in zip(pairs, field.tables, strict=True)])
        counts[x] = product + (-1) ** (x[1] + x[3] + x[5])
    empirical = counts / counts.sum()

    def of(kept):
        return empirical.sum(axis=tuple(v for v in range(n) if v not in kept))

    true = marginal(field, range(n))
    assert np.abs(empirical - true).max() > 1e-5
    for q, clique in enumerate(system.cliques):
        inside = system.neighbourhood(q)
        proposed = np.ones([2] * n)
        for kept, power in (
            (inside, 1), ([v for v in range(n) if v not in clique], 1), ([v for v in inside if v not in clique], -1)
        ):  # fmt: skip
            shape = [2 if v in kept else 1 for v in range(n)]
            proposed = proposed * of(kept).reshape(shape) ** power
        np.testing.assert_allclose(proposed, true, rtol=1e-12)
    for kind in AUXILIARIES:
        assert farthest(lap(field, kind, of), field) < 1e-9


@pytest.mark.parametrize("scopes", [TREE, [(0, 1, 2), (1, 2, 3), (2, 3, 4), (4, 5, 6)]], ids=["tree", "triangles"])
def test_on_decomposable_graphs_it_is_maximum_likelihood(scopes):
    """Whatever the counts: p = Π p(clique) / Π p(separator), and so are the marginals on the neighbourhoods."""
    rng = np.random.default_rng(5)
    n = 7
    empirical = rng.dirichlet(np.ones(2**n)).reshape([2] * n)
    best = np.ones([2] * n)
    seen: set = set()
    for scope in scopes:
        for kept, power in ((set(scope), 1), (set(scope) & seen, -1)):
            part = empirical.sum(axis=tuple(v for v in range(n) if v not in kept), keepdims=True)
            best = best * part**power
        seen |= set(scope)
    estimate = lap(
        uniform_field(scopes), "exact", lambda kept: empirical.sum(axis=tuple(v for v in range(n) if v not in kept))
    )
    np.testing.assert_allclose(marginal(estimate, range(n)), best, rtol=1e-8)


# --- auxiliary fields ----------------------------------------------------------------------------------------------


def parts_outside(system, inside):
    """What each connected part without `inside` touches, by a search of the whole graph."""
    adjacent = {v: set() for v in range(len(system.graph.names))}
    for scope in system.graph.scopes:
        for a, b in itertools.permutations(scope, 2):
            adjacent[a].add(b)
    left = set(adjacent) - set(inside)
    found = []
    while left:
        part, queue = set(), [left.pop()]
        while queue:
            v = queue.pop()
            part.add(v)
            fresh = adjacent[v] & left
            left -= fresh
            queue += fresh
        found.append(frozenset({u for v in part for u in adjacent[v]} & set(inside)))
    return Counter(touched for touched in found if touched)


def check_parts(system, inside):
    assert Counter(map(frozenset, outside_neighbours(system, tuple(inside)))) == parts_outside(system, inside)


@given(st.integers(0, 10**6), st.integers(2, 30), st.floats(0.3, 2.0))
@settings(max_examples=300)
def test_parts_outside_random_neighbourhoods(seed, n, density):
    rng = random.Random(seed)
    scopes = [tuple(rng.sample(range(n), rng.choice([2, 2, 2, min(3, n)]))) for _ in range(int(density * n))]
    system = system_of(scopes + [(v,) for v in range(n)], n)
    for q in range(len(system.cliques)):
        check_parts(system, system.neighbourhood(q))
    check_parts(system, sorted(rng.sample(range(n), rng.randint(1, n))))


@pytest.mark.parametrize(
    "pairs",
    [
        lattice_pairs(7, 5),
        lattice_pairs(3, 3, 3),
        chimera_pairs(3, 2, 2),
        [(v, v + 1) for v in range(40)],
        [(v, (v + 1) % 40) for v in range(40)],  # meets itself at the far end only
        lattice_pairs(2, 15) + [(a + 30, b + 30) for a, b in lattice_pairs(4, 4)],
        [(0, k) for k in range(1, 9)] + [(k, k + 8) for k in range(1, 9)],
        # Two arms from a square that meet after 30 steps, and one that ends before.
        [(0, 1), (1, 2), (2, 3), (3, 0)]
        + [(3 + k if k else 0, 4 + k) for k in range(60)]
        + [(63, 2), (1, 64), (64, 65)],
    ],
    ids=["grid", "cube", "chimera", "chain", "ring", "apart", "star", "arms"],
)  # fmt: skip
def test_parts_outside_known_graphs(pairs):
    system = system_of(pairs)
    for q in range(len(system.cliques)):
        check_parts(system, system.neighbourhood(q))
    for k in range(0, len(system.graph.names), 3):
        check_parts(system, [k])


def auxiliary_of(system, clique, kind):
    q = system.cliques.index(clique)
    return make_auxiliary(system, q, kind)


def test_figure_1_chain():
    system = system_of([(v, v + 1) for v in range(9)])
    exact = auxiliary_of(system, (4, 5), "exact")
    assert exact.variables == (3, 4, 5, 6)
    assert exact.scopes == ((3, 4), (4, 5), (5, 6))
    for kind in ("dense", "pairwise"):
        assert auxiliary_of(system, (4, 5), kind).scopes == ((3, 4), (3, 6), (4, 5), (5, 6))
    assert auxiliary_of(system, (0, 1), "exact").scopes == ((0, 1), (1, 2))


def test_figure_1_grid():
    """A pair inside a 6 x 6 grid: the six variables around it see one another through the rest of the grid."""
    system = system_of(lattice_pairs(6, 6))
    own, around = (14, 15), (8, 9, 13, 16, 20, 21)
    arms = ((8, 14), (9, 15), (13, 14), (14, 15), (14, 20), (15, 16), (15, 21))
    for kind in ("exact", "dense"):
        found = auxiliary_of(system, own, kind)
        assert found.variables == tuple(sorted(own + around))
        assert set(found.scopes) == {*arms, around}
    assert set(auxiliary_of(system, own, "pairwise").scopes) == {*arms, *itertools.combinations(around, 2)}
    # In a corner the marginal has less than the dense construction.
    assert auxiliary_of(system, (0, 1), "exact").scopes == ((0, 1), (0, 6), (1, 2), (1, 7), (2, 6, 7))
    small = system_of(lattice_pairs(4, 4))
    assert {s for s in auxiliary_of(small, (5, 6), "exact").scopes if not {5, 6} & set(s)} == {
        (1, 2), (1, 4), (2, 7), (4, 7, 9, 10)
    }  # fmt: skip


def test_figure_1_sizes():
    """Chimera and the 3-D lattice have small neighbourhoods; in an RBM they are everything."""
    chimera = system_of(chimera_pairs(3, 3, 3))
    assert max(len(chimera.neighbourhood(q)) for q in range(len(chimera.cliques))) == 10
    cube = system_of(lattice_pairs(5, 5, 5))
    assert max(len(cube.neighbourhood(q)) for q in range(len(cube.cliques))) == 12
    rbm = system_of([(a, b) for a in range(4) for b in range(4, 7)])
    assert all(len(rbm.neighbourhood(q)) == 7 for q in range(12))
    (one,) = make_auxiliaries(rbm, range(12), "exact")
    assert one.cliques == tuple(range(12))
    assert one.scopes == tuple(sorted(rbm.cliques))


def test_equal_neighbourhoods_are_solved_once():
    triangle = system_of([(0, 1), (1, 2), (0, 2), (2, 3)])
    found = make_auxiliaries(triangle, range(4), "exact")
    # A_q of (0, 1) is the triangle; all others' are everything.
    assert [(a.variables, a.cliques) for a in found] == [((0, 1, 2), (0,)), ((0, 1, 2, 3), (1, 2, 3))]
    # What is full around a clique depends on the clique.
    assert [a.cliques for a in make_auxiliaries(triangle, range(4), "dense")] == [(0,), (1,), (2,), (3,)]
    assert [a.cliques for a in make_auxiliaries(triangle, [3, 1], "exact")] == [(3, 1)]
    for kind in AUXILIARIES:
        apart = make_auxiliaries(triangle, range(4), kind)
        assert sorted(q for a in apart for q in a.cliques) == [0, 1, 2, 3]
        for a in apart:
            for q in a.cliques:
                assert make_auxiliary(triangle, q, kind).scopes == a.scopes


@given(st.integers(0, 10**6), st.integers(1, 9))
@settings(max_examples=100)
def test_auxiliary_fields_hold_what_they_should(seed, n):
    field = random_field(random.Random(seed), n, max_states=2, max_joint=10**9)
    system = CliqueSystem(field.graph)
    for kind in AUXILIARIES:
        for q, clique in enumerate(system.cliques):
            a = make_auxiliary(system, q, kind)
            inside = set(a.variables)
            assert set(clique) <= inside == {v for s in a.scopes for v in s}
            held = [set(s) for s in a.scopes]
            for s in system.graph.scopes:
                if set(s) <= inside and (kind != "dense" or set(s) & set(clique)):
                    assert any(set(s) <= h for h in held)
            # What was added never meets q.
            for h in held:
                assert not h & set(clique) or any(h == set(s) for s in system.cliques)
            assert not any(x < y for x in held for y in held)


# --- reading and merging -------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.lists(st.integers(1, 4), min_size=0, max_size=4))
def test_normalised_and_back(seed, shape):
    table = np.random.default_rng(seed).normal(size=shape)
    values = to_normalised(table)
    np.testing.assert_allclose(from_normalised(values), table, atol=1e-12)
    np.testing.assert_allclose(to_normalised(from_normalised(values)), values, atol=1e-12)
    # An entry of the table is the sum over the subsets of its axes that are not at the reference.
    for x in np.ndindex(table.shape):
        total = sum(values[tuple(v * i for v, i in zip(x, some, strict=True))] for some in
                    set(itertools.product(*([0, 1] if v else [0] for v in x))))  # fmt: skip
        assert total == pytest.approx(table[x], abs=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 5))
@settings(max_examples=60)
def test_reading_a_field_gives_its_normalised_parameters(seed, n):
    field = random_field(random.Random(seed), n)
    wanted = normalise(field)[0]
    logs = [np.log(t) for t in field.tables]
    system = CliqueSystem(field.graph)
    for clique in system.cliques:
        values = read_off(clique, field.scopes, logs)
        assert values[(0,) * len(clique)] == 0.0
        for r in range(1, len(clique) + 1):
            for axes in itertools.combinations(range(len(clique)), r):
                part = values[tuple(slice(1, None) if a in axes else 0 for a in range(len(clique)))]
                order = sorted(range(r), key=lambda k: clique[axes[k]])
                key = tuple(clique[axes[k]] for k in order)
                if part.size:
                    # Another clique may hold all of these variables; in each the sum is the same.
                    np.testing.assert_allclose(part.transpose(order), wanted[key], atol=1e-10)


def test_shared_terms_are_means():
    """A set's potential is the mean over the maximal cliques that hold it, whatever their other variables say."""
    field = make_field([2, 2, 3], [(0, 1), (1,), (2, 1), (1, 2)])
    system = CliqueSystem(field.graph)
    assert system.cliques == ((0, 1), (2, 1))
    first = np.array([[0.0, 1.0], [5.0, 7.0]])  # φ_1 = 1, φ_0 = 5, φ_01 = 7
    second = np.array([[0.0, 4.0], [2.0, 8.0], [3.0, 9.0]])  # φ_1 = 4, φ_2 = 2, 3, φ_21 = 8, 9
    eta = merge_cliques(system, [first, second])
    assert [t.shape for t in eta] == [(2, 2), (2,), (3, 2), (2, 3)]
    assert not eta[1].any()
    assert not eta[3].any()
    found = normalise(MarkovNetwork("m", field.variables, field.states, field.scopes, tuple(map(np.exp, eta))))[0]
    assert {k: v.ravel().tolist() for k, v in found.items()} == {
        (0,): [pytest.approx(5.0)], (1,): [pytest.approx(2.5)], (2,): pytest.approx([2.0, 3.0]),
        (0, 1): [pytest.approx(7.0)], (1, 2): pytest.approx([8.0, 9.0]),
    }  # fmt: skip


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=60)
def test_cliques_that_agree_are_put_together_unchanged(seed, n):
    field = random_field(random.Random(seed), n)
    system = CliqueSystem(field.graph)
    logs = [np.log(t) for t in field.tables]
    eta = merge_cliques(system, [read_off(c, field.scopes, logs) for c in system.cliques])
    again = MarkovNetwork(field.name, field.variables, field.states, field.scopes, tuple(map(np.exp, eta)))
    wanted = normalise(field)[0]
    for key, values in normalise(again)[0].items():
        np.testing.assert_allclose(values, wanted[key], atol=1e-10)
