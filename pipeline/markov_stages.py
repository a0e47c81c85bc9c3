"""What the tasks of a Markov random field's learning do on a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.stages import Prepared
from tasks.decomposable import CliqueTree
from tasks.elimination_order import EliminationOrder
from tasks.jointree import Floats
from tasks.markov_edml import solve_term
from tasks.markov_em import match_moments
from tasks.markov_graph import Graph
from tasks.markov_solving import MarkovSettings, MarkovSolution, solve_markov
from tasks.markov_terms import DataTerm, LocalTerms, Model, collect_complete, make_data_term, make_model


@dataclass(frozen=True)
class FieldTask:
    """What every worker must know of the problem.

    Attributes
    ----------
    graph : Graph
        The factors that are learned.
    elimination : EliminationOrder
        How the model term is evaluated.
    numbers : dict of int to int
        A factor's number in the network to its number in the graph.
    n_examples : float
        Rows, or the sum of their weights.
    settings : MarkovSettings
        How to solve.
    clique_tree : CliqueTree or None
        Where the graph is decomposable.
    allowed_bytes : int
        Memory that one task may take.
    """

    graph: Graph
    elimination: EliminationOrder
    numbers: dict[int, int]
    n_examples: float
    settings: MarkovSettings
    clique_tree: CliqueTree | None
    allowed_bytes: int


def prepare_model(task: FieldTask) -> Model:
    """Stage model-term: the jointree's tables, on the worker that keeps them."""
    return make_model(task.graph, task.elimination, task.allowed_bytes)


def field_terms(prepared: Prepared, task: FieldTask) -> tuple[DataTerm, ...]:
    """Stage data-term: a group's problems as data terms."""
    return tuple(make_data_term(problem, task.graph.bases, task.numbers) for problem in prepared.problems)


def evaluate_terms(terms: Sequence[DataTerm], theta: Floats) -> list[tuple[float, Floats]]:
    """Each data term's value and expected counts at scaled potentials."""
    return [term.evaluate(theta) for term in terms]


def evaluate_model(model: Model, theta: Floats) -> tuple[float, Floats]:
    """Log Z and marginals at scaled potentials."""
    return model.evaluate(theta)


def match_model(model: Model, task: FieldTask, eta: Floats, targets: Floats, tolerance: float) -> Floats:
    """Stage m-step."""
    return match_moments(model, eta, targets, task.n_examples, task.settings.penalty, tolerance)


def solve_terms(terms: Sequence[DataTerm], theta: Floats, weights: Floats, moments: Floats) -> list[Floats]:
    """EDML's sub-problems of a group's factors."""
    return [solve_term(t, theta[t.place], weights[t.place], moments[t.place]) for t in terms]


def solve_field(
    prepared: Sequence[Prepared], task: FieldTask, start: Floats | None
) -> tuple[MarkovSolution, list[list[float]]]:
    """Stage solve: the whole problem by one task; the solution, and each data term's value there."""
    groups = [field_terms(p, task) for p in prepared]
    data = [term for group in groups for term in group]
    terms = LocalTerms(
        prepare_model(task),
        [t for t in data if t.has_instances],
        collect_complete(task.graph, data),
        task.n_examples,
        task.settings.penalty,
    )
    solution = solve_markov(terms, task.settings, start, task.clique_tree)
    return solution, [[t.value(solution.eta) for t in group] for group in groups]
