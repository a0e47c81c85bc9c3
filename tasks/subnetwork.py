"""A learning problem as arrays: variables, families or factors, where their parameters lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class SubNetwork:
    """An independent learning problem: the free families of a component and the boundary they stand on.

    Variables are numbered locally, parents before children. The parameters of all free families lie in one flat
    vector: family f holds `bases[f]:bases[f + 1]`, its child's states running fastest, then the last parent's.

    A part of a Markov random field is the same thing undirected: its families are factors, whose last variable is no
    one's child; its component is what may be missing, or everything.

    Attributes
    ----------
    names : tuple of str, length n_variables
        Component and boundary variables, parents before children.
    cardinalities : int32 array, shape (n_variables,)
        Number of states.
    columns : int32 array, shape (n_variables,)
        Each variable's row in a partition's codes; -1 where the dataset has no such column.
    may_miss : bool array, shape (n_variables,)
        True where the variable is hidden or partly observed.
    family_ptr : int32 array, shape (n_families + 1,)
        Family f's members are `members[family_ptr[f]:family_ptr[f + 1]]`, its child the last of them.
    members, strides : int32 arrays, shape (n_members,)
        Local variable, and its step in the family's table.
    bases : int64 array, shape (n_families + 1,)
        Where each family's table begins in the flat vector of parameters.
    factors : int32 array, shape (n_families,)
        Each family's number in the whole network.
    directed : bool
        False for a part of a Markov random field.
    """

    names: tuple[str, ...]
    cardinalities: Ints
    columns: Ints
    may_miss: NDArray[np.bool_]
    family_ptr: Ints
    members: Ints
    strides: Ints
    bases: NDArray[np.int64]
    factors: Ints
    directed: bool = True

    @property
    def n_parameters(self) -> int:
        """Length of the flat vector of parameters."""
        return int(self.bases[-1])

    @cached_property
    def children(self) -> Ints:
        """The child of each free family, shape (n_families,)."""
        return self.members[self.family_ptr[1:] - 1]

    @cached_property
    def component(self) -> tuple[str, ...]:
        """Names of the variables whose families are learned here; undirected: of those that may miss, or of all."""
        if not self.directed:
            return self.names if self.is_complete else tuple(np.array(self.names, object)[self.may_miss].tolist())
        return tuple(self.names[int(c)] for c in self.children)

    @cached_property
    def boundary(self) -> tuple[str, ...]:
        """Names of the always-observed parents from outside (thesis, Definition 2)."""
        inside = set(self.component)
        return tuple(n for n in self.names if n not in inside)

    @property
    def is_complete(self) -> bool:
        """True where every variable is always observed: counting is the whole solution."""
        return not bool(self.may_miss.any())

    @cached_property
    def family_cardinalities(self) -> NDArray[np.int64]:
        """Number of states of each family's child, shape (n_families,)."""
        return self.cardinalities[self.children].astype(np.int64)

    @cached_property
    def incidence(self) -> tuple[Ints, Ints]:
        """The families each variable is a member of: pointers (n_variables + 1,) and family numbers."""
        families = np.repeat(np.arange(len(self.family_ptr) - 1, dtype=np.int32), np.diff(self.family_ptr))
        order = np.argsort(self.members, kind="stable")
        ptr = np.searchsorted(self.members[order], np.arange(len(self.names) + 1)).astype(np.int32)
        return ptr, families[order]

    def entry_codes(self, parameter: int) -> tuple[tuple[str, int], ...]:
        """A parameter's family instantiation: each member's name and state number, parents first."""
        family = int(np.searchsorted(self.bases, parameter, side="right")) - 1
        entry = parameter - int(self.bases[family])
        return tuple(
            (self.names[v], entry // int(self.strides[k]) % int(self.cardinalities[v]))
            for k in range(int(self.family_ptr[family]), int(self.family_ptr[family + 1]))
            for v in [int(self.members[k])]
        )


def make_sub_network(
    names: Sequence[str],
    cardinalities: Sequence[int],
    columns: Sequence[int],
    may_miss: Sequence[bool],
    families: Sequence[Sequence[int]],
    factors: Sequence[int] | None = None,
    directed: bool = True,
) -> SubNetwork:
    """Lay out the arrays of a learning problem.

    Parameters
    ----------
    names, cardinalities, columns, may_miss : sequences, length n_variables
        As in `SubNetwork`; parents must come before children.
    families : sequence of sequences of int
        Each free family as local variables: parents in table order, then the child; or a factor's scope.
    factors : sequence of int, length n_families, optional
        Their numbers in the whole network; by default their places here.
    directed : bool
        False where they are factors of a Markov random field.
    """
    ptr, bases = [0], [0]
    members: list[int] = []
    strides: list[int] = []
    for family in families:
        step, steps = 1, []
        for v in reversed(family):
            steps.append(step)
            step *= cardinalities[v]
        members.extend(family)
        strides.extend(reversed(steps))
        ptr.append(len(members))
        bases.append(bases[-1] + step)
    return SubNetwork(
        names=tuple(names),
        cardinalities=np.asarray(cardinalities, np.int32),
        columns=np.asarray(columns, np.int32),
        may_miss=np.asarray(may_miss, np.bool_),
        family_ptr=np.asarray(ptr, np.int32),
        members=np.asarray(members, np.int32),
        strides=np.asarray(strides, np.int32),
        bases=np.asarray(bases, np.int64),
        factors=np.asarray(range(len(families)) if factors is None else factors, np.int32),
        directed=directed,
    )
