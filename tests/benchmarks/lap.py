"""LAP's cost against the number of cliques: 2-D lattices of binary variables, pairwise potentials in [-1, 1].

    python -m tests.benchmarks.lap [--sides 10,30,100,300] [--rows 1000] [--auxiliary exact,dense,pairwise] [--workers]

Rows are a Gibbs chain's (100 sweeps of burn-in, 2 sweeps from row to row: enough for timings). Whole `learn` calls on a
table in memory; with --workers from Parquet, on a cluster of one and of two processes that is up.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import learn
from pipeline.markov import MarkovNetwork
from tasks.gibbs import gibbs_rows
from tests.benchmarks.fields import field_named


def rows_of(network: MarkovNetwork, rows: int) -> pa.Table:
    """A table of approximate samples."""
    eta = np.concatenate([np.log(t).ravel() for t in network.tables if t is not None])
    codes = gibbs_rows(network.graph, eta, rows, seed=0, burn_in=100, thinning=2)
    return pa.table(dict(zip(network.variables, codes, strict=True)))


def main(sides: list[int], rows: int, auxiliaries: list[str], workers: bool) -> None:
    """Print the table."""
    learn(field_named("grid-3"), rows_of(field_named("grid-3"), 10), estimator="lap", pseudo_count=1.0)
    print("lattice      cliques  auxiliary   seconds  ms a clique   plan  count  solve")
    for side in sides:
        network = field_named(f"grid-{side}")
        table = rows_of(network, rows)
        for auxiliary in auxiliaries:
            began = time.perf_counter()
            result = learn(network, table, estimator="lap", auxiliary=auxiliary, pseudo_count=1.0)
            seconds = time.perf_counter() - began
            stages = result.report["seconds"]
            n = len(network.scopes)
            print(
                f"{side:>4} x {side:<4} {n:>9,}  {auxiliary:<9} {seconds:>9.2f} {1e3 * seconds / n:>12.3f}"
                f" {stages['plan']:>6.2f} {stages['count']:>6.2f} {stages['solve']:>6.2f}",
                flush=True,
            )
    if workers:
        on_workers(network, table, auxiliaries[-1])


def on_workers(network: MarkovNetwork, table: pa.Table, auxiliary: str) -> None:
    """One worker against two on the last lattice."""
    from cluster import connect

    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/rows"
        os.mkdir(path)
        for k in range(4):
            pq.write_table(table.slice(k * len(table) // 4, len(table) // 4), f"{path}/{k}.parquet")
        for n in (1, 2):
            with connect("local", n) as client:
                learn(
                    field_named("grid-3"),
                    rows_of(field_named("grid-3"), 10),
                    estimator="lap",
                    pseudo_count=1.0,
                    client=client,
                )
                began = time.perf_counter()
                learn(network, path, estimator="lap", auxiliary=auxiliary, pseudo_count=1.0, client=client)
                print(f"{n} worker{'s' * (n > 1)}: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", default="10,30,100,300")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--auxiliary", default="exact,dense,pairwise")
    parser.add_argument("--workers", action="store_true")
    options = parser.parse_args()
    main([int(s) for s in options.sides.split(",")], options.rows, options.auxiliary.split(","), options.workers)
