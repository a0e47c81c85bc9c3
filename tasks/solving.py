"""One sub-network from counts to parameters: closed form or an iterative algorithm, from seeded starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.elimination import compile_programs
from tasks.em import (
    IMPOSSIBLE_FAMILY,
    IMPOSSIBLE_INSTANCE,
    Floats,
    Solution,
    best_of,
    closed_form,
    expected_counts,
    explain,
    log_terms,
    run_em,
)
from tasks.inference import Evidence, block_size, make_evidence
from tasks.projection import Counts
from tasks.subnetwork import SubNetwork

ALGORITHMS = ("em", "edml", "hybrid", "gradient", "cg")


@dataclass(frozen=True)
class Settings:
    """How sub-networks are solved.

    Attributes
    ----------
    prior : float
        Dirichlet exponent of every parameter without one of its own; 1 is maximum likelihood (equation 2.1).
    seed, restarts : int
        Random starts are a function of seed, restart and variable name alone.
    tolerance : float
        Largest change of a parameter that counts as converged.
    max_iterations : int
        Updates after which a start is given up as not converged.
    allowed_bytes : int
        Memory that elimination programs may take.
    algorithm : str
        One of `ALGORITHMS`; what is complete is counted, whichever.
    damping : float
        Share of the old parameters that EDML's and the hybrid's updates keep at first: from 0 to below 1.
    accelerate : bool
        EM with guarded quasi-Newton steps.
    """

    prior: float = 1.0
    seed: int = 0
    restarts: int = 1
    tolerance: float = 1e-5
    max_iterations: int = 1000
    allowed_bytes: int = 1 << 33
    algorithm: str = "em"
    damping: float = 0.5
    accelerate: bool = False

    @property
    def kernels(self) -> str:
        """Which kernels the algorithm runs, as `tasks.warmup.warm_up` names them."""
        if self.algorithm in ("edml", "hybrid"):
            return "edml"
        return "accelerate" if self.accelerate else "em"

    @property
    def can_split(self) -> bool:
        """Whether a giant sub-network may be split over workers: plain EM alone can be."""
        return self.algorithm == "em" and not self.accelerate


@dataclass(frozen=True)
class Problem:
    """A sub-network with its counts, ready to be solved.

    Attributes
    ----------
    sub_network : SubNetwork
        The learning problem.
    counts : Counts
        Its data.
    evidence : Evidence or None
        Instances with their programs; None where the sub-network is complete.
    """

    sub_network: SubNetwork
    counts: Counts
    evidence: Evidence | None


@dataclass(frozen=True)
class Size:
    """How large a problem turned out: all that the driver needs to share out the work.

    Attributes
    ----------
    instances, signatures : int
        Rows of the instance table and kinds of hidden component; 0 where complete.
    distinct_rows : int or None
        Distinct projected rows, where they were formed.
    weight : float
        Examples that the instances stand for.
    work : float
        Multiplications of one iteration: about as many nanoseconds.
    n_bytes : int
        Memory the problem takes.
    """

    instances: int
    signatures: int
    distinct_rows: int | None
    weight: float
    work: float
    n_bytes: int


def prepare(sub_network: SubNetwork, counts: Counts, allowed_bytes: int) -> Problem:
    """Compile the elimination programs of a sub-network's instances."""
    if counts.instances is None:
        return Problem(sub_network, counts, None)
    programs = compile_programs(sub_network, counts.instances, allowed_bytes)
    return Problem(sub_network, counts, make_evidence(sub_network, counts.instances, programs))


def measure(problem: Problem, by_row: bool) -> Size:
    """The size of a problem."""
    table, evidence = problem.counts.instances, problem.evidence
    if table is None or evidence is None:
        distinct = int(np.count_nonzero(problem.counts.complete)) if len(problem.sub_network.component) == 1 else None
        return Size(0, 0, distinct, 0.0, float(problem.sub_network.n_parameters), problem.counts.complete.nbytes)
    work = float((evidence.programs.work()[evidence.signature]).sum()) + 4.0 * problem.sub_network.n_parameters
    n_bytes = table.nbytes + evidence.offsets.nbytes + evidence.programs.nbytes + problem.counts.complete.nbytes
    distinct_rows = len(table) if by_row else None
    return Size(len(table), table.n_signatures, distinct_rows, float(table.counts.sum()), work, n_bytes)


