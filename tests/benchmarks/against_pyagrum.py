"""EM against pyAgrum's: alarm, 20 % of the variables half missing, same rows, same start, same number of iterations.

    python -m tests.benchmarks.against_pyagrum [--rows 4096] [--iterations 10]

pyAgrum runs once (it needs minutes), `learn` five times, median. Both keep barren variables and use psi = 2, which
pyAgrum calls a smoothing prior of weight 1. "count and solve" is the data pass and EM; "learn" is the whole call on a
pyarrow table in memory, the pgmpy model included.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline import learn, load_network, score, simulate
from pipeline.bif import write_bif
from pipeline.network import Network


def random_network(network: Network, seed: int) -> Network:
    """The same structure with random tables, in pyAgrum's single precision."""
    rng = np.random.default_rng(seed)
    tables: list[NDArray[np.float64] | None] = []
    for table in network.tables:
        assert table is not None
        draws = np.float32(0.2 + rng.random(table.shape)).astype(float)
        tables.append(draws / draws.sum(axis=-1, keepdims=True))
    return Network("start", network.variables, network.states, network.parents, tuple(tables))


def table_of(network: Network, i: int, cpt: object) -> NDArray[np.float64]:
    """A pyAgrum CPT in this project's order of axes and states."""
    axes = list(reversed(cpt.names))  # type: ignore[attr-defined]
    wanted = [network.variables[j] for j in (*network.parents[i], i)]
    array = np.transpose(np.array(cpt.tolist()), [axes.index(w) for w in wanted])  # type: ignore[attr-defined]
    for axis, name in enumerate(wanted):
        labels = list(cpt.variable(name).labels())  # type: ignore[attr-defined]
        states = network.states[network.variables.index(name)] or ()
        array = np.take(array, [labels.index(str(s)) for s in states], axis=axis)
    return np.ascontiguousarray(array)


def compare(rows: int, iterations: int) -> dict[str, float]:
    """Seconds of both, and the relative difference of their log likelihoods."""
    import pyagrum

    truth = load_network("alarm")
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory)
        simulate(truth, where / "data", rows=rows, missing=0.5, missing_variables=0.2, seed=1)
        table = pq.read_table(where / "data")
        start = random_network(truth, 7)
        (where / "start.bif").write_text(write_bif(start))
        model = pyagrum.loadBN(str(where / "start.bif"))
    frame = table.to_pandas().astype(object)
    frame = frame.where(frame.notna(), "?").astype(str)
    pyagrum.setNumberOfThreads(1)
    learner = pyagrum.BNLearner(frame, model, ["?"])
    learner.setNumberOfThreads(1)
    learner.useEM(1e-12, 0.0)
    learner.useSmoothingPrior(1.0)
    learner.EMsetMaxIter(iterations)
    began = time.perf_counter()
    learned = learner.learnParameters(model, False)
    theirs = time.perf_counter() - began

    whole, inner = [], []
    for round_ in range(6):
        began = time.perf_counter()
        result = learn(
            start, table, start="network", prior=2.0, drop_barren=False, max_iterations=iterations, tolerance=0.0
        )
        _ = result.network
        if round_:  # the first imports pgmpy and loads the kernels
            whole.append(time.perf_counter() - began)
            inner.append(result.report["seconds"]["count"] + result.report["seconds"]["solve"])
    tables = tuple(table_of(start, i, learned.cpt(v)) for i, v in enumerate(start.variables))
    other = score(Network("pyagrum", start.variables, start.states, start.parents, tables), table)
    return {
        "pyagrum": theirs,
        "learn": statistics.median(whole),
        "count_and_solve": statistics.median(inner),
        "difference": abs(other.log_likelihood / result.log_likelihood - 1.0),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--iterations", type=int, default=10)
    options = parser.parse_args()
    found = compare(options.rows, options.iterations)
    print(
        f"{options.rows:,} rows, {options.iterations} iterations: pyAgrum {found['pyagrum']:.1f} s; "
        f"learn {found['learn']:.4f} s ({found['pyagrum'] / found['learn']:,.0f} times faster); "
        f"count and solve {found['count_and_solve']:.5f} s ({found['pyagrum'] / found['count_and_solve']:,.0f} times); "
        f"log likelihoods differ by {found['difference']:.1e} relative"
    )
