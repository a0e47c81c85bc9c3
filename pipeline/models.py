"""pgmpy's models, in and out.

pgmpy takes 1.5 s to import, so it is imported only where one of its models has to be made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.network import Network, State
from tasks.errors import BadInputError

if TYPE_CHECKING:
    from pgmpy.models import DiscreteBayesianNetwork

# Classes whose nodes are discrete variables; BayesianNetwork and BayesianModel are older pgmpy's names.
_DISCRETE_MODELS = {"DiscreteBayesianNetwork", "BayesianNetwork", "BayesianModel", "NaiveBayes", "DAG"}
# Rows further than this from one are divided by their sum for pgmpy: numpy's samplers, which it uses, refuse at 1e-8.
_SUM_FOR_PGMPY = 1e-9


def to_pgmpy(network: Network) -> DiscreteBayesianNetwork:
    """pgmpy model of a network: its nodes and edges and, where it has tables, a CPD for each.

    Parameters
    ----------
    network : Network

    Returns
    -------
    DiscreteBayesianNetwork whose nodes are in the network's order, whose state names keep their types, and whose
    columns sum to one (within 1e-9; published tables are rounded, so some had to be divided by their sum).

    Notes
    -----
    Importing pgmpy costs 1.5 s, once. Then 3 ms for alarm and 0.1 s for munin.
    """
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


def from_pgmpy(model: Any) -> Network:
    """Network of a pgmpy model.

    Parameters
    ----------
    model : pgmpy DiscreteBayesianNetwork
        With a CPD for every node, or for none: then the network's states and tables are None.

    Raises
    ------
    BadInputError
        Another kind of model, node names that are not strings, states that are not strings, integers or booleans,
        some CPDs missing, or CPDs that disagree with the edges or with each other.
    """
    kind = pgmpy_class(model)
    name = str(getattr(model, "name", "") or "unknown")
    if kind not in _DISCRETE_MODELS:
        raise BadInputError(f"expected a pgmpy DiscreteBayesianNetwork, found {kind or type(model).__name__}")
    for node in model.nodes():
        if not isinstance(node, str):
            raise BadInputError(
                f"network {name}: expected nodes named by strings, found {node!r} ({type(node).__name__})"
            )
    variables: tuple[str, ...] = tuple(model.nodes())
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
    states = {v: _states(name, v, cpds[v]) for v in variables}
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


def pgmpy_class(model: object) -> str | None:
    """Name of the pgmpy class that an object is of or derives from, found without importing pgmpy."""
    return next((c.__name__ for c in type(model).__mro__ if c.__module__.partition(".")[0] == "pgmpy"), None)


def _states(name: str, variable: str, cpd: Any) -> tuple[State, ...]:
    states = []
    for label in cpd.state_names[variable]:
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
        here = _states(name, parent, cpd)
        if here != states[parent]:
            if sorted(map(str, here)) != sorted(map(str, states[parent])):
                raise BadInputError(
                    f"network {name}: expected the CPD of {cpd.variable!r} to have the states of {parent!r}"
                    f" ({_listed(list(map(str, states[parent])))}), found {_listed(list(map(str, here)))}"
                )
            at = {str(s): k for k, s in enumerate(here)}
            table = table.take([at[str(s)] for s in states[parent]], axis=axis)
    return np.ascontiguousarray(np.moveaxis(table, 0, -1))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
