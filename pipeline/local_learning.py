"""LAP and pseudo-likelihood: Markov random fields too wide for any jointree, from local counts alone.

    field ──► cliques (variables) ──► groups ──► counts of each neighbourhood ──► local problems ──► one field

Both use the data pass of every other job; only what is counted differs, and is made on the workers. LAP's problems are
solved where they were counted, and only what each says of its cliques comes back. Pseudo-likelihood is one objective:
its terms stay on the workers, the optimiser sits here.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.execution import Executor, Progress
from pipeline.graph import DataPass, pass_over_groups
from pipeline.local_stages import (
    CliqueSolution,
    Conditionals,
    LocalField,
    LocalSettings,
    Recipe,
    conditional_group,
    conditionals,
    counts_of_factors,
    factor_group,
    lap_group,
    solve_lap,
)
from pipeline.markov import MarkovNetwork
from pipeline.options import Options
from pipeline.outcome import Outcome
from pipeline.planning import Job
from pipeline.result import SubNetworkResult
from pipeline.stages import Reading
from tasks.elimination_order import find_order
from tasks.errors import BadInputError, TooLargeError
from tasks.jointree import Floats
from tasks.lap import AUXILIARIES, CliqueSystem, make_auxiliary, merge_cliques
from tasks.markov_gradient import run_gradient
from tasks.markov_graph import Graph
from tasks.markov_solving import random_potentials
from tasks.markov_terms import Penalty, Point, make_model, plan_model, scaled
from tasks.solving import Size

# Local problems a task; one takes about a millisecond.
CLIQUES_PER_GROUP, VARIABLES_PER_GROUP = 1000, 2000
# Local problems are solved further than a whole one would be: it costs little, and their errors add up.
LOCAL_TOLERANCE = 1e-4
# Below this a moment's error is rounding.
LEAST_TOLERANCE = 1e-13
# Entries of a joint table over a neighbourhood up to which nothing need be looked at more closely.
SMALL = 1 << 20
# Entries over the variables around a clique up to which its exact structure need not be known to tell its memory.
NARROW = 1 << 10
# Bytes of a jointree up to which a field's log likelihood is worth computing after LAP: half a second.
LIKELIHOOD_BYTES = 1 << 27


def check_local(job: Job, options: Options) -> MarkovNetwork:
    """Refuse what local estimators cannot do, before any data is read.

    Raises
    ------
    BadInputError
        Not a Markov random field, missing values, settings they do not take.
    """
    network, estimator = job.network, options.estimator
    if not isinstance(network, MarkovNetwork):
        raise BadInputError(
            f"estimator {estimator!r}: expected a Markov random field, found Bayesian network {network.name}, which "
            "needs no local estimator"
        )
    missing = [*job.observability.partly_observed, *job.observability.hidden]
    shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
    if job.observability.hidden:
        shown = ", ".join(job.observability.hidden[:4])
        raise BadInputError(
            f"estimator {estimator!r}: expected values of every variable, found none of {shown}: local counts "
            "say nothing of a hidden variable; use --estimator exact"
        )
    if missing and estimator == "pseudo-likelihood":
        raise BadInputError(
            f"estimator {estimator!r}: expected complete data, found values missing of {shown}: a conditional "
            "likelihood needs the neighbours' values; drop those rows or variables, or use --estimator exact"
        )
    if missing and options.on_missing == "refuse":
        raise BadInputError(
            f"estimator 'lap': expected complete data, found values missing of {shown}: its guarantees are for "
            "complete data; --on-missing em runs EM inside each local problem (experimental), or use --estimator exact"
        )
    for name, given in (
        ("l2", options.l2 and estimator == "lap"),
        ("pseudo_count", options.pseudo_count and estimator != "lap"),
    ):
        if given:
            other = "a pseudo count" if name == "l2" else "an l2 penalty"
            raise BadInputError(f"{name}: estimator {estimator!r} does not take it; use {other}")
    if options.algorithm != "auto":
        raise BadInputError(
            f"algorithm: estimator {estimator!r} has its own, found {options.algorithm!r}; leave it out"
        )
    for name, is_given in (
        ("accelerate", options.accelerate),
        ("prior", options.prior != 1.0),
        ("start", options.start != "random"),
        ("restarts", options.restarts != 1),
        ("decompose", not options.decompose),
    ):
        if is_given:
            raise BadInputError(f"{name}: estimator {estimator!r} does not take it; leave it out")
    return network


def check_neighbourhoods(system: CliqueSystem, kind: str, allowed_bytes: int, n_threads: int = 1) -> int:
    """Refuse cliques whose auxiliary field is too wide, or all together; the most variables of a neighbourhood.

    Parameters
    ----------
    system : CliqueSystem
        The field's cliques.
    kind : str
        The auxiliary construction.
    allowed_bytes : int
        Memory that one task may take.
    n_threads : int
        As many times as much is there for all count tables, which are held until they are solved.

    Raises
    ------
    TooLargeError
        Names the clique, its neighbourhood's size and the option that fits; or the tables' size.
    """
    graph = system.graph
    largest = held = 0
    for q, clique in enumerate(system.cliques):
        variables = system.neighbourhood(q)
        largest = max(largest, len(variables))
        held += 8 * _table_entries(system, q, kind)
        if math.prod(graph.cardinalities[v] for v in variables) <= SMALL or _fits(system, q, kind, allowed_bytes):
            continue
        names = ", ".join(graph.names[v] for v in clique[:6])
        fitting = [k for k in AUXILIARIES if k != kind and _fits(system, q, k, allowed_bytes)]
        instead = f"--auxiliary {fitting[0]}" if fitting else "--estimator pseudo-likelihood"
        raise TooLargeError(
            f"clique ({names}) has a neighbourhood of {len(variables)} variables, too many for auxiliary {kind!r} in "
            f"{allowed_bytes / 2**30:.3g} GiB; use {instead}"
        )
    if held > allowed_bytes * n_threads:
        instead = "--auxiliary pairwise, whose tables are small, more memory" if kind != "pairwise" else "more memory"
        raise TooLargeError(
            f"the count tables of {len(system.cliques):,} neighbourhoods of up to {largest} variables take "
            f"{held / 2**30:.3g} GiB with auxiliary {kind!r}, allowed {allowed_bytes * n_threads / 2**30:.3g} GiB; use "
            f"{instead} or --estimator pseudo-likelihood"
        )
    return largest


def _table_entries(system: CliqueSystem, q: int, kind: str) -> int:
    """At most how many entries a clique's auxiliary counts have, its small ones left out."""
    graph, own = system.graph, set(system.cliques[q])
    rest = math.prod(graph.cardinalities[v] for v in system.neighbourhood(q) if v not in own)
    if kind == "pairwise" or rest <= NARROW:
        return 0 if kind == "pairwise" else rest
    if kind == "dense":
        return rest
    # What the rest of the field joins may be far less than all of it: a star's leaves are not joined.
    return sum(math.prod(graph.cardinalities[v] for v in s) for s in make_auxiliary(system, q, kind).scopes)


