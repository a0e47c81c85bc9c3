"""How learning grows: with the variables of a chain, and a worker's memory with the rows.

python -m tests.benchmarks.scaling chain [--rows 100000] [--variables 500,1000,2000]
python -m tests.benchmarks.scaling memory [--rows 1000000,10000000]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time

import numpy as np

from cluster import connect
from pipeline import learn, load_network, simulate
from pipeline.decompose import decompose
from pipeline.execution import LocalExecutor
from pipeline.graph import data_pass
from pipeline.network import Network
from pipeline.planning import make_job
from pipeline.stages import Reading


def chain(n_variables: int, seed: int = 0) -> Network:
    """A binary chain with random tables."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.2, 0.8, (n_variables, 2))
    tables = [np.stack([r, 1 - r], axis=-1) for r in rows]
    return Network(
        f"chain-{n_variables}",
        tuple(f"x{i:04d}" for i in range(n_variables)),
        (("0", "1"),) * n_variables,
        ((), *((i,) for i in range(n_variables - 1))),
        (tables[0][0], *tables[1:]),
    )


def time_chain(n_variables: int, rows: int) -> dict[str, float]:
    """Seconds to decompose, to build the graph, and to learn: a fifth of the variables half missing."""
    network = chain(n_variables)
    with tempfile.TemporaryDirectory() as directory:
        data = f"{directory}/data"
        simulate(network, data, rows=rows, partitions=4, missing=0.5, missing_variables=0.2, seed=2)
        executor = LocalExecutor()
        began = time.perf_counter()
        job = make_job(network, data, None, (), decompose=True, drop_barren=True, executor=executor)
        planned = time.perf_counter() - began
        columns = {c.name: i for i, c in enumerate(job.columns)}
        began = time.perf_counter()
        decompose(network, columns, set(job.observability.always_observed), set(job.observability.hidden))
        cut = time.perf_counter() - began
        began = time.perf_counter()
        sub_networks = job.decomposition.sub_networks
        data_pass(job.dataset, Reading(job.columns, None, ()), sub_networks, job.groups, True, False, 1 << 33)
        built = time.perf_counter() - began
        learn(network, data, max_iterations=1)
        began = time.perf_counter()
        result = learn(network, data)
        whole = time.perf_counter() - began
    return {
        "plan": planned, "decompose": cut, "graph": built, "learn": whole, "sub_networks": len(result.sub_networks),
        "converged": result.converged, **{f"learn: {k}": v for k, v in result.report["seconds"].items()},
    }  # fmt: skip


def peak_memory() -> int:
    """Bytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def worker_memory(rows: int, rows_per_file: int = 625_000) -> int:
    """Peak bytes of a fresh worker that learns from files of the same size."""
    with tempfile.TemporaryDirectory() as directory:
        files = max(1, rows // rows_per_file)
        simulate("alarm", f"{directory}/data", rows=rows, partitions=files, missing=0.5, missing_variables=0.2, seed=1)
        with connect("local", workers=1) as client:
            learn(load_network("alarm"), f"{directory}/data", client=client)
            return max(client.run(peak_memory).values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["chain", "memory"])
    parser.add_argument("--rows")
    parser.add_argument("--variables", default="500,1000,2000")
    options = parser.parse_args()
    if options.what == "chain":
        for n in options.variables.split(","):
            found = time_chain(int(n), int(options.rows or 100_000))
            print(n, ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items()))
    else:
        for n in (options.rows or "1000000,10000000").split(","):
            print(f"{int(n):,} rows: worker's peak {worker_memory(int(n)) / 2**20:.0f} MiB")
