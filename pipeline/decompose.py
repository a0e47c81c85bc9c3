"""Cut a network into independent learning problems (thesis, section 6.2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

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
    network: Network,
    columns: Mapping[str, int],
    always_observed: Collection[str],
    hidden: Collection[str],
    whole: bool = False,
) -> Decomposition:
    """Find the components of the network without the edges that leave always-observed variables.

    Parameters
    ----------
    network : Network
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
    Refaat (2015), Definitions 1 to 3, Proposition 3.
    """
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
    leader = list(range(n))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    for i in kept:
        for p in network.parents[i]:
            if not is_cut[p]:
                leader[find(i)] = find(p)
        if whole:
            leader[find(i)] = find(kept[0])
    components: dict[int, list[int]] = {}
    for i in kept:
        components.setdefault(find(i), []).append(i)

    cardinalities = network.cardinalities
    sub_networks = []
    for component in components.values():
        scope = sorted({p for i in component for p in network.parents[i]} | set(component), key=rank.__getitem__)
        local = {v: k for k, v in enumerate(scope)}
        sub_networks.append(
            make_sub_network(
                names=[network.variables[v] for v in scope],
                cardinalities=[cardinalities[v] for v in scope],
                columns=[columns.get(network.variables[v], -1) for v in scope],
                may_miss=[network.variables[v] not in always_observed for v in scope],
                families=[[*(local[p] for p in network.parents[i]), local[i]] for i in component],
            )
        )
    return Decomposition(tuple(sub_networks), tuple(network.variables[i] for i in range(n) if pruned[i]))
