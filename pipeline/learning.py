"""`learn`: the job from end to end.

network, data ──► plan ──► data pass ──► solve ──► assemble ──► files
"""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.execution import Executor, Progress, make_executor
from pipeline.graph import DataPass, data_pass
from pipeline.impossible import in_words
from pipeline.network import Network
from pipeline.output import check_output, write_result
from pipeline.planning import make_job
from pipeline.priors import check_exponent, make_prior, own_prior
from pipeline.result import LearnResult, assemble, spread_of_optima
from pipeline.solving import solve_all
from pipeline.stages import Reading
from tasks.errors import BadInputError, ImpossibleDataError
from tasks.solving import ALGORITHMS, Settings, Size
from tasks.subnetwork import SubNetwork


def learn(
    network: object,
    data: object,
    *,
    algorithm: str = "em",
    prior: float | Mapping[str, Any] | str | os.PathLike[str] = 1.0,
    damping: float = 0.5,
    accelerate: bool = False,
    restarts: int = 1,
    seed: int = 0,
    tolerance: float = 1e-5,
    max_iterations: int = 1000,
    start: str = "random",
    drop_barren: bool = True,
    weight: str | None = None,
    missing_tokens: Sequence[str] = (),
    decompose: bool = True,
    client: Any = None,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> LearnResult:
    """Learn a Bayesian network's parameters from incomplete data, exactly, by decomposed EM or one of its relatives.

    Parameters
    ----------
    network : path, str, pgmpy model or Network
        The structure, with its states: a file (BIF, XMLBIF, …), an example network's name, or a pgmpy model.
    data : path, str, list, DataFrame or table
        A directory, glob, file, list or fsspec URL of Parquet, or a pandas, pyarrow or Dask DataFrame. Null is
        missing; a variable without a column, or with nothing but nulls, is hidden.
    algorithm : {"em", "edml", "hybrid", "gradient", "cg"}
        EM; EDML; at each iteration the better of the two; L-BFGS or conjugate gradients on softmax parameters.
    prior : float, mapping or path
        Dirichlet exponents, at least 1: 1 is maximum likelihood, 2 Laplace smoothing. One for every parameter; or by
        variable a number, or exponents in the shape of its states or of its table, other variables' being 1; or a
        file, see `pipeline.priors`.
    damping : float
        Of EDML's and the hybrid's updates, the share of the old parameters kept at first: from 0 to below 1.
    accelerate : bool
        EM with quasi-Newton steps in between, kept only where they gain what EM is sure to gain: a few times to a
        hundred times fewer iterations where EM is slow.
    restarts : int
        Random starts, by sub-network; the best is kept.
    seed : int
        Of the random starts.
    tolerance : float
        A sub-network has converged when an iteration moves no parameter by more.
    max_iterations : int
        Iterations after which a sub-network is given up as not converged. One is an inference for each instance; for
        the gradient algorithms at least one.
    start : {"random", "network"}
        Where the first start begins: at random parameters or at the network's own.
    drop_barren : bool
        Leave out, row by row, missing variables without an observed descendant. Same stationary points, fewer
        iterations; False is textbook EM.
    weight : str, optional
        Column that says how many examples a row stands for.
    missing_tokens : sequence of str
        Values that mean missing, besides null.
    decompose : bool
        False solves the whole network as one problem, one inference a distinct row: the reference.
    client : distributed.Client, optional
        Cluster to run on; without one the job runs on threads of this process.
    output : path, optional
        Directory to write; it appears whole or not at all.
    overwrite : bool
        Replace an earlier output.
    progress : callable, optional
        Called with (stage, done, total).

    Returns
    -------
    LearnResult

    Raises
    ------
    BadInputError
        Network, data or a setting are not what they have to be; nothing was written.
    ImpossibleDataError
        The given start makes some rows impossible.
    TooLargeError
        The job cannot fit into memory.

    References
    ----------
    Refaat (2015), *Decomposition Techniques for Learning Graphical Models*, sections 2.3.1 and 6.2.
    """
    clock = _Clock()
    # What can be refused before anything is opened is; a file or mapping needs the network.
    if isinstance(prior, bool | int | float | np.number):
        prior = check_exponent("prior", prior)
    tolerance, seed, restarts, max_iterations = _check_settings(tolerance, seed, restarts, max_iterations)
    damping = _check_algorithm(algorithm, damping, accelerate)
    if start not in ("random", "network"):
        raise BadInputError(f"start: expected 'random' or 'network', found {start!r}")
    path = None if output is None else check_output(output, overwrite)
    executor = make_executor(client)
    job = make_job(
        network,
        data,
        weight,
        missing_tokens,
        decompose=decompose,
        drop_barren=drop_barren,
        executor=executor,
        progress=progress,
    )
    exponents = make_prior(prior, job.network)
    settings = Settings(
        exponents.default,
        seed,
        restarts,
        tolerance,
        max_iterations,
        executor.allowed_bytes,
        algorithm,
        damping,
        accelerate,
    )
    priors = [own_prior(exponents, job.network, s) for s in job.decomposition.sub_networks]
    starts = None
    if start == "network":
        starts = [start_parameters(job.network, s) for s in job.decomposition.sub_networks]
    clock.lap("plan")
    # Compiling is no part of the work: it happens once a machine.
    executor.warm_up(*job.kernel_types, settings.kernels)
    clock.lap("compile")
    reading = Reading(job.columns, weight, tuple(job.dataset.missing_tokens))
    passed = data_pass(
        job.dataset,
        reading,
        job.decomposition.sub_networks,
        job.groups,
        drop_barren,
        not decompose,
        executor.allowed_bytes,
    )
    prepared, measured = run_pass(executor, passed, progress)
    clock.lap("count")
    rows, total_weight = measured[0][0], measured[0][1]
    if not total_weight > 0:
        raise BadInputError(f"weight column {weight!r}: all weights are zero; there is nothing to learn from")
    by_group = [m[2] for m in measured]
    try:
        solved = solve_all(
            executor, prepared, by_group, passed.members, settings, starts, priors, uuid.uuid4().hex, progress
        )
    except ImpossibleDataError as error:
        if start == "network":
            parameters = f"the start, network {job.network.name}'s own parameters"
            remedy = "mend the zeros in its tables or the data, or start at random"
        else:
            parameters, remedy = "a random start", "try another seed"
        raise in_words(error, job, reading, parameters, remedy) from None
    clock.lap("solve")
    sizes: dict[int, Size] = {
        k: size for m, g in zip(passed.members, by_group, strict=True) for k, size in zip(m, g, strict=True)
    }
    learned, expected, records, unlearnable = assemble(job, solved, [sizes[k] for k in range(len(sizes))])
    log_likelihood = math.fsum(r.log_likelihood for r in records)
    distinct = [r.distinct_rows for r in records]
    report: dict[str, Any] = {
        "network": job.network.name,
        "rows": rows,
        "total_weight": total_weight,
        "log_likelihood": log_likelihood,
        "log_likelihood_per_row": log_likelihood / total_weight,
        "log_posterior": math.fsum(r.log_posterior for r in records),
        "converged": all(r.converged for r in records),
        "not_converged": [list(r.variables) for r in records if not r.converged],
        "iterations": max((r.iterations for r in records), default=0),
        "restarts": spread_of_optima(records),
        "sub_networks": len(records),
        "instances": sum(r.instances for r in records),
        "distinct_rows": None if None in distinct else sum(d for d in distinct if d is not None),
        "parameters": job.plan.parameters,
        "always_observed": list(job.observability.always_observed),
        "partly_observed": list(job.observability.partly_observed),
        "hidden": list(job.observability.hidden),
        "ignored_columns": list(job.dataset.ignored_columns),
        "unlearnable": unlearnable,
        "settings": {
            "algorithm": algorithm, "prior": exponents.written, "damping": damping, "accelerate": accelerate,
            "restarts": restarts, "seed": seed, "tolerance": tolerance,
            "max_iterations": max_iterations, "start": start, "drop_barren": drop_barren, "weight": weight,
            "missing_tokens": list(job.dataset.missing_tokens), "decompose": decompose,
        },
        "seconds": {},
        "versions": dict(_versions()),
    }  # fmt: skip
    clock.lap("assemble")
    report["seconds"] = clock.seconds
    result = LearnResult(learned, expected, log_likelihood, report["converged"], records, report)
    if path is not None:
        write_result(result, path, overwrite)
    return result


def run_pass(executor: Executor, passed: DataPass, progress: Progress | None) -> tuple[list[Any], list[Any]]:
    """Run the data pass: handles of the groups' problems, which stay where they are, and their sizes."""
    handles = executor.persist(passed.graph, [*passed.prepared, *passed.measured], progress, "read-partition")
    n = len(passed.prepared)
    return handles[:n], executor.fetch(handles[n:])


def start_parameters(network: Network, sub_network: SubNetwork) -> NDArray[np.float64]:
    """The network's own parameters in a sub-network's layout; rows rounded in print are made to sum to one."""
    number = {v: i for i, v in enumerate(network.variables)}
    parts = []
    for name in sub_network.component:
        table = network.tables[number[name]]
        if table is None:
            raise BadInputError(
                f"network {network.name} has no table for {name!r}: give a network with parameters, or start at random"
            )
        parts.append((table / table.sum(axis=-1, keepdims=True)).ravel())
    return np.concatenate(parts)


def _check_algorithm(algorithm: str, damping: float, accelerate: bool) -> float:
    if algorithm not in ALGORITHMS:
        raise BadInputError(f"algorithm: expected one of {', '.join(ALGORITHMS)}, found {algorithm!r}")
    if not isinstance(accelerate, bool):
        raise BadInputError(f"accelerate: expected True or False, found {accelerate!r}")
    if accelerate and algorithm != "em":
        raise BadInputError(f"accelerate: expected algorithm 'em', the only one it is for, found {algorithm!r}")
    return _number("damping", damping, 0.0, np.nextafter(1.0, 0.0), "a number from 0 to below 1")


def _check_settings(tolerance: float, seed: int, restarts: int, max_iterations: int) -> tuple[float, int, int, int]:
    return (
        _number("tolerance", tolerance, 0.0, 1.0, "a number from 0 to 1"),
        _whole("seed", seed, 0, 2**63),
        _whole("restarts", restarts, 1, 10**6),
        _whole("max_iterations", max_iterations, 1, 10**9),
    )


def _number(name: str, value: Any, least: float, most: float, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not least <= value <= most:
        raise BadInputError(f"{name}: expected {expected}, found {value!r}")
    return float(value)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise BadInputError(f"{name}: expected a whole number from {least} to {most}, found {value!r}")
    return int(value)


@cache
def _versions() -> dict[str, str]:
    names = ["dask-pgm", "dask", "distributed", "numba", "numpy", "pgmpy", "pyarrow"]
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.began = self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self.last
        self.seconds["total"] = now - self.began
        self.last = now
