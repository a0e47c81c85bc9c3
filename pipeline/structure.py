"""`learn_structure`: the Chow–Liu tree of a dataset, from the counts of all pairs of its columns.

footers ──► scan: states ──► read-partition ──► count-pairs ──► merge-pairs (tree) ──► fit-tree ──► parameters ──► files
                             a part             a part                                              EM where values
                                                                                                    are missing
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.dataset import (
    Dataset,
    Observability,
    column_names,
    observability,
    open_dataset,
    states_from_scans,
)
from pipeline.execution import Executor, Progress, make_executor
from pipeline.graph import pair_pass, states_graph
from pipeline.learning import Clock, learn, versions
from pipeline.markov import MarkovNetwork, moralise
from pipeline.network import Network, State
from pipeline.output import check_output
from pipeline.planning import check_tokens
from pipeline.priors import check_exponent
from pipeline.stages import Reading, TreeTask
from pipeline.structure_output import information_table, write_structure
from tasks.chow_liu import Tree, tree_log_likelihood, tree_parameters
from tasks.codes import code_dtype
from tasks.errors import BadInputError, TooLargeError
from tasks.reading import Column, PartitionScan

if TYPE_CHECKING:
    from pgmpy.models import DiscreteBayesianNetwork

# The matrix of all pairs' counts, in bytes a pair of states: a merge holds eight and its sum, a count six at its end.
PAIR_BYTES = 80
# EM's starts where values are missing, the first at the pairs' own parameters. That one alone may end low: on the
# mushroom table, where whole kinds lack a column, 388 nats below a random start's end.
STARTS = 5


@dataclass(frozen=True)
class Edge:
    """An edge of the tree.

    Attributes
    ----------
    parent, child : str
        Its variables; directed away from the root.
    mutual_information : float
        Nats.
    available : int or float
        Examples that observe both.
    """

    parent: str
    child: str
    mutual_information: float
    available: int | float


@dataclass(frozen=True)
class StructureResult:
    """A learned tree, or forest.

    Attributes
    ----------
    learned : Network
        The tree with its parameters, variables in the order of the data's columns.
    edges : tuple of Edge
        Strongest first.
    mutual_information : pyarrow.Table
        A row a pair of variables, strongest first: variable_1, variable_2, mutual_information, available, in_tree.
    log_likelihood : float
        Nats, summed over rows.
    converged : bool
        False where EM, which values that are missing need, stopped at its limit.
    report : dict
        What report.json holds.
    """

    learned: Network
    edges: tuple[Edge, ...] = field(repr=False)
    mutual_information: pa.Table = field(repr=False)
    log_likelihood: float
    converged: bool
    report: dict[str, Any] = field(repr=False)

    @cached_property
    def network(self) -> DiscreteBayesianNetwork:
        """The tree as a pgmpy model; made when first asked for."""
        from pipeline.models import to_pgmpy

        return to_pgmpy(self.learned)

    @cached_property
    def undirected(self) -> MarkovNetwork:
        """The same distribution without directions: a factor an edge, one of its own for a root."""
        return moralise(self.learned)


def learn_structure(
    data: object,
    *,
    columns: Sequence[str] | None = None,
    root: str | None = None,
    prior: float = 1.0,
    weight: str | None = None,
    missing_tokens: Sequence[str] = (),
    client: Any = None,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> StructureResult:
    """Learn the tree-structured network of largest likelihood: Chow and Liu's algorithm.

    Parameters
    ----------
    data : path, str, list, DataFrame or table
        As in `learn`. Every column but the weight's is a variable, its states the values in the whole dataset.
    columns : sequence of str, optional
        The columns to take; all by default.
    root : str, optional
        The variable from which its tree is directed. By default, and of every other tree of a forest, the variable with
        most neighbours, the first by name of several. The distribution does not depend on it.
    prior : float
        Dirichlet exponent of every parameter, at least 1: 1 is maximum likelihood, 2 Laplace smoothing. Of the
        parameters only; the tree is found from the counts as they are.
    weight : str, optional
        Column that says how many examples a row stands for.
    missing_tokens : sequence of str
        Values that mean missing, besides null.
    client : distributed.Client, optional
        Cluster to run on; without one the job runs on threads of this process.
    output : path, optional
        Directory to write; it appears whole or not at all.
    overwrite : bool
        Replace an earlier output.
    progress : callable, optional
        Called with (stage, done, total).

    Returns
    -------
    StructureResult
        A forest where mutual information is zero. With missing values each pair is counted over the rows that observe
        both, and the parameters are learned by EM on the tree that this gives, the best of five starts; `learn` with
        the result as its network goes on from there.

    Raises
    ------
    BadInputError
        The data or a setting are not what they have to be; there are not two columns with values. Nothing was written.
    TooLargeError
        The columns have too many states to count all pairs.

    Notes
    -----
    The data are read twice, once for the states. Counting costs the square of the number of states, see
    `tasks.pairs.count_pairs`.

    References
    ----------
    Chow & Liu (1968), *Approximating discrete probability distributions with dependence trees*.
    """
    clock = Clock()
    exponent = check_exponent("prior", prior)
    path = None if output is None else check_output(output, overwrite)
    tokens = check_tokens(missing_tokens)
    executor = make_executor(client)
    names = _choose(column_names(data, weight), columns, root)
    dataset = open_dataset(data, names, weight=weight, missing_tokens=tokens)
    seen, states = _find_states(dataset, names, executor, progress)
    kept = tuple(n for n in names if n in states)
    _refuse(dataset, kept, states, seen, root, executor)
    clock.lap("scan")
    sizes = tuple(len(states[n]) for n in kept)
    code = np.dtype(code_dtype(max(sizes))).name
    incomplete = tuple(n for n in kept if seen.missing[n])
    for kind in ("int64",) if weight is None else ("int64", "float64"):
        executor.warm_up(code, kind, "pairs")
    if incomplete:
        executor.warm_up(code, kind, "em")
    clock.lap("compile")
    task = TreeTask(kept, sizes, None if root is None else kept.index(root))
    reading = Reading(tuple(Column(n, states[n]) for n in kept), weight, tokens)
    graph, key = pair_pass(dataset, reading, task)
    tree: Tree = executor.gather(graph, [key], progress, "count-pairs")[0]
    if not tree.total_weight > 0:
        raise BadInputError(f"weight column {weight!r}: all weights are zero; there is nothing to learn from")
    clock.lap("count")
    parents = tuple(() if p < 0 else (int(p),) for p in tree.parents)
    labels = tuple(states[n] for n in kept)
    if incomplete:
        # The pairs' own parameters, smoothed: EM would keep a zero for ever.
        start = Network("tree", kept, labels, parents, tuple(tree_parameters(tree, 2.0)))
        fitted = _iterate(
            start, data, prior=exponent, weight=weight, missing_tokens=tokens, client=client, progress=progress
        )
    else:
        tables = tuple(tree_parameters(tree, exponent))
        without = [int((c.sum(axis=-1) <= 0).sum()) * c.shape[-1] for c in tree.families]
        fitted = _Fitted(
            Network("tree", kept, labels, parents, tables),
            tree_log_likelihood(tree, tables),
            {n: k for n, k in zip(kept, without, strict=True) if k},
        )
    clock.lap("parameters")
    edges = [
        Edge(kept[p], kept[v], float(tree.information[p, v]), tree.available[p, v].item())
        for v, own in enumerate(parents)
        for p in own
    ]
    edges.sort(key=lambda e: (-e.mutual_information, sorted((e.parent, e.child))))
    report: dict[str, Any] = {
        **_report(tree, fitted, edges, seen),
        "empty": [n for n in names if n not in states],
        "ignored_columns": list(dataset.ignored_columns),
        "settings": {"root": root, "prior": exponent, "weight": weight, "missing_tokens": list(tokens),
                     "columns": None if columns is None else list(names)},
        "seconds": {},
        "versions": dict(versions()),
    }  # fmt: skip
    report["notes"] = notes(report)
    table = information_table(kept, tree.information, tree.available, parents)
    clock.lap("assemble")
    report["seconds"] = clock.seconds
    found = StructureResult(
        fitted.network, tuple(edges), table, fitted.log_likelihood, bool(report["converged"]), report
    )
    if path is not None:
        write_structure(found, path, overwrite)
    return found


@dataclass(frozen=True)
class _Fitted:
    """The tree with its parameters; what EM says of itself, where it was needed."""

    network: Network
    log_likelihood: float
    unlearnable: Mapping[str, int]
    em: Mapping[str, Any] | None = None


def _iterate(start: Network, data: object, **settings: Any) -> _Fitted:
    """EM on the tree, from its own parameters and from random ones."""
    result = learn(start, data, restarts=STARTS, start="network", **settings)
    assert isinstance(result.learned, Network)
    em = {k: result.report[k] for k in ("converged", "iterations", "instances", "sub_networks")}
    return _Fitted(result.learned, result.log_likelihood, result.report["unlearnable"], em)


def _report(tree: Tree, fitted: _Fitted, edges: Sequence[Edge], seen: Observability) -> dict[str, Any]:
    """What report.json says of the tree, its parameters and its data."""
    net = fitted.network
    sizes = dict(zip(net.variables, net.cardinalities, strict=True))
    incomplete = [n for n in net.variables if seen.missing[n]]
    return {
        "network": net.name,
        "rows": tree.n_rows,
        "total_weight": tree.total_weight,
        "log_likelihood": fitted.log_likelihood,
        "log_likelihood_per_row": fitted.log_likelihood / tree.total_weight,
        "variables": len(sizes),
        "states": sum(sizes.values()),
        "edges": len(edges),
        "trees": len(sizes) - len(edges),
        "roots": [n for n, p in zip(net.variables, net.parents, strict=True) if not p],
        "mutual_information": math.fsum(e.mutual_information for e in edges),
        "parameters": "EM" if incomplete else "closed form",
        "converged": fitted.em is None or fitted.em["converged"],
        "em": fitted.em,
        "pairs": _availability(tree, bool(incomplete)),
        "partly_observed": incomplete,
        "constant": [n for n, k in sizes.items() if k == 1],
        "nearly_unique": [n for n, k in sizes.items() if 2 * k > seen.n_rows - seen.missing[n] > 2],
        "unlearnable": dict(fitted.unlearnable),
    }


def _choose(available: tuple[str, ...], columns: Sequence[str] | None, root: str | None) -> tuple[str, ...]:
    """The columns to take, in the data's order."""
    if columns is None:
        chosen = available
    else:
        try:
            wanted = [columns] if isinstance(columns, str) else list(columns)
        except TypeError:
            raise BadInputError(f"columns: expected names, found {columns!r}") from None
        for name in wanted:
            if name not in available:
                raise BadInputError(f"columns: the data have no column {name!r}{_close(name, available)}")
            if wanted.count(name) > 1:
                raise BadInputError(f"columns: {name!r} is named more than once")
        chosen = tuple(n for n in available if n in set(wanted))
    if len(chosen) < 2:
        raise BadInputError(
            f"a structure needs at least two columns, found {'only ' + repr(chosen[0]) if chosen else 'none'}"
        )
    if root is not None and root not in chosen:
        raise BadInputError(f"root: there is no column {root!r} to learn from{_close(root, chosen)}")
    return chosen


