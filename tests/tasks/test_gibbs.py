"""The Gibbs chain: its long-run shares are the field's, and nothing else depends on chance."""

import random

import numpy as np
import pytest

from tasks.gibbs import gibbs_rows
from tests.oracle import Enumeration, make_field, random_field, with_potentials


def chain(field, n_rows, seed=0, **options):
    eta = np.concatenate([np.log(t).ravel() for t in field.tables])
    return gibbs_rows(field.graph, eta, n_rows, seed, **options)


@pytest.mark.parametrize("seed", range(4))
def test_shares_are_the_fields(seed):
    """Every joint state's share, on fields with factors of up to three variables, constants left out."""
    field = random_field(random.Random(seed), 4, max_states=2, max_arity=3, spread=0.7, max_joint=60)
    codes = chain(field, 40_000, seed, burn_in=100, thinning=5)
    assert codes.dtype == np.int8
    assert codes.shape == (4, 40_000)
    joint = np.ravel_multi_index(codes.astype(np.int64), field.cardinalities)
    shares = np.bincount(joint, minlength=int(np.prod(field.cardinalities))) / 40_000
    true = Enumeration(field).probabilities(Enumeration(field).eta)
    # Five standard errors of independent rows, and as much again: five sweeps apart they are nearly that.
    assert np.abs(shares - true).max() < 10 * np.sqrt(true.max() / 40_000)


def test_a_strong_pair_by_hand():
    field = make_field([2, 3], [(1, 0)], [[[1.0, 9.0], [1.0, 1.0], [4.0, 4.0]]])
    codes = chain(field, 20_000, thinning=10)
    shares = np.zeros((3, 2))
    np.add.at(shares, (codes[1], codes[0]), 1 / 20_000)
    np.testing.assert_allclose(shares, np.array([[1, 9], [1, 1], [4, 4]]) / 20, atol=0.02)


def test_equal_seeds_give_equal_rows():
    field = with_potentials(make_field([2, 3, 2], [(0, 1), (1, 2), (0,)]), [0.1 * k for k in range(14)])
    one = chain(field, 50, seed=7)
    assert one.tobytes() == chain(field, 50, seed=7).tobytes()
    assert one.tobytes() != chain(field, 50, seed=8).tobytes()
    # Rows are one chain's: asked for fewer, the first of them come.
    assert chain(field, 20, seed=7).tobytes() == one[:, :20].tobytes()
    assert (one.max(axis=1) < np.array(field.cardinalities)).all()


def test_one_state_and_one_variable():
    field = make_field([1, 2], [(0, 1)], [[[1.0, 3.0]]])
    codes = chain(field, 4000)
    assert not codes[0].any()
    assert codes[1].mean() == pytest.approx(0.75, abs=0.04)
