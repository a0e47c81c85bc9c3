"""EDML against CG and L-BFGS on complete data of Markov random fields, after Table 5.1 of the thesis.

    python -m tests.benchmarks.markov_algorithms NETWORK.uai [NETWORK.uai …] [--rows 1024] [--datasets 3]

CG, and L-BFGS, run until an iteration changes the log likelihood by less than 1e-4 of itself (the thesis's threshold
for CG); EDML until its log likelihood is as good. All start at uniform potentials, none begins with another's
iterations, and all have the same engine. Seconds are those of the evaluations up to that point with whatever the
optimiser does between them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, field

import numpy as np

from tasks.markov_edml import run_edml
from tasks.markov_gradient import run_gradient
from tasks.markov_sampling import field_sampler
from tasks.markov_terms import LocalTerms, Model, Penalty, Point, make_model, plan_model, scaled
from tasks.sampling import draw_rows
from tests.benchmarks.fields import field_named

CHANGE = 1e-4


class _Enough(Exception):
    """Ends a run."""


@dataclass
class Watch:
    """When a run's evaluations were, and how good.

    Attributes
    ----------
    goal : float
        Log likelihood at which the run has done enough.
    seconds, log_likelihood : list of float
        By evaluation.
    """

    goal: float = np.inf
    began: float = field(default_factory=time.perf_counter)
    seconds: list[float] = field(default_factory=list)
    log_likelihood: list[float] = field(default_factory=list)

    def see(self, point: Point) -> None:
        """Note an evaluation."""
        self.seconds.append(time.perf_counter() - self.began)
        self.log_likelihood.append(point.log_likelihood)
        if point.log_likelihood >= self.goal:
            raise _Enough


class WatchedTerms(LocalTerms):
    """Terms that report every evaluation."""

    def __init__(self, model: Model, complete: np.ndarray, n: float, watch: Watch) -> None:
        super().__init__(model, (), complete, n, Penalty())
        self.watch = watch

    def evaluate(self, eta: np.ndarray) -> Point:
        """See `LocalTerms.evaluate`."""
        point = super().evaluate(eta)
        self.watch.see(point)
        return point


def count(network: object, codes: np.ndarray) -> np.ndarray:
    """Every factor's counts of complete rows, in the order of the parameters."""
    parts = []
    for scope, shape in zip(network.graph.scopes, [network.shapes[f] for f in network.learnable], strict=True):
        index = np.ravel_multi_index([codes[v].astype(np.int64) for v in scope], shape)
        parts.append(np.bincount(index, minlength=int(np.prod(shape))))
    return np.concatenate(parts).astype(np.float64)


def until_settled(method: str, model: Model, complete: np.ndarray, n: float) -> tuple[int, float, float]:
    """Iterations, seconds and log likelihood of CG or L-BFGS at the first change below the threshold."""
    watch = Watch()
    trace = run_gradient(WatchedTerms(model, complete, n, watch), np.zeros(len(complete)), 1e-7, 500, method)
    ends = trace.log_likelihood
    at = next((k for k in range(1, len(ends)) if abs(ends[k] - ends[k - 1]) <= CHANGE * abs(ends[k])), len(ends) - 1)
    evaluation = next(k for k, x in enumerate(watch.log_likelihood) if x >= ends[at] - 1e-9 * abs(ends[at]))
    return at, watch.seconds[evaluation], ends[at]


def edml_until(goal: float, model: Model, complete: np.ndarray, n: float, limit: int) -> tuple[int, float, bool]:
    """Evaluations and seconds that EDML takes to a log likelihood, and whether it got there."""
    watch = Watch(goal)
    try:
        run_edml(WatchedTerms(model, complete, n, watch), np.zeros(len(complete)), 1e-9, limit, 0.5)
    except _Enough:
        return len(watch.seconds) - 1, watch.seconds[-1], True
    return len(watch.seconds) - 1, watch.seconds[-1], watch.log_likelihood[-1] >= goal


def _load(model: Model, rows: int) -> None:
    """Load the kernels and scipy, so that no run pays for them."""
    even = np.repeat(rows / np.diff(model.graph.bases), np.diff(model.graph.bases))
    until_settled("cg", model, even, rows)
    edml_until(np.inf, model, even, rows, 1)


def main(networks: list[str], rows: int, datasets: int, limit: int) -> None:
    """Print the table."""
    print(
        "network                     vars  i_cg i_edml    t_cg  t_edml      S   i_lbfgs i'_edml t_lbfgs t'_edml     S'"
    )
    for name in networks:
        network = field_named(name)
        model = make_model(network.graph, plan_model(network.graph, 1 << 33), 1 << 33)
        with np.errstate(divide="ignore"):
            start = np.concatenate([np.log(network.tables[f]).ravel() for f in network.learnable])
        sampler = field_sampler(model, scaled(start, network.graph.bases)[0])
        lines = []
        _load(model, rows)
        for seed in range(datasets):
            codes = sampler.make_codes(rows)
            draw_rows(sampler, seed, 0, codes)
            complete = count(network, codes)
            line: list[float] = []
            for method in ("cg", "lbfgs"):
                iterations, seconds, goal = until_settled(method, model, complete, rows)
                own, own_seconds, reached = edml_until(goal, model, complete, rows, limit)
                line += [iterations, own if reached else np.nan, seconds, own_seconds, seconds / own_seconds]
            lines.append(line)
        m = [statistics.median(c) for c in zip(*lines, strict=True)]
        print(
            f"{network.name:<26} {len(network.variables):>5} {m[0]:>5.0f} {m[1]:>6.0f} {m[2]:>7.3f} {m[3]:>7.3f} "
            f"{m[4]:>6.1f} {m[5]:>9.0f} {m[6]:>7.0f} {m[7]:>7.3f} {m[8]:>7.3f} {m[9]:>6.1f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--datasets", type=int, default=3)
    parser.add_argument("--limit", type=int, default=500, help="Iterations after which EDML is given up.")
    options = parser.parse_args()
    main(options.networks, options.rows, options.datasets, options.limit)
