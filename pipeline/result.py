"""What learning gives back: the network, a record a sub-network, a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.markov import AnyNetwork
from pipeline.network import Network
from pipeline.planning import Job
from pipeline.stages import Timed
from tasks.solving import Size

if TYPE_CHECKING:
    from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork


# Relative difference of log posteriors up to which two starts found the same optimum.
SAME_OPTIMUM = 1e-6


@dataclass(frozen=True)
class SubNetworkResult:
    """How one sub-network was learned.

    Attributes
    ----------
    variables, boundary : tuple of str
        The variables whose parameters were learned here, and the observed ones they stand on.
    distinct_rows : int or None
        Distinct projected rows, where they were formed.
    instances : int
        Distinct (hidden component, boundary values) pairs: inferences an iteration; 0 where complete.
    iterations : int
        Of the start that won; 0 where counting was the whole solution.
    converged : bool
        No parameter moved by more than the tolerance in the last iteration.
    log_likelihood, log_posterior : float
        Nats, summed over rows.
    history : tuple of float
        Log likelihood at the start and after each iteration.
    restarts : tuple of float
        The final log posterior of every start.
    seconds : float
        Time it took to solve.
    """

    variables: tuple[str, ...]
    boundary: tuple[str, ...]
    distinct_rows: int | None
    instances: int
    iterations: int
    converged: bool
    log_likelihood: float
    log_posterior: float
    history: tuple[float, ...] = field(repr=False)
    restarts: tuple[float, ...] = field(repr=False)
    seconds: float


@dataclass(frozen=True)
class LearnResult:
    """A learned network.

    Attributes
    ----------
    learned : Network or MarkovNetwork
        The parameters, in this project's own form. A Markov random field's factors are scaled to a maximum of one.
    expected_counts : tuple of (float64 array, or None)
        By variable, or by factor, in the shape of its table: the evidence each parameter rests on. None where it has
        none.
    log_likelihood : float
        Nats, summed over rows.
    converged : bool
        Every sub-network converged.
    sub_networks : tuple of SubNetworkResult
        One record each.
    report : dict
        What report.json holds.
    log_z : float
        Log partition function of the learned potentials, nats; of a Bayesian network zero.
    """

    learned: AnyNetwork
    expected_counts: tuple[NDArray[np.float64] | None, ...] = field(repr=False)
    log_likelihood: float
    converged: bool
    sub_networks: tuple[SubNetworkResult, ...] = field(repr=False)
    report: dict[str, Any] = field(repr=False)
    log_z: float = 0.0

    @cached_property
    def network(self) -> DiscreteBayesianNetwork | DiscreteMarkovNetwork:
        """The learned network as a pgmpy model; made when first asked for."""
        from pipeline.models import to_pgmpy

        return to_pgmpy(self.learned)


def spread_of_optima(records: Sequence[SubNetworkResult]) -> dict[str, Any]:
    """How far the starts' ends lie apart, over the sub-networks that were iterated.

    Returns
    -------
    dict
        sub_networks: how many were iterated. best, worst: log posterior, nats, with each one's best or worst start.
        distinct: the most optima that any of them has, optima within 1e-6 of their log posterior being one.
        several: how many have more than one.
    """
    ends = [r.restarts for r in records if r.restarts]
    distinct = []
    for posteriors in ends:
        ordered = sorted(posteriors)
        apart = [b - a > SAME_OPTIMUM * (1.0 + abs(b)) for a, b in pairwise(ordered)]
        distinct.append(1 + sum(apart))
    return {
        "sub_networks": len(ends),
        "best": math.fsum(max(p) for p in ends),
        "worst": math.fsum(min(p) for p in ends),
        "distinct": max(distinct, default=0),
        "several": sum(d > 1 for d in distinct),
    }


def assemble(
    job: Job, solved: Sequence[Timed], sizes: Sequence[Size]
) -> tuple[Network, tuple[NDArray[np.float64] | None, ...], tuple[SubNetworkResult, ...], dict[str, int]]:
    """Put the sub-networks' solutions together (thesis, section 6.2, step 5).

    Returns
    -------
    network : Network
        All tables. A pruned variable's are uniform: the data say nothing of them.
    expected : tuple of (float64 array, or None)
        Expected counts in the tables' shapes.
    records : tuple of SubNetworkResult
        By sub-network.
    unlearnable : dict of str to int
        By variable, how many of its parameters have no evidence.
    """
    net = job.network
    assert isinstance(net, Network)
    number = {v: i for i, v in enumerate(net.variables)}
    cardinalities = net.cardinalities
    tables: list[NDArray[np.float64] | None] = [None] * len(number)
    expected: list[NDArray[np.float64] | None] = [None] * len(number)
    records = []
    for s, timed, size in zip(job.decomposition.sub_networks, solved, sizes, strict=True):
        solution = timed.solution
        for f, name in enumerate(s.component):
            i = number[name]
            shape = [cardinalities[j] for j in (*net.parents[i], i)]
            lo, hi = int(s.bases[f]), int(s.bases[f + 1])
            tables[i] = solution.theta[lo:hi].reshape(shape)
            expected[i] = solution.expected[lo:hi].reshape(shape)
        records.append(
            SubNetworkResult(
                variables=s.component,
                boundary=s.boundary,
                distinct_rows=size.distinct_rows,
                instances=size.instances,
                iterations=solution.iterations,
                converged=solution.converged,
                log_likelihood=float(solution.log_likelihood[-1]),
                log_posterior=float(solution.log_posterior[-1]),
                history=tuple(solution.log_likelihood.tolist()),
                restarts=solution.restarts,
                seconds=timed.seconds,
            )
        )
    unlearnable = {}
    for i, name in enumerate(net.variables):
        counts = expected[i]
        if counts is None:
            shape = [cardinalities[j] for j in (*net.parents[i], i)]
            tables[i] = np.full(shape, 1.0 / shape[-1])
            unlearnable[name] = int(np.prod(shape))
        elif without := int((counts.sum(axis=-1) <= 0).sum()):
            unlearnable[name] = without * counts.shape[-1]
    learned = Network(net.name, net.variables, net.states, net.parents, tuple(tables))
    return learned, tuple(expected), tuple(records), unlearnable
