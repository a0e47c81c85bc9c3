"""Elimination programs: a jointree and one table give the same answers, and what is too wide is refused."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.elimination import ONE_TABLE, Programs, compile_programs
from tasks.em import expected_counts
from tasks.errors import TooLargeError
from tasks.inference import make_evidence
from tasks.reduction import reduce_rows
from tasks.subnetwork import make_sub_network
from tests.oracle import flat, incomplete_data, problem_of

UNWEIGHTED = np.empty(0, np.int64)


def one_table(sub_network, table) -> Programs:
    """Programs that sum every signature's hidden variables out of one table, however large, in plain Python."""
    n, sizes, slots, maps, relative, factor_ptr = sub_network, [], [], [], [], [0]
    for s in range(table.n_signatures):
        hidden = table.hidden[table.hidden_ptr[s] : table.hidden_ptr[s + 1]].tolist()
        families = table.families[table.family_ptr[s] : table.family_ptr[s + 1]].tolist()
        relative.append(len(maps))
        states = list(itertools.product(*(range(int(n.cardinalities[v])) for v in hidden)))
        for state in states:
            value = dict(zip(hidden, state, strict=True))
            for f in families:
                run = range(int(n.family_ptr[f]), int(n.family_ptr[f + 1]))
                maps.append(sum(int(n.strides[m]) * value.get(int(n.members[m]), 0) for m in run))
        sizes.append(len(states))
        slots.extend(range(len(families)))
        factor_ptr.append(len(slots))
    n_tables = len(sizes)
    nothing = np.zeros(n_tables, np.int64)
    return Programs(
        cluster_ptr=np.arange(n_tables + 1, dtype=np.int32), size=np.array(sizes, np.int64), table=nothing,
        parent=np.full(n_tables, -1, np.int32), separator_size=nothing + 1, message=np.array(sizes, np.int64),
        up=nothing, down=nothing, factor_ptr=np.array(factor_ptr, np.int32), slot=np.array(slots, np.int32),
        relative=np.array(relative, np.int64), maps=np.array(maps, np.int32), scratch=np.array(sizes, np.int64) + 1,
    )  # fmt: skip


@given(st.integers(0, 10**6), st.sampled_from(["at random", "hidden", "missing rows"]), st.booleans())
@settings(max_examples=60)
def test_a_jointree_and_one_table_agree(seed, kind, drop_barren):
    network, start, rows = incomplete_data(seed, 7, 25, kind, max_parents=3)
    problem = problem_of(network, rows, drop_barren=drop_barren)
    if problem.evidence is None or not len(problem.counts.instances):
        return
    s, table = problem.sub_network, problem.counts.instances
    theta = flat(s, start)
    simple = make_evidence(s, table, one_table(s, table))
    expected, log_likelihood, bad = expected_counts(problem.evidence, theta, 1 << 20)
    wanted, wanted_likelihood, _ = expected_counts(simple, theta, 1 << 20)
    assert bad == -1
    # Both sum at most 3^7 products in different orders: some thousand roundings of 1e-16.
    assert log_likelihood == pytest.approx(wanted_likelihood, rel=1e-12)
    np.testing.assert_allclose(expected, wanted, rtol=1e-11, atol=1e-14)


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_several_hidden_components_in_one_program(seed):
    """By row, components that evidence keeps apart share a program: a forest. Apart, they are programs of their own."""
    network, start, rows = incomplete_data(seed, 8, 20, "at random")
    together, apart = problem_of(network, rows, by_row=True), problem_of(network, rows)
    theta = flat(apart.sub_network, start)
    results = [expected_counts(p.evidence, theta, 1 << 20) for p in (together, apart)]
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-12)
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-11, atol=1e-14)


def signature(sub_network, row):
    """The instance table of one row over the variables that have a column."""
    codes = np.array(row, np.int8).reshape(-1, 1)
    return reduce_rows(codes, UNWEIGHTED, sub_network)


