"""The plan: what a job will read, count and solve, and whether it fits, before any of it is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pipeline.dataset import (
    Dataset,
    Observability,
    column_names,
    observability,
    open_dataset,
    states_from_scans,
)
from pipeline.decompose import Decomposition, decompose
from pipeline.execution import Executor, Progress, make_executor
from pipeline.graph import group_sub_networks, scan_graph
from pipeline.markov import AnyNetwork, MarkovNetwork
from pipeline.names import name_variables
from pipeline.networks import load_network
from tasks.codes import code_dtype
from tasks.decomposable import CliqueTree, find_clique_tree
from tasks.elimination import compile_programs
from tasks.elimination_order import EliminationOrder
from tasks.errors import BadInputError, TooLargeError
from tasks.inference import MAX_PARTIALS
from tasks.markov_terms import plan_model
from tasks.reading import Column
from tasks.reduction import reduce_rows
from tasks.subnetwork import SubNetwork

# The kernels' offsets are 32-bit: no sub-network may have more parameters.
MAX_PARAMETERS = 2**31 - 1


@dataclass(frozen=True)
class PlannedSubNetwork:
    """One learning problem, as far as it is known before the data are read.

    Attributes
    ----------
    variables, boundary : tuple of str
        Component (whose parameters are learned) and boundary (thesis, Definitions 1 and 2). Of a Markov random field's:
        what may be missing, or everything; and the rest.
    method : str
        "closed form" where every variable is always observed, else "iterative".
    hidden, partly_observed : int
        How many of the component's variables are.
    parameters : int
        Entries of its conditional probability tables.
    max_rows : int
        Bound on its distinct projected rows, and so on its instances for each hidden component.
    max_table_bytes : int
        Bound on the memory of those rows.
    """

    variables: tuple[str, ...]
    boundary: tuple[str, ...]
    method: str
    hidden: int
    partly_observed: int
    parameters: int
    max_rows: int
    max_table_bytes: int


@dataclass(frozen=True)
class Plan:
    """What a job will do and need.

    Attributes
    ----------
    network : str
        Name of the network.
    rows, files, parts, on_disk_bytes : int
        Size of the dataset's needed columns.
    always_observed, partly_observed, hidden : tuple of str
        The network's variables by how the dataset shows them.
    ignored_columns : tuple of str
        Columns that are no variable of the network.
    pruned : tuple of str
        Hidden variables whose parameters the likelihood does not depend on (thesis, Proposition 3).
    sub_networks : tuple of PlannedSubNetwork
        The independent learning problems.
    parameters : int
        Entries of all tables to learn.
    tasks : dict
        Dask tasks by stage; the number of `solve` tasks is a bound.
    projected_bytes, allowed_bytes : int
        Memory that one worker thread needs at least and may take.
    threads : int
        Worker threads.
    model : dict or None
        Of a Markov random field: treewidth, bytes of its jointree, and whether it is decomposable (complete data then
        have a closed form).
    """

    network: str
    rows: int
    files: int
    parts: int
    on_disk_bytes: int
    always_observed: tuple[str, ...]
    partly_observed: tuple[str, ...]
    hidden: tuple[str, ...]
    ignored_columns: tuple[str, ...]
    pruned: tuple[str, ...]
    sub_networks: tuple[PlannedSubNetwork, ...]
    parameters: int
    tasks: dict[str, int]
    projected_bytes: int
    allowed_bytes: int
    threads: int
    model: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON-ready values."""
        return asdict(self)

    def __str__(self) -> str:
        complete = [s for s in self.sub_networks if s.method == "closed form"]
        rest = sorted((s for s in self.sub_networks if s.method != "closed form"), key=lambda s: -len(s.variables))
        n_variables = len(self.always_observed + self.partly_observed + self.hidden)
        tasks = ", ".join(f"{n} {stage}" for stage, n in self.tasks.items())
        lines = [
            f"network          {self.network}: {_count(n_variables, 'variable')}, {self.parameters:,} parameters",
            f"dataset          {self.rows:,} rows in {_count(self.files, 'file')}, {_count(self.parts, 'part')}, "
            f"{_bytes(self.on_disk_bytes)} to read",
            f"always observed  {len(self.always_observed)}",
            f"partly observed  {_names(self.partly_observed)}",
            f"hidden           {_names(self.hidden)}",
            f"ignored columns  {_names(self.ignored_columns)}",
            f"unlearnable      {_names(self.pruned)}",
            f"tasks            {tasks} on {_count(self.threads, 'thread')}",
            f"memory           {_bytes(self.projected_bytes)} a thread at least, {_bytes(self.allowed_bytes)} allowed",
        ]
        if self.model is not None:
            lines.append(
                f"model term       jointree of treewidth {self.model['treewidth']}, {_bytes(self.model['bytes'])}; "
                + (
                    "decomposable: complete data have a closed form"
                    if self.model["decomposable"]
                    else "not decomposable"
                )
            )
        how = "counted once, not" if self.model is not None else "closed form, no"
        lines += [
            "",
            f"{_count(len(self.sub_networks), 'independent sub-network')}: {len(complete)} complete ({how} "
            f"{'iterated' if self.model is not None else 'iteration'}), {len(rest)} with missing values (iterated)",
        ]
        if rest:
            shown = rest[:20]
            lines.append(" learned  hidden  partly  boundary  parameters  rows at most  variables")
            lines += [
                f"{len(s.variables):>8} {s.hidden:>7} {s.partly_observed:>7} {len(s.boundary):>9} {s.parameters:>11,} "
                f"{s.max_rows:>13,}  {_names(s.variables, 5)}"
                for s in shown
            ]
            if len(rest) > len(shown):
                lines.append(f"… and {len(rest) - len(shown)} more")
        return "\n".join(lines)


