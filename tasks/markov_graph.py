"""A Markov random field's structure as arrays, and where its parameters lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Graph:
    """A Markov random field's structure as arrays, factors without variables left out.

    Attributes
    ----------
    names : tuple of str
        The variables'.
    cardinalities : tuple of int
        Their numbers of states.
    scopes : tuple of tuple of int
        Each factor's variables.
    """

    names: tuple[str, ...]
    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]

    @cached_property
    def bases(self) -> NDArray[np.int64]:
        """Where each factor's entries begin in the flat vector of parameters, shape (n_factors + 1,)."""
        sizes = [math.prod(self.cardinalities[v] for v in s) for s in self.scopes]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached_property
    def incidence(self) -> tuple[tuple[int, ...], ...]:
        """The factors that each variable is in."""
        lists: list[list[int]] = [[] for _ in self.names]
        for f, scope in enumerate(self.scopes):
            for v in scope:
                lists[v].append(f)
        return tuple(map(tuple, lists))

    @property
    def n_parameters(self) -> int:
        """Length of the flat vector of parameters."""
        return int(self.bases[-1])


def entry_codes(graph: Graph, parameter: int) -> tuple[tuple[str, int], ...]:
    """A parameter's factor instantiation: each variable's name and state number."""
    f = int(np.searchsorted(graph.bases, parameter, side="right")) - 1
    codes = np.unravel_index(parameter - int(graph.bases[f]), [graph.cardinalities[v] for v in graph.scopes[f]])
    return tuple((graph.names[v], int(c)) for v, c in zip(graph.scopes[f], codes, strict=True))
