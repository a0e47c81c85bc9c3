"""What each task of the graph does on a worker: the `tasks` functions, bundled and timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from tasks.chow_liu import Tree, fit_tree
from tasks.em import Solution, expected_counts
from tasks.errors import ImpossibleDataError
from tasks.inference import Evidence
from tasks.pairs import PairCounts, count_pairs, merge_pairs
from tasks.projection import Projection
from tasks.projection import merge as merge_projections
from tasks.projection import project as project_partition
from tasks.reading import (
    Column,
    ParquetPart,
    Partition,
    PartitionScan,
    TablePart,
    read_partition,
    scan_partition,
)
from tasks.scopes import Scope
from tasks.solving import Problem, Settings, Size, evaluate, measure, prepare, solve
from tasks.subnetwork import SubNetwork


@dataclass(frozen=True)
class Reading:
    """How partitions are read: the columns in order, the weight column, the tokens that mean missing."""

    columns: tuple[Column, ...]
    weight: str | None
    missing_tokens: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Sub-networks whose counts travel together, and the scopes in which they are counted."""

    sub_networks: tuple[SubNetwork, ...]
    scopes: tuple[Scope, ...]
    drop_barren: bool
    by_row: bool
    allowed_bytes: int

    def on(self, field: Any) -> Group:
        """The group itself; a recipe makes one from a field, see `pipeline.local_stages.Recipe`."""
        return self


@dataclass(frozen=True)
class TreeTask:
    """A Chow–Liu tree's variables, how many states they have, and which is to be a root (None: see `fit_tree`)."""

    names: tuple[str, ...]
    cardinalities: tuple[int, ...]
    root: int | None


@dataclass(frozen=True)
class Prepared:
    """A group's problems with their sizes, and what was read for them."""

    n_rows: int
    total_weight: int | float
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Timed:
    """A solution and the seconds it took."""

    solution: Solution
    seconds: float


def read(part: ParquetPart | TablePart, reading: Reading) -> Partition:
    """Stage read-partition."""
    return read_partition(part, reading.columns, reading.weight, reading.missing_tokens)


def project(partition: Partition, group: Group, field: Any = None) -> Projection:
    """Stage project."""
    group = group.on(field)
    return project_partition(partition, group.scopes, group.drop_barren, group.by_row)


def merge(projections: Sequence[Projection]) -> Projection:
    """Stage merge-counts."""
    return merge_projections(projections)


def compile_group(projection: Projection, group: Group, field: Any = None) -> Prepared:
    """Stage compile: the elimination programs of a group's instances."""
    group = group.on(field)
    problems = tuple(
        prepare(s, c, group.allowed_bytes) for s, c in zip(group.sub_networks, projection.counts, strict=True)
    )
    return Prepared(projection.n_rows, projection.total_weight, problems)


def sizes(prepared: Prepared, by_row: bool) -> tuple[int, int | float, tuple[Size, ...]]:
    """Stage measure: the little that the driver must know of a group."""
    return prepared.n_rows, prepared.total_weight, tuple(measure(p, by_row) for p in prepared.problems)


def solve_bundle(
    prepared: Prepared,
    members: Sequence[int],
    settings: Settings,
    starts: Sequence[NDArray[Any] | None],
    priors: Sequence[NDArray[Any] | None],
) -> list[Timed]:
    """Stage solve: some of a group's problems, one after another."""
    results = []
    for k, start, prior in zip(members, starts, priors, strict=True):
        began = time.perf_counter()
        solution = solve(prepared.problems[k], settings, start, prior)
        results.append(Timed(solution, time.perf_counter() - began))
    return results


def slice_problem(prepared: Prepared, member: int, begin: int, end: int) -> Evidence:
    """Stage split: a run of one problem's instances, for one worker to keep."""
    evidence = prepared.problems[member].evidence
    assert evidence is not None
    lo, hi = evidence.offset_ptr[begin], evidence.offset_ptr[end]
    return Evidence(
        evidence.signature[begin:end],
        evidence.counts[begin:end],
        evidence.offset_ptr[begin : end + 1] - lo,
        evidence.offsets[lo:hi],
        evidence.programs,
    )


def expect(evidence: Evidence, theta: NDArray[Any], block: int) -> tuple[NDArray[Any], float, int]:
    """Stage e-step: expected counts of a slice under the broadcast parameters."""
    return expected_counts(evidence, theta, block)


def counts_of(prepared: Prepared, member: int) -> tuple[SubNetwork, NDArray[Any]]:
    """One problem without its instances, for the driver of a split sub-network."""
    problem = prepared.problems[member]
    return problem.sub_network, problem.counts.complete


def describe_instance(prepared: Prepared, member: int, instance: int) -> tuple[tuple[str, ...], dict[str, int]]:
    """The hidden variables and boundary values of an instance, for an error message."""
    problem = prepared.problems[member]
    assert problem.counts.instances is not None
    return problem.counts.instances.describe(instance, problem.sub_network)


def score_group(prepared: Prepared, thetas: Sequence[NDArray[Any]]) -> list[float | ImpossibleDataError]:
    """Stage score: each problem's log likelihood under given parameters, nats, or what makes it impossible."""
    results: list[float | ImpossibleDataError] = []
    for problem, theta in zip(prepared.problems, thetas, strict=True):
        try:
            results.append(evaluate(problem, theta))
        except ImpossibleDataError as error:
            results.append(error)
    return results


def scan_states(
    part: ParquetPart | TablePart, names: Sequence[str], weight: str | None, tokens: tuple[str, ...], most: int
) -> PartitionScan:
    """Stage scan, of all columns' states; of a column with more than `most`, so many and one."""
    scan = scan_partition(part, names, frozenset(names), weight, tokens)
    few = {n: v if len(v) <= most else frozenset(sorted(v)[: most + 1]) for n, v in scan.values.items()}
    return replace(scan, values=few)


def count(partition: Partition, task: TreeTask) -> PairCounts:
    """Stage count-pairs."""
    return count_pairs(partition, task.cardinalities)


def merge_counted(parts: Sequence[PairCounts]) -> PairCounts:
    """Stage merge-pairs."""
    return merge_pairs(parts)


def fit(pairs: PairCounts, task: TreeTask) -> Tree:
    """Stage fit-tree: the counts stay where they are, the tree's few come to the driver."""
    return fit_tree(pairs, task.cardinalities, task.names, task.root)