def random_start(sub_network: SubNetwork, seed: int, restart: int) -> Floats:
    """Initial parameters, each family's uniform on the simplex.

    A function of (seed, restart, variable name) alone: the whole network and its sub-networks start alike.
    """
    theta = np.empty(sub_network.n_parameters)
    for f, name in enumerate(sub_network.component):
        lo, hi = int(sub_network.bases[f]), int(sub_network.bases[f + 1])
        key = np.random.SeedSequence([seed, restart, *name.encode()])
        # Normalised exponentials are uniform on the simplex; 1 - u is never zero.
        draws = -np.log(1.0 - np.random.Generator(np.random.PCG64(key)).random(hi - lo))
        table = draws.reshape(-1, int(sub_network.family_cardinalities[f]))
        theta[lo:hi] = (table / table.sum(axis=1, keepdims=True)).ravel()
    return theta


def run_algorithm(
    settings: Settings,
    sub_network: SubNetwork,
    complete: Floats,
    evidence: Evidence,
    prior: Floats,
    start: Floats,
) -> tuple[Solution, int, int]:
    """One start by the algorithm that the settings name; as `tasks.em.run_em`."""
    n, tolerance, limit = sub_network, settings.tolerance, settings.max_iterations
    # Each is imported on first use: who runs EM pays for neither scipy nor the other kernels.
    if settings.algorithm in ("edml", "hybrid"):
        from tasks.edml import run_edml

        hybrid = settings.algorithm == "hybrid"
        return run_edml(n, complete, evidence, prior, start, tolerance, limit, settings.damping, hybrid)
    if settings.algorithm in ("gradient", "cg"):
        from tasks.gradient import run_gradient

        method = "cg" if settings.algorithm == "cg" else "lbfgs"
        return run_gradient(n, complete, evidence, prior, start, tolerance, limit, method)
    assert settings.algorithm == "em"
    if settings.accelerate:
        from tasks.accelerate import run_accelerated_em

        return run_accelerated_em(n, complete, evidence, prior, start, tolerance, limit)
    return run_em(n, complete, evidence, prior, start, tolerance, limit)


def solve(
    problem: Problem,
    settings: Settings,
    start: NDArray[np.float64] | None = None,
    prior: NDArray[np.float64] | None = None,
) -> Solution:
    """Learn a sub-network's parameters.

    Parameters
    ----------
    problem : Problem
        From `prepare`.
    settings : Settings
        Prior, starts, when to stop.
    start : float64 array, shape (n_parameters,), optional
        Parameters of the first start in place of random ones.
    prior : float64 array, shape (n_parameters,), optional
        Pseudo counts, Dirichlet exponents minus one, in place of the settings' one exponent.

    Returns
    -------
    Solution
        The best start's.

    Raises
    ------
    ImpossibleDataError
        A start gives some row probability zero.
    LikelihoodFellError
        The log posterior fell: a bug.
    """
    n = problem.sub_network
    complete = problem.counts.complete.astype(np.float64)
    pseudo = np.full(n.n_parameters, settings.prior - 1.0) if prior is None else prior
    evidence, table = problem.evidence, problem.counts.instances
    if start is not None:
        # No start matters where counting is all; one that cannot have made the data is a slip all the same.
        evaluate(problem, start)
    if evidence is None or table is None or len(table) == 0:
        return closed_form(n, complete, pseudo)

    def run(restart: int) -> tuple[Solution, int, int]:
        theta = start if start is not None and restart == 0 else random_start(n, settings.seed, restart)
        return run_algorithm(settings, n, complete, evidence, pseudo, theta)

    def describe(instance: int) -> tuple[tuple[str, ...], dict[str, int]]:
        return table.describe(instance, n)

    return best_of(settings.restarts, run, lambda status, where, s: explain(n, describe, status, where, s))


def evaluate(problem: Problem, theta: NDArray[np.float64]) -> float:
    """Log likelihood of a problem's data under given parameters, nats.

    Raises
    ------
    ImpossibleDataError
        Some rows have probability zero.
    """
    n, table, evidence = problem.sub_network, problem.counts.instances, problem.evidence

    def describe(instance: int) -> tuple[tuple[str, ...], dict[str, int]]:
        assert table is not None
        return table.describe(instance, n)

    total, impossible = log_terms(problem.counts.complete.astype(np.float64), theta)
    if impossible >= 0:
        raise explain(n, describe, IMPOSSIBLE_FAMILY, impossible)
    if evidence is None or table is None or len(table) == 0:
        return float(total)
    _, log_likelihood, impossible = expected_counts(evidence, theta, block_size(len(table), len(theta)))
    if impossible >= 0:
        raise explain(n, describe, IMPOSSIBLE_INSTANCE, impossible)
    return float(total) + log_likelihood
