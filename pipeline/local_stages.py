"""What the tasks of LAP and of pseudo-likelihood do on a worker.

A group of local problems is built where it is counted, from the field's structure and a list of numbers: a hundred
thousand problems are never arrays on the driver, nor in the graph.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipeline.stages import Group, Prepared
from tasks.elimination_order import find_order
from tasks.errors import BadInputError, ImpossibleDataError
from tasks.ipf import fit_moments
from tasks.jointree import Floats, Jointree, make_jointree
from tasks.lap import Auxiliary, CliqueSystem, make_auxiliaries, read_off
from tasks.markov_em import log_of, run_em
from tasks.markov_graph import Graph
from tasks.markov_solving import random_potentials
from tasks.markov_terms import DataTerm, LocalTerms, Model, Penalty
from tasks.scopes import pack_scopes
from tasks.solving import Problem
from tasks.subnetwork import SubNetwork, make_sub_network

# Sweeps within which a local problem's moments match to its tolerance, or it counts as not converged.
MAX_SWEEPS = 20_000


@dataclass(frozen=True)
class LocalField:
    """A Markov random field and its data, as far as local problems are made from them.

    Attributes
    ----------
    system : CliqueSystem
        The field's structure.
    columns : tuple of int
        Each variable's row in a partition's codes.
    may_miss : tuple of bool
        Which may be missing.
    auxiliary : str
        LAP's construction.
    allowed_bytes : int
        Memory that one task may take.
    """

    system: CliqueSystem
    columns: tuple[int, ...]
    may_miss: tuple[bool, ...]
    auxiliary: str
    allowed_bytes: int

    def sub_network(self, variables: Sequence[int], scopes: Sequence[Sequence[int]], hidden: int = -1) -> SubNetwork:
        """A local problem: factors over some variables, one of which may be taken for hidden."""
        graph = self.system.graph
        local = {v: k for k, v in enumerate(variables)}
        return make_sub_network(
            names=[graph.names[v] for v in variables],
            cardinalities=[graph.cardinalities[v] for v in variables],
            columns=[-1 if v == hidden else self.columns[v] for v in variables],
            may_miss=[v == hidden or self.may_miss[v] for v in variables],
            families=[[local[v] for v in scope] for scope in scopes],
            directed=False,
        )


@dataclass(frozen=True)
class LapGroup(Group):
    """A group of auxiliary problems."""

    auxiliaries: tuple[Auxiliary, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A group of local problems that is made where it is needed.

    Attributes
    ----------
    make : callable
        `lap_group`, `factor_group` or `conditional_group`.
    numbers : tuple of int
        The cliques, factors or variables.
    token : str
        The job's.
    """

    make: Callable[[LocalField, Sequence[int]], Group]
    numbers: tuple[int, ...]
    token: str

    def on(self, field: LocalField) -> Group:
        """The group; a worker keeps the latest of them."""
        key = (self.token, self.make.__name__, self.numbers[0])
        with _lock:
            if key in _made:
                _made.move_to_end(key)
                return _made[key]
        group = self.make(field, self.numbers)
        with _lock:
            _made[key] = group
            while len(_made) > MAX_GROUPS:
                _made.popitem(last=False)
        return group


# Groups kept for the next part's task, or for solving: a few megabytes each.
MAX_GROUPS = 32
_made: OrderedDict[tuple[str, str, int], Group] = OrderedDict()
_lock = threading.Lock()


def lap_group(field: LocalField, cliques: Sequence[int]) -> LapGroup:
    """Stage scopes: the auxiliary problems of some cliques."""
    auxiliaries = make_auxiliaries(field.system, cliques, field.auxiliary)
    made = tuple(field.sub_network(a.variables, a.scopes) for a in auxiliaries)
    return LapGroup(made, pack_scopes(made), False, False, field.allowed_bytes, auxiliaries)


def factor_group(field: LocalField, factors: Sequence[int]) -> Group:
    """Stage scopes: some factors, to be counted."""
    scopes = field.system.graph.scopes
    made = tuple(field.sub_network(sorted(scopes[f]), [scopes[f]]) for f in factors)
    return Group(made, pack_scopes(made), False, False, field.allowed_bytes)


