"""EDML and the hybrid against EM: Tables 4.1 and 4.2 of Refaat (2015) on the networks of theirs that pgmpy ships.

    python -m tests.benchmarks.edml_against_em [--networks asia,alarm,win95pts,water,andes,pigs] [--datasets 3]
        [--rows 1024] [--hidden 0.1,0.25,0.35,0.5,0.7] [--iterations 1000] [--work 1e6] [--outcomes FILE]

Whole networks, a share of the variables hidden, Dirichlet exponents of 2, all algorithms from the same random start.

Iterations (Table 4.1): the error is the distance to the best log posterior that EM or EDML found; shares of the
iterations, until both errors are below 1e-4, in which each has the smaller one, and by how much of the other's error.
Time (Table 4.2): EM runs until no parameter moves by more than 1e-4; the shares of the problems in which the hybrid is
sooner or later at the same log posterior, and the share of the time saved. "No worse" counts the problems in which an
algorithm ends with a log posterior at most 1e-4 below EM's. Problems whose inference takes more multiplications than
`--work` are left out, and named: an iteration takes about as many nanoseconds, and a problem some ten thousand of them.
With 2e8 there are none. `--outcomes` keeps each problem's outcome, a line of JSON; those in it are not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline import TooLargeError, load_network, simulate
from pipeline.decompose import decompose
from tasks.codes import MISSING
from tasks.edml import run_edml
from tasks.em import run_em
from tasks.projection import project
from tasks.reading import Partition
from tasks.scopes import pack_scopes
from tasks.solving import Problem, prepare, random_start
from tasks.votes import make_votes
from tasks.warmup import warm_up

Floats = NDArray[np.float64]

# Refaat (2015), Table 4.1: % of iterations EDML, % EM; Table 4.2: % of problems hybrid sooner, % EM.
THESIS = {
    "alarm": (89.25, 10.75, 46.67, 53.33),
    "andes": (75.89, 24.11, 53.33, 46.67),
    "asia": (99.01, 0.99, 66.67, 33.33),
    "pigs": (83.34, 16.66, 73.33, 26.67),
    "water": (82.77, 17.23, 35.71, 64.29),
    "win95pts": (78.73, 21.27, 80.00, 20.00),
    "10%": (93.82, 6.18),
    "25%": (90.95, 9.05),
    "35%": (82.24, 17.76),
    "50%": (77.61, 22.39),
    "70%": (75.65, 24.35),
}


@dataclass(frozen=True)
class Outcome:
    """One learning problem."""

    edml_leads: int
    em_leads: int
    edml_gains: tuple[float, ...]
    em_gains: tuple[float, ...]
    speedup: float  # EM's seconds over the hybrid's, to EM's log posterior; 0 where the hybrid does not reach it
    edml_no_worse: bool
    hybrid_no_worse: bool
    iteration_cost: tuple[float, float]  # of EDML and of the hybrid, in EM's


def make_problem(name: str, hidden: float, rows: int, seed: int, allowed_bytes: int) -> Problem:
    """A simulated dataset, reduced for the whole network."""
    network = load_network(name)
    with tempfile.TemporaryDirectory() as directory:
        simulate(name, f"{directory}/data", rows=rows, hidden=hidden, seed=seed)
        table = pq.read_table(f"{directory}/data")
    states = dict(zip(network.variables, network.states, strict=True))
    codes = np.empty((table.num_columns, rows), np.int16)
    for k, column in enumerate(table.column_names):
        number = {str(x): c for c, x in enumerate(states[column])}
        codes[k] = [number.get(str(x), MISSING) for x in table[column].to_pylist()]
    columns = {column: k for k, column in enumerate(table.column_names)}
    (s,) = decompose(network, columns, set(columns), (), whole=True).sub_networks
    return prepare(s, project(Partition(codes, None), pack_scopes([s])).counts[0], allowed_bytes)


def path(history: Floats, length: int) -> Floats:
    """A history drawn out to a length by its last entry."""
    return np.concatenate([history, np.full(max(0, length - len(history)), history[-1])])[:length]


def compare(problem: Problem, seed: int, iterations: int) -> Outcome:
    """Run all three on one problem."""
    s, evidence = problem.sub_network, problem.evidence
    assert evidence is not None
    complete = problem.counts.complete.astype(np.float64)
    prior = np.ones(s.n_parameters)
    start = random_start(s, seed, 0)
    votes = make_votes(s, evidence)
    seconds, histories = {}, {}
    for label in ("EM", "EDML", "hybrid"):
        began = time.perf_counter()
        if label == "EM":
            solution = run_em(s, complete, evidence, prior, start, 0.0, iterations)[0]
        else:
            solution = run_edml(
                s, complete, evidence, prior, start, 0.0, iterations, hybrid=label == "hybrid", votes=votes
            )[0]
        seconds[label] = (time.perf_counter() - began) / max(solution.iterations, 1)
        histories[label] = path(solution.log_posterior, iterations + 1)
    best = max(histories["EM"].max(), histories["EDML"].max())
    em, edml = best - histories["EM"], best - histories["EDML"]
    running = np.flatnonzero((em > 1e-4) | (edml > 1e-4))
    running = running[running > 0]
    edml_gains = tuple(1 - edml[t] / em[t] for t in running if edml[t] < em[t])
    em_gains = tuple(1 - em[t] / edml[t] for t in running if em[t] < edml[t])
    converged = run_em(s, complete, evidence, prior, start, 1e-4, iterations)[0]
    reached = np.flatnonzero(histories["hybrid"] >= converged.log_posterior[-1] - 1e-9)
    speedup = 0.0
    if len(reached):
        speedup = seconds["EM"] * converged.iterations / (seconds["hybrid"] * max(int(reached[0]), 1))
    last = histories["EM"][-1] - 1e-4
    return Outcome(
        len(edml_gains), len(em_gains), edml_gains, em_gains, speedup, bool(histories["EDML"][-1] >= last),
        bool(histories["hybrid"][-1] >= last), (seconds["EDML"] / seconds["EM"], seconds["hybrid"] / seconds["EM"]),
    )  # fmt: skip


def line(label: str, outcomes: Sequence[Outcome]) -> str:
    """A row of the table: ours, the thesis's in brackets."""
    edml, em = sum(o.edml_leads for o in outcomes), sum(o.em_leads for o in outcomes)
    leads = 100 * edml / max(edml + em, 1)
    gains = [
        100 * float(np.mean([g for o in outcomes for g in side(o)] or [np.nan]))
        for side in (lambda o: o.edml_gains, lambda o: o.em_gains)
    ]
    sooner = [1 - 1 / o.speedup for o in outcomes if o.speedup > 1]
    later = [1 - o.speedup for o in outcomes if o.speedup <= 1]
    known = THESIS.get(label, ())
    figures = [f"({x:.1f})" for x in known] + ["", "", ""]
    if label in ("all",):
        figures = ["(83.1)", "", "(60.5)"]
    cost = [float(np.median([o.iteration_cost[k] for o in outcomes])) for k in (0, 1)]
    return (
        f"{label:<9}{leads:>7.1f} {figures[0]:<7}{gains[0]:>6.1f}{gains[1]:>7.1f}"
        f"{100 * len(sooner) / len(outcomes):>10.1f} {figures[2]:<7}"
        f"{100 * float(np.mean(sooner or [np.nan])):>6.1f}{100 * float(np.mean(later or [np.nan])):>7.1f}"
        f"{100 * np.mean([o.edml_no_worse for o in outcomes]):>10.0f}"
        f"{100 * np.mean([o.hybrid_no_worse for o in outcomes]):>8.0f}"
        f"{cost[0]:>9.1f}{cost[1]:>8.1f}{len(outcomes):>7}"
    )


