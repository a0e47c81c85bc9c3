"""Farm the sub-networks out: largest first, small ones in bundles, a giant one split over the workers.

A giant's instances are cut at the boundaries of the blocks in which one worker would sum them, and the partial sums
are added along the same binary tree: however it is run, a sub-network has the same answer to the last bit. Plain EM
alone can be split so; by any other algorithm, and by accelerated EM, a giant is solved by one task.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.execution import Executor, Progress
from pipeline.stages import Timed, counts_of, describe_instance, expect, slice_problem, solve_bundle
from tasks.em import (
    CONVERGED,
    FELL,
    IMPOSSIBLE_FAMILY,
    IMPOSSIBLE_INSTANCE,
    LIMIT,
    Floats,
    Solution,
    best_of,
    explain,
    fell,
    log_terms,
    maximise,
)
from tasks.inference import block_size, tree_add
from tasks.solving import Settings, Size, random_start
from tasks.subnetwork import SubNetwork

# Iterations that the cost estimate assumes; only the order and the bundles depend on it, never a result.
TYPICAL_ITERATIONS = 100
# Seconds a bundle should be worth: the scheduler takes about a millisecond a task.
BUNDLE_SECONDS = 0.5


@dataclass(frozen=True)
class Assignment:
    """How the sub-networks are shared out.

    Attributes
    ----------
    bundles : tuple of (int, tuple of int)
        Group, and the positions in it of the sub-networks solved by one task; most work first.
    split : tuple of (int, int)
        Group and position of the sub-networks whose instances are split over the workers.
    """

    bundles: tuple[tuple[int, tuple[int, ...]], ...]
    split: tuple[tuple[int, int], ...]


def assign(sizes: Sequence[Sequence[Size]], n_threads: int, overhead: float, settings: Settings) -> Assignment:
    """Decide what is bundled and what is split, by estimated work.

    Parameters
    ----------
    sizes : sequence of sequences of Size
        By group and position.
    n_threads : int
        Workers' threads.
    overhead : float
        Seconds that one task costs.
    settings : Settings
        Restarts and the limit of iterations scale the estimate.
    """
    rounds = settings.restarts * min(settings.max_iterations + 1, TYPICAL_ITERATIONS)
    seconds = [[1e-9 * s.work * (rounds if s.instances else 1) for s in group] for group in sizes]
    total = sum(map(sum, seconds))
    split: list[tuple[int, int]] = []
    bundles: list[tuple[float, int, tuple[int, ...]]] = []
    for g, group in enumerate(sizes):
        rest: list[tuple[int, int]] = []
        for k, size in enumerate(group):
            dwarfs = seconds[g][k] > total / (2 * n_threads)
            # An iteration must be worth the exchange of parameters and counts with every worker.
            pays = 1e-9 * size.work * (1 - 1 / n_threads) > 2 * overhead * n_threads
            may = settings.can_split and size.instances > 0
            (split if n_threads > 1 and may and dwarfs and pays else rest).append((g, k))
        rest.sort(key=lambda at: -seconds[at[0]][at[1]])
        target = max(BUNDLE_SECONDS, total / (4 * n_threads))
        bundle: list[int] = []
        load = 0.0
        for _, k in rest:
            if bundle and load + seconds[g][k] > target:
                bundles.append((load, g, tuple(bundle)))
                bundle, load = [], 0.0
            bundle.append(k)
            load += seconds[g][k]
        if bundle:
            bundles.append((load, g, tuple(bundle)))
    bundles.sort(key=lambda b: -b[0])
    return Assignment(tuple((g, members) for _, g, members in bundles), tuple(split))


def solve_all(
    executor: Executor,
    prepared: Sequence[Any],
    sizes: Sequence[Sequence[Size]],
    members: Sequence[Sequence[int]],
    settings: Settings,
    starts: Sequence[NDArray[np.float64]] | None,
    priors: Sequence[NDArray[np.float64] | None],
    token: str,
    progress: Progress | None = None,
) -> list[Timed]:
    """Solve every sub-network.

    Parameters
    ----------
    executor : Executor
        Where.
    prepared : sequence of handles
        Each group's `Prepared`.
    sizes : sequence of sequences of Size
        By group and position.
    members : sequence of sequences of int
        The sub-network that each position of each group is.
    settings : Settings
        How.
    starts : sequence of float64 arrays, or None
        Parameters of the first start by sub-network; None for random ones.
    priors : sequence of (float64 array, or None)
        Pseudo counts by sub-network; None where the settings' one exponent is all.
    token : str
        Makes the tasks' keys this job's own.
    progress : callable, optional
        Told the finished bundles.

    Returns
    -------
    list of Timed
        By sub-network.
    """
    shared = assign(sizes, executor.n_threads, executor.overhead, settings)
    results: dict[int, Timed] = {}
    for g, k in shared.split:
        start = None if starts is None else starts[members[g][k]]
        prior = priors[members[g][k]]
        results[members[g][k]] = _solve_split(executor, prepared[g], k, sizes[g][k], settings, start, prior, progress)
    graph: dict[Any, Any] = {f"settings-{token}": settings}
    keys = []
    for rank, (g, positions) in enumerate(shared.bundles):
        key = (f"solve-{token}", rank)
        first = [None if starts is None else starts[members[g][k]] for k in positions]
        own = [priors[members[g][k]] for k in positions]
        graph[key] = (solve_bundle, prepared[g], list(positions), f"settings-{token}", first, own)
        keys.append(key)
    solved = executor.gather(graph, keys, progress, "solve") if keys else []
    for (g, positions), bundle in zip(shared.bundles, solved, strict=True):
        for k, timed in zip(positions, bundle, strict=True):
            results[members[g][k]] = timed
    return [results[i] for i in range(len(results))]


def _solve_split(
    executor: Executor,
    prepared: Any,
    position: int,
    size: Size,
    settings: Settings,
    start: NDArray[np.float64] | None,
    prior: NDArray[np.float64] | None,
    progress: Progress | None,
) -> Timed:
    """EM on one sub-network with its instances split over the workers: broadcast parameters, tree-add counts."""
    began = time.perf_counter()
    ((n, counts),) = executor.collect(counts_of, [(prepared, position)])
    complete = counts.astype(np.float64)
    pseudo = np.full(n.n_parameters, settings.prior - 1.0) if prior is None else prior
    block = block_size(size.instances, n.n_parameters)
    n_blocks = -(-size.instances // block)
    # Slices of 2^k blocks, aligned: each is a whole subtree of the sum.
    per_slice = 1
    while -(-n_blocks // per_slice) > executor.n_threads:
        per_slice *= 2
    step = per_slice * block
    bounds = [(b, min(b + step, size.instances)) for b in range(0, size.instances, step)]
    slices = executor.spread(slice_problem, [(prepared, position, *b) for b in bounds])

    def run(restart: int) -> tuple[Solution, int, int]:
        theta = start.copy() if start is not None and restart == 0 else random_start(n, settings.seed, restart)

        def report(iteration: int) -> None:
            if progress:
                progress("em-iteration", iteration, settings.max_iterations)

        return _iterate(executor, slices, bounds, n, complete, size.weight, pseudo, theta, block, settings, report)

    def describe(instance: int) -> tuple[tuple[str, ...], dict[str, int]]:
        (described,) = executor.collect(describe_instance, [(prepared, position, instance)])
        return described

    solution = best_of(settings.restarts, run, lambda status, where, s: explain(n, describe, status, where, s))
    return Timed(solution, time.perf_counter() - began)


def _iterate(
    executor: Executor,
    slices: Sequence[Any],
    bounds: Sequence[tuple[int, int]],
    n: SubNetwork,
    complete: Floats,
    instance_weight: float,
    prior: Floats,
    theta: Floats,
    block: int,
    settings: Settings,
    report: Any,
) -> tuple[Solution, int, int]:
    """The loop of `tasks.em._em`, with the E-step done by the workers; step for step the same additions."""
    weight = float(complete.sum()) + instance_weight
    history: list[tuple[float, float]] = []
    iteration, status, where, change = 0, LIMIT, -1, np.inf
    expected = np.empty(0)

    def stop(status: int, where: int = -1) -> tuple[Solution, int, int]:
        curve = np.array(history).reshape(-1, 2)
        solution = Solution(theta, expected, curve[:, 0].copy(), curve[:, 1].copy(), iteration, status == CONVERGED)
        return solution, status, where

    while True:
        parts = executor.collect(expect, [(s, theta, block) for s in slices])
        for (begin, _), (_, _, bad) in zip(bounds, parts, strict=True):
            if bad >= 0:
                return stop(IMPOSSIBLE_INSTANCE, begin + bad)
        sums, likelihoods = np.stack([p[0] for p in parts]), np.array([p[1] for p in parts])
        tree_add(sums, likelihoods)
        observed, where = log_terms(complete, theta)
        if where >= 0:
            return stop(IMPOSSIBLE_FAMILY, where)
        expected = sums[0] + complete
        log_likelihood = float(likelihoods[0]) + observed
        history.append((log_likelihood, log_likelihood + log_terms(prior, theta)[0]))
        if iteration > 0 and fell(history[-2][1], history[-1][1], weight):
            return stop(FELL)
        if change <= settings.tolerance:
            status = CONVERGED
            break
        if iteration == settings.max_iterations:
            break
        change = maximise(expected, prior, n.bases, n.family_cardinalities, theta)
        iteration += 1
        report(iteration)
    return stop(status)