@dataclass(frozen=True)
class Job:
    """A planned job: everything that the later stages need.

    Attributes
    ----------
    network : Network or MarkovNetwork
        With every variable's states known.
    dataset : Dataset
        Where the rows are.
    columns : tuple of Column
        The network's variables with a column, in the order in which partitions hold them.
    observability : Observability
        Which variables are always, partly, never observed.
    decomposition : Decomposition
        The independent learning problems.
    groups : tuple of tuple of int
        The sub-networks that are counted together.
    plan : Plan
        For people.
    elimination : EliminationOrder or None
        How a Markov random field's model term is evaluated.
    clique_tree : CliqueTree or None
        Of a Markov random field, where it is decomposable.
    """

    network: AnyNetwork
    dataset: Dataset
    columns: tuple[Column, ...]
    observability: Observability
    decomposition: Decomposition
    groups: tuple[tuple[int, ...], ...]
    plan: Plan
    elimination: EliminationOrder | None = None
    clique_tree: CliqueTree | None = None

    @property
    def kernel_types(self) -> tuple[str, str]:
        """Types of codes and weights that the kernels will meet; a weight column may hold fractions."""
        code = np.dtype(code_dtype(max(len(c.states) for c in self.columns))).name
        return code, "int64" if self.dataset.weight is None else "float64"


def plan(
    network: object,
    data: object,
    *,
    weight: str | None = None,
    missing_tokens: Sequence[str] = (),
    decompose: bool = True,
    drop_barren: bool = True,
    names: object = None,
    client: Any = None,
) -> Plan:
    """Say what learning would read, count and solve, without doing it.

    Parameters
    ----------
    network, data, weight, missing_tokens, decompose, drop_barren, names, client
        As in `learn`.

    Returns
    -------
    Plan
        `print` it for a table.

    Raises
    ------
    BadInputError
        The network or the data are not what they have to be.
    TooLargeError
        The job cannot fit into the workers' memory.

    Notes
    -----
    Reads Parquet footers; data only where footers do not tell what is missing.
    """
    return make_job(
        network,
        data,
        weight,
        missing_tokens,
        decompose=decompose,
        drop_barren=drop_barren,
        names=names,
        executor=make_executor(client),
    ).plan


