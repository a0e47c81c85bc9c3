"""Drawing from a field: the sampler's tables multiply to its distribution, and draws follow it."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import BadInputError
from tasks.markov_sampling import field_sampler
from tasks.markov_terms import make_model, plan_model, scaled
from tasks.sampling import draw_rows
from tests.oracle import Enumeration, make_field, random_field

ROOM = 1 << 30


def sampler_of(field):
    model = make_model(field.graph, plan_model(field.graph, ROOM), ROOM)
    return field_sampler(model, scaled(Enumeration(field).eta, field.graph.bases)[0])


def drawn(field, n, seed=0):
    sampler = sampler_of(field)
    codes = sampler.make_codes(n)
    draw_rows(sampler, seed, 0, codes)
    return codes


@given(st.integers(0, 10**6), st.integers(1, 5))
@settings(max_examples=15)
def test_draws_follow_the_joint_distribution(seed, n):
    """Every joint state's share within five standard deviations; a chi-square over all of them within five too."""
    field = random_field(random.Random(seed), n, max_joint=200)
    rows = 20_000
    codes = drawn(field, rows, seed)
    here = Enumeration(field)
    wanted = here.probabilities(here.eta)
    index = np.ravel_multi_index(tuple(codes.astype(np.int64)), field.cardinalities)
    counts = np.bincount(index, minlength=len(wanted))
    # Half an example for the skewness of rare states' counts.
    assert (np.abs(counts - rows * wanted) <= 5 * np.sqrt(rows * wanted * (1 - wanted)) + 3).all()
    often = rows * wanted >= 5
    chi = ((counts - rows * wanted) ** 2 / (rows * wanted))[often].sum()
    freedom = max(1, often.sum() - 1)
    assert chi <= freedom + 5 * np.sqrt(2 * freedom) + 25


def test_what_is_impossible_is_never_drawn():
    field = make_field([2, 3, 2], [(0, 1), (1, 2)], [[[1, 1, 0], [0, 1, 1]], [[1, 0], [1, 1], [0, 1]]])
    codes = drawn(field, 5000)
    seen = {tuple(row) for row in codes.T.tolist()}
    here = Enumeration(field)
    assert seen == {tuple(x) for x in here.states[here.probabilities(here.eta) > 0].tolist()}


@pytest.mark.parametrize(
    "tables",
    [
        ([[1, 0], [0, 1]], [[0, 1], [1, 0]]),
        ([[1e-200, 1], [1, 1e-200]], [[1, 1e-200], [1e-200, 1]]),
    ],
    ids=["excluded", "underflow"],
)
def test_a_field_that_cannot_be_drawn_from_is_refused(tables):
    cycle = make_field([2] * 2, [(0, 1), (0, 1), (0, 1)], [*tables, tables[0]])
    if tables[0][0][1] == 0:
        with pytest.raises(BadInputError, match="nothing can be drawn: the potentials exclude every state"):
            sampler_of(cycle)
    else:
        # One of two ends is 1e-200 as likely: a double holds that.
        codes = drawn(cycle, 1000)
        assert (codes[0] != codes[1]).all()
