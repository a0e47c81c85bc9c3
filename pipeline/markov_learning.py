"""Learn a Markov random field: the data terms where the counts lie, the model term beside them, one optimiser.

Where an iteration costs less than sending it round, everything goes to one worker and the whole run is one task.
Otherwise the optimiser sits here: an iteration sends the potentials to the workers, each evaluates its sub-networks'
data terms, one of them the model term, and the expected counts come back. Both ways make the same additions in the same
order. A worker that is lost takes nothing with it that its tasks' graph cannot make again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.execution import Executor
from pipeline.graph import DataPass, data_pass
from pipeline.impossible import in_words
from pipeline.markov import MarkovNetwork
from pipeline.markov_stages import (
    FieldTask,
    evaluate_model,
    evaluate_terms,
    field_terms,
    match_model,
    prepare_model,
    solve_field,
    solve_terms,
)
from pipeline.options import Options
from pipeline.outcome import Outcome
from pipeline.planning import Job
from pipeline.result import SubNetworkResult
from pipeline.stages import Reading
from tasks.errors import BadInputError, ImpossibleDataError
from tasks.jointree import Floats
from tasks.markov_graph import Graph
from tasks.markov_solving import MARKOV_ALGORITHMS, MarkovSettings, MarkovSolution, solve_markov
from tasks.markov_terms import Penalty, Point, combine, pseudo_counts, scaled
from tasks.solving import Size

# An entry with fewer expected examples has, as far as can be told, none: its potential runs to minus infinity.
FEW = 1e-2
# Positive potentials of a factor may be this far apart, nats: inference has its factors scaled to a maximum of one.
WIDEST = 700.0
NEEDS_COMPLETE = ("closed-form", "ipf")
NO_PENALTY = ("closed-form", "ipf", "edml")


def choose_algorithm(job: Job, algorithm: str, penalty: Penalty) -> str:
    """The algorithm for a job, "auto" resolved.

    Raises
    ------
    BadInputError
        It cannot solve this problem; the message says which can.
    """
    assert isinstance(job.network, MarkovNetwork)
    where = f"algorithm {algorithm!r}"
    if algorithm not in MARKOV_ALGORITHMS:
        raise BadInputError(
            f"algorithm: expected one of {', '.join(MARKOV_ALGORITHMS)} for Markov random field {job.network.name}, "
            f"found {algorithm!r}"
        )
    missing = [*job.observability.partly_observed, *job.observability.hidden]
    if algorithm == "auto":
        return "closed-form" if not missing and job.clique_tree is not None and not penalty.l2 else "lbfgs"
    if algorithm in NEEDS_COMPLETE and missing:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        raise BadInputError(
            f"{where}: expected complete data, found values missing of {shown}; use em, whose M-step is ipf's, or auto"
        )
    if algorithm == "closed-form" and job.clique_tree is None:
        raise BadInputError(
            f"{where}: expected a decomposable graph, one whose factors' largest scopes form a jointree, found that "
            f"network {job.network.name} is none; use ipf, lbfgs or auto"
        )
    if penalty.l2 and algorithm in NO_PENALTY:
        raise BadInputError(f"{where} takes no l2 penalty; use lbfgs, cg or em, or a pseudo count in its place")
    return algorithm


@dataclass(frozen=True)
class FieldResult:
    """A solution with what the report adds.

    Attributes
    ----------
    solution : MarkovSolution
        Of the winning start.
    algorithm : str
        What ran.
    data_terms : tuple of float
        Each sub-network's part of the data term at the solution, nats.
    together : bool
        Solved by one task, not iterated over the workers.
    seconds : float
        Time it took.
    """

    solution: MarkovSolution
    algorithm: str
    data_terms: tuple[float, ...]
    together: bool
    seconds: float


def learn_field(
    executor: Executor,
    job: Job,
    prepared: Sequence[Any],
    sizes: Sequence[Sequence[Size]],
    members: Sequence[Sequence[int]],
    n_examples: float,
    settings: MarkovSettings,
    start: NDArray[np.float64] | None,
) -> FieldResult:
    """Solve a Markov random field from its prepared data terms.

    Parameters
    ----------
    executor : Executor
        Where.
    job : Job
        The network with its plan.
    prepared : sequence of handles
        Each group's `Prepared`.
    sizes : sequence of sequences of Size
        By group and position.
    members : sequence of sequences of int
        The sub-network that each position of each group is.
    n_examples : float
        Rows, or the sum of their weights.
    settings : MarkovSettings
        How.
    start : float64 array, shape (n_parameters,), optional
        Log potentials of the first start.
    """
    began = time.perf_counter()
    assert isinstance(job.network, MarkovNetwork)
    assert job.elimination is not None
    numbers = {f: k for k, f in enumerate(job.network.learnable)}
    task = FieldTask(
        job.network.graph, job.elimination, numbers, n_examples, settings, job.clique_tree, executor.allowed_bytes
    )
    work = sum(size.work for group in sizes for size in group if size.instances)
    # Spread out, an iteration is a message to every worker and back.
    apart = (
        executor.n_threads > 1
        and 1e-9 * work * (1 - 1 / executor.n_threads) > 2 * executor.overhead * executor.n_threads
    )
    if not apart:
        ((solution, by_group),) = executor.collect(solve_field, [(list(prepared), task, start)])
    else:
        terms = RemoteTerms(executor, prepared, task, members)
        solution = solve_markov(terms, settings, start, job.clique_tree)
        by_group = terms.data_values(solution.eta)
    values = {k: v for m, group in zip(members, by_group, strict=True) for k, v in zip(m, group, strict=True)}
    return FieldResult(
        solution,
        settings.algorithm,
        tuple(values[k] for k in range(len(values))),
        not apart,
        time.perf_counter() - began,
    )


class MarkovLearning:
    """A Markov random field's learning, from checked settings to an outcome.

    Parameters
    ----------
    job : Job
        Of a `MarkovNetwork`.
    executor : Executor
        Where.
    options : Options
        How.

    Raises
    ------
    BadInputError
        Settings that do not fit together, this network or these data.
    """

    kernels = "markov"

    def __init__(self, job: Job, executor: Executor, options: Options) -> None:
        assert isinstance(job.network, MarkovNetwork)
        self.job, self.executor, self.network, self.options = job, executor, job.network, options
        if options.accelerate:
            raise BadInputError("accelerate: expected a Bayesian network, the only kind it is for; lbfgs is fast here")
        if not options.drop_barren:
            raise BadInputError("drop_barren: expected a Bayesian network: an undirected one has no barren variables")
        if options.prior != 1.0:
            raise BadInputError(
                f"prior: expected a Bayesian network, the only kind it is for, found Markov random field "
                f"{self.network.name}; use a pseudo count or l2"
            )
        penalty = Penalty(options.pseudo_count, options.l2)
        algorithm = choose_algorithm(job, options.algorithm, penalty)
        self.settings = MarkovSettings(
            algorithm,
            penalty,
            options.seed,
            options.restarts,
            options.tolerance,
            options.max_iterations,
            options.damping,
        )
        self.start = start_potentials(self.network) if options.start == "network" else None
        self.written: Mapping[str, Any] = {
            "algorithm": algorithm, "l2": options.l2, "pseudo_count": options.pseudo_count, "damping": options.damping,
        }  # fmt: skip

    def data_pass(self, reading: Reading) -> DataPass:
        """Wire the data pass."""
        return data_pass(
            self.job.dataset,
            reading,
            self.job.decomposition.sub_networks,
            self.job.groups,
            self.options.drop_barren,
            not self.options.decompose,
            self.executor.allowed_bytes,
        )

    def solve(
        self,
        prepared: Sequence[Any],
        sizes: Sequence[Sequence[Size]],
        passed: DataPass,
        reading: Reading,
        weight: float,
    ) -> Outcome:
        """Solve the whole; parameters as `pipeline.family_learning.FamilyLearning.solve` has them."""
        try:
            found = learn_field(
                self.executor, self.job, prepared, sizes, passed.members, weight, self.settings, self.start
            )
        except ImpossibleDataError as error:
            if not error.codes:
                raise
            parameters = f"the start, network {self.network.name}'s own potentials"
            remedy = "mend the zeros in its tables or the data, or start at random"
            raise in_words(error, self.job, reading, parameters, remedy) from None
        by_number = {k: s for m, g in zip(passed.members, sizes, strict=True) for k, s in zip(m, g, strict=True)}
        return self._outcome(found, by_number)

    def _outcome(self, found: FieldResult, sizes: Mapping[int, Size]) -> Outcome:
        solution, graph = found.solution, self.network.graph
        tables: list[NDArray[np.float64]] = [np.ones(()) for _ in self.network.scopes]
        expected: list[NDArray[np.float64] | None] = [None] * len(tables)
        unbounded = {}
        bounded = self.settings.penalty.l2 or self.settings.penalty.pseudo_count
        for k, f in enumerate(self.network.learnable):
            own = slice(int(graph.bases[k]), int(graph.bases[k + 1]))
            shape = self.network.shapes[f]
            tables[f] = np.exp(solution.eta[own]).reshape(shape)
            expected[f] = solution.expected[own].reshape(shape)
            without = int((solution.expected[own] < FEW).sum())
            if without and not bounded:
                unbounded[self.network.describe(f)] = without
        learned = replace(self.network, tables=tuple(tables))
        records = tuple(
            SubNetworkResult(
                variables=s.component,
                boundary=s.boundary,
                distinct_rows=sizes[k].distinct_rows,
                instances=sizes[k].instances,
                iterations=solution.iterations,
                converged=solution.converged,
                log_likelihood=found.data_terms[k],
                log_posterior=found.data_terms[k],
                history=(),
                restarts=(),
                seconds=0.0,
            )
            for k, s in enumerate(self.job.decomposition.sub_networks)
        )
        ends = sorted(solution.restarts)
        report = {
            "log_z": solution.log_z,
            "data_term": math.fsum(found.data_terms),
            "objective": float(solution.objective[-1]),
            "iterations": solution.iterations,
            "evaluations": solution.evaluations,
            "moment_error": solution.moment_error,
            "treewidth": self.job.elimination.treewidth if self.job.elimination else None,
            "history": solution.log_likelihood.tolist(),
            "restarts": {"best": ends[-1], "worst": ends[0], "all": list(solution.restarts)},
            "together": found.together,
            "unbounded": unbounded,
        }
        log_likelihood = float(solution.log_likelihood[-1])
        return Outcome(learned, tuple(expected), log_likelihood, records, {}, report, solution.log_z)


def start_potentials(
    network: MarkovNetwork, need: str = "give a network with potentials, or start at random"
) -> NDArray[np.float64]:
    """The network's own log potentials, shape (n_parameters,).

    Raises
    ------
    BadInputError
        It has none; the message ends with what is needed. Or one whose positive entries are too far apart for a double.
    """
    parts = []
    for f in network.learnable:
        table = network.tables[f]
        if table is None:
            raise BadInputError(f"network {network.name} has no table for {network.describe(f)}: {need}")
        with np.errstate(divide="ignore"):
            logs = np.log(table).ravel()
        positive = logs[logs > -np.inf]
        if np.ptp(positive) > WIDEST:
            raise BadInputError(
                f"network {network.name}: the table of {network.describe(f)} has positive entries from "
                f"{float(table[table > 0].min())!r} to {float(table.max())!r}, expected none below 1e-304 of the "
                "largest: next to it they cannot be told from zero; write zero, or scale the table"
            )
        parts.append(logs)
    return np.concatenate(parts)


class RemoteTerms:
    """The terms evaluated by the workers that hold the counts; see `tasks.markov_terms.Terms`."""

    def __init__(
        self, executor: Executor, prepared: Sequence[Any], task: FieldTask, members: Sequence[Sequence[int]]
    ) -> None:
        self.executor, self.members, self.task = executor, members, task
        self.graph: Graph = task.graph
        self.n_examples = task.n_examples
        self.penalty: Penalty = task.settings.penalty
        (self.model,) = executor.persist({"model-term": (prepare_model, task)}, ["model-term"])
        graph = {("data-term", g): (field_terms, handle, task) for g, handle in enumerate(prepared)}
        self.terms = executor.persist(graph, list(graph))
        layout = executor.collect(_layout, [(handle,) for handle in self.terms])
        self.places = [[place for place, _ in group] for group in layout]
        self.complete: Floats = np.zeros(self.graph.n_parameters)
        for group in layout:
            for place, complete in group:
                self.complete[place] = complete

    def _data(self, theta: Floats, also_model: bool) -> tuple[float, Floats, float, Floats]:
        calls: list[tuple[Any, ...]] = [(handle, theta) for handle in self.terms]
        if also_model:
            calls.append((self.model, theta))
        results = self.executor.collect(_evaluate, calls)
        log_z, marginals = results.pop() if also_model else (0.0, theta)
        expected = np.zeros(len(theta))
        # By sub-network, as one task would add them, whichever group each is in.
        parts: dict[int, float] = {}
        for m, places, group in zip(self.members, self.places, results, strict=True):
            for k, place, (value, counts) in zip(m, places, group, strict=True):
                parts[k] = value
                expected[place] = counts
        return math.fsum(parts.values()), expected, log_z, marginals

    def evaluate(self, eta: Floats) -> Point:
        """See `Terms.evaluate`."""
        theta, tops = scaled(eta, self.graph.bases)
        instances, expected, log_z, marginals = self._data(theta, also_model=True)
        return combine(self, eta, tops, instances, expected, log_z, marginals)

    def match(self, eta: Floats, targets: Floats, tolerance: float) -> Floats:
        """See `Terms.match`."""
        (new,) = self.executor.collect(match_model, [(self.model, self.task, eta, targets, tolerance)])
        return np.asarray(new, np.float64)

    def vote(self, eta: Floats) -> tuple[Point, Floats]:
        """See `Terms.vote`."""
        point = self.evaluate(eta)
        theta, _ = scaled(eta, self.graph.bases)
        moments = (self.n_examples + self.penalty.pseudo_count) * point.marginals
        weights = self.complete + pseudo_counts(self.graph, self.penalty.pseudo_count)
        ratio = np.zeros(len(eta))
        solved = self.executor.collect(solve_terms, [(handle, theta, weights, moments) for handle in self.terms])
        for places, group in zip(self.places, solved, strict=True):
            for place, part in zip(places, group, strict=True):
                ratio[place] = part
        return point, ratio

    def data_values(self, eta: Floats) -> list[list[float]]:
        """Each sub-network's part of the data term, by group and position, nats."""
        return list(self.executor.collect(_values, [(handle, eta) for handle in self.terms]))


def _layout(terms: Sequence[Any]) -> list[tuple[NDArray[np.int64], Floats]]:
    return [(t.place, t.counts.complete.astype(np.float64)) for t in terms]


def _values(terms: Sequence[Any], eta: Floats) -> list[float]:
    return [t.value(eta) for t in terms]


def _evaluate(part: Any, theta: Floats) -> Any:
    return evaluate_terms(part, theta) if isinstance(part, tuple) else evaluate_model(part, theta)
