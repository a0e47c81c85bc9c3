"""How a Bayesian network is learned: every sub-network by itself, its families' tables put together."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.execution import Executor, Progress
from pipeline.graph import DataPass
from pipeline.impossible import in_words
from pipeline.job_pass import job_pass
from pipeline.network import Network
from pipeline.options import Options
from pipeline.outcome import Outcome
from pipeline.planning import Job
from pipeline.priors import make_prior, own_prior
from pipeline.result import assemble, spread_of_optima
from pipeline.solving import solve_all
from pipeline.stages import Reading
from tasks.errors import BadInputError, ImpossibleDataError
from tasks.solving import ALGORITHMS, Settings, Size
from tasks.subnetwork import SubNetwork


class FamilyLearning:
    """A Bayesian network's learning, from checked settings to an outcome.

    Parameters
    ----------
    job : Job
        Of a `Network`.
    executor : Executor
        Where.
    options : Options
        How.
    progress : callable, optional
        Told the finished bundles.

    Raises
    ------
    BadInputError
        Settings that do not fit together or this network.
    """

    def __init__(self, job: Job, executor: Executor, options: Options, progress: Progress | None) -> None:
        assert isinstance(job.network, Network)
        algorithm = _check(job.network, options)
        self.job, self.executor, self.options, self.progress = job, executor, options, progress
        self.network = job.network
        exponents = make_prior(options.prior, self.network)
        self.settings = Settings(
            exponents.default,
            options.seed,
            options.restarts,
            options.tolerance,
            options.max_iterations,
            executor.allowed_bytes,
            algorithm,
            options.damping,
            options.accelerate,
        )
        sub_networks = job.decomposition.sub_networks
        self.priors = [own_prior(exponents, self.network, s) for s in sub_networks]
        self.starts = None
        if options.start == "network":
            self.starts = [start_parameters(self.network, s) for s in sub_networks]
        self.kernels = self.settings.kernels
        self.written: Mapping[str, Any] = {
            "algorithm": algorithm, "prior": exponents.written, "damping": options.damping,
            "accelerate": options.accelerate,
        }  # fmt: skip

    def data_pass(self, reading: Reading) -> DataPass:
        """Wire the data pass."""
        options = self.options
        return job_pass(
            self.job, reading, self.executor.allowed_bytes, options.drop_barren, by_row=not options.decompose
        )

    def solve(
        self,
        prepared: Sequence[Any],
        sizes: Sequence[Sequence[Size]],
        passed: DataPass,
        reading: Reading,
        weight: float,
    ) -> Outcome:
        """Solve all sub-networks.

        Parameters
        ----------
        prepared : sequence of handles
            Each group's problems.
        sizes : sequence of sequences of Size
            By group and position.
        passed : DataPass
            Which sub-networks the groups hold.
        reading : Reading
            To find an impossible row.
        weight : float
            Examples.
        """
        token = uuid.uuid4().hex
        try:
            solved = solve_all(
                self.executor, prepared, sizes, passed.members, self.settings, self.starts, self.priors, token,
                self.progress,
            )  # fmt: skip
        except ImpossibleDataError as error:
            if self.starts is not None:
                parameters = f"the start, network {self.network.name}'s own parameters"
                remedy = "mend the zeros in its tables or the data, or start at random"
            else:
                parameters, remedy = "a random start", "try another seed"
            raise in_words(error, self.job, reading, parameters, remedy) from None
        by_number: dict[int, Size] = {
            k: size for m, g in zip(passed.members, sizes, strict=True) for k, size in zip(m, g, strict=True)
        }
        learned, expected, records, unlearnable = assemble(
            self.job, solved, [by_number[k] for k in range(len(by_number))]
        )
        report = {
            "log_posterior": math.fsum(r.log_posterior for r in records),
            "iterations": max((r.iterations for r in records), default=0),
            "restarts": spread_of_optima(records),
        }
        log_likelihood = math.fsum(r.log_likelihood for r in records)
        return Outcome(learned, expected, log_likelihood, records, unlearnable, report)


def start_parameters(
    network: Network, sub_network: SubNetwork, need: str = "give a network with parameters, or start at random"
) -> NDArray[np.float64]:
    """The network's own parameters in a sub-network's layout; rows rounded in print are made to sum to one.

    Raises
    ------
    BadInputError
        It has none; the message ends with what is needed.
    """
    number = {v: i for i, v in enumerate(network.variables)}
    parts = []
    for name in sub_network.component:
        table = network.tables[number[name]]
        if table is None:
            raise BadInputError(f"network {network.name} has no table for {name!r}: {need}")
        parts.append((table / table.sum(axis=-1, keepdims=True)).ravel())
    return np.concatenate(parts)


def _check(network: Network, options: Options) -> str:
    """The algorithm, "auto" resolved."""
    algorithm = "em" if options.algorithm == "auto" else options.algorithm
    if algorithm not in ALGORITHMS:
        raise BadInputError(
            f"algorithm: expected auto or one of {', '.join(ALGORITHMS)} for Bayesian network {network.name}, found "
            f"{algorithm!r}"
        )
    if options.accelerate and algorithm != "em":
        raise BadInputError(f"accelerate: expected algorithm 'em', the only one it is for, found {algorithm!r}")
    for name, value in (("l2", options.l2), ("pseudo_count", options.pseudo_count)):
        if value:
            raise BadInputError(
                f"{name}: expected a Markov random field, the only kind it is for, found Bayesian network "
                f"{network.name}; give a prior instead"
            )
    return algorithm
