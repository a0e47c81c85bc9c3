"""Bayesian networks in XMLBIF 0.3: a strict reader that names the line of whatever it can't take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from pipeline.network import Network
from tasks.errors import BadInputError

_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Element:
    """An XML element that knows its line, which xml.etree's do not.

    Attributes
    ----------
    tag : str
    attributes : dict of str to str
    line : int
        Line of the start tag, from 1.
    where : str
        The file, for messages.
    children : list of Element
    chunks : list of str
        Its own text, in pieces.
    """

    tag: str
    attributes: dict[str, str]
    line: int
    where: str
    children: list[Element] = field(default_factory=list)
    chunks: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its own text, without the white space around it."""
        return "".join(self.chunks).strip()

    def all(self, *tags: str) -> list[Element]:
        """Children with one of these tags."""
        return [c for c in self.children if c.tag in tags]

    def one(self, tag: str) -> Element:
        """The only child with this tag; an error if there is none or another."""
        found = self.all(tag)
        if not found:
            self.fail(f"a <{tag}> in <{self.tag}>", "none")
        if len(found) > 1:
            found[1].fail(f"one <{tag}> in <{self.tag}>", "another")
        return found[0]

    def leaf(self) -> str:
        """Text of an element that must hold text and nothing else."""
        for child in self.children:
            child.fail(f"only text in <{self.tag}>", f"<{child.tag}>")
        if not self.text:
            self.fail(f"text in <{self.tag}>", "none")
        return self.text

    def only(self, *tags: str) -> None:
        """Refuse text and children with any other tag."""
        if self.text:
            self.fail(f"only elements in <{self.tag}>", repr(self.text[:40]))
        for child in self.children:
            if child.tag not in tags:
                child.fail(f"<{'>, <'.join(tags)}> in <{self.tag}>", f"<{child.tag}>")

    def fail(self, expected: str, found: str) -> NoReturn:
        """Raise BadInputError with the file and the line."""
        raise BadInputError(f"{self.where}, line {self.line}: expected {expected}, found {found}")


def parse_xml(text: str, where: str) -> Element:
    """Root of an XML text.

    Raises
    ------
    BadInputError
        The text is not well-formed XML, or declares an entity: a few of those can stand for gigabytes.
    """
    parser = expat.ParserCreate()
    top = Element("", {}, 1, where)
    path = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, parser.CurrentLineNumber, where)
        path[-1].children.append(element)
        path.append(element)

    def end(tag: str) -> None:
        path.pop()

    def text_chunk(chunk: str) -> None:
        path[-1].chunks.append(chunk)

    def entity(name: str, *_: object) -> None:
        raise BadInputError(
            f"{where}, line {parser.CurrentLineNumber}: expected no <!ENTITY>, found one named {name!r}"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text_chunk
    parser.EntityDeclHandler = entity
    parser.buffer_text = True
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise BadInputError(f"{where}, line {error.lineno}: expected well-formed XML, found {what}") from None
    except UnicodeEncodeError:
        raise BadInputError(f"{where}: expected text that UTF-8 can hold, found a lone surrogate") from None
    return top.children[0]


def read_xmlbif(text: str, name: str, *, where: str | None = None) -> Network:
    """Network that an XMLBIF text describes.

    Parameters
    ----------
    text : str
        The whole file.
    name : str
        The network's name where the text has no <NAME>.
    where : str, optional
        What error messages call the text; `name` by default.

    Returns
    -------
    Network with every state a str, variables in the order of their elements, a table for each of them.

    Raises
    ------
    BadInputError
        The text is not XMLBIF, is cut off, declares entities, holds decision or utility nodes, contradicts itself or
        leaves a probability open; the message names the line. Also where `Network` refuses the result.

    References
    ----------
    Cozman (1998), The Interchange Format for Bayesian Networks, XMLBIF version 0.3.
    """
    where = name if where is None else where
    root = parse_xml(text, where)
    if root.tag != "BIF":
        root.fail("<BIF>", f"<{root.tag}>")
    root.only("NETWORK")
    network = root.one("NETWORK")
    network.only("NAME", "PROPERTY", "VARIABLE", "DEFINITION")
    named = network.all("NAME")
    if named and network.one("NAME").text:
        name = named[0].leaf()
    states: dict[str, tuple[str, ...]] = {}
    for element in network.all("VARIABLE"):
        variable, outcomes = _variable(element)
        if variable in states:
            element.fail("a new variable", f"{variable!r} again")
        states[variable] = outcomes
    if not states:
        network.fail("a <VARIABLE>", "none")
    index = {v: i for i, v in enumerate(states)}
    parents: dict[str, tuple[int, ...]] = {}
    tables: dict[str, NDArray[np.float64]] = {}
    for element in network.all("DEFINITION"):
        element.only("FOR", "GIVEN", "TABLE", "PROPERTY")
        child = _declared(element.one("FOR"), index)
        if child in tables:
            element.fail("one <DEFINITION> a variable", f"another for {child!r}")
        given = [_declared(g, index) for g in element.all("GIVEN")]
        if len({child, *given}) <= len(given):
            element.fail(f"parents of {child!r} that differ from it and from each other", ", ".join(map(repr, given)))
        parents[child] = tuple(index[g] for g in given)
        # XMLBIF: the variable itself changes fastest, then its last parent, which is the order that Network keeps.
        shape = [len(states[v]) for v in (*given, child)]
        tables[child] = read_numbers(element.one("TABLE"), shape)
    for variable in states:
        if variable not in tables:
            network.fail(f"a <DEFINITION> for variable {variable!r}", "none")
    return build(name, where, states, parents, tables)


def build(
    name: str,
    where: str,
    states: dict[str, tuple[str, ...]],
    parents: dict[str, tuple[int, ...]],
    tables: dict[str, NDArray[np.float64]],
) -> Network:
    """Network from what a file says of each variable; what `Network` refuses names the file."""
    try:
        return Network(
            name,
            tuple(states),
            tuple(states.values()),
            tuple(parents[v] for v in states),
            tuple(tables[v] for v in states),
        )
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from None


def read_numbers(element: Element, shape: list[int]) -> NDArray[np.float64]:
    """Probabilities in an element's text, row-major in this shape."""
    tokens = element.leaf().split()
    size = int(np.prod(shape, dtype=object))
    if len(tokens) != size:
        element.fail(f"{size} probabilities in <{element.tag}>", str(len(tokens)))
    for token in tokens:
        if not _NUMBER.fullmatch(token) or float(token) == np.inf:
            element.fail(f"probabilities in <{element.tag}>", repr(token[:40]))
    return np.array(list(map(float, tokens))).reshape(shape)


def _variable(element: Element) -> tuple[str, tuple[str, ...]]:
    kind = element.attributes.get("TYPE", "nature")
    if kind != "nature":
        element.fail('TYPE="nature"', f'TYPE="{kind}"')
    # VALUE is how version 0.2 spelt OUTCOME.
    element.only("NAME", "OUTCOME", "VALUE", "PROPERTY")
    name = element.one("NAME").leaf()
    states: list[str] = []
    for outcome in element.all("OUTCOME", "VALUE"):
        states.append(outcome.leaf())
    if not states:
        element.fail(f"an <OUTCOME> of {name!r}", "none")
    for state in _twice(states):
        element.fail(f"states of {name!r} that differ", f"{state!r} again")
    return name, tuple(states)


def _twice(names: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def _declared(element: Element, index: dict[str, int]) -> str:
    name = element.leaf()
    if name not in index:
        element.fail(f"a declared variable in <{element.tag}>", repr(name))
    return name
