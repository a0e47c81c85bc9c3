"""A Markov random field from counts to potentials: which algorithm, from which starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tasks.decomposable import CliqueTree, closed_form
from tasks.jointree import Floats
from tasks.markov_edml import run_edml
from tasks.markov_em import moment_error, run_em, run_ipf
from tasks.markov_gradient import run_gradient
from tasks.markov_graph import Graph
from tasks.markov_terms import LocalTerms, Penalty, Terms, pseudo_counts, scaled
from tasks.markov_trace import Trace

MARKOV_ALGORITHMS = ("auto", "lbfgs", "cg", "em", "edml", "ipf", "closed-form")
# Random starts have log potentials drawn from this range, on both sides of zero.
START_RANGE = 0.5


@dataclass(frozen=True)
class MarkovSettings:
    """How a Markov random field is learned.

    Attributes
    ----------
    algorithm : str
        One of `MARKOV_ALGORITHMS`, but "auto".
    penalty : Penalty
        What keeps potentials finite.
    seed, restarts : int
        Random starts are a function of seed, restart and factor alone.
    tolerance : float
        Largest difference of a moment between data and model that counts as converged, as a share of the examples.
    max_iterations : int
        Updates after which a start is given up as not converged.
    damping : float
        Share of the old log potentials that EDML keeps at first.
    warm : int
        Iterations of EM with which L-BFGS and CG begin.
    """

    algorithm: str
    penalty: Penalty = field(default_factory=Penalty)
    seed: int = 0
    restarts: int = 1
    tolerance: float = 1e-5
    max_iterations: int = 1000
    damping: float = 0.5
    warm: int = 3


@dataclass(frozen=True)
class MarkovSolution:
    """A learned Markov random field.

    Attributes
    ----------
    eta : float64 array, shape (n_parameters,)
        Log potentials, each factor's largest being zero; minus infinity where a potential is zero.
    log_z : float
        Log partition function of these, nats.
    expected : float64 array, shape (n_parameters,)
        Expected counts, pseudo counts not included.
    marginals : float64 array, shape (n_parameters,)
        Pr(x_f) under the model.
    log_likelihood, objective : float64 arrays, shape (iterations + 1,)
        Nats, at the start and after each iteration; of the data, and with penalty and pseudo counts.
    evaluations : int
        Evaluations of both terms.
    converged : bool
        The moments agree within the tolerance.
    moment_error : float
        Largest difference between a moment of the data and of the model, as a share of the examples.
    restart : int
        Which start this came from.
    restarts : tuple of float
        The final objective of every start.
    """

    eta: Floats
    log_z: float
    expected: Floats
    marginals: Floats
    log_likelihood: Floats
    objective: Floats
    evaluations: int
    converged: bool
    moment_error: float
    restart: int
    restarts: tuple[float, ...]

    @property
    def iterations(self) -> int:
        """Updates made by the start that won."""
        return len(self.objective) - 1


def random_potentials(graph: Graph, seed: int, restart: int) -> Floats:
    """Initial log potentials: each factor's a function of (seed, restart, its number) alone."""
    eta = np.empty(graph.n_parameters)
    for f in range(len(graph.scopes)):
        lo, hi = int(graph.bases[f]), int(graph.bases[f + 1])
        key = np.random.SeedSequence([seed, restart, f])
        eta[lo:hi] = np.random.Generator(np.random.PCG64(key)).uniform(-START_RANGE, START_RANGE, hi - lo)
    return eta


def solve_markov(
    terms: Terms, settings: MarkovSettings, start: Floats | None, tree: CliqueTree | None
) -> MarkovSolution:
    """Learn log potentials.

    Parameters
    ----------
    terms : Terms
        The problem; `LocalTerms` without data terms for ipf and the closed form.
    settings : MarkovSettings
        How.
    start : float64 array, shape (n_parameters,), optional
        Log potentials of the first start in place of random ones.
    tree : CliqueTree or None
        For the closed form.

    Raises
    ------
    ImpossibleDataError
        A start gives some row probability zero.
    """
    best: Trace | None = None
    ends, which = [], 0
    for restart in range(settings.restarts):
        first = start if start is not None and restart == 0 else random_potentials(terms.graph, settings.seed, restart)
        trace = _run(terms, settings, first, tree)
        ends.append(trace.last.objective)
        if best is None or trace.last.objective > best.last.objective:
            best, which = trace, restart
    assert best is not None
    point = best.last
    # Of all potentials that mean the same, those with a maximum of one in each factor.
    _, tops = scaled(point.eta, terms.graph.bases)
    return MarkovSolution(
        eta=point.eta - np.repeat(tops, np.diff(terms.graph.bases)),
        log_z=point.log_z - math.fsum(tops.tolist()),
        expected=point.expected,
        marginals=point.marginals,
        log_likelihood=np.array(best.log_likelihood),
        objective=np.array(best.objective),
        evaluations=best.evaluations,
        converged=best.converged,
        moment_error=moment_error(terms, point),
        restart=which,
        restarts=tuple(ends),
    )


def _run(terms: Terms, settings: MarkovSettings, start: Floats, tree: CliqueTree | None) -> Trace:
    tolerance, limit = settings.tolerance, settings.max_iterations
    if settings.algorithm == "closed-form":
        assert tree is not None
        pseudo = terms.penalty.pseudo_count
        counts = terms.complete + pseudo_counts(terms.graph, pseudo)
        trace = Trace(terms.evaluate(closed_form(terms.graph, tree, counts, terms.n_examples + pseudo)))
        trace.converged = True
        return trace
    if settings.algorithm == "ipf":
        assert isinstance(terms, LocalTerms)
        return run_ipf(terms, start, tolerance, limit)
    run: dict[str, Callable[[], Trace]] = {
        "lbfgs": lambda: run_gradient(terms, start, tolerance, limit, "lbfgs", settings.warm),
        "cg": lambda: run_gradient(terms, start, tolerance, limit, "cg", settings.warm),
        "em": lambda: run_em(terms, start, tolerance, limit),
        "edml": lambda: run_edml(terms, start, tolerance, limit, settings.damping),
    }
    return run[settings.algorithm]()