def _fits(system: CliqueSystem, q: int, kind: str, allowed_bytes: int) -> bool:
    graph = system.graph
    own = set(system.cliques[q])
    variables = system.neighbourhood(q)
    rest = math.prod(graph.cardinalities[v] for v in variables if v not in own)
    if kind != "exact":  # their structure joins all of the rest
        return 24 * rest * max(graph.cardinalities[v] for v in own) <= allowed_bytes
    auxiliary = make_auxiliary(system, q, kind)
    local = {v: k for k, v in enumerate(auxiliary.variables)}
    scopes = [tuple(local[v] for v in s) for s in auxiliary.scopes]
    try:
        find_order(
            [graph.names[v] for v in variables], [graph.cardinalities[v] for v in variables], scopes, allowed_bytes
        )
    except TooLargeError:
        return False
    return True


def _chunks(n: int, size: int, n_threads: int) -> list[range]:
    """Numbers below n in runs: enough for all threads, and none larger than `size`."""
    count = max(1, min(n, max(2 * n_threads, -(-n // size))))
    return [range(n * k // count, n * (k + 1) // count) for k in range(count)]


class LocalLearning:
    """LAP's or pseudo-likelihood's learning, from checked settings to an outcome.

    Parameters
    ----------
    job : Job
        Of a `MarkovNetwork`.
    executor : Executor
        Where.
    options : Options
        How.
    progress : callable, optional
        Told the finished groups.
    """

    kernels = "markov"

    def __init__(self, job: Job, executor: Executor, options: Options, progress: Progress | None) -> None:
        self.network = check_local(job, options)
        self.job, self.executor, self.options, self.progress = job, executor, options, progress
        self.graph: Graph = self.network.graph
        self.system = CliqueSystem(self.graph)
        self.is_lap = options.estimator == "lap"
        self.largest = 0
        if self.is_lap:
            self.largest = check_neighbourhoods(
                self.system, options.auxiliary, executor.allowed_bytes, executor.n_threads
            )
        number = {c.name: i for i, c in enumerate(job.columns)}
        always = set(job.observability.always_observed)
        self.field = LocalField(
            self.system,
            tuple(number.get(v, -1) for v in self.network.variables),
            tuple(v not in always for v in self.network.variables),
            options.auxiliary,
            executor.allowed_bytes,
        )
        threads = executor.n_threads
        if self.is_lap:
            self.chunks = _chunks(len(self.system.cliques), CLIQUES_PER_GROUP, threads)
            self.n_factor_groups = 0
        else:
            factors = _chunks(len(self.graph.scopes), VARIABLES_PER_GROUP, threads)
            self.chunks = factors + _chunks(len(self.graph.names), VARIABLES_PER_GROUP, threads)
            self.n_factor_groups = len(factors)
        self.settings = LocalSettings(
            options.pseudo_count,
            max(LOCAL_TOLERANCE * options.tolerance, min(options.tolerance, LEAST_TOLERANCE)),
            options.max_iterations,
            options.seed,
        )
        self.written: Mapping[str, Any] = {
            "estimator": options.estimator, "auxiliary": options.auxiliary if self.is_lap else None,
            "on_missing": options.on_missing, "l2": options.l2, "pseudo_count": options.pseudo_count,
        }  # fmt: skip

    def data_pass(self, reading: Reading) -> DataPass:
        """Wire the data pass: groups are made from recipes, on the workers."""
        self.token = uuid.uuid4().hex
        self.recipes = []
        for g, numbers in enumerate(self.chunks):
            make = lap_group if self.is_lap else factor_group if g < self.n_factor_groups else conditional_group
            self.recipes.append(Recipe(make, tuple(numbers), self.token))
        members = tuple(tuple(numbers) for numbers in self.chunks)
        return pass_over_groups(self.job.dataset, reading, self.recipes, members, self.token, self.field)

    def solve(
        self,
        prepared: Sequence[Any],
        sizes: Sequence[Sequence[Size]],
        passed: DataPass,
        reading: Reading,
        weight: float,
    ) -> Outcome:
        """Solve all local problems; parameters as `pipeline.family_learning.FamilyLearning.solve` has them."""
        return self._lap(prepared, sizes, weight) if self.is_lap else self._pseudo_likelihood(prepared, weight)

    # ---- LAP

    def _lap(self, prepared: Sequence[Any], sizes: Sequence[Sequence[Size]], weight: float) -> Outcome:
        token = uuid.uuid4().hex
        field, settings = f"field-{token}", f"settings-{token}"
        graph: dict[Any, Any] = {field: self.field, settings: self.settings}
        # Largest first, so that no long task is left to the end.
        order = sorted(range(len(prepared)), key=lambda g: -sum(s.work for s in sizes[g]))
        keys = [("solve-clique-" + token, g) for g in order]
        for key in keys:
            recipe = ("recipe-" + token, key[1])
            graph[recipe] = self.recipes[key[1]]
            graph[key] = (solve_lap, prepared[key[1]], recipe, field, settings)
        by_group = self.executor.gather(graph, keys, self.progress, "solve-clique")
        solutions: list[CliqueSolution] = [s for group in by_group for s in group]
        read: list[NDArray[np.float64]] = [np.empty(0)] * len(self.system.cliques)
        counts: list[NDArray[np.float64]] = list(read)
        records: list[SubNetworkResult | None] = [None] * len(read)
        for solution in solutions:
            for q, potentials, own in zip(solution.cliques, solution.potentials, solution.counts, strict=True):
                read[q], counts[q] = potentials, own
                records[q] = self._record(q, solution)
        self._refuse_zeros(counts, read)
        eta = merge_cliques(self.system, read)
        learned, expected, log_z, log_likelihood = self._assemble(eta, self._all_counts(counts), weight)
        report = {
            "log_z": log_z,
            "cliques": len(read),
            "problems": len(solutions),
            "largest_neighbourhood": self.largest,
            "iterations": max((s.iterations for s in solutions), default=0),
            "shared_terms": "mean over the maximal cliques that contain the set, weights equal",
            "experimental": "EM inside local problems" if any(self.field.may_miss) else None,
            "unbounded": self._unbounded(expected),
        }
        return Outcome(learned, expected, log_likelihood, tuple(r for r in records if r), {}, report, log_z or 0.0)

    def _refuse_zeros(self, counts: Sequence[NDArray[np.float64]], read: Sequence[NDArray[np.float64]]) -> None:
        """Normalised potentials are differences of logarithms: a state without an example leaves none finite."""
        if all(np.isfinite(potentials).all() for potentials in read):
            return
        q = min(range(len(counts)), key=lambda q: float(counts[q].min()))
        clique, own = self.system.cliques[q], counts[q]
        at = np.unravel_index(int(np.argmin(own)), own.shape)
        states = ", ".join(
            f"{self.graph.names[v]}={(self.network.states[v] or ())[k]}" for v, k in zip(clique, at, strict=True)
        )
        raise BadInputError(
            f"estimator 'lap': expected every state of every clique to occur, found {own[at]:g} examples of {states}: "
            "potentials around it have no finite estimate; give --pseudo-count (1 is an example spread over all states)"
        )

    def _record(self, q: int, solution: CliqueSolution) -> SubNetworkResult:
        own = self.system.cliques[q]
        around = [v for v in self.system.neighbourhood(q) if v not in own]
        names = self.graph.names
        return SubNetworkResult(
            tuple(names[v] for v in own), tuple(names[v] for v in around), None, 0, solution.iterations,
            solution.converged, math.nan, math.nan, (), (), 0.0,
        )  # fmt: skip

    def _all_counts(self, cliques: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Counts of every factor of the graph, from the cliques'."""
        holder = {f: c for c, f in enumerate(self.system.factors)}
        out = []
        for f, scope in enumerate(self.graph.scopes):
            c = holder.get(f)
            if c is None:
                c = next(c for c in self.system.holders[scope[0]] if set(scope) <= set(self.system.cliques[c]))
            clique = self.system.cliques[c]
            table = cliques[c].sum(axis=tuple(a for a, v in enumerate(clique) if v not in scope))
            rest = [v for v in clique if v in scope]
            out.append(table.transpose([rest.index(v) for v in scope]))
        return out

    # ---- pseudo-likelihood

    def _pseudo_likelihood(self, prepared: Sequence[Any], weight: float) -> Outcome:
        k = self.n_factor_groups
        counts = np.concatenate(self.executor.collect(counts_of_factors, [(handle,) for handle in prepared[:k]]))
        token = uuid.uuid4().hex
        field = f"field-{token}"
        graph: dict[Any, Any] = {field: self.field}
        keys = [("data-term-" + token, g) for g in range(k, len(prepared))]
        for key in keys:
            graph[key] = (conditionals, prepared[key[1]], field, list(self.chunks[key[1]]))
        handles = self.executor.persist(graph, keys)
        degree = np.repeat([len(s) for s in self.graph.scopes], np.diff(self.graph.bases))
        terms = PseudoTerms(self.executor, handles, self.graph, degree * counts, weight, Penalty(l2=self.options.l2))
        start = random_potentials(self.graph, self.options.seed, 0)
        trace = run_gradient(terms, start, self.options.tolerance, self.options.max_iterations, "lbfgs")
        tables = [
            trace.last.eta[int(lo) : int(hi)].reshape([self.graph.cardinalities[v] for v in s])
            for lo, hi, s in zip(self.graph.bases[:-1], self.graph.bases[1:], self.graph.scopes, strict=True)
        ]
        by_factor = [
            counts[int(lo) : int(hi)].reshape(t.shape)
            for lo, hi, t in zip(self.graph.bases[:-1], self.graph.bases[1:], tables, strict=True)
        ]
        learned, expected, log_z, log_likelihood = self._assemble(tables, by_factor, weight)
        names = self.graph.names
        records = tuple(
            SubNetworkResult(
                (names[v],), tuple(names[u] for u in sorted(self.system.neighbours(v))), None, 0, trace.iterations,
                trace.converged, math.nan, math.nan, (), (), 0.0,
            )
            for v in range(len(names))
        )  # fmt: skip
        report = {
            "log_z": log_z,
            "pseudo_log_likelihood": trace.last.log_likelihood,
            "iterations": trace.iterations,
            "evaluations": trace.evaluations,
            "moment_error": trace.error,
            "history": list(trace.log_likelihood),
            "unbounded": {} if self.options.l2 else self._unbounded(expected),
        }
        return Outcome(learned, expected, log_likelihood, records, {}, report, log_z or 0.0)

    # ---- both

    def _assemble(
        self, eta: Sequence[NDArray[np.float64]], counts: Sequence[NDArray[np.float64]], weight: float
    ) -> tuple[MarkovNetwork, tuple[NDArray[np.float64] | None, ...], float | None, float]:
        """The network with potentials of at most one, counts by factor; log Z and log likelihood where they fit."""
        tables: list[NDArray[np.float64]] = [np.ones(()) for _ in self.network.scopes]
        expected: list[NDArray[np.float64] | None] = [None] * len(tables)
        flat = np.concatenate([t.ravel() for t in eta])
        theta, _ = scaled(np.where(np.isnan(flat), 0.0, flat), self.graph.bases)
        for k, f in enumerate(self.network.learnable):
            lo, hi = int(self.graph.bases[k]), int(self.graph.bases[k + 1])
            tables[f] = theta[lo:hi].reshape(eta[k].shape)
            expected[f] = counts[k]
        learned = replace(self.network, tables=tuple(tables))
        try:
            elimination = plan_model(self.graph, min(LIKELIHOOD_BYTES, self.executor.allowed_bytes))
        except TooLargeError:
            return learned, tuple(expected), None, math.nan
        log_z, _ = make_model(self.graph, elimination, self.executor.allowed_bytes).evaluate(theta)
        whole = np.concatenate([c.ravel() for c in counts])
        used = whole > 0
        with np.errstate(divide="ignore"):
            log_likelihood = float(whole[used] @ np.log(theta[used])) - weight * log_z
        # With values missing the counts are expected ones of other, local models: no likelihood of the data.
        return learned, tuple(expected), log_z, math.nan if any(self.field.may_miss) else log_likelihood

    def _unbounded(self, expected: Sequence[NDArray[np.float64] | None]) -> dict[str, int]:
        if self.options.pseudo_count:
            return {}
        found = {self.network.describe(f): int((c <= 0).sum()) for f, c in enumerate(expected) if c is not None}
        return {name: n for name, n in found.items() if n}


class PseudoTerms:
    """The pseudo-likelihood as `tasks.markov_terms.Terms` (Mizrahi et al. 2014, equation 8).

    Σ_n Σ_m log p(x_m | x_N(m)) is a sum over factors, each as often as it has variables, less a log partition function
    for every variable and every configuration of its neighbours: the data term of a field in which that variable alone
    is hidden.
    """

    def __init__(
        self,
        executor: Executor,
        handles: Sequence[Any],
        graph: Graph,
        complete: Floats,
        n_examples: float,
        penalty: Penalty,
    ) -> None:
        self.executor, self.graph, self.complete = executor, graph, complete
        self.n_examples, self.penalty = n_examples, penalty
        places = executor.collect(_place, [(handle,) for handle in handles])
        self.handles = list(handles)
        self.places = places

    def evaluate(self, eta: Floats) -> Point:
        """Value and moments."""
        theta, tops = scaled(eta, self.graph.bases)
        results = self.executor.collect(_evaluate, [(handle, theta) for handle in self.handles])
        moments = np.zeros(len(eta))
        for place, (_, counts) in zip(self.places, results, strict=True):
            np.add.at(moments, place, counts)
        shifted = eta - np.repeat(tops, np.diff(self.graph.bases))
        used = self.complete > 0
        value = float(self.complete[used] @ shifted[used]) - math.fsum(v for v, _ in results)
        objective = value - 0.5 * self.penalty.l2 * float(eta @ eta)
        return Point(eta, value, objective, 0.0, self.complete, moments / self.n_examples)

    def match(self, eta: Floats, targets: Floats, tolerance: float) -> Floats:
        """There is no M-step."""
        raise NotImplementedError

    def vote(self, eta: Floats) -> tuple[Point, Floats]:
        """There is no EDML."""
        raise NotImplementedError


def _place(terms: Conditionals) -> NDArray[np.int64]:
    return terms.place


def _evaluate(terms: Conditionals, theta: Floats) -> tuple[float, Floats]:
    return terms.evaluate(theta)