def hidden_chain(n, k):
    """h0 -> h1 -> ... -> x: all hidden but the last."""
    families = [[0], *([i, i + 1] for i in range(n))]
    names = [*(f"h{i}" for i in range(n)), "x"]
    return make_sub_network(names, [k] * (n + 1), [-1] * n + [0], [True] * (n + 1), families)


@pytest.mark.parametrize("n", [10, 100, 400])
def test_a_chain_needs_no_more_than_pairs(n):
    """Tables of two variables, one fewer than there are variables: neither larger nor redundant."""
    s = hidden_chain(n, 3)
    programs = compile_programs(s, signature(s, [1]))
    assert programs.size.tolist() == [9] * (n - 1)
    assert (programs.separator_size[programs.parent >= 0] == 3).all()
    assert (programs.parent < 0).sum() == 1
    # Children before parents.
    inner = programs.parent[programs.parent >= 0]
    assert (inner > np.flatnonzero(programs.parent >= 0)).all()
    assert programs.work().tolist() == [9 * (2 * (n + 1) + 4 * (n - 1))]
    # Every family is multiplied in exactly once.
    assert sorted(programs.slot.tolist()) == list(range(n + 1))


def test_few_joint_states_are_one_table():
    for n in (1, 4, 5):
        s = hidden_chain(n, 2)
        programs = compile_programs(s, signature(s, [1]))
        assert (len(programs.size) == 1) == (2**n <= ONE_TABLE)


def grid(side):
    """Hidden binary variables on a grid, each below its upper and left neighbour, the last with an observed child."""
    number = {(i, j): i * side + j for i in range(side) for j in range(side)}
    families = [
        [*(number[p] for p in ((i - 1, j), (i, j - 1)) if p in number), number[i, j]]
        for i, j in itertools.product(range(side), repeat=2)
    ]
    n = side * side
    names = [*(f"g{i}_{j}" for i, j in number), "x"]
    return make_sub_network(names, [2] * (n + 1), [-1] * n + [0], [True] * (n + 1), [*families, [n - 1, n]])


def test_what_is_too_wide_is_refused():
    s = grid(12)
    table = signature(s, [0])
    with pytest.raises(
        TooLargeError,
        match=r"^144 variables are missing together \(g0_0, g0_1, .* and 136 more\): exact inference on them needs at "
        r"least [\d.e-]+ GiB, allowed 6\.1e-05 GiB; observe some of them, drop them from the network, or give",
    ):
        compile_programs(s, table, allowed_bytes=1 << 16)
    programs = compile_programs(s, table)
    # 2^144 joint states. No order does with less than 2^13; min-fill, with ties broken as they are, is to find 2^18.
    assert 2**13 <= programs.size.max() <= 2**18


@pytest.mark.parametrize("allowed", [1 << 12, 1 << 14, 1 << 16, 1 << 18])
def test_what_is_allowed_is_kept_to(allowed):
    s = grid(5)
    table = signature(s, [0])
    needed = compile_programs(s, table).nbytes
    try:
        assert compile_programs(s, table, allowed).nbytes == needed
    except TooLargeError:
        # The bound counts 28 bytes an entry where not all of them are used, and never the other way.
        assert needed > allowed / 28 * 4


def test_zero_signatures():
    s = hidden_chain(3, 2)
    complete = make_sub_network("ab", [2, 2], [0, 1], [True, True], [[0], [0, 1]])
    programs = compile_programs(complete, signature(complete, [0, 1]))
    assert len(programs.size) == 0
    assert programs.work().tolist() == []
    assert compile_programs(s, signature(s, [1])).nbytes > 0


def test_the_program_does_not_depend_on_which_rows_there_are():
    """Equal signatures have equal programs, whatever the counts: a function of structure alone."""
    network, _, rows = incomplete_data(12, 7, 60)
    rng = random.Random(0)
    s = problem_of(network, rows).sub_network
    first = problem_of(network, rows).evidence.programs
    again = problem_of(network, rng.sample(rows, len(rows)) + rows).evidence.programs
    assert s.n_parameters > 0
    for f in first.__dataclass_fields__:
        assert np.array_equal(getattr(first, f), getattr(again, f))
