"""A discrete Markov random field as the driver holds it: names, states, factor scopes, potentials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.network import Network, State, check_names
from tasks.errors import BadInputError
from tasks.markov_graph import Graph


@dataclass(frozen=True)
class MarkovNetwork:
    """A discrete Markov random field.

    Attributes
    ----------
    name : str
        What it is called in messages and files.
    variables : tuple of str
        In the order of the file or model it came from.
    states : tuple of (tuple of State, or None)
        A variable's state labels in table order; None where only the data can tell.
    scopes : tuple of tuple of int
        Each factor's variables as indices into `variables`, in the order of its table's axes. A factor may have no
        variables: then it is a constant, which changes Z and no probability.
    tables : tuple of (float64 array, or None)
        Potentials, not negative, shape (cardinalities of the scope's variables ...). None where the network gives
        structure only.

    Raises
    ------
    BadInputError
        On construction: no variables, duplicate names or states, a variable twice in one factor or in no factor, a
        table of the wrong shape, with a negative or non-finite entry, or with nothing but zeros.

    References
    ----------
    Refaat & Darwiche, *Data Compression for Learning MRF Parameters*, section 2: the tabular form.
    """

    name: str
    variables: tuple[str, ...]
    states: tuple[tuple[State, ...] | None, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[NDArray[np.float64] | None, ...]

    def __post_init__(self) -> None:
        check_names(self.name, self.variables, self.states)
        covered: set[int] = set()
        for k, scope in enumerate(self.scopes):
            if len(set(scope)) < len(scope):
                twice = next(v for v in scope if scope.count(v) > 1)
                raise BadInputError(
                    f"network {self.name}: factor {k} names variable {self.variables[twice]!r} more than once"
                )
            covered.update(scope)
        alone = [v for i, v in enumerate(self.variables) if i not in covered]
        if alone:
            more = f" (nor are {len(alone) - 1} more)" if len(alone) > 1 else ""
            raise BadInputError(
                f"network {self.name}: variable {alone[0]!r} is in no factor{more}, so that there is nothing to learn "
                "of it; give it a factor of its own, or leave it out"
            )
        for k, table in enumerate(self.tables):
            if table is not None:
                self._check_table(k, table)

    def _check_table(self, k: int, table: NDArray[np.float64]) -> None:
        cardinalities = tuple(len(s) if (s := self.states[j]) is not None else -1 for j in self.scopes[k])
        # A file may hold a million factors: nothing is worded before something is wrong.
        if table.shape == cardinalities and table.min() >= 0 and 0 < table.max() < np.inf:
            return
        where = f"network {self.name}: the table of {self.describe(k)}"
        if table.shape != cardinalities:
            raise BadInputError(f"{where} has shape {table.shape}, expected {cardinalities}")
        good = np.isfinite(table) & (table >= 0)
        if not good.all():
            raise BadInputError(
                f"{where} has an entry {float(table[~good][0])!r}: potentials are finite and not negative"
            )
        raise BadInputError(f"{where} has nothing but zeros, so that everything is impossible")

    def describe(self, factor: int) -> str:
        """A factor in words, for messages: its number and its variables."""
        names = [self.variables[v] for v in self.scopes[factor]]
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        return f"factor {factor} ({shown or 'a constant'})"

    @cached_property
    def cardinalities(self) -> tuple[int, ...]:
        """How many states each variable has; every variable's states must be known."""
        return tuple(len(s or ()) for s in self.states)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Each factor's table's shape."""
        return tuple(tuple(self.cardinalities[v] for v in scope) for scope in self.scopes)

    @cached_property
    def learnable(self) -> tuple[int, ...]:
        """Numbers of the factors that have variables: of a constant nothing can be learned."""
        return tuple(f for f, scope in enumerate(self.scopes) if scope)

    @cached_property
    def graph(self) -> Graph:
        """The structure as the solvers take it: the learnable factors, in their order."""
        return Graph(self.variables, self.cardinalities, tuple(self.scopes[f] for f in self.learnable))


AnyNetwork = Network | MarkovNetwork


def moralise(network: Network) -> MarkovNetwork:
    """The Markov random field with a factor for each family of a Bayesian network: the same distribution, Z = 1."""
    return MarkovNetwork(network.name, network.variables, network.states, network.scopes, network.tables)
