"""Decomposed against undecomposed EM on the same engine: the thesis's Table 6.1 on the networks that pgmpy ships, and
its Figure 6.3 on chains and complete binary trees of so many binary variables (`chain-180`, `tree-63`).

    python -m tests.benchmarks.decomposition [--networks alarm,chain-180,…] [--rows 1024] [--datasets 3]

Variables are hidden or always observed. D-EM runs each sub-network to 1e-5, EM the whole network to 1e-4 (the thesis's
thresholds), from the same random start, with Laplace smoothing, barren variables kept. Whole `learn` calls on a table
in memory, pgmpy left out; the median over datasets is printed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import pyarrow.parquet as pq

from pipeline import TooLargeError, learn, load_network, simulate
from pipeline.network import Network
from tests.benchmarks.scaling import chain

OBSERVED = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


def network_named(name: str) -> Network:
    """An example network, or a chain or complete binary tree with random tables."""
    kind, _, size = name.partition("-")
    if kind not in ("chain", "tree"):
        return load_network(name)
    n = int(size)
    made = chain(n)
    parents = tuple(() if i == 0 else (((i - 1) // 2) if kind == "tree" else i - 1,) for i in range(n))
    return Network(name, made.variables, made.states, parents, made.tables)


def compare(name: str, observed: float, rows: int, seed: int, max_iterations: int) -> dict[str, float]:
    """Seconds and iterations of both on one dataset."""
    with tempfile.TemporaryDirectory() as directory:
        network = network_named(name)
        simulate(network, f"{directory}/data", rows=rows, hidden=1.0 - observed, seed=seed)
        table = pq.read_table(f"{directory}/data")
    found = {}
    for label, decompose, tolerance in (("D-EM", True, 1e-5), ("EM", False, 1e-4)):
        began = time.perf_counter()
        result = learn(
            network, table, decompose=decompose, tolerance=tolerance, prior=2.0, drop_barren=False,
            max_iterations=max_iterations, seed=seed,
        )  # fmt: skip
        found[label] = time.perf_counter() - began
        found[f"{label} iterations"] = result.report["iterations"]
        found[f"{label} log likelihood"] = result.log_likelihood
    return found


def main(networks: list[str], rows: int, datasets: int, max_iterations: int) -> None:
    """Print the table."""
    learn("asia", simulate_table("asia"))
    print("network    observed   D-EM, s   iterations      EM, s   iterations   EM / D-EM")
    for name in networks:
        for observed in OBSERVED:
            try:
                runs = [compare(name, observed, rows, seed, max_iterations) for seed in range(datasets)]
            except TooLargeError as error:
                print(f"{name:<10} {observed:>8.0%}   refused: {error}")
                continue
            ratios = [r["EM"] / r["D-EM"] for r in runs]
            middle = {k: statistics.median(r[k] for r in runs) for k in runs[0]}
            print(
                f"{name:<10} {observed:>8.0%} {middle['D-EM']:>9.3f} {middle['D-EM iterations']:>12.0f} "
                f"{middle['EM']:>10.3f} {middle['EM iterations']:>12.0f} {statistics.median(ratios):>11.1f}",
                flush=True,
            )


def simulate_table(name: str) -> object:
    """A small table with missing values, to load the kernels with."""
    with tempfile.TemporaryDirectory() as directory:
        simulate(name, f"{directory}/data", rows=100, missing=0.3)
        return pq.read_table(f"{directory}/data")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="alarm,win95pts,andes,water,pigs")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--datasets", type=int, default=3)
    parser.add_argument("--max-iterations", type=int, default=1000)
    options = parser.parse_args()
    main(options.networks.split(","), options.rows, options.datasets, options.max_iterations)
