"""Networks in the format of the UAI competitions: a strict reader and a writer that it reads back bit by bit.

The grammar, white space of any kind between the words; the format has no comments:

    file     ('MARKOV' | 'BAYES') variables cardinality* factors scope* table*
    scope    arity variable*
    table    entries entry*

`variables`, `factors`, `arity` and `entries` count what follows; a variable is its number, from 0. In a table the last
variable of the scope changes fastest. In a BAYES file it is the child, and the others are its parents.

The format has neither names nor states: variables are called x0, x1, ... and their states are the integers from 0.
"""

from __future__ import annotations

import math
import re
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from pipeline.markov import AnyNetwork, MarkovNetwork
from pipeline.network import Network
from tasks.errors import BadInputError

# More digits than this count nothing that could be in a file.
_INTEGER = re.compile("[0-9]{1,18}")
_TOO_MANY = 10**18
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# Of words made of these alone, float() takes what _NUMBER takes: no "nan", no "1_000", no digits of other scripts.
_OF_NUMBERS = b"0123456789.eE+-"

# What numpy allows. A table over 65 variables of two states or more could not be held by any machine.
_MAX_ARITY = 64


def read_uai(text: str, name: str, *, where: str | None = None) -> AnyNetwork:
    """Network that a UAI text describes.

    Parameters
    ----------
    text : str
        The whole file.
    name : str
        The network's name; the format has none.
    where : str, optional
        What error messages call the text; `name` by default.

    Returns
    -------
    MarkovNetwork for MARKOV, its factors in the order of the file; Network for BAYES. Variables are x0, x1, ..., the
    states of each 0, 1, ..., and every table is there.

    Raises
    ------
    BadInputError
        The text is not UAI, is cut off or goes on after its end, or contradicts itself; the message names the line,
        what was expected and what was found. Also where `Network` or `MarkovNetwork` refuses the result.

    Notes
    -----
    Linear in the text. A million entries take 0.4 s in one table and 2.5 s in tables of four, half of it in the checks
    of `MarkovNetwork`. Nothing is allocated on the word of a count that the file is too short for.

    References
    ----------
    UAI 2022 competition, model format.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return _Reader(text, name, name if where is None else where).network()


def write_uai(network: AnyNetwork) -> str:
    """UAI text of a network: BAYES of a Network, MARKOV of a MarkovNetwork.

    Parameters
    ----------
    network : Network or MarkovNetwork
        Its states and tables all known. The names of variables and states are not written, as the format has no place
        for them.

    Returns
    -------
    Text from which `read_uai` makes, under other names, the same variables, factors in the same order and, bit by bit,
    tables. The same network always gives the same text.

    Raises
    ------
    BadInputError
        A variable's states or a table are None.
    """
    for variable, states in zip(network.variables, network.states, strict=True):
        if states is None:
            raise BadInputError(
                f"network {network.name}: the states of variable {variable!r} are unknown; UAI needs their number"
            )
    scopes: tuple[tuple[int, ...], ...]
    if isinstance(network, MarkovNetwork):
        kind, scopes = "MARKOV", network.scopes
    else:
        kind, scopes = "BAYES", tuple((*parents, i) for i, parents in enumerate(network.parents))
    out = [f"{kind}\n{len(network.variables)}\n{_spaced(network.cardinalities)}\n{len(scopes)}\n"]
    out += [f"{_spaced((len(scope), *scope))}\n" for scope in scopes]
    for k, table in enumerate(network.tables):
        if table is None:
            what = network.describe(k) if isinstance(network, MarkovNetwork) else f"variable {network.variables[k]!r}"
            raise BadInputError(f"network {network.name}: {what} has no table; UAI needs one")
        # Adding 0.0 turns a negative zero, which no reader takes for a potential, into a plain one.
        rows = (np.asarray(table, dtype=np.float64) + 0.0).reshape(-1, table.shape[-1] if table.ndim else 1).tolist()
        out.append(f"\n{table.size}\n")
        out += [f" {' '.join(map(repr, row))}\n" for row in rows]
    return "".join(out)


def _spaced(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


class _Reader:
    """Reads the words of a text in their order; `at` is the next one."""

    def __init__(self, text: str, name: str, where: str) -> None:
        self.text = text
        self.name = name
        self.where = where
        self.tokens = text.split()
        self.at = 0
        self.cardinalities: list[int] = []
        self.first_cardinality = 0
        self.first_table = 0

    def network(self) -> AnyNetwork:
        kind = self.tokens[0].upper() if self.tokens else ""
        if kind not in ("MARKOV", "BAYES"):
            self.fail(0, "'MARKOV' or 'BAYES'")
        self.at = 1
        self.read_cardinalities()
        children: dict[int, int] | None = {} if kind == "BAYES" else None
        scopes = self.scopes(children)
        tables = self.tables(scopes)
        if self.at < len(self.tokens):
            self.fail(self.at, f"the end of the file after {_count(len(scopes), 'table')}")
        variables = tuple(f"x{i}" for i in range(len(self.cardinalities)))
        codes = {n: tuple(range(n)) for n in set(self.cardinalities)}
        states = tuple(codes[n] for n in self.cardinalities)
        try:
            if children is None:
                return MarkovNetwork(self.name, variables, states, tuple(scopes), tuple(tables))
            factors = [children[i] for i in range(len(variables))]
            parents = tuple(scopes[k][:-1] for k in factors)
            return Network(self.name, variables, states, parents, tuple(tables[k] for k in factors))
        except BadInputError as error:
            at = self.first_table
            for k, table in enumerate(tables):
                if not table.any():
                    self.fail(at, f"an entry above zero in factor {k}", "nothing but zeros")
                at += 1 + table.size
            raise BadInputError(f"{self.where}: {error}") from None

    def read_cardinalities(self) -> None:
        at = self.at
        n = self.integer("the number of variables", least=1)
        left = len(self.tokens) - self.at
        if n > left:
            self.fail(at, f"{_count(n, 'cardinality')} to follow", f"the end of the file after {_count(left, 'word')}")
        self.first_cardinality = self.at
        for i in range(n):
            self.cardinalities.append(self.integer("the cardinality of variable {}", i, least=1))

    def scopes(self, children: dict[int, int] | None) -> list[tuple[int, ...]]:
        """Scope of each factor; `children`, where the network is Bayesian, is filled with each variable's factor."""
        at = self.at
        n_factors = self.integer("the number of factors", least=1)
        left = len(self.tokens) - self.at
        if n_factors > left:
            self.fail(
                at, f"{_count(n_factors, 'scope')} to follow", f"the end of the file after {_count(left, 'word')}"
            )
        numbers = {str(i): i for i in range(len(self.cardinalities))}
        found: list[tuple[int, ...]] = []
        for k in range(n_factors):
            scope = self.scope(k, numbers)
            found.append(scope)
            if children is not None:
                if not scope:
                    self.fail(self.at - 1, f"a child in factor {k}, as in every factor of a BAYES file", "no variables")
                other = children.setdefault(scope[-1], k)
                if other != k:
                    self.fail(
                        self.at - 1,
                        "each variable as the last of one scope only, whose child it is",
                        f"variable {scope[-1]} as the last of factors {other} and {k}",
                    )
        covered = set(children) if children is not None else set().union(*found)
        for i in range(len(self.cardinalities)):
            if i not in covered:
                self.fail(
                    self.first_cardinality + i,
                    f"variable {i} in a scope" if children is None else f"variable {i} as the last of a scope",
                    "it in none",
                )
        return found

    def scope(self, k: int, numbers: dict[str, int]) -> tuple[int, ...]:
        arity = self.integer("the number of variables of factor {}", k)
        limit = min(len(self.cardinalities), _MAX_ARITY)
        if arity > limit:
            self.fail(self.at - 1, f"at most {_count(limit, 'variable')} in factor {k}")
        start = self.at
        try:
            scope = tuple(map(numbers.__getitem__, self.tokens[start : start + arity]))
            self.at += len(scope)
        except KeyError:  # written otherwise (007), or no variable
            scope = ()
        while len(scope) < arity:
            variable = self.integer("a variable of factor {}", k)
            if variable >= len(self.cardinalities):
                self.fail(self.at - 1, f"a variable of factor {k}, from 0 to {len(self.cardinalities) - 1}")
            scope = (*scope, variable)
        if len(set(scope)) < arity:
            j = next(j for j in range(arity) if scope[j] in scope[:j])
            self.fail(start + j, f"variables of factor {k} that differ", f"{scope[j]} again")
        return scope

    def tables(self, scopes: list[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        begin = self.first_table = self.at
        numbers, bad = self.numbers()
        found = []
        for k, scope in enumerate(scopes):
            at = self.at
            shape = [self.cardinalities[v] for v in scope]
            size = math.prod(shape)
            if at == len(self.tokens) or self.tokens[at] != str(size):
                what = f"factor {k}, the product of its variables' cardinalities"
                if self.integer(f"{_size(size)} as the number of entries of {what}") != size:
                    self.fail(at, f"{_size(size)} as the number of entries of {what}")
            start = at + 1
            entries = numbers[start - begin : start - begin + size]
            if start <= bad < min(start + size, len(self.tokens)):
                self.fail(bad, f"entry {bad - start} of factor {k}, a finite number that is not negative")
            if len(entries) < size:
                self.fail(
                    len(self.tokens),
                    f"{_count(size, 'entry')} in factor {k}",
                    f"the end of the file after {len(entries)}",
                )
            found.append(entries.reshape(shape))
            self.at = start + size
        return found

    def numbers(self) -> tuple[NDArray[np.float64], int]:
        """All words from here on as numbers, and which word is the first that is none, or none that a table may hold.

        Notes
        -----
        Entries and their counts at once: that is what makes many small tables as fast as one large one. A bad word
        ends the array.
        """
        tail = self.tokens[self.at :]
        plain = not "".join(tail).encode(errors="replace").translate(None, _OF_NUMBERS)
        try:
            values = np.array(list(map(float, tail)) if plain else None, dtype=np.float64)
        except ValueError:
            plain = False
        if not plain:
            good = next((i for i, token in enumerate(tail) if not _NUMBER.fullmatch(token)), len(tail))
            values = np.array(list(map(float, tail[:good])), dtype=np.float64)
        wrong = ~(np.isfinite(values) & (values >= 0))
        return values + 0.0, self.at + (int(wrong.argmax()) if wrong.any() else len(values))

    def integer(self, what: str, of: int = 0, *, least: int = 0) -> int:
        """The next word as a count or a number of a variable; `what` is put into words only where it is none."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        if not _INTEGER.fullmatch(token) or int(token) < least:
            self.fail(self.at, what.format(of) + (f", at least {least}" if least else ""))
        self.at += 1
        return int(token)

    def line(self, at: int) -> int:
        """Line of a word, or of the last one. Only an error asks for it: the text is scanned again."""
        start = 0
        for k, match in enumerate(re.finditer(r"\S+", self.text)):
            start = match.start()
            if k == at:
                break
        return 1 + self.text.count("\n", 0, start)

    def fail(self, at: int, expected: str, found: str | None = None) -> NoReturn:
        if found is None:
            token = self.tokens[at] if at < len(self.tokens) else ""
            shown = token if len(token) <= 40 else token[:37] + "..."
            found = repr(shown) if token else "the end of the file"
        raise BadInputError(f"{self.where}, line {self.line(at)}: expected {expected}, found {found}")


def _size(size: int) -> str:
    """A table's size in figures, unless nothing could be of that size."""
    return str(size) if size < _TOO_MANY else "10**18 or more"


def _count(n: int, what: str) -> str:
    return f"{n} {what if n == 1 else what[:-1] + 'ies' if what.endswith('y') else what + 's'}"
