"""Bayesian networks in the Interchange Format (BIF 0.15): a strict reader and a writer that it reads back bit by bit.

The grammar, with commas between the members of a list or none at all:

    file         network (variable | probability)*
    network      'network' [name] '{' '}'
    variable     'variable' name '{' 'type' 'discrete' '[' count ']' '{' state* '}' ';' '}'
    probability  'probability' '(' name ['|'] parent* ')' '{' (row | default | table)* '}'
    row          '(' state* ')' number* ';'
    default      'default' number* ';'
    table        'table' number* ';'

Comments (// and /* */) may stand between any two tokens, `property ...;` statements first in a block or after a ';'.
A name is a bare word or a double-quoted string with JSON's escapes. Nothing else is accepted: a file that is not
wholly understood is an error that names the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from pipeline.network import Network
from tasks.errors import BadInputError, TooLargeError

# Every quantifier that could backtrack is possessive: the scan is linear in the text, whatever the text.
_SKIPPED = r"(?:\s++|//[^\n]*+|/\*.*?\*/)*+"
_TOKEN = re.compile(
    rf"""{_SKIPPED}(
        [(){{}}\[\],;|]
        | (?:[^\s"(){{}}\[\],;|/]++|/(?![/*]))++      # a bare word or a number
        | "(?:[^"\\\n]++|\\[^\n])*+"                  # a quoted name
        | "[^\n]*+                                    # quotes that are not closed on their line: refused
        | /\*.*+                                      # a comment that is not closed: refused
        | \Z
    )
    # A property runs to the first ';' whatever it holds, so it is passed over here, before it is cut up as tokens.
    (?:(?<=[{{;]){_SKIPPED}property(?=[\s"])[^;]*+(?:;|\Z))*+
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER = r"(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_NUMBERS = re.compile(rf"{_NUMBER}(?: {_NUMBER})*+")
_QUOTED = re.compile(r'"(?:[^"\\\n]++|\\[^\n])*+"')
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_UNESCAPED = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}

# What is written without quotes: what other readers take bare too, and never a word of the grammar.
_BARE = re.compile(
    r"(?!(?:network|variable|probability|property|type|discrete|default|table)\Z)[\w<>=.+-]+(?:/[\w<>=.+-]+)*", re.ASCII
)
_MUST_ESCAPE = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_ESCAPED = {char: "\\" + letter for letter, char in _UNESCAPED.items()}

# What the published files call a network that has no name.
_NO_NAME = "unknown"

# A `default` row makes a table of any size from a file of a few bytes: no more than 1 GiB of float64.
_MAX_ENTRIES = 2**27


def read_bif(text: str, name: str, *, where: str | None = None) -> Network:
    """Network that a BIF text describes.

    Parameters
    ----------
    text : str
        The whole file.
    name : str
        The network's name where the text gives none (or `unknown`, as the published files do).
    where : str, optional
        What error messages call the text; `name` by default.

    Returns
    -------
    Network with every state a str, variables in the order of their blocks, a table for each of them.

    Raises
    ------
    BadInputError
        The text is not BIF, is cut off, contradicts itself or leaves a probability open; the message names the
        line, what was expected and what was found. Also where `Network` refuses the result.
    TooLargeError
        A `default` row would fill a table of more than 1 GiB.

    Notes
    -----
    Linear in the text; 0.1 to 0.2 s a megabyte.

    References
    ----------
    Cozman (1998), The Interchange Format for Bayesian Networks, version 0.15.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return _Parser(text, name, name if where is None else where).network()


def write_bif(network: Network) -> str:
    """BIF text of a network, laid out as the published networks are.

    Parameters
    ----------
    network : Network
        Its states and tables all known. States that are integers or booleans are written as `str` of them.

    Returns
    -------
    Text from which `read_bif` makes the same variables, states (as str), parents and, bit by bit, tables. The same
    network always gives the same text.

    Raises
    ------
    BadInputError
        A variable's states or table are None.
    """
    names = [_quoted(v) for v in network.variables]
    labels: list[list[str]] = []
    for variable, states in zip(network.variables, network.states, strict=True):
        if states is None:
            raise BadInputError(
                f"network {network.name}: the states of variable {variable!r} are unknown; BIF needs them"
            )
        labels.append([_quoted(str(s)) for s in states])
    out = [f"network {_quoted(network.name)} {{\n}}\n"]
    for variable, states_of in zip(names, labels, strict=True):
        out.append(f"variable {variable} {{\n  type discrete [ {len(states_of)} ] {{ {', '.join(states_of)} }};\n}}\n")
    for i, table in enumerate(network.tables):
        if table is None:
            raise BadInputError(
                f"network {network.name}: variable {network.variables[i]!r} has no table; BIF needs one"
            )
        parents = network.parents[i]
        given = " | " + ", ".join(names[p] for p in parents) if parents else ""
        out.append(f"probability ( {names[i]}{given} ) {{\n")
        # Adding 0.0 turns a negative zero, which no reader takes for a probability, into a plain one.
        rows = (np.asarray(table, dtype=np.float64) + 0.0).reshape(-1, len(labels[i])).tolist()
        for row, at in zip(rows, np.ndindex(*table.shape[:-1]), strict=True):
            head = f"({', '.join(labels[p][k] for p, k in zip(parents, at, strict=True))})" if parents else "table"
            out.append(f"  {head} {', '.join(map(repr, row))};\n")
        out.append("}\n")
    return "".join(out)


def _quoted(name: str) -> str:
    """A name as it is written: bare where it can be, else quoted."""
    if _BARE.fullmatch(name):
        return name
    return '"' + _MUST_ESCAPE.sub(lambda m: _ESCAPED.get(m[0], f"\\u{ord(m[0]):04x}"), name) + '"'


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _UNESCAPED[match[2]]


@dataclass
class _Variable:
    """A declared variable: its states, by name and by the token that declared them, and what its block said."""

    name: str
    states: tuple[str, ...]
    by_token: dict[str, int]
    by_name: dict[str, int] = field(init=False)
    parents: tuple[int, ...] = ()
    table: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        self.by_name = {s: k for k, s in enumerate(self.states)}


@dataclass(frozen=True)
class _List:
    """The members of a list as they stand in the text, and how to find the token of the k-th: `start + step * k`."""

    items: list[str]
    start: int
    step: int


class _Parser:
    """Recursive descent over the list of tokens; `at` is the next one. The last token, "", is the end of the file."""

    def __init__(self, text: str, name: str, where: str) -> None:
        self.text = text
        self.name = name
        self.where = where
        self.tokens: list[str] = _TOKEN.findall(text)
        self.at = 0
        self.variables: list[_Variable] = []
        self.index: dict[str, int] = {}

    def network(self) -> Network:
        self.expect("network")
        if self.tokens[self.at] != "{":
            declared = self.one_name("the network's name")
            if declared != _NO_NAME:
                self.name = declared
        self.expect("{")
        self.expect("}")
        blocks = self.variable_blocks()
        for self.at in blocks:
            self.probability()
        if not self.variables:
            self.fail(len(self.tokens) - 1, "a variable")
        for v in self.variables:
            if v.table is None:
                self.fail(len(self.tokens) - 1, f"a probability block for variable {v.name!r}")
        try:
            return Network(
                self.name,
                tuple(v.name for v in self.variables),
                tuple(v.states for v in self.variables),
                tuple(v.parents for v in self.variables),
                tuple(v.table for v in self.variables),
            )
        except BadInputError as error:
            raise BadInputError(f"{self.where}: {error}") from None

    def variable_blocks(self) -> list[int]:
        """Where the probability blocks start; the variables' own are read, as they may come later in the file."""
        blocks = []
        while True:
            token = self.tokens[self.at]
            if token == "variable":
                self.at += 1
                self.variable()
            elif token == "probability":
                self.at += 1
                blocks.append(self.at)
                try:
                    # No brace stands inside a probability block, and a quoted one is another token.
                    self.at = self.tokens.index("}", self.at) + 1
                except ValueError:
                    return blocks  # the file ends in this block; reading it will say where
            elif token == "":
                return blocks
            else:
                self.fail(self.at, "'variable', 'probability' or the end of the file")

    def variable(self) -> None:
        at = self.at
        name = self.one_name("a variable's name")
        if name in self.index:
            self.fail(at, "a new variable", f"{name!r} again")
        self.expect("{")
        self.expect("type")
        self.expect("discrete")
        self.expect("[")
        at = self.at
        if not re.fullmatch("[0-9]{1,9}", self.tokens[at]):
            self.fail(at, "the number of states")
        count = int(self.tokens[at])
        self.at += 1
        self.expect("]")
        self.expect("{")
        listed = self.list_until("}", "a state", _is_name)
        states = [self.decode(listed.start + listed.step * k, "a state") for k in range(len(listed.items))]
        if len(states) != count or not count:
            self.fail(at, f"the number of states of {name!r} ({len(states)} are listed)", str(count))
        variable = _Variable(name, tuple(states), {t: k for k, t in enumerate(listed.items)})
        for k, state in enumerate(states):
            if variable.by_name[state] != k:
                k = variable.by_name[state]
                self.fail(listed.start + listed.step * k, f"states of {name!r} that differ", f"{state!r} again")
        self.expect(";")
        self.expect("}")
        self.index[name] = len(self.variables)
        self.variables.append(variable)

    def probability(self) -> None:
        self.expect("(")
        at = self.at
        child = self.variables[self.declared(at, "a variable's name")]
        self.at += 1
        if child.table is not None:
            self.fail(at, "one probability block a variable", f"another for {child.name!r}")
        parents = self.parents(child)
        self.expect("{")
        child.parents = tuple(parents)
        child.table = self.table(child, [self.variables[p] for p in parents])

    def parents(self, child: _Variable) -> list[int]:
        # The bar is optional, as it was in older files: the first name is the variable's, the others its parents'.
        if self.tokens[self.at] == ")":
            self.at += 1
            return []
        if self.tokens[self.at] in ("|", ","):
            self.at += 1
        listed = self.list_until(")", "a parent's name", _is_name)
        if not listed.items:
            self.fail(self.at - 1, "a parent's name")
        found: list[int] = []
        for k in range(len(listed.items)):
            at = listed.start + listed.step * k
            parent = self.declared(at, "a parent's name")
            if parent in found or self.variables[parent] is child:
                self.fail(at, f"parents of {child.name!r} that differ from it and from each other")
            found.append(parent)
        return found

    def table(self, child: _Variable, parents: Sequence[_Variable]) -> NDArray[np.float64]:
        """Pr(child | parents) from the body of a probability block, child last."""
        k = len(child.states)
        shape = [len(p.states) for p in parents]
        n_rows = math.prod(shape)
        # A row's number is the sum of what its states stand for: state times stride, last parent fastest.
        strides = [math.prod(shape[j + 1 :]) for j in range(len(shape))]
        codes = [{t: c * stride for t, c in p.by_token.items()} for p, stride in zip(parents, strides, strict=True)]
        rows: dict[int, list[float]] = {}
        default: list[float] | None = None
        whole: list[float] | None = None
        entry = "'(', 'default', 'table' or '}'" if parents else "'table', 'default' or '}'"
        while True:
            start = self.at
            token = self.tokens[start]
            if token == "(" and parents:
                self.at += 1
                labels = self.list_until(")", "a state", _is_name)
                if len(labels.items) != len(parents):
                    self.fail(
                        self.at - 1, f"{_count(len(parents), 'state')}, one of each parent", str(len(labels.items))
                    )
                try:
                    row = sum(map(getitem, codes, labels.items))
                except KeyError:  # a name spelt in another way (quoted or not) than where it was declared, or no state
                    row = sum(self.state(labels, j, p) * strides[j] for j, p in enumerate(parents))
                if row in rows:
                    self.fail(start, "each row once", f"({', '.join(labels.items)}) again")
                rows[row] = self.numbers(k)
            elif token == "default":
                if default is not None:
                    self.fail(start, "one 'default'", "another")
                self.at += 1
                default = self.numbers(k)
            elif token == "table":
                if whole is not None:
                    self.fail(start, "one 'table'", "another")
                self.at += 1
                whole = self.numbers(k * n_rows)
            elif token == "}":
                break
            else:
                self.fail(start, entry)
        end = self.at
        self.at += 1
        if whole is not None:
            if rows or default is not None:
                self.fail(end, f"'table' or rows for {child.name!r}", "both")
            # BIF 0.15: the values of the variable itself change slowest, then its parents' in their order.
            return np.ascontiguousarray(np.moveaxis(np.array(whole).reshape(k, *shape), 0, -1))
        if len(rows) < n_rows:
            if default is None:
                first = next(r for r in range(n_rows) if r not in rows)
                missing = (p.states[first // s % n] for p, s, n in zip(parents, strides, shape, strict=True))
                self.fail(
                    end,
                    f"a row ({', '.join(missing)}) for {child.name!r}" if parents else f"a table for {child.name!r}",
                )
            if n_rows * k > _MAX_ENTRIES:
                raise TooLargeError(
                    f"{self.where}, line {self.line(end)}: the table of {child.name!r} has {n_rows * k} entries,"
                    f" more than the {_MAX_ENTRIES} that are read"
                )
        table = np.empty((n_rows, k))
        if default is not None:
            table[:] = default
        for row, values in rows.items():
            table[row] = values
        return table.reshape(*shape, k)

    def state(self, labels: _List, j: int, parent: _Variable) -> int:
        """Code of the j-th state of a row's head."""
        at = labels.start + labels.step * j
        code = parent.by_name.get(self.decode(at, "a state"))
        if code is None:
            self.fail(at, f"a state of {parent.name!r} ({_some(parent.states)})")
        return code

    def numbers(self, count: int) -> list[float]:
        listed = self.list_until(";", "a probability", lambda token: _NUMBERS.fullmatch(token) is not None)
        if len(listed.items) != count:
            self.fail(self.at - 1, _count(count, "probability"), str(len(listed.items)))
        if not _NUMBERS.fullmatch(" ".join(listed.items)):
            self.explain(listed, ";", "a probability", lambda token: _NUMBERS.fullmatch(token) is not None)
        values = list(map(float, listed.items))
        if math.inf in values:
            self.fail(listed.start + listed.step * values.index(math.inf), "a probability")
        return values

    def list_until(self, end: str, what: str, is_item: Callable[[str], bool]) -> _List:
        """Members up to the token `end`, which is passed; with commas between all of them, or between none."""
        start = self.at
        try:
            stop = self.tokens.index(end, start)
        except ValueError:
            stop = len(self.tokens) - 1
        tokens = self.tokens[start:stop]
        step = 2 if "," in tokens else 1
        listed = _List(tokens[::step], start, step)
        # Numbers are checked in one go later on, by their own regular expression, so that only shape matters here.
        in_shape = step == 1 or (len(tokens) % 2 == 1 and tokens[1::2].count(",") == len(tokens) // 2)
        if not in_shape or self.tokens[stop] != end or (end != ";" and not all(map(is_item, listed.items))):
            self.explain(listed, end, what, is_item)
        self.at = stop + 1
        return listed

    def explain(self, listed: _List, end: str, what: str, is_item: Callable[[str], bool]) -> NoReturn:
        """The first token of a list that is out of place, as an error."""
        at = listed.start
        while True:
            if not is_item(self.tokens[at]):
                self.fail(at, what)
            at += 1
            if self.tokens[at] == ",":
                if listed.step == 1 or self.tokens[listed.start + 1] != ",":
                    self.fail(at, f"{what} or {end!r}")
                at += 1
            elif self.tokens[at] == end or listed.step == 2:
                self.fail(at, f"',' or {end!r}")
            elif not is_item(self.tokens[at]):
                self.fail(at, f"{what} or {end!r}")

    def declared(self, at: int, what: str) -> int:
        name = self.decode(at, what)
        if name not in self.index:
            self.fail(at, f"{what} that is declared")
        return self.index[name]

    def one_name(self, what: str) -> str:
        name = self.decode(self.at, what)
        self.at += 1
        return name

    def decode(self, at: int, what: str) -> str:
        """The name that a token spells."""
        token = self.tokens[at]
        if not _is_name(token):
            self.fail(at, what)
        if token[0] != '"':
            return token
        if "\\" not in token:
            return token[1:-1]
        try:
            return _ESCAPE.sub(_unescape, token[1:-1])
        except KeyError as unknown:
            self.fail(at, 'one of \\" \\\\ \\n \\r \\t \\uXXXX after a backslash in quotes', f"\\{unknown.args[0]}")

    def expect(self, token: str) -> None:
        if self.tokens[self.at] != token:
            self.fail(self.at, repr(token))
        self.at += 1

    def line(self, at: int) -> int:
        """Line of a token. Positions are not kept, as an error is the only use for them: the text is scanned again."""
        for k, match in enumerate(_TOKEN.finditer(self.text)):
            if k == at:
                return 1 + self.text.count("\n", 0, min(match.start(1), len(self.text.rstrip())))
        raise AssertionError(at)

    def fail(self, at: int, expected: str, found: str | None = None) -> NoReturn:
        if found is None:
            token = self.tokens[at]
            if token == "":
                found = "the end of the file"
            elif token.startswith("/*"):
                found = "a comment that is not closed"
            elif token[0] == '"' and not _QUOTED.fullmatch(token):
                found = "quotes that are not closed on their line"
            else:
                found = repr(token if len(token) <= 40 else token[:37] + "...")
        raise BadInputError(f"{self.where}, line {self.line(at)}: expected {expected}, found {found}")


def _is_name(token: str) -> bool:
    if token[:1] == '"':
        return _QUOTED.fullmatch(token) is not None
    return token not in "(){}[],;|" and not token.startswith("/*")


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what.removesuffix('y')}{'ies' if what.endswith('y') else 's'}"


def _some(states: Sequence[str]) -> str:
    return ", ".join(states[:6]) + (", ..." if len(states) > 6 else "")
