"""Accelerated EM against plain EM: inferences, seconds and log posteriors from the same starts.

    python -m tests.benchmarks.acceleration [--starts 4] [--prior 1.0] [--tolerance 1e-5] [--cases asia,alarm-hidden,…]
        [--datasets 1] [--rows N]

Sub-networks are solved alone, on one thread. "E-steps" count every inference, the start's and rejected steps' included.
The difference is the accelerated run's final log posterior less the plain one's: both find local optima, so that it can
be either way where several are near the start. The last line counts the starts where it is above 1e-3, within, below.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from pipeline import simulate
from pipeline.execution import LocalExecutor
from pipeline.graph import data_pass
from pipeline.learning import run_pass
from pipeline.planning import make_job
from pipeline.stages import Reading
from tasks.accelerate import run_accelerated_em
from tasks.em import run_em
from tasks.solving import Problem, random_start
from tasks.warmup import warm_up

CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "asia": ("asia", 4096, {"hidden": ["lung", "bronc"]}),
    "alarm-hidden": ("alarm", 65536, {"hidden": 0.2}),
    "alarm-mcar": ("alarm", 8192, {"missing": 0.1}),
    "win95pts": ("win95pts", 4096, {"hidden": 0.2}),
    "hailfinder": ("hailfinder", 100_000, {"hidden": ["Scenario"]}),
}


@dataclass(frozen=True)
class Row:
    """One start: E-steps and seconds of both, and by how much the accelerated log posterior is higher."""

    plain: int
    accelerated: int
    plain_seconds: float
    accelerated_seconds: float
    difference: float


def problems(name: str, rows: int, seed: int, **missing: Any) -> list[Problem]:
    """The sub-networks of a simulated dataset that have something to iterate."""
    with tempfile.TemporaryDirectory() as directory:
        simulate(name, f"{directory}/data", rows=rows, seed=seed, **missing)
        table = pq.read_table(f"{directory}/data")
    executor = LocalExecutor()
    job = make_job(name, table, None, (), decompose=True, drop_barren=True, executor=executor)
    passed = data_pass(
        job.dataset, Reading(job.columns, None, ()), job.decomposition.sub_networks, job.groups, True, False,
        executor.allowed_bytes,
    )  # fmt: skip
    prepared = executor.fetch(run_pass(executor, passed, None)[0])
    return [p for group in prepared for p in group.problems if p.evidence is not None and len(p.counts.instances)]


def compare(problem: Problem, seed: int, prior: float, tolerance: float, max_iterations: int) -> Row:
    """Both from one start."""
    s = problem.sub_network
    assert problem.evidence is not None
    complete, pseudo = problem.counts.complete.astype(float), np.full(s.n_parameters, prior - 1.0)
    start = random_start(s, seed, 0)
    found = []
    for run in (run_em, run_accelerated_em):
        began = time.perf_counter()
        solution, _, _ = run(s, complete, problem.evidence, pseudo, start, tolerance, max_iterations)
        found.append((solution.iterations + 1, time.perf_counter() - began, float(solution.log_posterior[-1])))
    (a, t, x), (b, u, y) = found
    return Row(a, b, t, u, y - x)


def shares(found: Sequence[Row]) -> tuple[float, float, float]:
    """Of the starts, which share ended above plain EM by more than 1e-3 nats, within that, and below."""
    d = np.array([r.difference for r in found])
    return float(np.mean(d > 1e-3)), float(np.mean(np.abs(d) <= 1e-3)), float(np.mean(d < -1e-3))


def main(
    cases: Sequence[str],
    starts: int,
    prior: float,
    tolerance: float,
    max_iterations: int,
    datasets: int = 1,
    n_rows: int | None = None,
) -> list[Row]:
    """Print the table."""
    found = []
    warm_up()
    compare(problems("asia", 500, 0, missing=0.2)[0], 0, 1.0, 1e-3, 10)
    print("case          part  start   E-steps   accelerated   times      s   accelerated, s   log posterior")
    for case in cases:
        name, rows, missing = CASES[case]
        parts = [p for d in range(1, datasets + 1) for p in problems(name, n_rows or rows, d, **missing)]
        for part, problem in enumerate(parts):
            for seed in range(starts):
                r = compare(problem, seed, prior, tolerance, max_iterations)
                found.append(r)
                print(
                    f"{case:<13} {part:>4} {seed:>6} {r.plain:>9} {r.accelerated:>13} "
                    f"{r.plain / r.accelerated:>7.1f} {r.plain_seconds:>6.2f} {r.accelerated_seconds:>16.2f} "
                    f"{r.difference:>+15.1e}",
                    flush=True,
                )
    print("{:.1%} of {} higher, {:.1%} equal, {:.1%} lower".format(shares(found)[0], len(found), *shares(found)[1:]))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--prior", type=float, default=1.0)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--max-iterations", type=int, default=20_000)
    parser.add_argument("--datasets", type=int, default=1)
    parser.add_argument("--rows", type=int)
    options = parser.parse_args()
    main(options.cases.split(","), options.starts, options.prior, options.tolerance, options.max_iterations,
         options.datasets, options.rows)  # fmt: skip
