"""Markov random fields with and without decomposition of the data, on the same engine: Table 1 and Figures 2 and 3 of
Refaat & Darwiche, *Data Compression for Learning MRF Parameters*.

    python -m tests.benchmarks.markov_decomposition [--figures] [--parquet]

A fifth of the variables have half their entries missing. Both runs are whole `learn` calls by L-BFGS, from the same
start to the same tolerance, on a table in memory; the log likelihoods must agree. Without decomposition every distinct
row has one inference, over the variables that it misses.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import learn, simulate
from pipeline.uai import write_uai
from tests.benchmarks.fields import field_named

# Network, rows, and the paper's ratio.
TABLE_1 = (
    ("chain-50", 4096, 165), ("chain-100", 4096, 253), ("tree-63", 4096, 152), ("tree-127", 4096, 187),
    ("tree-255", 4096, 236), ("grid-9", 8192, 50), ("grid-10", 8192, 130), ("alarm", 4096, 15), ("win95pts", 1024, 33),
)  # fmt: skip
FIGURES = ("grid-9", "alarm", "chain-50", "tree-63")


def data_of(name: str, rows: int, share_missing: float = 0.2, seed: int = 0) -> pa.Table:
    """Rows of a field with half the entries of some variables missing."""
    with tempfile.TemporaryDirectory() as directory:
        where = f"{directory}/data"
        simulate(field_named(name), where, rows=rows, missing=0.5, missing_variables=share_missing, seed=seed)
        return pq.read_table(where)


def compare(name: str, table: pa.Table, tolerance: float, max_iterations: int) -> dict[str, float]:
    """Seconds (the median of three), evaluations and instances of both, taken in turns after one of each unmeasured."""
    found: dict[str, float] = {}
    seconds: dict[str, list[float]] = {"d-grad": [], "grad": []}
    network = field_named(name)
    for turn in range(4):
        for label, decompose in (("d-grad", True), ("grad", False)):
            began = time.perf_counter()
            result = learn(
                network, table, algorithm="lbfgs", decompose=decompose, tolerance=tolerance,
                max_iterations=max_iterations,
            )  # fmt: skip
            if turn:
                seconds[label].append(time.perf_counter() - began)
            found[f"{label} evaluations"] = result.report["evaluations"]
            found[f"{label} instances"] = result.report["instances"]
            found[f"{label} log likelihood"] = result.log_likelihood
    return found | {label: statistics.median(s) for label, s in seconds.items()}


def show(name: str, rows: int, found: dict[str, float], note: str) -> None:
    """Print a line."""
    gap = abs(found["grad log likelihood"] - found["d-grad log likelihood"]) / abs(found["grad log likelihood"])
    print(
        f"{name:<10} {rows:>7,} {found['d-grad evaluations']:>6.0f} {found['grad instances']:>9.0f} "
        f"{found['d-grad instances']:>9.0f} "
        f"{found['grad']:>9.3f} {found['d-grad']:>9.3f} {found['grad'] / found['d-grad']:>8.1f} {note:>10}   {gap:.0e}",
        flush=True,
    )


HEAD = (
    "network       rows  inferences an evaluation    grad, s  d-grad, s    ratio    paper's   log likelihoods differ by"
)


def main(options: argparse.Namespace) -> None:
    """Print the tables."""
    learn(field_named("chain-5"), data_of("chain-5", 100))
    print(HEAD)
    for name, rows, ratio in TABLE_1:
        if options.networks and name not in options.networks.split(","):
            continue
        show(name, rows, compare(name, data_of(name, rows), options.tolerance, options.max_iterations), f"{ratio}")
    if options.figures:
        print("\nshare always observed, 4 096 rows (Figure 2)\n" + HEAD)
        for name in FIGURES:
            for share in (0.95, 0.9, 0.8, 0.7, 0.6):
                table = data_of(name, 4096, 1.0 - share)
                show(name, 4096, compare(name, table, options.tolerance, options.max_iterations), f"{share:.0%}")
        print("\nrows, a fifth of the variables half missing (Figure 3)\n" + HEAD)
        for name in FIGURES:
            for power in range(10, options.largest + 1, 2):
                table = data_of(name, 2**power)
                show(name, 2**power, compare(name, table, options.tolerance, options.max_iterations), f"2^{power}")
    if options.parquet:
        grid_from_parquet()


def grid_from_parquet() -> None:
    """The 9x9 grid with 65 536 rows: from Parquet to converged, on threads and on a cluster that is up."""
    from cluster import connect

    with tempfile.TemporaryDirectory() as directory:
        network, data = Path(directory) / "grid.uai", f"{directory}/data"
        network.write_text(write_uai(field_named("grid-9")))
        simulate(network, data, rows=65_536, partitions=4, missing=0.5, missing_variables=0.2)
        learn(network, data)
        began = time.perf_counter()
        result = learn(network, data)
        print(f"\n9x9 grid, 65 536 rows, from Parquet: {time.perf_counter() - began:.3f} s on threads", end="")
        with connect("local", 2) as client:
            learn(network, data, client=client)
            began = time.perf_counter()
            learn(network, data, client=client)
            print(f", {time.perf_counter() - began:.3f} s on a cluster of two processes;", result.report["iterations"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--max-iterations", type=int, default=1000)
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--largest", type=int, default=16, help="Rows of Figure 3, as a power of two.")
    parser.add_argument("--parquet", action="store_true")
    main(parser.parse_args())
