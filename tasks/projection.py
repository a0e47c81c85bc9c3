"""Counts of a group of sub-networks over a partition, and their sum over partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.counting import count_families
from tasks.errors import BadInputError
from tasks.instances import InstanceTable, merge_instances
from tasks.reading import Partition
from tasks.reduction import reduce_rows
from tasks.scopes import Scope, distinct_rows

# Half the range of a 64-bit integer, as a float's sum of weights is rounded.
MAX_WEIGHT = 2.0**62


@dataclass(frozen=True)
class Counts:
    """What one sub-network's learning needs of the data.

    Attributes
    ----------
    complete : int64 or float64 array, shape (n_parameters,)
        Counts of the rows that observe a whole family, in the layout of the parameters.
    instances : InstanceTable or None
        Distinct instances of the rows with something missing; None where the sub-network is complete.
    """

    complete: NDArray[np.int64] | NDArray[np.float64]
    instances: InstanceTable | None


@dataclass(frozen=True)
class Projection:
    """The counts of a group of sub-networks over some rows.

    Attributes
    ----------
    n_rows : int
        Rows read.
    total_weight : int or float
        Examples they stand for.
    counts : tuple of Counts
        By sub-network.
    """

    n_rows: int
    total_weight: int | float
    counts: tuple[Counts, ...]


def project(
    partition: Partition, scopes: Sequence[Scope], drop_barren: bool = True, by_row: bool = False
) -> Projection:
    """Project a partition onto sub-networks and count (thesis, Definition 4; `tasks.reduction`).

    Parameters
    ----------
    partition : Partition
        State codes and weights.
    scopes : sequence of Scope
        Of the sub-networks that are counted.
    drop_barren, by_row : bool
        See `reduce_rows`.
    """
    codes = partition.codes
    weights = np.empty(0, np.int64) if partition.weights is None else partition.weights
    counts: dict[int, Counts] = {}
    for scope in scopes:
        rows, examples = distinct_rows(codes, weights, scope) if len(scope.columns) else (codes, weights)
        for k, s in zip(scope.members, scope.sub_networks, strict=True):
            counts[k] = Counts(
                count_families(rows, examples, s),
                None if s.is_complete else reduce_rows(rows, examples, s, drop_barren and s.directed, by_row),
            )
    n_rows = int(codes.shape[1])
    total_weight: int | float = n_rows
    if partition.weights is not None:
        total_weight = _total(float(weights.sum(dtype=np.float64)))
        if weights.dtype == np.int64:
            total_weight = int(weights.sum())
    return Projection(n_rows, total_weight, tuple(counts[k] for k in range(len(counts))))


def merge(projections: Sequence[Projection]) -> Projection:
    """Add projections of the same sub-networks over different rows: associative and commutative for integer weights."""
    if len(projections) == 1:
        return projections[0]
    counts = []
    for same in zip(*(p.counts for p in projections), strict=True):
        complete = same[0].complete.copy()
        for c in same[1:]:
            complete += c.complete
        tables = [c.instances for c in same if c.instances is not None]
        counts.append(Counts(complete, merge_instances(tables) if tables else None))
    total_weight = sum(p.total_weight for p in projections)
    _total(float(total_weight))
    return Projection(sum(p.n_rows for p in projections), total_weight, tuple(counts))


def _total(weight: float) -> float:
    """The sum of weights, refused where counts could leave the range of a 64-bit integer."""
    if not weight <= MAX_WEIGHT:
        raise BadInputError(
            f"the weights sum to {weight:.3g}, expected at most {MAX_WEIGHT:.3g}; divide them all by the same number"
        )
    return weight


def find_row(partition: Partition, codes: Sequence[tuple[int, int]], missing: Sequence[int]) -> int:
    """The first row with the given (column, code) pairs and with these columns missing, or -1."""
    match = np.ones(partition.codes.shape[1], np.bool_)
    if partition.weights is not None:
        match &= partition.weights > 0
    for column, code in codes:
        match &= partition.codes[column] == code
    for column in missing:
        match &= partition.codes[column] < 0
    found = np.flatnonzero(match)
    return int(found[0]) if len(found) else -1
