"""Warm-up: after it, no stage compiles anything."""

import subprocess
import sys

import pytest

# Run in a process of its own: what is compiled there is what this call compiled, or loaded from the cache.
CHECK = """
import sys
import numba
import numpy as np
from tasks.warmup import warm_up

code, weight = sys.argv[1:]
warm_up(code, weight)
compiled = []
from numba.core.dispatcher import Dispatcher
real = Dispatcher.compile
def compile(self, signature):
    before = len(self.overloads)
    result = real(self, signature)
    if len(self.overloads) > before:
        compiled.append((self.py_func.__name__, signature))
    return result
Dispatcher.compile = compile

from tasks.projection import merge, project
from tasks.reading import Partition
from tasks.scopes import pack_scopes
from tasks.solving import Settings, evaluate, prepare, solve
from tasks.subnetwork import make_sub_network

s = make_sub_network("abcde", [3] * 5, [0, -1, 1, 2, 3], [True] * 5, [[0], [0, 1], [1, 2], [1, 3], [2, 3, 4]])
rng = np.random.default_rng(0)
codes = rng.integers(-1, 3, (4, 500)).astype(code)
weights = None if weight == "int64" else rng.random(500)
for by_row in (False, True):
    scopes = pack_scopes([s], 0 if by_row else 1 << 14)
    both = merge([project(Partition(codes, weights), scopes, True, by_row)] * 2)
    problem = prepare(s, both.counts[0], 1 << 30)
    solution = solve(problem, Settings(prior=2.0, max_iterations=3))
    evaluate(problem, solution.theta)
    solve(prepare(s, project(Partition(codes[:, :0], weights), scopes).counts[0], 1 << 30), Settings())
print(compiled)
"""


@pytest.mark.parametrize(("code", "weight"), [("int8", "int64"), ("int16", "int64"), ("int8", "float64")])
def test_nothing_is_compiled_after_it(code, weight):
    result = subprocess.run(
        [sys.executable, "-c", CHECK, code, weight], capture_output=True, text=True, check=False, timeout=200
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


PAIRS = (
    CHECK[: CHECK.index("from tasks.projection")].replace("warm_up(code, weight)", "warm_up(code, weight, 'pairs')")
    + """
from tasks.chow_liu import fit_tree
from tasks.pairs import count_pairs
from tasks.reading import Partition

codes = np.random.default_rng(0).integers(-1, 3, (4, 500)).astype(code)
for weights in (None, np.arange(500)) if weight == "int64" else (np.random.default_rng(0).random(500),):
    for states in (3, 40):
        fit_tree(count_pairs(Partition(codes, weights), [states] * 4), [states] * 4, "abcd")
print(compiled)
"""
)


@pytest.mark.parametrize(("code", "weight"), [("int8", "int64"), ("int16", "float64")])
def test_nothing_is_compiled_for_pairs(code, weight):
    result = subprocess.run(
        [sys.executable, "-c", PAIRS, code, weight], capture_output=True, text=True, check=False, timeout=200
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_it_needs_neither_pgmpy_nor_pandas_nor_dask():
    code = "import sys, tasks.warmup; sys.exit(bool({'pgmpy', 'pandas', 'dask', 'distributed'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
