"""`learn`: the job from end to end.

network, data ──► plan ──► data pass ──► solve ──► assemble ──► files
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import Any

from pipeline.execution import Executor, Progress, make_executor
from pipeline.family_learning import FamilyLearning
from pipeline.graph import DataPass
from pipeline.local_learning import LocalLearning
from pipeline.markov import MarkovNetwork
from pipeline.markov_learning import MarkovLearning
from pipeline.options import make_options
from pipeline.output import check_output, write_result
from pipeline.planning import make_job
from pipeline.result import LearnResult
from pipeline.stages import Reading
from tasks.errors import BadInputError


def learn(
    network: object,
    data: object,
    *,
    algorithm: str = "auto",
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
    estimator: str = "exact",
    auxiliary: str = "exact",
    on_missing: str = "refuse",
    l2: float = 0.0,
    pseudo_count: float = 0.0,
    names: object = None,
    client: Any = None,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> LearnResult:
    """Learn the parameters of a Bayesian network or Markov random field from incomplete data, exactly.

    Parameters
    ----------
    network : path, str, pgmpy model, Network or MarkovNetwork
        The structure, with its states: a file (BIF, XMLBIF, UAI, …), an example network's name, or a pgmpy model.
    data : path, str, list, DataFrame or table
        A directory, glob, file, list or fsspec URL of Parquet, or a pandas, pyarrow or Dask DataFrame. Null is
        missing; a variable without a column, or with nothing but nulls, is hidden.
    algorithm : str
        Of a Bayesian network "em", "edml", "hybrid" (at each iteration the better of the two), "gradient" or "cg"
        (L-BFGS or conjugate gradients on softmax parameters); "auto" is "em". Of a Markov random field "lbfgs", "cg",
        "em", "edml", "ipf" and "closed-form" (both of complete data only); "auto" is "closed-form" where it applies,
        else "lbfgs".
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
        A sub-network has converged when an iteration moves no parameter by more. A Markov random field has where no
        moment (the probability of a factor's entry) differs by more between data and model.
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
    estimator : {"exact", "lap", "pseudo-likelihood"}
        Maximum likelihood; or, for Markov random fields too wide for it, from local counts alone.
    auxiliary : {"exact", "dense", "pairwise"}
        LAP's structure around a clique, see `tasks.lap.make_auxiliary`.
    on_missing : {"refuse", "em"}
        What LAP does where values are missing: refuse, or run EM inside each local problem (experimental).
    l2 : float
        Of a Markov random field: λ of a penalty λ/2 Σ η² on all log potentials η. Keeps them finite.
    pseudo_count : float
        Of a Markov random field: examples added, spread evenly over all joint states. Keeps potentials finite.
    names : path, sequence of str or "columns", optional
        What the network's variables are called in the data, in their order: a text file with a name a line, the names,
        or "columns" for the data's own columns.
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
    clock = Clock()
    options = make_options(
        algorithm=algorithm, prior=prior, damping=damping, accelerate=accelerate, restarts=restarts, seed=seed,
        tolerance=tolerance, max_iterations=max_iterations, start=start, drop_barren=drop_barren, decompose=decompose,
        l2=l2, pseudo_count=pseudo_count, estimator=estimator, auxiliary=auxiliary, on_missing=on_missing,
    )  # fmt: skip
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
        names=names,
        local=estimator != "exact",
        progress=progress,
    )
    learning: FamilyLearning | MarkovLearning | LocalLearning
    if estimator != "exact":
        learning = LocalLearning(job, executor, options, progress)
    elif isinstance(job.network, MarkovNetwork):
        learning = MarkovLearning(job, executor, options)
    else:
        learning = FamilyLearning(job, executor, options, progress)
    clock.lap("plan")
    # Compiling is no part of the work: it happens once a machine.
    executor.warm_up(*job.kernel_types, learning.kernels)
    clock.lap("compile")
    reading = Reading(job.columns, weight, tuple(job.dataset.missing_tokens))
    passed = learning.data_pass(reading)
    prepared, measured = run_pass(executor, passed, progress)
    clock.lap("count")
    rows, total_weight = measured[0][0], measured[0][1]
    if not total_weight > 0:
        raise BadInputError(f"weight column {weight!r}: all weights are zero; there is nothing to learn from")
    outcome = learning.solve(prepared, [m[2] for m in measured], passed, reading, total_weight)
    clock.lap("solve")
    records = outcome.records
    distinct = [r.distinct_rows for r in records]
    known = math.isfinite(outcome.log_likelihood)
    report: dict[str, Any] = {
        "network": job.network.name,
        "rows": rows,
        "total_weight": total_weight,
        "log_likelihood": outcome.log_likelihood if known else None,
        "log_likelihood_per_row": outcome.log_likelihood / total_weight if known else None,
        **outcome.report,
        "converged": all(r.converged for r in records),
        "not_converged": [list(r.variables) for r in records if not r.converged],
        "sub_networks": len(records),
        "instances": sum(r.instances for r in records),
        "distinct_rows": None if None in distinct else sum(d for d in distinct if d is not None),
        "parameters": job.plan.parameters,
        "always_observed": list(job.observability.always_observed),
        "partly_observed": list(job.observability.partly_observed),
        "hidden": list(job.observability.hidden),
        "ignored_columns": list(job.dataset.ignored_columns),
        "unlearnable": dict(outcome.unlearnable),
        "settings": {
            **learning.written, "restarts": options.restarts, "seed": options.seed, "tolerance": options.tolerance,
            "max_iterations": options.max_iterations, "start": start, "drop_barren": drop_barren, "weight": weight,
            "missing_tokens": list(job.dataset.missing_tokens), "decompose": decompose,
        },
        "seconds": {},
        "versions": dict(versions()),
    }  # fmt: skip
    clock.lap("assemble")
    report["seconds"] = clock.seconds
    result = LearnResult(
        outcome.learned, outcome.expected, outcome.log_likelihood, report["converged"], records, report, outcome.log_z
    )
    if path is not None:
        write_result(result, path, overwrite)
    return result


def run_pass(executor: Executor, passed: DataPass, progress: Progress | None) -> tuple[list[Any], list[Any]]:
    """Run the data pass: handles of the groups' problems, which stay where they are, and their sizes."""
    handles = executor.persist(passed.graph, [*passed.prepared, *passed.measured], progress, "read-partition")
    n = len(passed.prepared)
    return handles[:n], executor.fetch(handles[n:])


@cache
def versions() -> dict[str, str]:
    """Versions of what took part, for the report."""
    names = ["dask-pgm", "dask", "distributed", "numba", "numpy", "pgmpy", "pyarrow"]
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.began = self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """End a stage: what passed since the one before is its."""
        now = time.perf_counter()
        self.seconds[stage] = now - self.last
        self.seconds["total"] = now - self.began
        self.last = now
