"""Forward sampling: the right distribution, and the same rows however they are asked for."""

import itertools

import numpy as np
import pytest

from tasks.sampling import CHUNK, blank_entries, choose, draw_rows, make_sampler

# a -> b, (a, b) -> c; c comes first so that the order matters.
A = np.array([0.3, 0.7])
B = np.array([[0.1, 0.6, 0.3], [0.5, 0.25, 0.25]])
C = np.random.default_rng(5).dirichlet(np.ones(2), size=(2, 3))
ORDER, PARENTS, TABLES = (1, 2, 0), ((1, 2), (), (1,)), (C, A, B)


def draw(n, seed=0, first=0):
    sampler = make_sampler(ORDER, PARENTS, TABLES)
    codes = sampler.make_codes(n)
    draw_rows(sampler, seed, first, codes)
    return codes


def test_cells_occur_as_often_as_the_joint_says():
    n = 400_000
    codes = draw(n)
    for c, a, b in itertools.product(range(2), range(2), range(3)):
        expected = A[a] * B[a, b] * C[a, b, c]
        found = np.mean((codes[0] == c) & (codes[1] == a) & (codes[2] == b))
        # Five standard deviations of a frequency: fails once in a million seeds, and the seed is fixed.
        assert abs(found - expected) < 5 * np.sqrt(expected * (1 - expected) / n)


def test_rows_do_not_depend_on_how_they_are_cut():
    n = 2 * CHUNK + 100
    whole = draw(n, seed=3)
    for borders in ([0, 1, 7, n], [0, CHUNK - 1, CHUNK, CHUNK + 1, n], [0, CHUNK + 5, n]):
        pieces = [draw(hi - lo, seed=3, first=lo) for lo, hi in itertools.pairwise(borders)]
        np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole)


def test_fewer_rows_are_a_prefix_of_more():
    np.testing.assert_array_equal(draw(50), draw(CHUNK + 3)[:, :50])


def test_seeds_and_chunks_differ():
    assert (draw(1000, seed=1) != draw(1000, seed=2)).any()
    assert (draw(1000, first=0) != draw(1000, first=CHUNK)).any()
    # 2**32 + 5 is the words (5, 1): it must not be chunk 1 of seed 5.
    assert (draw(1000, seed=2**32 + 5) != draw(1000, seed=5, first=CHUNK)).any()


def test_columns_are_independent_without_parents():
    sampler = make_sampler((0, 1), ((), ()), (np.array([0.5, 0.5]), np.array([0.5, 0.5])))
    codes = sampler.make_codes(100_000)
    draw_rows(sampler, 0, 0, codes)
    assert abs(np.corrcoef(codes)[0, 1]) < 5 / np.sqrt(100_000)


def test_states_of_probability_zero_never_occur():
    # The last state too, where a cumulative sum that ends below one would let it through.
    sampler = make_sampler((0,), ((),), (np.array([0.0, 0.1, 0.2, 0.0, 0.6999999, 0.0]),))
    codes = sampler.make_codes(CHUNK)
    draw_rows(sampler, 0, 0, codes)
    assert set(np.unique(codes)) == {1, 2, 4}


@pytest.mark.parametrize(("states", "dtype"), [(2, np.int8), (128, np.int8), (129, np.int16), (40_000, np.int32)])
def test_codes_are_as_small_as_the_states_allow(states, dtype):
    sampler = make_sampler((0,), ((),), (np.full(states, 1 / states),))
    codes = sampler.make_codes(CHUNK)
    draw_rows(sampler, 0, 0, codes)
    assert codes.dtype == dtype
    assert codes.min() >= 0
    assert codes.max() < states
    assert codes.max() > 0.9 * (states - 1)


def test_blanks_fall_on_the_variables_named_at_the_rate_given_and_do_not_depend_on_the_cut():
    n = CHUNK + 1000
    complete = draw(n)
    codes = complete.copy()
    blank_entries(codes, 0, 0, [0, 2], 0.25)
    is_missing = codes < 0
    np.testing.assert_array_equal(codes[~is_missing], complete[~is_missing])
    assert not is_missing[1].any()
    for v in (0, 2):
        assert abs(is_missing[v].mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / n)
    # Independent of each other, and of the values.
    assert abs(np.corrcoef(is_missing[0], is_missing[2])[0, 1]) < 5 / np.sqrt(n)
    assert abs(np.corrcoef(is_missing[0], complete[0])[0, 1]) < 5 / np.sqrt(n)
    for lo, hi in ((0, 10), (10, CHUNK + 1), (CHUNK + 1, n)):
        piece = complete[:, lo:hi].copy()
        blank_entries(piece, 0, lo, [0, 2], 0.25)
        np.testing.assert_array_equal(piece, codes[:, lo:hi])


def test_rates_of_zero_and_one():
    codes = draw(100)
    blank_entries(codes, 0, 0, [0], 0.0)
    assert codes.min() >= 0
    blank_entries(codes, 0, 0, [0], 1.0)
    assert (codes[0] == -1).all()


def test_choices_are_sorted_repeatable_and_apart_by_purpose():
    candidates = list(range(100, 200))
    picked = choose(candidates, 20, seed=0, purpose=0)
    assert picked == choose(candidates, 20, seed=0, purpose=0)
    assert list(picked) == sorted(set(picked))
    assert len(picked) == 20
    assert picked != choose(candidates, 20, seed=0, purpose=1)
    assert picked != choose(candidates, 20, seed=1, purpose=0)
