"""One thread for BLAS: while anyone needs it, and for results that do not depend on the machine's cores."""

import numpy as np
import pytest
import scipy.optimize  # noqa: F401
from threadpoolctl import ThreadpoolController

from tasks.blas import one_thread
from tasks.markov_gradient import run_gradient
from tasks.markov_terms import Penalty
from tests.oracle import local_terms, make_field


def threads_of_blas():
    return {library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"}


def test_the_first_sets_and_the_last_resets():
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        assert threads_of_blas() == {2}
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        assert threads_of_blas() == {1}
        # Two threads of Dask's need not leave in the order in which they came.
        first.__exit__(None, None, None)
        assert threads_of_blas() == {1}
        second.__exit__(None, None, None)
        assert threads_of_blas() == {2}


def test_an_error_resets_too():
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        with pytest.raises(ArithmeticError), one_thread():
            raise ArithmeticError
        assert threads_of_blas() == {2}


@pytest.mark.parametrize("method", ["lbfgs", "cg"])
def test_many_parameters_have_the_same_bits_whatever_the_threads(method):
    """22 500 parameters: from 10 000 on OpenBLAS would split its sums."""
    rng = np.random.default_rng(0)
    field = make_field([150, 150], [(0, 1), (0,)])
    rows = [tuple(x) for x in rng.integers(-1, 150, (300, 2)).tolist()]
    terms = local_terms(field, rows, penalty=Penalty(1.0, 0.1))
    start = rng.uniform(-1, 1, field.graph.n_parameters)
    ends = set()
    for n in (1, 2, 4):
        with ThreadpoolController().limit(limits=n, user_api="blas"):
            ends.add(run_gradient(terms, start, 1e-9, 12, method).last.eta.tobytes())
    assert len(ends) == 1