def make_job(
    network: object,
    data: object,
    weight: str | None,
    missing_tokens: Sequence[str],
    *,
    decompose: bool,
    drop_barren: bool,
    executor: Executor,
    names: object = None,
    local: bool = False,
    progress: Progress | None = None,
) -> Job:
    """Load, inspect, decompose and refuse: everything before the data pass.

    For estimators that work from `local` counts nothing is decomposed here, and no jointree needed.
    """
    if names == "columns":
        net = name_variables(load_network(network), column_names(data, weight), "the data's columns")
    else:
        net = load_network(network, names=names)
    tokens = check_tokens(missing_tokens)
    if weight is not None and weight in net.variables:
        raise BadInputError(f"weight column {weight!r} is a variable of network {net.name}; give a column that is not")
    dataset = open_dataset(data, net.variables, weight=weight, missing_tokens=tokens)
    unnamed = frozenset(v for v, s in zip(net.variables, net.states, strict=True) if s is None)
    scans = None
    shown = set(dataset.columns)
    to_scan = sorted(set(dataset.needs_scan) | (unnamed & shown))
    if to_scan:
        graph, keys = scan_graph(dataset, to_scan, unnamed, weight, tokens)
        scans = executor.gather(graph, keys, progress, "scan")
    seen = observability(dataset, scans)
    if unnamed:
        net = _name_states(
            net, unnamed, states_from_scans([v for v in net.variables if v in unnamed and v in shown], scans or [])
        )
    if len(seen.hidden) == len(net.variables):
        raise BadInputError(
            f"{dataset.name}: no variable of the network is ever observed, all entries of its columns are missing; "
            "give the file that holds their values, or fewer missing tokens"
        )
    _refuse_large_tables(net, executor)
    columns = tuple(
        Column(v, s) for v, s in zip(net.variables, net.states, strict=True) if v in shown and s is not None
    )
    pieces = Decomposition((), ()) if local else _decompose(net, columns, seen, whole=not decompose)
    _refuse_large_components(pieces, drop_barren, executor)
    groups = group_sub_networks(pieces.sub_networks, seen.n_rows, dataset.n_parts, executor.n_threads)
    elimination, tree = None, None
    if isinstance(net, MarkovNetwork) and not local:
        elimination, tree = plan_model(net.graph, executor.allowed_bytes), find_clique_tree(net.graph)
    planned = _plan(net, dataset, columns, seen, pieces, groups, executor, len(to_scan) > 0)
    if elimination is not None:
        model = {"treewidth": elimination.treewidth, "bytes": elimination.n_bytes, "decomposable": tree is not None}
        planned = replace(planned, model=model)
    if planned.projected_bytes > planned.allowed_bytes:
        raise TooLargeError(
            f"learning network {net.name} needs at least {_bytes(planned.projected_bytes)} a worker thread, allowed "
            f"{_bytes(planned.allowed_bytes)}; give the workers more memory or fewer threads, or write smaller "
            "row groups"
        )
    return Job(net, dataset, columns, seen, pieces, groups, planned, elimination, tree)


def check_tokens(missing_tokens: Sequence[str]) -> tuple[str, ...]:
    """Missing-value tokens as given, one or several; refused unless they are strings."""
    tokens = (missing_tokens,) if isinstance(missing_tokens, str) else tuple(missing_tokens)
    for token in tokens:
        if not isinstance(token, str):
            raise BadInputError(f"missing_tokens: expected strings, found {token!r}")
    return tokens


def _name_states(net: AnyNetwork, unnamed: frozenset[str], found: dict[str, Any]) -> AnyNetwork:
    """Take the states of variables that the network does not name from the whole dataset."""
    states = list(net.states)
    for i, variable in enumerate(net.variables):
        if variable in unnamed:
            if not found.get(variable):
                raise BadInputError(
                    f"network {net.name}: variable {variable!r} names no states and the data show none of it; "
                    "give the network with its states"
                )
            states[i] = tuple(found[variable])
    return replace(net, states=tuple(states))


def _decompose(net: AnyNetwork, columns: Sequence[Column], seen: Observability, whole: bool) -> Decomposition:
    rows = {c.name: i for i, c in enumerate(columns) if c.name not in set(seen.hidden)}
    return decompose(net, rows, frozenset(seen.always_observed), frozenset(seen.hidden), whole)


def _refuse_large_tables(net: AnyNetwork, executor: Executor) -> None:
    """Refuse tables that cannot be held, before any array of their size is made."""
    sizes = [math.prod(net.cardinalities[j] for j in scope) for scope in net.scopes]
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    if isinstance(net, MarkovNetwork):
        table, remedy = net.describe(largest), "leave variables out of the factor"
    else:
        table = f"the table of {net.variables[largest]!r} ({len(net.parents[largest])} parents)"
        remedy = "remove parents"
    # Counts, expected counts, parameters, prior and the solution's copy: eight bytes each.
    needed = 40 * sum(sizes)
    if needed > executor.allowed_bytes or sum(sizes) > MAX_PARAMETERS:
        raise TooLargeError(
            f"network {net.name} has {sum(sizes):,} parameters, {sizes[largest]:,} of them in {table}: learning needs "
            f"at least {_bytes(needed)}, allowed {_bytes(min(executor.allowed_bytes, 40 * MAX_PARAMETERS))}; merge "
            f"states or {remedy}"
        )


