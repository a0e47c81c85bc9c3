"""Would a race of restarts keep the winner? Every start is run to its end, and races are held on the recorded paths.

    python -m tests.benchmarks.race [--cases asia,…] [--datasets 10] [--starts 16] [--max-iterations 1000]

Plain EM, with Dirichlet exponents of 1 and of 2, by sub-network. "Half" keeps the better half of the starts after so
many iterations; "slow" drops a start whose log posterior, were it to gain four times what it gained since half as many
iterations, would still be below the best one's. Loss is the best start's final log posterior less the best final one
among those that stay, nats; times is all starts' iterations over those that the race would have made. "First" is no
race: that many starts and no more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.em import run_em
from tasks.solving import random_start
from tasks.warmup import warm_up
from tests.benchmarks.acceleration import problems

Floats = NDArray[np.float64]
Path = Sequence[Floats]

CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "asia": ("asia", 4096, {"hidden": ["lung", "bronc"]}),
    "asia-either": ("asia", 4096, {"hidden": ["lung", "either", "bronc"]}),
    "alarm-hidden": ("alarm", 8192, {"hidden": 0.2}),
    "alarm-mcar": ("alarm", 8192, {"missing": 0.1}),
    "win95pts": ("win95pts", 4096, {"hidden": 0.2}),
    "hailfinder": ("hailfinder", 4000, {"hidden": ["Scenario"]}),
}


def level(history: Floats, t: int) -> float:
    """A start's log posterior after t iterations; its last where it had ended."""
    return float(history[min(t, len(history) - 1)])


def race(
    paths: Path, marks: Sequence[int], stay: Callable[[list[int], int], list[int]]
) -> tuple[list[int], int]:  # fmt: skip
    """Hold a race on recorded log posteriors.

    Parameters
    ----------
    paths : sequence of float64 arrays, shape (iterations + 1,)
        By start.
    marks : sequence of int
        Iterations after which starts are dropped.
    stay : callable
        Of the starts that are left and the mark, those that stay.

    Returns
    -------
    left : list of int
        The starts that run to their end.
    iterations : int
        What all of them make together.
    """
    left, made, before = list(range(len(paths))), 0, 0
    for mark in (*marks, max(len(p) for p in paths)):
        made += sum(min(mark, len(paths[r]) - 1) - min(before, len(paths[r]) - 1) for r in left)
        before = mark
        if mark in marks:
            left = stay(left, mark)
    return left, made


def halving(paths: Path, marks: Sequence[int]) -> tuple[list[int], int]:
    """Keep the better half at each mark."""

    def stay(left: list[int], mark: int) -> list[int]:
        return sorted(left, key=lambda r: (-level(paths[r], mark), r))[: -(-len(left) // 2)]

    return race(paths, marks, stay)


def dropping_the_slow(paths: Path, marks: Sequence[int], times: float) -> tuple[list[int], int]:
    """Drop what would not catch up with so many times its latest gain."""

    def stay(left: list[int], mark: int) -> list[int]:
        best = max(level(paths[r], mark) for r in left)
        gain = {r: level(paths[r], mark) - level(paths[r], mark // 2) for r in left}
        return [r for r in left if level(paths[r], mark) + times * gain[r] >= best]

    return race(paths, marks, stay)


RACES: dict[str, Callable[[Path], tuple[list[int], int]]] = {
    "half at 10, 20, 40, 80": lambda p: halving(p, (10, 20, 40, 80)),
    "half at 20, 40, 80, 160": lambda p: halving(p, (20, 40, 80, 160)),
    "half at 50, 100, 200, 400": lambda p: halving(p, (50, 100, 200, 400)),
    "half at 100, 200": lambda p: halving(p, (100, 200)),
    "slow at 50, 100, … 800": lambda p: dropping_the_slow(p, (50, 100, 200, 400, 800), 4.0),
    "first 6": lambda p: (list(range(6)), sum(len(x) - 1 for x in p[:6])),
}


def hold(recorded: Sequence[Path], which: str) -> tuple[Floats, float]:
    """One kind of race over all sub-networks: the loss in each, and how many times fewer iterations it makes."""
    losses, all_made, made = [], 0, 0
    for paths in recorded:
        left, iterations = RACES[which](paths)
        losses.append(max(float(p[-1]) for p in paths) - max(float(paths[r][-1]) for r in left))
        made += iterations
        all_made += sum(len(p) - 1 for p in paths)
    return np.array(losses), all_made / max(made, 1)


def record(case: str, datasets: int, starts: int, max_iterations: int) -> list[Path]:
    """Every start's path, by sub-network, of both priors."""
    name, rows, missing = CASES[case]
    found = []
    for seed in range(1, datasets + 1):
        for problem in problems(name, rows, seed, **missing):
            s = problem.sub_network
            assert problem.evidence is not None
            complete = problem.counts.complete.astype(np.float64)
            for prior in (1.0, 2.0):
                pseudo = np.full(s.n_parameters, prior - 1.0)
                found.append(
                    [
                        run_em(s, complete, problem.evidence, pseudo, random_start(s, 0, r), 1e-5, max_iterations)[0]
                        .log_posterior
                        for r in range(starts)
                    ]
                )  # fmt: skip
    return found


def main(cases: Sequence[str], datasets: int, starts: int, max_iterations: int) -> dict[str, tuple[Floats, float]]:
    """Print the table; losses and savings by race."""
    warm_up()
    recorded = [path for case in cases for path in record(case, datasets, starts, max_iterations)]
    found = {which: hold(recorded, which) for which in RACES}
    print(f"{len(recorded)} sub-networks and priors    within 1e-3   mean loss   95 %    largest   times fewer")
    for which, (losses, times) in found.items():
        print(
            f"{which:<34}{100 * np.mean(losses <= 1e-3):>8.0f} %{np.mean(losses):>12.3f}"
            f"{np.quantile(losses, 0.95):>8.2f}{losses.max():>10.1f}{times:>13.1f}"
        )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--datasets", type=int, default=10)
    parser.add_argument("--starts", type=int, default=16)
    parser.add_argument("--max-iterations", type=int, default=1000)
    options = parser.parse_args()
    main(options.cases.split(","), options.datasets, options.starts, options.max_iterations)