def _close(name: object, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    return f"; did you mean {', '.join(map(repr, close))}?" if close else ""


def _find_states(
    dataset: Dataset, names: tuple[str, ...], executor: Executor, progress: Progress | None
) -> tuple[Observability, dict[str, tuple[State, ...]]]:
    """What the whole dataset shows of each column; one without values has no states and is left out."""
    most = _most_states(executor)
    graph, keys = states_graph(dataset, names, dataset.weight, dataset.missing_tokens, most)
    scans: list[PartitionScan] = executor.gather(graph, keys, progress, "scan")
    return observability(dataset, scans), states_from_scans(names, scans)


def _most_states(executor: Executor) -> int:
    """How many states all columns may have together, for the counts of their pairs to fit."""
    return math.isqrt(executor.allowed_bytes // PAIR_BYTES)


def _refuse(
    dataset: Dataset,
    kept: tuple[str, ...],
    states: Mapping[str, tuple[State, ...]],
    seen: Observability,
    root: str | None,
    executor: Executor,
) -> None:
    """Refuse too few columns with values, and too many states, before anything is counted."""
    if root is not None and root not in kept:
        raise BadInputError(f"root: column {root!r} holds no value at all")
    if len(kept) < 2:
        raise BadInputError(
            f"{dataset.name}: a structure needs at least two columns with values, found "
            f"{'only ' + repr(kept[0]) if kept else 'none'}"
        )
    total = sum(len(states[n]) for n in kept)
    largest = max(kept, key=lambda n: len(states[n]))
    if total > _most_states(executor):
        raise TooLargeError(
            f"{dataset.name}: the {len(kept)} columns have {total:,} states or more, {len(states[largest]):,} of them "
            f"column {largest!r}: counting all pairs needs {PAIR_BYTES * total**2 / 2**30:,.3g} GiB a worker thread, "
            f"allowed {executor.allowed_bytes / 2**30:.3g} GiB; name the columns to take without it (columns=, "
            "--columns), or merge states"
        )
    width = np.dtype(code_dtype(len(states[largest]))).itemsize
    rows = max((p.n_rows for p in dataset.parts), default=seen.n_rows // max(dataset.n_parts, 1))
    # Codes of a part and one decoded column of it.
    needed = PAIR_BYTES * total**2 + rows * (len(kept) * width + 5)
    if needed > executor.allowed_bytes:
        raise TooLargeError(
            f"{dataset.name}: a part of {rows:,} rows with {len(kept)} columns needs {needed / 2**30:.3g} GiB a worker "
            f"thread, allowed {executor.allowed_bytes / 2**30:.3g} GiB; write smaller row groups, or take fewer "
            "columns (columns=, --columns)"
        )


def _availability(tree: Tree, incomplete: bool) -> dict[str, Any]:
    """What the pairs were counted over."""
    off: NDArray[Any] = tree.available[np.triu_indices(len(tree.parents), 1)]
    return {
        "counts": "pairwise available" if incomplete else "complete",
        "least_available": off.min().item(),
        "most_available": off.max().item(),
        "never_together": int((off <= 0).sum()),
    }


def notes(report: Mapping[str, Any]) -> list[str]:
    """What a reader should know of a structure, a line each."""
    lines = []
    if report["pairs"]["counts"] != "complete":
        pairs = report["pairs"]
        lines.append(
            f"values are missing in {_listed(report['partly_observed'])}: each pair was counted over the "
            f"{pairs['least_available']:,} to {pairs['most_available']:,} examples that observe both, and the "
            "parameters come from EM on the tree"
        )
        if pairs["never_together"]:
            lines.append(f"pairs never observed together, which no edge can join: {pairs['never_together']:,}")
    if report["constant"]:
        lines.append(f"constant, so without an edge: {_listed(report['constant'])}")
    if report["empty"]:
        lines.append(f"without any value, so left out: {_listed(report['empty'])}")
    if report["unlearnable"]:
        lines.append(
            f"no example tells of some parameters, which are uniform, of {_listed(list(report['unlearnable']))}"
        )
    if report["nearly_unique"]:
        lines.append(
            f"nearly every row has a value of its own in {_listed(report['nearly_unique'])}: such a column is tied to "
            "every other without meaning anything; name the columns to take without it"
        )
    if not report["converged"]:
        lines.append(f"EM stopped at its limit of iterations, {report['em']['iterations']:,}, before it had converged")
    return lines


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
