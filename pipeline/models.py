"""pgmpy's models, in and out.

pgmpy takes 1.5 s to import, so it is imported only where one of its models has to be made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from pipeline.markov import AnyNetwork, MarkovNetwork
from pipeline.network import Network, State
from tasks.errors import BadInputError

if TYPE_CHECKING:
    from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork

# Classes whose nodes are discrete variables; BayesianNetwork and BayesianModel are older pgmpy's names.
_DISCRETE_MODELS = {"DiscreteBayesianNetwork", "BayesianNetwork", "BayesianModel", "NaiveBayes", "DAG"}
# Likewise; MarkovNetwork and MarkovModel are the older names.
_MARKOV_MODELS = {"DiscreteMarkovNetwork", "MarkovNetwork", "MarkovModel"}
# Rows further than this from one are divided by their sum for pgmpy: numpy's samplers, which it uses, refuse at 1e-8.
_SUM_FOR_PGMPY = 1e-9


@overload
def to_pgmpy(network: Network) -> DiscreteBayesianNetwork: ...
@overload
def to_pgmpy(network: MarkovNetwork) -> DiscreteMarkovNetwork: ...
def to_pgmpy(network: AnyNetwork) -> DiscreteBayesianNetwork | DiscreteMarkovNetwork:
    """pgmpy model of a network: its nodes and edges and, where it has tables, a CPD or factor for each.

    Parameters
    ----------
    network : Network or MarkovNetwork

    Returns
    -------
    DiscreteBayesianNetwork whose nodes are in the network's order, whose state names keep their types, and whose
    columns sum to one (within 1e-9; published tables are rounded, so some had to be divided by their sum). Of a
    MarkovNetwork, a DiscreteMarkovNetwork with an edge between any two variables of a factor and the factors in their
    order; those without variables, which pgmpy does not know, are multiplied into the first of the others.

    Notes
    -----
    Importing pgmpy costs 1.5 s, once. Then 3 ms for alarm and 0.1 s for munin.
    """
    return _to_markov(network) if isinstance(network, MarkovNetwork) else _to_bayesian(network)


def _to_bayesian(network: Network) -> DiscreteBayesianNetwork:
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork

    model = DiscreteBayesianNetwork()
    model.name = network.name
    names = network.variables
    model.add_nodes_from(names)
    # pgmpy looks for a path back at every edge: with parents done before children there is never one to follow.
    for i in network.topological_order:
        for p in network.parents[i]:
            model.add_edge(names[p], names[i])
    cpds = []
    for i, table in enumerate(network.tables):
        if table is None:
            continue
        sums = table.sum(axis=-1, keepdims=True)
        values = np.where(np.abs(sums - 1) > _SUM_FOR_PGMPY, table / sums, table)
        members = (i, *network.parents[i])
        states = {names[j]: list(network.states[j] or ()) for j in members}
        evidence = [names[p] for p in network.parents[i]]
        cpds.append(
            TabularCPD(
                names[i],
                table.shape[-1],
                values.reshape(-1, table.shape[-1]).T,
                evidence=evidence or None,
                evidence_card=list(table.shape[:-1]) or None,
                state_names=states,
            )
        )
    model.add_cpds(*cpds)
    return model


def _to_markov(network: MarkovNetwork) -> DiscreteMarkovNetwork:
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork

    model = DiscreteMarkovNetwork()
    model.name = network.name
    names = network.variables
    model.add_nodes_from(names)
    factors: list[DiscreteFactor] = []
    constant = math.prod(
        float(t) for s, t in zip(network.scopes, network.tables, strict=True) if not s and t is not None
    )
    for scope, table in zip(network.scopes, network.tables, strict=True):
        members = [names[v] for v in scope]
        model.add_edges_from(itertools.combinations(members, 2))
        if scope and table is not None:
            values = table if factors else table * constant
            states = {names[v]: list(network.states[v] or ()) for v in scope}
            factors.append(DiscreteFactor(members, table.shape, values, state_names=states))
    model.add_factors(*factors)
    return model


def from_pgmpy(model: Any) -> AnyNetwork:
    """Network of a pgmpy model.

    Parameters
    ----------
    model : pgmpy DiscreteBayesianNetwork, DiscreteMarkovNetwork or FactorGraph
        A Bayesian network with a CPD for every node, or for none: then the network's states and tables are None.
        An undirected one with a factor for every node and every edge at least, or with none at all: then there is a
        factor for every maximal clique of the graph, without a table. A factor graph with its factors.

    Returns
    -------
    Network of a DiscreteBayesianNetwork, MarkovNetwork of the others, its factors in the model's order.

    Raises
    ------
    BadInputError
        Another kind of model, node names that are not strings, states that are not strings, integers or booleans,
        some CPDs or factors missing, or CPDs or factors that disagree with the graph or with each other.
    """
    # The most special alone: a LinearGaussianBayesianNetwork is a DAG, too.
    kind = next(iter(_pgmpy_classes(model)), None)
    name = str(getattr(model, "name", "") or "unknown")
    if kind in _DISCRETE_MODELS:
        return _from_bayesian(model, name)
    if kind in _MARKOV_MODELS:
        return _from_markov(model, name)
    if kind == "FactorGraph":
        return _from_factor_graph(model, name)
    raise BadInputError(
        "expected a pgmpy DiscreteBayesianNetwork, DiscreteMarkovNetwork or FactorGraph,"
        f" found {kind or type(model).__name__}"
    )


def _from_bayesian(model: Any, name: str) -> Network:
    variables = _variables(name, model.nodes())
    index = {v: i for i, v in enumerate(variables)}
    given = list(getattr(model, "cpds", None) or ())
    if not given:
        parents = tuple(tuple(index[p] for p in model.predecessors(v)) for v in variables)
        nothing = (None,) * len(variables)
        return Network(name, variables, nothing, parents, nothing)
    for cpd in given:
        if "TabularCPD" not in [c.__name__ for c in type(cpd).__mro__]:
            raise BadInputError(f"network {name}: expected TabularCPDs, found {type(cpd).__name__}")
    cpds = {cpd.variable: cpd for cpd in given}
    missing = [v for v in variables if v not in cpds]
    if missing:
        raise BadInputError(f"network {name}: expected a CPD for every variable, found none for {_listed(missing)}")
    states = {v: _labels(name, v, cpds[v].state_names[v]) for v in variables}
    all_parents: list[tuple[int, ...]] = []
    tables: list[NDArray[np.float64]] = []
    for v in variables:
        evidence = list(cpds[v].variables[1:])
        if set(evidence) != set(model.predecessors(v)):
            edges = list(model.predecessors(v))
            raise BadInputError(
                f"network {name}: expected the CPD of {v!r} to be given its parents by the edges"
                f" ({', '.join(edges) or 'none'}), found {', '.join(map(str, evidence)) or 'none'}"
            )
        all_parents.append(tuple(index[p] for p in evidence))
        tables.append(_table(name, cpds[v], evidence, states))
    return Network(name, variables, tuple(states.values()), tuple(all_parents), tuple(tables))


def _from_markov(model: Any, name: str) -> MarkovNetwork:
    variables = _variables(name, model.nodes())
    given = list(model.factors)
    if not given:
        from networkx import find_cliques

        index = {v: i for i, v in enumerate(variables)}
        # Refaat & Darwiche, Data Compression for Learning MRF Parameters, section 2: a factor for every maximal clique.
        cliques = tuple(sorted(tuple(sorted(index[v] for v in clique)) for clique in find_cliques(model)))
        return MarkovNetwork(name, variables, (None,) * len(variables), cliques, (None,) * len(cliques))
    network = _from_factors(name, variables, given)
    edges = {frozenset(edge) for edge in model.edges()}
    pairs: set[frozenset[str]] = set()
    for k, scope in enumerate(network.scopes):
        own = {frozenset((variables[i], variables[j])) for i, j in itertools.combinations(scope, 2)}
        if not own <= edges:
            one, other = sorted(min(own - edges, key=sorted))
            raise BadInputError(
                f"network {name}: expected an edge between any two variables of {network.describe(k)}, found none"
                f" between {one!r} and {other!r}"
            )
        pairs |= own
    if edges - pairs:
        one, other = sorted(min(edges - pairs, key=sorted))
        raise BadInputError(
            f"network {name}: expected a factor for every edge, found none over {one!r} and {other!r};"
            " add one (of ones, if need be) or remove the edge"
        )
    return network


def _from_factor_graph(model: Any, name: str) -> MarkovNetwork:
    given = list(model.factors)
    if not given:
        raise BadInputError(
            f"network {name}: expected a factor graph with factors, found none; add them by add_factors"
        )
    # Equal factors are one node, so that nodes can't be counted; comparing factors is slow, so that identity is first.
    known = set(map(id, given))
    factor_nodes = [node for node in model.nodes() if _is_factor(node)]
    forgotten = next((node for node in factor_nodes if id(node) not in known and node not in given), None)
    if forgotten is not None:
        raise BadInputError(
            f"network {name}: expected every factor node among the model's factors, found one that is not, over"
            f" {_listed(list(map(str, forgotten.variables)))}; add it by add_factors"
        )
    # pgmpy's to_factor_graph has strings stand for factors: they are next to all variables of one, and in none.
    scopes = {frozenset(f.variables) for f in given if _is_factor(f) and f.variables}
    named = frozenset().union(*scopes)
    nodes = [
        node
        for node in model.nodes()
        if node in named or not (_is_factor(node) or frozenset(model.neighbors(node)) in scopes)
    ]
    return _from_factors(name, _variables(name, nodes), given)


def _from_factors(name: str, variables: tuple[str, ...], given: Sequence[Any]) -> MarkovNetwork:
    index = {v: i for i, v in enumerate(variables)}
    states: dict[str, tuple[State, ...]] = {}
    scopes: list[tuple[int, ...]] = []
    tables: list[NDArray[np.float64]] = []
    for k, factor in enumerate(given):
        if not _is_factor(factor):
            raise BadInputError(f"network {name}: expected DiscreteFactors, found {type(factor).__name__}")
        strange = [v for v in factor.variables if v not in index]
        if strange:
            raise BadInputError(
                f"network {name}: expected factor {k} to be over nodes of the model, found {strange[0]!r} in it"
            )
        table = np.asarray(factor.values, dtype=np.float64)
        for axis, variable in enumerate(factor.variables):
            own = factor.state_names.get(variable) or list(range(table.shape[axis]))
            here = _labels(name, variable, own)
            if len(here) != table.shape[axis]:
                raise BadInputError(
                    f"network {name}: expected {table.shape[axis]} states of {variable!r} in factor {k},"
                    f" found {len(here)}: {_listed(list(map(str, here)))}"
                )
            first = states.setdefault(variable, here)
            table = _aligned(f"network {name}: expected factor {k}", table, axis, variable, here, first)
        scopes.append(tuple(index[v] for v in factor.variables))
        tables.append(np.ascontiguousarray(table))
    labels = tuple(states.get(v) for v in variables)
    return MarkovNetwork(name, variables, labels, tuple(scopes), tuple(tables))


def _is_factor(thing: object) -> bool:
    return "DiscreteFactor" in _pgmpy_classes(thing)


def _variables(name: str, nodes: Iterable[object]) -> tuple[str, ...]:
    found = []
    for node in nodes:
        if not isinstance(node, str):
            raise BadInputError(
                f"network {name}: expected nodes named by strings, found {node!r} ({type(node).__name__})"
            )
        found.append(node)
    return tuple(found)


def is_pgmpy(model: object) -> bool:
    """Whether an object is of a pgmpy class, or of one derived from it; found without importing pgmpy."""
    return bool(_pgmpy_classes(model))


def _pgmpy_classes(model: object) -> list[str]:
    """Names of the pgmpy classes that an object is of, the most special first."""
    return [c.__name__ for c in type(model).__mro__ if c.__module__.partition(".")[0] == "pgmpy"]


def _labels(name: str, variable: str, labels: Iterable[object]) -> tuple[State, ...]:
    states: list[State] = []
    for label in labels:
        state = label.item() if isinstance(label, np.generic) else label
        if not isinstance(state, (str, int, bool)):
            raise BadInputError(
                f"network {name}: expected states of {variable!r} that are strings, integers or booleans,"
                f" found {state!r} ({type(state).__name__})"
            )
        states.append(state)
    return tuple(states)


def _table(name: str, cpd: Any, evidence: list[str], states: Mapping[str, tuple[State, ...]]) -> NDArray[np.float64]:
    """Values of a CPD with its variable last and every parent's states in the order of the parent's own CPD."""
    shape = [len(cpd.state_names[v]) for v in (cpd.variable, *evidence)]
    table: NDArray[np.float64] = np.asarray(cpd.get_values(), dtype=np.float64).reshape(shape)
    for axis, parent in enumerate(evidence, start=1):
        here = _labels(name, parent, cpd.state_names[parent])
        who = f"network {name}: expected the CPD of {cpd.variable!r}"
        table = _aligned(who, table, axis, parent, here, states[parent])
    return np.ascontiguousarray(np.moveaxis(table, 0, -1))


def _aligned(
    who: str,
    table: NDArray[np.float64],
    axis: int,
    variable: str,
    here: tuple[State, ...],
    states: tuple[State, ...],
) -> NDArray[np.float64]:
    """A table whose axis has a variable's states in the order of `states`, from one that has them as in `here`."""
    if here == states:
        return table
    if sorted(map(str, here)) != sorted(map(str, states)):
        raise BadInputError(
            f"{who} to have the states of {variable!r} ({_listed(list(map(str, states)))}),"
            f" found {_listed(list(map(str, here)))}"
        )
    at = {str(s): k for k, s in enumerate(here)}
    return table.take([at[str(s)] for s in states], axis=axis)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
