"""The data pass as one Dask graph; nothing here computes anything.

read-partition ──► project (a group of sub-networks) ──► merge-counts (tree) ──► compile ──► measure
    a part             parts x groups                       by group             by group    to the driver
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dask.base import tokenize

from pipeline.dataset import Dataset
from pipeline.stages import (
    Group,
    Reading,
    TreeTask,
    compile_group,
    count,
    fit,
    merge,
    merge_counted,
    project,
    read,
    scan_states,
    sizes,
)
from tasks.reading import TablePart, scan_partition
from tasks.scopes import MAX_ENTRIES, pack_scopes
from tasks.subnetwork import SubNetwork

SPLIT_EVERY = 8
# Scheduler time is about a millisecond a task: this many projections is the most that a job may cost it.
MAX_PROJECTIONS = 20_000
# Nanoseconds that counting takes by row and family member, and by row and variable that may be missing (measured).
COUNT_COST, REDUCE_COST = 1.0, 10.0


@dataclass(frozen=True)
class DataPass:
    """The graph of the data pass with the keys of its results, one a group.

    Attributes
    ----------
    graph : dict
        Dask graph.
    prepared, measured : tuple
        Keys of the groups' prepared problems and of their sizes.
    members : tuple of tuple of int
        The sub-networks of each group, by number.
    """

    graph: dict[Any, Any]
    prepared: tuple[Any, ...]
    measured: tuple[Any, ...]
    members: tuple[tuple[int, ...], ...]


def scan_cost(sub_network: SubNetwork, n_rows: int) -> float:
    """Seconds that one sub-network's counting takes over the whole dataset, about."""
    per_row = COUNT_COST * len(sub_network.members) + REDUCE_COST * int(sub_network.may_miss.sum())
    return 1e-9 * per_row * n_rows