def run_one(
    name: str, share: float, rows: int, seed: int, iterations: int, work: float, label: str
) -> Outcome | None:  # fmt: skip
    """One problem, or None where there is nothing to iterate or too much; that is printed."""
    try:
        problem = make_problem(name, share, rows, seed, 1 << 30)
        if problem.evidence is None or len(problem.evidence.counts) == 0:
            print(f"{label}: nothing to iterate", flush=True)
            return None
        multiplications = float(problem.evidence.programs.work()[problem.evidence.signature].sum())
        if multiplications > work:
            print(f"{label}: left out: {multiplications:.1e} an inference", flush=True)
            return None
        return compare(problem, seed, iterations)
    except TooLargeError as error:
        print(f"{label}: refused: {error}", flush=True)
        return None


def read_outcomes(path: Path) -> dict[tuple[str, float, int], Outcome]:
    """What an earlier run found, by network, share hidden and dataset."""
    found = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        kept = json.loads(text)
        found[kept["network"], kept["hidden"], kept["dataset"]] = Outcome(**kept["outcome"])
    return found


def main(
    networks: Sequence[str],
    datasets: int,
    rows: int,
    shares: Sequence[float],
    iterations: int,
    work: float,
    file: Path | None = None,
) -> dict[str, list[Outcome]]:
    """Print the table; outcomes by row of it."""
    warm_up(kernels="edml")
    known = {} if file is None else read_outcomes(file)
    outcomes: dict[str, list[Outcome]] = {}
    began = time.perf_counter()
    for name in networks:
        for share in shares:
            for seed in range(datasets):
                outcome = known.get((name, share, seed)) or run_one(
                    name, share, rows, seed, iterations, work, f"{name}, {share:.0%} hidden, dataset {seed}"
                )
                if outcome is None:
                    continue
                if file is not None and (name, share, seed) not in known:
                    kept = {"network": name, "hidden": share, "dataset": seed, "outcome": asdict(outcome)}
                    with file.open("a") as to:
                        to.write(json.dumps(kept) + "\n")
                for label in (name, f"{share:.0%}", "all"):
                    outcomes.setdefault(label, []).append(outcome)
    print("                      iterations                           time            no worse    iteration cost")
    print("          EDML leads          gains     hybrid sooner       saved          than EM        in EM's")
    print("           %  (thesis)   EDML     EM       %  (thesis)  hybrid  EM     EDML  hybrid    EDML  hybrid   runs")
    for label in (*networks, *(f"{share:.0%}" for share in shares), "all"):
        if label in outcomes:
            print(line(label, outcomes[label]), flush=True)
    print(f"{time.perf_counter() - began:.0f} s")
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="asia,alarm,win95pts,water,andes,pigs")
    parser.add_argument("--datasets", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--hidden", default="0.1,0.25,0.35,0.5,0.7")
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--work", type=float, default=1e6)
    parser.add_argument("--outcomes", type=Path)
    options = parser.parse_args()
    main(options.networks.split(","), options.datasets, options.rows, [float(x) for x in options.hidden.split(",")],
         options.iterations, options.work, options.outcomes)  # fmt: skip