def conditional_group(field: LocalField, variables: Sequence[int]) -> Group:
    """Stage scopes: some variables, each as if it were hidden among its neighbours (equation 8)."""
    graph = field.system.graph
    made = []
    for v in variables:
        own = [graph.scopes[f] for f in graph.incidence[v]]
        made.append(field.sub_network(sorted({u for scope in own for u in scope}), own, hidden=v))
    return Group(tuple(made), pack_scopes(made), False, False, field.allowed_bytes)


@dataclass(frozen=True)
class LocalSettings:
    """How local problems are solved.

    Attributes
    ----------
    pseudo_count : float
        Examples spread evenly over all joint states.
    tolerance : float
        Error of a moment that counts as converged.
    max_iterations : int
        Of EM, where values are missing.
    seed : int
        Of EM's start.
    """

    pseudo_count: float
    tolerance: float
    max_iterations: int
    seed: int


@dataclass(frozen=True)
class CliqueSolution:
    """What one auxiliary problem says.

    Attributes
    ----------
    cliques : tuple of int
        Read off it.
    potentials : tuple of float64 arrays
        Normalised log potentials of each, as `tasks.lap.read_off` lays them out.
    counts : tuple of float64 arrays
        (Expected) counts of each.
    iterations : int
        Sweeps, or EM's iterations.
    converged : bool
        Every moment matches.
    """

    cliques: tuple[int, ...]
    potentials: tuple[NDArray[np.float64], ...]
    counts: tuple[NDArray[np.float64], ...]
    iterations: int
    converged: bool


class _Structures:
    """Jointrees by structure: in a lattice nearly all neighbourhoods look alike."""

    def __init__(self, allowed_bytes: int) -> None:
        self.allowed_bytes = allowed_bytes
        self.made: dict[tuple[bytes, bytes, bytes], Jointree] = {}

    def tree(self, n: SubNetwork) -> Jointree:
        key = (n.cardinalities.tobytes(), n.family_ptr.tobytes(), n.members.tobytes())
        if key not in self.made:
            cards, scopes = n.cardinalities.tolist(), _scopes(n)
            self.made[key] = make_jointree(cards, scopes, find_order(n.names, cards, scopes, self.allowed_bytes))
        return self.made[key]


def _scopes(n: SubNetwork) -> list[tuple[int, ...]]:
    ends = n.family_ptr.tolist()
    members = n.members.tolist()
    return [tuple(members[a:b]) for a, b in pairwise(ends)]


def solve_lap(prepared: Prepared, recipe: Recipe, field: LocalField, settings: LocalSettings) -> list[CliqueSolution]:
    """Stage solve-clique: maximum likelihood of each auxiliary field, and what it says of its cliques."""
    group = recipe.on(field)
    assert isinstance(group, LapGroup)
    structures = _Structures(field.allowed_bytes)
    weight = float(prepared.total_weight)
    return [
        _solve_auxiliary(problem, auxiliary, field, settings, structures, weight)
        for problem, auxiliary in zip(prepared.problems, group.auxiliaries, strict=True)
    ]


def _solve_auxiliary(
    problem: Problem,
    auxiliary: Auxiliary,
    field: LocalField,
    settings: LocalSettings,
    structures: _Structures,
    weight: float,
) -> CliqueSolution:
    n = problem.sub_network
    tree = structures.tree(n)
    complete = problem.counts.complete.astype(np.float64)
    total = weight + settings.pseudo_count
    if problem.evidence is None or not len(problem.evidence.counts):
        sizes = np.diff(n.bases)
        targets = (complete + np.repeat(settings.pseudo_count / sizes, sizes)) / total
        theta, iterations, error, trusted = fit_moments(tree, targets, settings.tolerance, MAX_SWEEPS)
        eta, expected = log_of(theta), complete
        converged = trusted and error <= settings.tolerance
    else:
        try:
            eta, expected, iterations, converged = _solve_incomplete(
                problem, tree, complete, settings, weight, field.allowed_bytes
            )
        except ImpossibleDataError as cause:
            names = ", ".join(field.system.graph.names[v] for v in field.system.cliques[auxiliary.cliques[0]])
            raise BadInputError(
                f"estimator 'lap': EM around clique ({names}) drives states that no row shows to probability zero; "
                "give --pseudo-count (1 is an example spread over all states)"
            ) from cause
    tables = [
        eta[int(lo) : int(hi)].reshape([field.system.graph.cardinalities[v] for v in scope])
        for lo, hi, scope in zip(n.bases[:-1], n.bases[1:], auxiliary.scopes, strict=True)
    ]
    cliques = [field.system.cliques[q] for q in auxiliary.cliques]
    return CliqueSolution(
        auxiliary.cliques,
        tuple(read_off(q, auxiliary.scopes, tables) for q in cliques),
        tuple(_counts_of(q, auxiliary.scopes, n, expected) for q in cliques),
        iterations,
        converged,
    )


