"""Compile every kernel once, on a problem of a few rows, so that no timed stage does.

Compiling all takes half a minute, so it is cut into groups, and processes that share a cache share the work: each takes
up a group that no other is busy with, and loads afterwards what the others compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tasks.codes import MISSING
from tasks.elimination import Programs, compile_programs
from tasks.em import closed_form, log_terms, maximise, run_em
from tasks.inference import Evidence, _infer_in_logs, make_evidence
from tasks.instances import InstanceTable
from tasks.kernel import cache_directory
from tasks.projection import merge, project
from tasks.reading import Partition
from tasks.scopes import MAX_ENTRIES, pack_scopes
from tasks.subnetwork import SubNetwork, make_sub_network

_done: set[tuple[str, str, str]] = set()
_lock = threading.Lock()


def warm_up(code_type: str = "int8", weight_type: str = "int64", kernels: str = "em") -> None:
    """Load the kernels from Numba's cache, or compile and cache them: 0.4 s or half a minute, once a process.

    Parameters
    ----------
    code_type : {"int8", "int16", "int32"}
        Of the partitions' codes.
    weight_type : {"int64", "float64"}
        Of the weights, and so of the counts.
    kernels : {"em", "edml", "accelerate", "markov", "pairs"}
        What is going to learn; all need EM's, but for "pairs": a structure.
    """
    key = (code_type, weight_type, kernels)
    with _lock:
        if key in _done:
            return

        def counting() -> None:
            _counting(code_type, weight_type)

        def pairs() -> None:
            _pairs(code_type, weight_type)

        counting.__name__ = f"counting-{code_type}-{weight_type}"
        pairs.__name__ = f"pairs-{code_type}-{weight_type}"
        left: list[Callable[[], object]] = [pairs] if kernels == "pairs" else [counting, _elimination, _learning]
        more = {"em": [], "edml": [_edml], "accelerate": [_accelerate], "markov": [_markov], "pairs": []}
        left += more[kernels]
        for wait in (False, True):
            for group in list(left):
                with _only_process(group.__name__, wait) as mine:
                    if mine:
                        group()
                        left.remove(group)
        _done.add(key)


@contextmanager
def _only_process(name: str, wait: bool) -> Iterator[bool]:
    """Hold a lock that one process at a time can have; yields False where another has it and `wait` is not set."""
    try:
        import fcntl

        directory = Path(cache_directory())
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / f"{name.strip('_')}.lock").open("w")
    except (ImportError, OSError):  # no such locks on this system: compile alone
        yield True
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Taken, or a file system without locks: then waiting for one makes no sense either.
            yield wait
            return
        yield True


def _chain() -> SubNetwork:
    return make_sub_network("abc", [3] * 3, range(3), [True] * 3, [[0], [0, 1], [1, 2]])


def _table(n_hidden: int) -> InstanceTable:
    """One signature, its first variables hidden, in the types that counting makes."""
    families = min(n_hidden + 1, 3)
    ptr = [np.array([0, n], np.int32) for n in (n_hidden, families, families - n_hidden)]
    return InstanceTable(
        hidden_ptr=ptr[0], hidden=np.arange(n_hidden, dtype=np.int32), family_ptr=ptr[1],
        families=np.arange(families, dtype=np.int32), boundary_ptr=ptr[2],
        boundary=np.arange(n_hidden, families, dtype=np.int32), signature=np.zeros(1, np.int32),
        value_ptr=np.array([0, families - n_hidden]), values=np.zeros(families - n_hidden, np.int32),
        counts=np.ones(1, np.int64),
    )  # fmt: skip


def _counting(code_type: str, weight_type: str) -> None:
    codes = np.zeros((3, 4), code_type)
    codes[:2, :2] = MISSING
    weights = None if weight_type == "int64" else np.ones(4, weight_type)
    for max_entries in (MAX_ENTRIES, 0):
        merge([project(Partition(codes, weights), pack_scopes([_chain()], max_entries))] * 2)


def _pairs(code_type: str, weight_type: str) -> None:
    from tasks.chow_liu import fit_tree
    from tasks.pairs import count_pairs

    # Integer weights and none at all are counted by the same kernels.
    weights = None if weight_type == "int64" else np.ones(4, weight_type)
    fit_tree(count_pairs(Partition(np.zeros((2, 4), code_type), weights), [2, 2]), [2, 2], "ab")


def _elimination() -> Programs:
    return compile_programs(_chain(), _table(3))


def _one_table() -> tuple[SubNetwork, Evidence]:
    """A problem whose only program is one table, made without compiling the elimination."""
    n = _chain()
    one = np.zeros(1, np.int64)
    programs = Programs(
        cluster_ptr=np.array([0, 1], np.int32), size=one + 3, table=one, parent=np.array([-1], np.int32),
        separator_size=one + 1, message=one + 3, up=one, down=one, factor_ptr=np.array([0, 2], np.int32),
        slot=np.array([0, 1], np.int32), relative=one, maps=np.zeros(6, np.int32), scratch=one + 4,
    )  # fmt: skip
    return n, make_evidence(n, _table(1), programs)


def _learning() -> None:
    n, evidence = _one_table()
    theta = np.full(n.n_parameters, 1 / 3)
    nothing = np.zeros(n.n_parameters)
    run_em(n, nothing, evidence, nothing, theta, 1e-5, 2)
    closed_form(n, nothing, nothing)
    maximise(nothing.copy(), nothing, n.bases, n.family_cardinalities, theta.copy())
    log_terms(nothing, theta)
    scratch = np.empty((2, 4))
    _infer_in_logs(0, np.log(theta), nothing, scratch[0], scratch[1], *evidence.arrays)


def _edml() -> None:
    from tasks.edml import run_edml

    n, evidence = _one_table()
    nothing = np.zeros(n.n_parameters)
    run_edml(n, nothing, evidence, nothing, np.full(n.n_parameters, 1 / 3), 1e-5, 2, 0.5, True)


def _accelerate() -> None:
    from tasks.accelerate import run_accelerated_em

    n, evidence = _one_table()
    nothing = np.zeros(n.n_parameters)
    run_accelerated_em(n, nothing, evidence, nothing, np.full(n.n_parameters, 1 / 3), 1e-5, 2)


def _markov() -> None:
    from tasks.elimination_order import find_order
    from tasks.inference import sweep
    from tasks.ipf import fit_moments, sweep_factors
    from tasks.jointree import make_jointree
    from tasks.model_term import model_term

    scopes = [[0, 1], [1, 2]]
    tree = make_jointree([2] * 3, scopes, find_order("abc", [2] * 3, scopes))
    theta = np.ones(int(tree.bases[-1]))
    model_term(tree, theta)
    sweep_factors(tree, theta, np.full(len(theta), 0.25))
    fit_moments(tree, np.full(len(theta), 0.25), 1e-6, 2)
    n, evidence = _one_table()
    scratch = np.empty((2, 4))
    sweep(np.full(n.n_parameters, 1 / 3), np.empty((1, n.n_parameters)), 1, scratch[0], scratch[1], evidence.arrays)
