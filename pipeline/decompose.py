"""Cut a network into independent learning problems (thesis, section 6.2) or data terms (Markov random fields)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipeline.markov import AnyNetwork, MarkovNetwork
from pipeline.network import Network
from tasks.subnetwork import SubNetwork, make_sub_network


@dataclass(frozen=True)
class Decomposition:
    """The independent learning problems of a network under a dataset's observability.

    Attributes
    ----------
    sub_networks : tuple of SubNetwork
        Ordered by their first variable, parents before children.
    pruned : tuple of str
        Hidden variables without a descendant that is ever observed: the likelihood does not depend on their parameters
        (thesis, Proposition 3).
    """

    sub_networks: tuple[SubNetwork, ...]
    pruned: tuple[str, ...]


def decompose(
    network: AnyNetwork,
    columns: Mapping[str, int],
    always_observed: Collection[str],
    hidden: Collection[str],
    whole: bool = False,
) -> Decomposition:
    """Find the components of the network without the edges that leave always-observed variables.

    Parameters
    ----------
    network : Network or MarkovNetwork
        Every variable's states must be known.
    columns : mapping
        Row of each present variable in a partition's codes.
    always_observed, hidden : collections of str
        Variables never missing, and never seen.
    whole : bool
        Keep the network in one piece, hidden leaves pruned: the reference that the papers compare with.

    Notes
    -----
    Linear in the number of edges. Where nothing is missing every family is a problem of its own.

    References
    ----------
    Refaat (2015), Definitions 1 to 3, Proposition 3. Refaat & Darwiche, *Data Compression for Learning MRF
    Parameters*, section 4.
    """
    if isinstance(network, MarkovNetwork):
        return _data_terms(network, columns, always_observed, whole)
    return _components(network, columns, always_observed, hidden, whole)


class _Union:
    """Disjoint sets of numbers."""

    def __init__(self, n: int) -> None:
        self.leader = list(range(n))

    def find(self, i: int) -> int:
        leader = self.leader
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    def tie(self, i: int, j: int) -> None:
        self.leader[self.find(i)] = self.find(j)


def _sub_network(
    network: AnyNetwork,
    scope: Sequence[int],
    factors: Sequence[int],
    columns: Mapping[str, int],
    always_observed: Collection[str],
) -> SubNetwork:
    """Some families or factors as a learning problem over the variables of `scope`, in that order."""
    local = {v: k for k, v in enumerate(scope)}
    return make_sub_network(
        names=[network.variables[v] for v in scope],
        cardinalities=[network.cardinalities[v] for v in scope],
        columns=[columns.get(network.variables[v], -1) for v in scope],
        may_miss=[network.variables[v] not in always_observed for v in scope],
        families=[[local[v] for v in network.scopes[f]] for f in factors],
        factors=factors,
        directed=isinstance(network, Network),
    )


def _data_terms(
    network: MarkovNetwork, columns: Mapping[str, int], always_observed: Collection[str], whole: bool
) -> Decomposition:
    """Connected parts of the graph of factors, without the edges whose shared variables are always observed."""
    is_cut = [v in always_observed and not whole for v in network.variables]
    factors = [f for f, scope in enumerate(network.scopes) if scope]
    union = _Union(len(network.scopes))
    holder = [-1] * len(network.variables)
    for f in factors:
        for v in network.scopes[f]:
            if holder[v] >= 0 and not is_cut[v]:
                union.tie(f, holder[v])
            holder[v] = f
        if whole:
            union.tie(f, factors[0])
    parts: dict[int, list[int]] = {}
    for f in factors:
        parts.setdefault(union.find(f), []).append(f)
    sub_networks = []
    for part in parts.values():
        scope = sorted({v for f in part for v in network.scopes[f]})
        sub_networks.append(_sub_network(network, scope, part, columns, always_observed))
    return Decomposition(tuple(sub_networks), ())


def _components(
    network: Network,
    columns: Mapping[str, int],
    always_observed: Collection[str],
    hidden: Collection[str],
    whole: bool,
) -> Decomposition:
    n = len(network.variables)
    is_hidden = [v in hidden for v in network.variables]
    is_cut = [v in always_observed and not whole for v in network.variables]
    children: list[list[int]] = [[] for _ in range(n)]
    for i, parents in enumerate(network.parents):
        for p in parents:
            children[p].append(i)
    pruned = [False] * n
    for i in reversed(network.topological_order):
        pruned[i] = is_hidden[i] and all(pruned[c] for c in children[i])

    kept = [i for i in network.topological_order if not pruned[i]]
    rank = {v: k for k, v in enumerate(kept)}
    union = _Union(n)
    for i in kept:
        for p in network.parents[i]:
            if not is_cut[p]:
                union.tie(i, p)
        if whole:
            union.tie(i, kept[0])
    components: dict[int, list[int]] = {}
    for i in kept:
        components.setdefault(union.find(i), []).append(i)

    sub_networks = []
    for component in components.values():
        scope = sorted({v for i in component for v in network.scopes[i]}, key=rank.__getitem__)
        sub_networks.append(_sub_network(network, scope, component, columns, always_observed))
    return Decomposition(tuple(sub_networks), tuple(network.variables[i] for i in range(n) if pruned[i]))