def group_sub_networks(
    sub_networks: Sequence[SubNetwork], n_rows: int, n_parts: int, n_threads: int
) -> tuple[tuple[int, ...], ...]:
    """Share sub-networks out into groups of about equal cost; a group is worth about a second, or all there is."""
    costs = [scan_cost(s, n_rows) for s in sub_networks]
    # Parts alone keep the workers busy where there are enough of them; more groups let merging run in parallel too.
    wanted = min(2 * n_threads, int(sum(costs)), MAX_PROJECTIONS // max(n_parts, 1), len(sub_networks))
    n_groups = max(1, wanted)
    groups: list[list[int]] = [[] for _ in range(n_groups)]
    load = [0.0] * n_groups
    for k in sorted(range(len(costs)), key=lambda k: -costs[k]):
        g = load.index(min(load))
        groups[g].append(k)
        load[g] += costs[k]
    return tuple(tuple(sorted(g)) for g in groups if g)


def _token(dataset: Dataset, *settings: object) -> str:
    """What tells this job's keys from others': its input and settings, so that equal work has equal keys."""
    if any(isinstance(p, TablePart) for p in dataset.parts):
        # Hashing a table costs about as much as learning from it: such jobs get keys of their own instead.
        return uuid.uuid4().hex
    return str(tokenize(dataset.parts, dataset.frame_keys, dataset.files, *settings))


def scan_graph(
    dataset: Dataset, names: Sequence[str], want_values: frozenset[str], weight: str | None, tokens: tuple[str, ...]
) -> tuple[dict[Any, Any], list[Any]]:
    """The graph that counts missing values, and finds states, where footers do not tell: a task a partition."""
    token = _token(dataset, tuple(names), sorted(want_values), weight, tokens)
    graph: dict[Any, Any] = {}
    keys = []
    for i, part in enumerate(dataset.part_keys(token, graph)):
        graph[("scan-" + token, i)] = (scan_partition, part, list(names), want_values, weight, tokens)
        keys.append(("scan-" + token, i))
    return graph, keys


def data_pass(
    dataset: Dataset,
    reading: Reading,
    sub_networks: Sequence[SubNetwork],
    members: tuple[tuple[int, ...], ...],
    drop_barren: bool,
    by_row: bool,
    allowed_bytes: int,
) -> DataPass:
    """Wire the data pass: parts x groups, merged in a tree, each group's problems compiled where its counts lie."""
    groups = []
    for m in members:
        own = tuple(sub_networks[k] for k in m)
        # Whole rows are kept as they are: no scope narrower than the sub-network would do.
        groups.append(Group(own, pack_scopes(own, 0 if by_row else MAX_ENTRIES), drop_barren, by_row, allowed_bytes))
    return pass_over_groups(dataset, reading, groups, members, _token(dataset, reading, groups), by_row=by_row)


def pass_over_groups(
    dataset: Dataset,
    reading: Reading,
    groups: Sequence[Any],
    members: tuple[tuple[int, ...], ...],
    token: str,
    field: Any = None,
    by_row: bool = False,
) -> DataPass:
    """Wire the data pass for groups that are there, or for recipes of groups.

    Parameters
    ----------
    dataset, reading
        What is read, and how.
    groups : sequence of Group or Recipe
        What is counted together.
    members : tuple of tuple of int
        What each group holds, by number.
    token : str
        Makes the keys this job's own.
    field : LocalField, optional
        What recipes are made from, on each worker that needs them: sent once a worker, where groups would be sent for
        every part.
    by_row : bool
        Whether groups keep whole rows.
    """
    graph: dict[Any, Any] = {f"reading-{token}": reading}
    part_keys = dataset.part_keys(token, graph)
    for i, part in enumerate(part_keys):
        graph[("read-partition-" + token, i)] = (read, part, f"reading-{token}")
    prepared, measured = [], []
    source: tuple[Any, ...] = ()
    if field is not None:
        graph[f"field-{token}"] = field
        source = (f"field-{token}",)
    for g, group in enumerate(groups):
        scopes = f"scopes-{token}-{g}"
        graph[scopes] = group
        level: list[Any] = []
        for i in range(len(part_keys)):
            key = ("project-" + token, g, i)
            graph[key] = (project, ("read-partition-" + token, i), scopes, *source)
            level.append(key)
        merged = _merge_tree(graph, level, merge, "merge-counts-" + token, g)
        graph[("compile-" + token, g)] = (compile_group, merged, scopes, *source)
        graph[("measure-" + token, g)] = (sizes, ("compile-" + token, g), by_row)
        prepared.append(("compile-" + token, g))
        measured.append(("measure-" + token, g))
    return DataPass(graph, tuple(prepared), tuple(measured), members)


def _merge_tree(graph: dict[Any, Any], level: list[Any], merge: Callable[..., Any], name: str, *number: int) -> Any:
    """Merge what is behind some keys, a few at a time; the key of the whole."""
    depth = 0
    while len(level) > 1 or depth == 0:
        above = []
        for i in range(0, len(level), SPLIT_EVERY):
            merged = (name, *number, depth, i // SPLIT_EVERY)
            graph[merged] = (merge, level[i : i + SPLIT_EVERY])
            above.append(merged)
        level, depth = above, depth + 1
    return level[0]


def states_graph(
    dataset: Dataset, names: Sequence[str], weight: str | None, tokens: tuple[str, ...], most: int
) -> tuple[dict[Any, Any], list[Any]]:
    """The graph that finds the columns' states and missing values: a task a partition; see `scan_states`."""
    token = _token(dataset, tuple(names), weight, tokens, most)
    graph: dict[Any, Any] = {}
    keys = []
    for i, part in enumerate(dataset.part_keys(token, graph)):
        graph[("scan-" + token, i)] = (scan_states, part, list(names), weight, tokens, most)
        keys.append(("scan-" + token, i))
    return graph, keys


def pair_pass(dataset: Dataset, reading: Reading, task: TreeTask) -> tuple[dict[Any, Any], Any]:
    """The graph of a structure: read-partition, count-pairs, merge-pairs in a tree, fit-tree; and its result's key."""
    token = _token(dataset, reading, task)
    graph: dict[Any, Any] = {f"reading-{token}": reading, f"tree-{token}": task}
    level: list[Any] = []
    for i, part in enumerate(dataset.part_keys(token, graph)):
        graph[("read-partition-" + token, i)] = (read, part, f"reading-{token}")
        graph[("count-pairs-" + token, i)] = (count, ("read-partition-" + token, i), f"tree-{token}")
        level.append(("count-pairs-" + token, i))
    merged = _merge_tree(graph, level, merge_counted, "merge-pairs-" + token)
    graph["fit-tree-" + token] = (fit, merged, f"tree-{token}")
    return graph, "fit-tree-" + token
