"""`score`: the exact log likelihood of incomplete data under a network's own parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.execution import Progress, make_executor
from pipeline.graph import data_pass
from pipeline.impossible import in_words
from pipeline.learning import run_pass, start_parameters
from pipeline.networks import bayesian, load_network
from pipeline.planning import make_job
from pipeline.stages import Reading, score_group
from tasks.errors import BadInputError, ImpossibleDataError


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
    client: Any = None,
    progress: Progress | None = None,
) -> Score:
    """Log likelihood of a dataset, summed over what is missing.

    Parameters
    ----------
    network, data, weight, missing_tokens, client, progress
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
    net = bayesian(load_network(network), "score")
    for name, table in zip(net.variables, net.tables, strict=True):
        if table is None:
            raise BadInputError(
                f"network {net.name} has no table for {name!r}: a score needs a network with parameters"
            )
    executor = make_executor(client)
    job = make_job(
        net, data, weight, missing_tokens, decompose=True, drop_barren=True, executor=executor, progress=progress
    )
    executor.warm_up(*job.kernel_types)
    reading = Reading(job.columns, weight, tuple(job.dataset.missing_tokens))
    passed = data_pass(
        job.dataset, reading, job.decomposition.sub_networks, job.groups, True, False, executor.allowed_bytes
    )
    prepared, measured = run_pass(executor, passed, progress)
    scored = executor.collect(
        score_group,
        [
            (handle, [start_parameters(job.network, job.decomposition.sub_networks[k]) for k in members])
            for handle, members in zip(prepared, passed.members, strict=True)
        ],
    )
    results: list[float | ImpossibleDataError] = [x for group in scored for x in group]
    errors = [x for x in results if isinstance(x, ImpossibleDataError)]
    rows, total_weight, _ = measured[0]
    if not total_weight > 0:
        raise BadInputError(f"weight column {weight!r}: all weights are zero; there is nothing to score")
    total = -math.inf if errors else math.fsum(x for x in results if not isinstance(x, ImpossibleDataError))
    return Score(
        log_likelihood=total,
        rows=rows,
        total_weight=total_weight,
        impossible=tuple(str(in_words(e, job, reading, f"network {job.network.name}'s parameters")) for e in errors),
    )
