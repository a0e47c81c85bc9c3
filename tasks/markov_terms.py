"""The likelihood of a Markov random field, term by term (Refaat & Darwiche, equation 2; thesis, equation 5.6).

    ℓ(θ) = Σ_s Σ_i n_i^s log Z^s(d_i)  −  N log Z

One *data term* a sub-network, over its distinct instances and the counts of its fully observed factors; one *model
term* for the whole graph. Both have the same gradient in the log potentials: expected counts. Data's less model's is
the gradient of ℓ. Adding a constant to a factor's log potentials changes both terms alike and ℓ not at all, so every
evaluation scales each factor to a maximum of one first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.elimination import compile_programs
from tasks.elimination_order import EliminationOrder, find_order
from tasks.em import expected_counts
from tasks.errors import ImpossibleDataError
from tasks.inference import Evidence, block_size, make_evidence
from tasks.jointree import Floats, Jointree, Longs, make_jointree
from tasks.markov_graph import Graph, entry_codes
from tasks.model_term import model_term
from tasks.projection import Counts
from tasks.reduction import reduce_rows
from tasks.solving import Problem
from tasks.subnetwork import SubNetwork, make_sub_network


@dataclass(frozen=True)
class Model:
    """The model term: a graph with its jointree.

    Attributes
    ----------
    graph : Graph
        Structure.
    tree : Jointree
        Of all factors.
    allowed_bytes : int
        Memory that an evaluation in logarithms may take.
    """

    graph: Graph
    tree: Jointree
    allowed_bytes: int

    @cached_property
    def in_logs(self) -> Evidence:
        """The same inference for the engine that can go over to logarithms; prepared when first needed."""
        g = self.graph
        n = len(g.names)
        whole = make_sub_network(g.names, g.cardinalities, [-1] * n, [True] * n, g.scopes, directed=False)
        table = reduce_rows(np.zeros((1, 1), np.int8), np.empty(0, np.int64), whole, drop_barren=False)
        return make_evidence(whole, table, compile_programs(whole, table, self.allowed_bytes))

    def evaluate(self, theta: Floats) -> tuple[float, Floats]:
        """Log partition function, nats, and every factor's marginals, shape (n_parameters,); no potential above one.

        Raises
        ------
        ImpossibleDataError
            The partition function is zero: the zeros of the factors exclude everything.
        """
        log_z, marginals, trusted = model_term(self.tree, theta)
        if trusted:
            return log_z, marginals
        marginals, log_z, impossible = expected_counts(self.in_logs, theta, block_size(1, len(theta)))
        if impossible >= 0:
            raise ImpossibleDataError(
                "the zeros of the factors exclude every state: the partition function is zero", (), ()
            )
        return log_z, marginals


def plan_model(graph: Graph, allowed_bytes: int) -> EliminationOrder:
    """How the model term will be evaluated; `tasks.errors.TooLargeError` where its jointree does not fit."""
    return find_order(graph.names, graph.cardinalities, graph.scopes, allowed_bytes)


def make_model(graph: Graph, elimination: EliminationOrder, allowed_bytes: int) -> Model:
    """Prepare the model term."""
    return Model(graph, make_jointree(graph.cardinalities, graph.scopes, elimination), allowed_bytes)


@dataclass(frozen=True)
class DataTerm:
    """One sub-network's instances, and where its parameters lie in the whole vector.

    Attributes
    ----------
    sub_network : SubNetwork
        Undirected.
    counts : Counts
        Its data.
    evidence : Evidence or None
        Its instances; None where it is complete.
    place : int64 array, shape (the sub-network's n_parameters,)
        Each of its parameters' number in the whole.
    """

    sub_network: SubNetwork
    counts: Counts
    evidence: Evidence | None
    place: Longs

    @property
    def has_instances(self) -> bool:
        """Whether anything changes from iteration to iteration."""
        return self.evidence is not None and len(self.evidence.counts) > 0

    def value(self, eta: Floats) -> float:
        """The sub-network's whole data term at log potentials scaled to at most zero, nats."""
        counts = self.counts.complete.astype(np.float64)
        return weighted_sum(counts, eta[self.place]) + self.evaluate(np.exp(eta))[0]

    def evaluate(self, theta: Floats) -> tuple[float, Floats]:
        """Log Z of the instances, nats, and expected counts, both without the fully observed factors.

        Raises
        ------
        ImpossibleDataError
            Some instance has probability zero.
        """
        if self.evidence is None or not len(self.evidence.counts):
            return 0.0, np.zeros(len(self.place))
        own = theta[self.place]
        expected, log_z, impossible = expected_counts(
            self.evidence, own, block_size(len(self.evidence.counts), len(own))
        )
        if impossible >= 0:
            assert self.counts.instances is not None
            hidden, values = self.counts.instances.describe(impossible, self.sub_network)
            raise ImpossibleDataError("rows of probability zero", hidden, tuple(values.items()))
        return log_z, expected


def make_data_term(problem: Problem, bases: Longs, numbers: dict[int, int]) -> DataTerm:
    """A prepared problem as a data term.

    Parameters
    ----------
    problem : Problem
        Of an undirected sub-network.
    bases : int64 array, shape (n_factors + 1,)
        `Graph.bases`.
    numbers : dict of int to int
        A factor's number in the network to its number in the graph.
    """
    n = problem.sub_network
    place = np.concatenate(
        [np.arange(bases[numbers[int(f)]], bases[numbers[int(f)] + 1], dtype=np.int64) for f in n.factors]
    )
    return DataTerm(n, problem.counts, problem.evidence, place)


@dataclass(frozen=True)
class Point:
    """Parameters with what an evaluation says of them.

    Attributes
    ----------
    eta : float64 array, shape (n_parameters,)
        Log potentials; minus infinity where a potential is zero.
    log_likelihood : float
        Nats, of the data alone.
    objective : float
        The same with pseudo counts and the penalty.
    log_z : float
        Log partition function of `eta` as it stands.
    expected : float64 array, shape (n_parameters,)
        Expected counts of the data, pseudo counts not included.
    marginals : float64 array, shape (n_parameters,)
        Pr(x_f) under the model.
    """

    eta: Floats
    log_likelihood: float
    objective: float
    log_z: float
    expected: Floats
    marginals: Floats


@dataclass(frozen=True)
class Penalty:
    """What keeps potentials finite.

    Attributes
    ----------
    pseudo_count : float
        Examples added, spread evenly over all joint states: the same to every entry of a factor.
    l2 : float
        λ of the term −λ/2 Σ η² over all log potentials.
    """

    pseudo_count: float = 0.0
    l2: float = 0.0


def scaled(eta: Floats, bases: Longs) -> tuple[Floats, Floats]:
    """Potentials with a maximum of one in each factor, and the log scales taken out, shape (n_factors,)."""
    tops = np.maximum.reduceat(eta, bases[:-1])
    return np.exp(eta - np.repeat(tops, np.diff(bases))), tops


def weighted_sum(weights: Floats, eta: Floats) -> float:
    """Σ weight · η, where nothing times minus infinity is nothing; no dot product, see `tasks.blas`."""
    used = weights != 0
    return float((weights[used] * eta[used]).sum())


class Terms(Protocol):
    """Evaluates the terms, here or on a cluster."""

    graph: Graph
    complete: Floats
    n_examples: float
    penalty: Penalty

    def evaluate(self, eta: Floats) -> Point:
        """Both terms."""
        ...

    def match(self, eta: Floats, targets: Floats, tolerance: float) -> Floats:
        """Move the model's moments to given counts: EM's M-step."""
        ...

    def vote(self, eta: Floats) -> tuple[Point, Floats]:
        """Both terms, and for every potential the ratio by which EDML's sub-problem (equation 5.8) would change it."""
        ...


def combine(
    terms: Terms, eta: Floats, tops: Floats, instances: float, expected: Floats, log_z: float, marginals: Floats
) -> Point:
    """The objective from its terms, both evaluated at potentials scaled by `tops`.

    Raises
    ------
    ImpossibleDataError
        A potential is zero although the data show its state.
    """
    bases = terms.graph.bases
    complete, n = terms.complete, terms.n_examples
    shifted = eta - np.repeat(tops, np.diff(bases))
    if ((shifted == -np.inf) & (complete > 0)).any():
        at = int(np.flatnonzero((shifted == -np.inf) & (complete > 0))[0])
        raise ImpossibleDataError("rows of probability zero", (), entry_codes(terms.graph, at))
    log_likelihood = weighted_sum(complete, shifted) + instances - n * log_z
    objective = log_likelihood
    if terms.penalty.pseudo_count:
        pseudo = terms.penalty.pseudo_count
        objective += weighted_sum(pseudo_counts(terms.graph, pseudo), shifted) - pseudo * log_z
    if terms.penalty.l2:
        free = eta > -np.inf
        objective -= 0.5 * terms.penalty.l2 * float((eta[free] * eta[free]).sum())
    return Point(eta, log_likelihood, objective, log_z + math.fsum(tops.tolist()), complete + expected, marginals)


def pseudo_counts(graph: Graph, count: float) -> Floats:
    """Examples spread evenly over all joint states, as every factor counts them."""
    sizes = np.diff(graph.bases)
    return np.repeat(count / sizes, sizes)


class LocalTerms:
    """The terms evaluated here, one after another.

    Parameters
    ----------
    model : Model
        Of the whole graph.
    data : sequence of DataTerm
        Those with instances; others' counts are all in `complete`.
    complete : float64 array, shape (n_parameters,)
        Counts of fully observed factors, over all sub-networks.
    n_examples : float
        Rows, or the sum of their weights.
    penalty : Penalty
        What keeps potentials finite.
    """

    def __init__(
        self, model: Model, data: Sequence[DataTerm], complete: Floats, n_examples: float, penalty: Penalty
    ) -> None:
        self.model, self.data, self.complete = model, data, complete
        self.graph, self.n_examples, self.penalty = model.graph, n_examples, penalty

    def evaluate(self, eta: Floats) -> Point:
        """See `Terms.evaluate`."""
        theta, tops = scaled(eta, self.graph.bases)
        expected = np.zeros(len(eta))
        parts = []
        for term in self.data:
            log_z, counts = term.evaluate(theta)
            expected[term.place] = counts
            parts.append(log_z)
        log_z, marginals = self.model.evaluate(theta)
        return combine(self, eta, tops, math.fsum(parts), expected, log_z, marginals)

    def match(self, eta: Floats, targets: Floats, tolerance: float) -> Floats:
        """See `Terms.match`."""
        from tasks.markov_em import match_moments

        return match_moments(self.model, eta, targets, self.n_examples, self.penalty, tolerance)

    def vote(self, eta: Floats) -> tuple[Point, Floats]:
        """See `Terms.vote`."""
        from tasks.markov_edml import SMALLEST, solve_term

        point = self.evaluate(eta)
        theta, _ = scaled(eta, self.graph.bases)
        share = self.n_examples + self.penalty.pseudo_count
        weights = self.complete + pseudo_counts(self.graph, self.penalty.pseudo_count)
        # Of factors that every row observes the sub-problem has a closed form.
        ratio = weights / np.maximum(share * point.marginals, SMALLEST)
        for term in self.data:
            at = term.place
            ratio[at] = solve_term(term, theta[at], weights[at], share * point.marginals[at])
        return point, ratio


def collect_complete(graph: Graph, terms: Sequence[DataTerm]) -> NDArray[np.float64]:
    """Counts of fully observed factors over all sub-networks, shape (n_parameters,)."""
    complete = np.zeros(graph.n_parameters)
    for term in terms:
        complete[term.place] = term.counts.complete
    return complete