def _refuse_large_components(pieces: Decomposition, drop_barren: bool, executor: Executor) -> None:
    """Refuse what is certain to be too wide: variables hidden in every row must be summed out together."""
    for s in pieces.sub_networks:
        is_hidden = s.columns < 0
        if is_hidden.sum() > 1:
            # One row that observes everything else tells the smallest inference any row can need.
            row = np.zeros((int(s.columns.max()) + 1, 1), np.int8)
            table = reduce_rows(row, np.empty(0, np.int64), s, drop_barren and s.directed)
            compile_programs(s, table, executor.allowed_bytes)


def _plan(
    net: AnyNetwork,
    dataset: Dataset,
    columns: Sequence[Column],
    seen: Observability,
    pieces: Decomposition,
    groups: Sequence[Sequence[int]],
    executor: Executor,
    scanned: bool,
) -> Plan:
    sub_networks = tuple(_planned(s, seen.n_rows) for s in pieces.sub_networks)
    n_parts = dataset.n_parts
    merges, level = 0, n_parts
    while level > 1 or merges == 0:
        level = -(-level // 8)
        merges += level
    tasks = {
        **({"scan": n_parts} if scanned else {}),
        "read-partition": n_parts,
        "project": n_parts * len(groups),
        "merge-counts": merges * len(groups),
        "compile": len(groups),
        "solve": len(sub_networks),
    }
    largest = max((p.n_rows for p in dataset.parts), default=seen.n_rows // max(n_parts, 1))
    width = 1 if max(net.cardinalities) <= 127 else 2
    parameters = sum(math.prod(net.cardinalities[v] for v in s) for s in net.scopes)
    parameters = sum(s.parameters for s in sub_networks) or parameters
    # Codes of a part and one decoded column of it, and the flat counts: of two partial sums, the parameters, their
    # prior, and the blocks of expected counts.
    needed = largest * (len(columns) * width + 5) + 8 * parameters * 4 + 8 * min(parameters, MAX_PARTIALS)
    return Plan(
        network=net.name,
        rows=seen.n_rows,
        files=len(dataset.files),
        parts=n_parts,
        on_disk_bytes=dataset.on_disk_bytes or 0,
        always_observed=seen.always_observed,
        partly_observed=seen.partly_observed,
        hidden=seen.hidden,
        ignored_columns=tuple(dataset.ignored_columns),
        pruned=pieces.pruned,
        sub_networks=sub_networks,
        parameters=parameters,
        tasks=tasks,
        projected_bytes=needed,
        allowed_bytes=executor.allowed_bytes,
        threads=executor.n_threads,
    )


def _planned(s: SubNetwork, n_rows: int) -> PlannedSubNetwork:
    inside = np.isin(np.array(s.names, object), np.array(s.component, object))
    is_hidden = s.columns < 0
    # A missing value is one more value that a row can show; a hidden variable shows only that.
    shown = [1 if h else int(c) + int(m) for c, h, m in zip(s.cardinalities, is_hidden, s.may_miss, strict=True)]
    max_rows = min(n_rows, math.prod(shown))
    return PlannedSubNetwork(
        variables=s.component,
        boundary=s.boundary,
        method="closed form" if s.is_complete else "iterative",
        hidden=int((inside & is_hidden).sum()),
        partly_observed=int((inside & s.may_miss & ~is_hidden).sum()),
        parameters=s.n_parameters,
        max_rows=max_rows,
        max_table_bytes=max_rows * (2 * len(s.names) + 8),
    )


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _names(names: Sequence[str], most: int = 8) -> str:
    if not names:
        return "none"
    text = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return text if len(names) <= most or most < 8 else f"{len(names)}: {text}"


def _bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.3g} {unit}" if unit != "B" else f"{int(n)} B"
        n /= 1024
    return f"{n:,.3g} TiB"
