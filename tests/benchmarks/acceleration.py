"""Accelerated EM against plain EM: inferences, seconds and log posteriors from the same starts.

    python -m tests.benchmarks.acceleration [--starts 4] [--prior 1.0] [--tolerance 1e-5] [--cases asia,alarm-hidden,…]

Sub-networks are solved alone, on one thread. "E-steps" count every inference, the start's and rejected steps' included.
The difference is the accelerated run's final log posterior less the plain one's: both find local optima, so that it can
be either way where several are near the start.
"""

from __future__ import annotations

import argparse
import tempfile
import time
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


def main(cases: list[str], starts: int, prior: float, tolerance: float, max_iterations: int) -> None:
    """Print the table."""
    warm_up()
    compare(problems("asia", 500, 0, missing=0.2)[0], 0, 1.0, 1e-3, 10)
    print("case          part  start   E-steps   accelerated   times      s   accelerated, s   log posterior")
    for case in cases:
        name, rows, missing = CASES[case]
        for part, problem in enumerate(problems(name, rows, 1, **missing)):
            for seed in range(starts):
                r = compare(problem, seed, prior, tolerance, max_iterations)
                print(
                    f"{case:<13} {part:>4} {seed:>6} {r.plain:>9} {r.accelerated:>13} "
                    f"{r.plain / r.accelerated:>7.1f} {r.plain_seconds:>6.2f} {r.accelerated_seconds:>16.2f} "
                    f"{r.difference:>+15.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--prior", type=float, default=1.0)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--max-iterations", type=int, default=20_000)
    options = parser.parse_args()
    main(options.cases.split(","), options.starts, options.prior, options.tolerance, options.max_iterations)
