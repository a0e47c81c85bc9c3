"""Sharing out the work: what is first, what is bundled, what is split, and that none of it changes a bit."""

import math

import numpy as np
import pytest

import pipeline.solving
from pipeline.learning import learn
from pipeline.network import Network
from pipeline.solving import BUNDLE_SECONDS, assign
from tasks.errors import ImpossibleDataError
from tasks.solving import Settings, Size
from tests.oracle import as_table, incomplete_data, leaves

ONE = Settings(max_iterations=99)  # a hundred rounds, as the estimate assumes


def size(seconds, instances=100):
    """A problem worth so many seconds in all."""
    return Size(instances, 1, None, 1000.0, seconds * 1e9 / (100 if instances else 1), 1000)


def test_most_work_first_and_small_ones_bundled():
    sizes = [[size(0.01), size(3.0), size(0.02), size(0.03)], [size(5.0), size(0.2), size(0.2)]]
    shared = assign(sizes, 4, 10.0, ONE)
    assert shared.split == ()
    assert shared.bundles == ((1, (0,)), (0, (1,)), (1, (1, 2)), (0, (3, 2, 0)))
    # Everything once.
    assert sorted((g, k) for g, members in shared.bundles for k in members) == [
        (g, k) for g, group in enumerate(sizes) for k in range(len(group))
    ]


def test_bundles_are_worth_their_while():
    many = [[size(0.05) for _ in range(1000)]]
    shared = assign(many, 2, 0.001, ONE)
    loads = [0.05 * len(members) for _, members in shared.bundles]
    # 50 s on two threads: at most an eighth of all each, and nearly that.
    assert max(loads) <= 50 / 8 + 1e-9
    assert min(loads[:-1]) > 50 / 8 - 0.1
    assert len(loads) <= 9
    few = assign([[size(0.001) for _ in range(100)]], 8, 0.001, ONE)
    assert [len(members) for _, members in few.bundles] == [100]
    assert BUNDLE_SECONDS > 0.1


def test_what_dwarfs_the_rest_is_split_where_that_pays():
    giant, small = size(50.0), size(0.1)
    assert assign([[small, giant], [small]], 2, 0.001, ONE).split == ((0, 1),)
    assert assign([[small, giant], [small]], 1, 0.001, ONE).split == ()
    # An iteration takes half a second here: no use where an exchange costs as much.
    assert assign([[small, giant], [small]], 2, 0.5, ONE).split == ()
    # Five like it keep two threads busy as they are.
    assert assign([[giant] * 5], 2, 0.001, ONE).split == ()
    # Whatever is complete is counted, not iterated.
    assert assign([[size(0.05, instances=0), small]], 2, 0.001, ONE).split == ()


def test_restarts_and_limits_scale_the_estimate():
    sizes = [[Size(10, 1, None, 10.0, 1e7, 0), Size(0, 0, 1, 10.0, 3e8, 0)]]
    once = assign(sizes, 8, 1.0, Settings(max_iterations=9))
    assert once.bundles == ((0, (1, 0)),)  # 0.3 s against 0.1 s
    often = assign(sizes, 8, 1.0, Settings(max_iterations=9, restarts=10))
    assert often.bundles == ((0, (0,)), (0, (1,)))


def test_nothing_to_share_out():
    assert assign([], 2, 0.001, ONE).bundles == ()
    assert assign([[]], 2, 0.001, ONE).bundles == ()


# --- split ---------------------------------------------------------------------------------------------------------


def same(a, b):
    assert all(np.array_equal(x, y) for x, y in zip(a.learned.tables, b.learned.tables, strict=True))
    assert all(np.array_equal(x, y) for x, y in zip(a.expected_counts, b.expected_counts, strict=True))
    for x, y in zip(a.sub_networks, b.sub_networks, strict=True):
        assert (x.history, x.restarts, x.iterations, x.converged) == (y.history, y.restarts, y.iterations, y.converged)
        assert (x.log_likelihood, x.log_posterior) == (y.log_likelihood, y.log_posterior)


