"""Compile every kernel once, on a problem of a few rows, so that no timed stage does."""

from __future__ import annotations

import threading

import numpy as np

from tasks.codes import MISSING
from tasks.em import log_terms, maximise
from tasks.inference import _infer_in_logs, expected_counts
from tasks.projection import merge, project
from tasks.reading import Partition
from tasks.solving import Settings, prepare, solve
from tasks.subnetwork import make_sub_network

_done = threading.Event()
_lock = threading.Lock()


def warm_up() -> None:
    """Load the kernels from Numba's cache, or compile and cache them: 0.3 s or half a minute, once a process."""
    with _lock:
        if not _done.is_set():
            _run()
            _done.set()


def _run() -> None:
    chain = make_sub_network(
        "abcdef", [3] * 6, range(6), [False, True, True, True, True, False], [[0], [0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]
    )
    codes = np.zeros((6, 4), np.int8)
    codes[1:5, :2] = MISSING
    partition = Partition(codes, None)
    for by_row in (False, True):
        projection = merge([project(partition, [chain], True, by_row)] * 2)
        problem = prepare(chain, projection.counts[0], 1 << 30)
        solve(problem, Settings(max_iterations=2))
    assert problem.evidence is not None
    theta = np.full(chain.n_parameters, 1 / 3)
    expected_counts(problem.evidence, theta, 1)
    scratch = np.empty((2, problem.evidence.scratch_size))
    _infer_in_logs(0, np.log(theta), theta.copy(), scratch[0], scratch[1], *problem.evidence.arrays)
    maximise(theta.copy(), theta, chain.bases, chain.family_cardinalities, theta.copy())
    log_terms(theta, theta)
