"""A discrete Bayesian network as the driver holds it: names, states, parents, tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.errors import BadInputError

State = str | int | bool

# Files round their tables. The worst row among the 24 networks that pgmpy ships is off by 3e-7 (barley, pathfinder; see
# tests); by hand, three or four states at three decimals (0.333, 0.333, 0.333) are off by up to 2e-3.
SUM_TOLERANCE = 2e-3


@dataclass(frozen=True)
class Network:
    """A discrete Bayesian network.

    Attributes
    ----------
    name : str
        What it is called in messages and files.
    variables : tuple of str
        In the order of the file or model it came from.
    states : tuple of (tuple of State, or None)
        A variable's state labels in table order; None where only the data can tell.
    parents : tuple of tuple of int
        Indices into `variables`, in the order of the table's axes.
    tables : tuple of (float64 array, or None)
        Pr(variable | parents), shape (parents' cardinalities ..., cardinality): the variable itself is the
        last axis. None where the network gives structure only.

    Raises
    ------
    BadInputError
        On construction: no variables, duplicate names or states, a variable that is its own ancestor, a table
        of the wrong shape, with a negative or non-finite entry, or with a row that does not sum to one.
    """

    name: str
    variables: tuple[str, ...]
    states: tuple[tuple[State, ...] | None, ...]
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[NDArray[np.float64] | None, ...]

    def __post_init__(self) -> None:
        check_names(self.name, self.variables, self.states)
        for variable, parents in zip(self.variables, self.parents, strict=True):
            where = f"network {self.name}: variable {variable!r}"
            _no_duplicates(f"{where}: parent", [self.variables[p] for p in parents])
            if variable in [self.variables[p] for p in parents]:
                raise BadInputError(f"{where} is its own parent")
        _ = self.topological_order
        for i, table in enumerate(self.tables):
            if table is not None:
                self._check_table(i, table)

    def _check_table(self, i: int, table: NDArray[np.float64]) -> None:
        where = f"network {self.name}: the table of variable {self.variables[i]!r}"
        members = [*self.parents[i], i]
        cardinalities = [len(s) if (s := self.states[j]) is not None else -1 for j in members]
        if list(table.shape) != cardinalities:
            raise BadInputError(
                f"{where} has shape {table.shape}, expected {tuple(cardinalities)} (parents, then itself)"
            )
        good = np.isfinite(table) & (table >= 0)
        if not good.all():
            raise BadInputError(
                f"{where} has an entry {float(table[~good][0])!r}: probabilities are finite and not negative"
            )
        sums = table.sum(axis=-1)
        off = np.abs(sums - 1) > SUM_TOLERANCE
        if off.any():
            at = tuple(int(k) for k in np.argwhere(off)[0])
            given = ", ".join(
                f"{self.variables[p]}={self._states(p)[k]}" for p, k in zip(self.parents[i], at, strict=True)
            )
            raise BadInputError(f"{where} sums to {sums[at]:.6g}, not to 1{', given ' + given if given else ''}")

    def _states(self, i: int) -> tuple[State, ...]:
        states = self.states[i]
        assert states is not None
        return states

    @cached_property
    def cardinalities(self) -> tuple[int, ...]:
        """How many states each variable has; every variable's states must be known."""
        return tuple(len(self._states(i)) for i in range(len(self.variables)))

    @cached_property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Each family as its table's axes: parents, then the variable."""
        return tuple((*parents, i) for i, parents in enumerate(self.parents))

    @cached_property
    def topological_order(self) -> tuple[int, ...]:
        """Variable indices, parents before children, otherwise in the order of `variables`."""
        import heapq

        children: list[list[int]] = [[] for _ in self.variables]
        waiting = [len(p) for p in self.parents]
        for i, parents in enumerate(self.parents):
            for p in parents:
                children[p].append(i)
        ready = [i for i, n in enumerate(waiting) if n == 0]
        order = []
        while ready:
            i = heapq.heappop(ready)
            order.append(i)
            for c in children[i]:
                waiting[c] -= 1
                if waiting[c] == 0:
                    heapq.heappush(ready, c)
        if len(order) < len(self.variables):
            raise BadInputError(f"network {self.name} has a directed cycle: {' -> '.join(self._cycle(waiting))}")
        return tuple(order)

    def _cycle(self, waiting: Sequence[int]) -> list[str]:
        """One directed cycle among the variables that never became ready, for the message."""
        i = next(i for i, n in enumerate(waiting) if n)
        path: list[int] = []
        while i not in path:
            path.append(i)
            i = next(p for p in self.parents[i] if waiting[p])
        return [self.variables[j] for j in reversed([*path[path.index(i) :], i])]


def check_names(name: str, variables: Sequence[str], states: Sequence[tuple[State, ...] | None]) -> None:
    """Refuse no variables, variables or states of equal names, and a variable without states."""
    if not variables:
        raise BadInputError(f"network {name}: it has no variables")
    _no_duplicates(f"network {name}: variable", variables)
    for variable, own in zip(variables, states, strict=True):
        if own is not None:
            where = f"network {name}: variable {variable!r}"
            if not own:
                raise BadInputError(f"{where} has no states")
            _no_duplicates(f"{where}: state", [str(s) for s in own])


def _no_duplicates(what: str, names: Sequence[str]) -> None:
    twice = [n for n, k in Counter(names).items() if k > 1]
    if twice:
        raise BadInputError(f"{what} {twice[0]!r} is named more than once")