@pytest.mark.parametrize(
    "options",
    [
        {"max_iterations": 6, "decompose": False},
        {"max_iterations": 4, "decompose": False, "restarts": 3, "prior": 1.5, "seed": 2},
        {"max_iterations": 5, "decompose": False, "start": "network", "restarts": 2, "drop_barren": False},
        {"tolerance": 0.01, "decompose": False},
    ],
)
def test_split_is_unsplit_to_the_last_bit(giant, threads, splits, options):
    _, start, table = giant
    threads(1)
    wanted = learn(start, table, **options)
    assert splits == []
    assert wanted.sub_networks[0].instances > 3000
    for n, slices in ((2, 2), (3, 3), (5, 3), (6, 6)):
        splits.clear()
        threads(n, overhead=1e-12)
        same(learn(start, table, **options), wanted)
        assert splits == [slices] * options.get("restarts", 1)


@pytest.mark.parametrize("kind", ["complete", "leaves"])
def test_what_needs_no_iteration_is_not_split(threads, splits, kind):
    """Counting is all there is to do, however large the tables: there are no instances to share out."""
    network, _, rows = incomplete_data(72, 6, 50, kind)
    threads(1)
    wanted = learn(network, as_table(network, rows), decompose=kind == "leaves")
    threads(2, overhead=1e-12)
    same(learn(network, as_table(network, rows), decompose=kind == "leaves"), wanted)
    assert splits == []


def test_split_tells_its_progress(giant, threads, splits):
    _, start, table = giant
    threads(2, overhead=1e-12)
    told = []
    learn(start, table, max_iterations=3, tolerance=0, decompose=False, progress=lambda *x: told.append(x))
    assert [x for x in told if x[0] == "em-iteration"] == [("em-iteration", i, 3) for i in (1, 2, 3)]


def test_impossible_rows_are_named_alike(threads, splits):
    """One row that the start rules out, its instance the last of all: the same words, split or not."""
    network, start, rows = incomplete_data(71, 9, 6000, max_states=4)
    v = next(v for v in sorted(leaves(network)) if network.parents[v])
    states, tables = list(start.states), list(start.tables)
    states[v] = (*states[v], "rare")
    tables[v] = np.concatenate([tables[v], np.zeros((*tables[v].shape[:-1], 1))], axis=-1)
    start = Network("n", start.variables, tuple(states), start.parents, tuple(tables))
    # Nothing else is observed: no instance has more hidden variables, which is what they are sorted by.
    rows[4321] = tuple(len(states[v]) - 1 if w == v else -1 for w in range(9))
    name = network.variables[v]
    others = ", ".join(w for w in [network.variables[i] for i in network.topological_order] if w != name)
    message = (
        f"^Arrow table, row 4321: {name}=rare with {others} missing has probability zero under the start, network n"
    )
    for n in (1, 2, 3):
        threads(n, overhead=1e-12)
        with pytest.raises(ImpossibleDataError, match=message):
            learn(start, as_table(start, rows), start="network", decompose=False, drop_barren=False)
        assert bool(splits) == (n > 1)


def test_a_fall_is_an_error_in_the_split_loop_too(giant, threads, splits, monkeypatch):
    from tasks.errors import LikelihoodFellError

    _, start, table = giant
    threads(2, overhead=1e-12)
    real = pipeline.solving.maximise

    def wrong(expected, prior, bases, cardinalities, theta):
        """An M-step that is none: back to uniform after the third iteration."""
        wrong.calls += 1
        return real(expected if wrong.calls < 4 else np.ones_like(expected), prior, bases, cardinalities, theta)

    wrong.calls = 0
    monkeypatch.setattr(pipeline.solving, "maximise", wrong)
    with pytest.raises(LikelihoodFellError, match=r"fell from -[\d.]+ to -[\d.]+ in iteration 4; this is a bug"):
        learn(start, table, decompose=False, tolerance=0)
    assert math.isfinite(wrong.calls)
