"""`score`: the exact log likelihood of incomplete data under a network's own parameters, directed or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.execution import Executor, Progress, make_executor
from pipeline.family_learning import start_parameters
from pipeline.impossible import in_words
from pipeline.job_pass import job_pass
from pipeline.learning import run_pass
from pipeline.markov import MarkovNetwork
from pipeline.markov_learning import start_potentials
from pipeline.planning import Job, make_job
from pipeline.stages import Reading, score_group
from tasks.elimination_order import EliminationOrder
from tasks.errors import BadInputError, ImpossibleDataError
from tasks.markov_graph import Graph
from tasks.markov_terms import make_model, scaled

NEED = "a score needs a network with parameters"


@dataclass(frozen=True)
class Score:
    """How well a network explains a dataset.

    Attributes
    ----------
    log_likelihood : float
        Nats, summed over rows; -inf where some row is impossible.
    rows : int
        Rows read.
    total_weight : int or float
        Examples they stand for.
    impossible : tuple of str
        For each sub-network with impossible rows, the first of them in words.
    """

    log_likelihood: float
    rows: int
    total_weight: int | float
    impossible: tuple[str, ...]

    @property
    def log_likelihood_per_row(self) -> float:
        """Nats an example."""
        return self.log_likelihood / self.total_weight

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready values; minus infinity, which JSON lacks, is null."""
        finite = math.isfinite(self.log_likelihood)
        return {
            "rows": self.rows,
            "total_weight": self.total_weight,
            "log_likelihood": self.log_likelihood if finite else None,
            "log_likelihood_per_row": self.log_likelihood_per_row if finite else None,
            "impossible": list(asdict(self)["impossible"]),
        }


def score(
    network: object,
    data: object,
    *,
    weight: str | None = None,
    missing_tokens: Sequence[str] = (),
    names: object = None,
    client: Any = None,
    progress: Progress | None = None,
) -> Score:
    """Log likelihood of a dataset, summed over what is missing.

    Parameters
    ----------
    network, data, weight, missing_tokens, names, client, progress
        As in `learn`; the network must have parameters.

    Returns
    -------
    Score

    Raises
    ------
    BadInputError
        Network or data are not what they have to be.
    TooLargeError
        The job cannot fit into memory.
    """
    executor = make_executor(client)
    job = make_job(
        network,
        data,
        weight,
        missing_tokens,
        decompose=True,
        drop_barren=True,
        executor=executor,
        names=names,
        progress=progress,
    )
    parameters = own_parameters(job)
    is_field = isinstance(job.network, MarkovNetwork)
    executor.warm_up(*job.kernel_types, "markov" if is_field else "em")
    reading = Reading(job.columns, weight, tuple(job.dataset.missing_tokens))
    passed = job_pass(job, reading, executor.allowed_bytes)
    prepared, measured = run_pass(executor, passed, progress)
    scored = executor.collect(
        score_group,
        [(handle, [parameters[k] for k in members]) for handle, members in zip(prepared, passed.members, strict=True)],
    )
    results: list[float | ImpossibleDataError] = [x for group in scored for x in group]
    errors = [x for x in results if isinstance(x, ImpossibleDataError)]
    rows, total_weight, _ = measured[0]
    if not total_weight > 0:
        raise BadInputError(f"weight column {weight!r}: all weights are zero; there is nothing to score")
    total = -math.inf if errors else math.fsum(x for x in results if not isinstance(x, ImpossibleDataError))
    if is_field:
        total -= total_weight * log_partition(job, executor)
    return Score(
        log_likelihood=total,
        rows=rows,
        total_weight=total_weight,
        impossible=tuple(str(in_words(e, job, reading, f"network {job.network.name}'s parameters")) for e in errors),
    )


def own_parameters(job: Job) -> list[NDArray[np.float64]]:
    """The network's own parameters by sub-network, a Markov random field's potentials scaled to at most one."""
    sub_networks = job.decomposition.sub_networks
    if not isinstance(job.network, MarkovNetwork):
        return [start_parameters(job.network, s, NEED) for s in sub_networks]
    theta, graph = _potentials(job.network)
    number = {f: k for k, f in enumerate(job.network.learnable)}
    return [
        np.concatenate([theta[graph.bases[number[int(f)]] : graph.bases[number[int(f)] + 1]] for f in s.factors])
        for s in sub_networks
    ]


def log_partition(job: Job, executor: Executor) -> float:
    """Log partition function of a Markov random field's potentials, scaled as `own_parameters` has them, nats."""
    assert isinstance(job.network, MarkovNetwork)
    theta, graph = _potentials(job.network)
    (log_z,) = executor.collect(_log_partition, [(graph, job.elimination, executor.allowed_bytes, theta)])
    return float(log_z)


def _potentials(network: MarkovNetwork) -> tuple[NDArray[np.float64], Graph]:
    theta, _ = scaled(start_potentials(network, NEED), network.graph.bases)
    return theta, network.graph


def _log_partition(
    graph: Graph, elimination: EliminationOrder, allowed_bytes: int, theta: NDArray[np.float64]
) -> float:
    return make_model(graph, elimination, allowed_bytes).evaluate(theta)[0]
