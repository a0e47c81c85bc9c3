"""Chow–Liu: seconds by stage for many binary variables, and the counts of pairs alone.

    python -m tests.benchmarks.structure [--variables 500] [--rows 1000000] [--files 4] [--missing 0.0] [--rounds 3]

Data of a random tree, each variable a noisy copy of one before it, in Parquet. Printed: reading alone (pyarrow, one
thread), `learn_structure` from Parquet to the tree and its parameters by stage, medians, and the share of true edges.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from pipeline import learn_structure, simulate
from pipeline.network import Network
from tests.benchmarks.reading import read_alone


def random_tree(n: int, seed: int = 0) -> Network:
    """A tree of binary variables, each agreeing with its parent in about eight of ten cases."""
    rng = np.random.default_rng(seed)
    parents = ((), *((int(rng.integers(0, v)),) for v in range(1, n)))
    tables = [np.array([0.5, 0.5])]
    for _ in range(1, n):
        a, b = rng.uniform(0.7, 0.9, 2)
        tables.append(np.array([[a, 1 - a], [1 - b, b]]))
    return Network("tree", tuple(f"v{k:04}" for k in range(n)), (("no", "yes"),) * n, parents, tuple(tables))


def measure(variables: int, rows: int, files: int, missing: float, rounds: int) -> dict[str, float]:
    """Medians of seconds by stage, of reading alone, and the share of true edges."""
    truth = random_tree(variables)
    names = truth.variables
    true = {frozenset((names[v], names[p])) for v, own in enumerate(truth.parents) for p in own}
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        simulate(truth, data, rows=rows, partitions=files, missing=missing, seed=1)
        paths = sorted(data.glob("*.parquet"))
        # Compiled, and the files in memory, before anything is timed.
        learn_structure(paths[:1], columns=names[:2])
        seconds: dict[str, list[float]] = {"read alone": []}
        for _ in range(rounds):
            began = time.perf_counter()
            read_alone(paths, list(names))
            seconds["read alone"].append(time.perf_counter() - began)
            result = learn_structure(paths)
            for stage, taken in result.report["seconds"].items():
                seconds.setdefault(stage, []).append(taken)
    found = {frozenset((e.parent, e.child)) for e in result.edges}
    return {**{s: statistics.median(t) for s, t in seconds.items()}, "true edges": len(found & true) / len(true)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variables", type=int, default=500)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--missing", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for what, value in measure(**vars(options)).items():
        print(f"{what:12} {value:.3f}")