def _solve_incomplete(
    problem: Problem, tree: Jointree, complete: Floats, settings: LocalSettings, weight: float, allowed_bytes: int
) -> tuple[Floats, Floats, int, bool]:
    """EM inside an auxiliary field: what the papers do not have, and so experimental."""
    n = problem.sub_network
    graph = Graph(n.names, tuple(n.cardinalities.tolist()), tuple(_scopes(n)))
    model = Model(graph, tree, allowed_bytes)
    data = DataTerm(n, problem.counts, problem.evidence, np.arange(n.n_parameters))
    terms = LocalTerms(model, [data], complete, weight, Penalty(settings.pseudo_count))
    start = random_potentials(graph, settings.seed, 0)
    trace = run_em(terms, start, settings.tolerance, settings.max_iterations)
    return trace.last.eta, trace.last.expected, trace.iterations, trace.converged


def _counts_of(
    clique: tuple[int, ...], scopes: Sequence[tuple[int, ...]], n: SubNetwork, counts: Floats
) -> NDArray[np.float64]:
    """A clique's counts, in the order of its own axes, from the auxiliary clique that holds it."""
    k = next(k for k, scope in enumerate(scopes) if set(clique) <= set(scope))
    lo, hi = int(n.bases[k]), int(n.bases[k + 1])
    inner = n.members[int(n.family_ptr[k]) : int(n.family_ptr[k + 1])]
    table = counts[lo:hi].reshape(n.cardinalities[inner])
    table = table.sum(axis=tuple(a for a, v in enumerate(scopes[k]) if v not in clique))
    rest = [v for v in scopes[k] if v in clique]
    return np.asarray(table.transpose([rest.index(v) for v in clique]))


@dataclass(frozen=True)
class Conditionals:
    """A group's variables given their neighbours, ready to be evaluated.

    Attributes
    ----------
    terms : tuple of DataTerm
        One a variable.
    """

    terms: tuple[DataTerm, ...]

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """The parameters they depend on, one after another."""
        return np.concatenate([t.place for t in self.terms]) if self.terms else np.empty(0, np.int64)

    def evaluate(self, theta: Floats) -> tuple[float, Floats]:
        """Σ log Z of the neighbours' configurations, nats, and the expected counts, in the order of `place`."""
        values, parts = [], []
        for term in self.terms:
            value, counts = term.evaluate(theta)
            values.append(value)
            parts.append(counts)
        return float(np.sum(values)), np.concatenate(parts) if parts else np.empty(0)


def conditionals(prepared: Prepared, field: LocalField, variables: Sequence[int]) -> Conditionals:
    """Stage data-term: the conditional likelihoods of a group's variables."""
    graph = field.system.graph
    terms = []
    for v, problem in zip(variables, prepared.problems, strict=True):
        place = np.concatenate([np.arange(graph.bases[f], graph.bases[f + 1]) for f in graph.incidence[v]])
        terms.append(DataTerm(problem.sub_network, problem.counts, problem.evidence, place))
    return Conditionals(tuple(terms))


def counts_of_factors(prepared: Prepared) -> Floats:
    """The counts of a group of factors, one after another."""
    return np.concatenate([p.counts.complete.astype(np.float64) for p in prepared.problems])
