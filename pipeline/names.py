"""Names for the variables of networks that come without, as UAI files do, or under others than the data's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pipeline.markov import AnyNetwork
from tasks.errors import BadInputError

AnyKind = TypeVar("AnyKind", bound=AnyNetwork)


def name_variables(network: AnyKind, names: Sequence[str], where: str) -> AnyKind:
    """The same network with its variables called otherwise.

    Parameters
    ----------
    network : Network or MarkovNetwork
    names : sequence of str
        A name for each variable, in the network's order.
    where : str
        What error messages call the names' source.

    Raises
    ------
    BadInputError
        Not as many names as variables, one that is not a string or is empty, or two that are equal.
    """
    if len(names) != len(network.variables):
        raise BadInputError(
            f"{where}: expected {len(network.variables)} names, as many as network {network.name} has variables,"
            f" found {len(names)}"
        )
    seen: dict[str, int] = {}
    for k, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise BadInputError(f"{where}: expected a string that is not empty as name {k + 1}, found {name!r}")
        if name in seen:
            raise BadInputError(
                f"{where}: expected names that differ, found {name!r} as names {seen[name] + 1} and {k + 1}"
            )
        seen[name] = k
    return replace(network, variables=tuple(names))


def with_names(network: AnyKind, names: object) -> AnyKind:
    """The same network with its variables called as a file (its path given) or a sequence of strings says.

    Raises
    ------
    BadInputError
        As of `name_variables` and `read_names`, or `names` is neither.
    """
    if isinstance(names, (str, os.PathLike)):
        path = os.fsdecode(names)
        return name_variables(network, read_names(path), f"names {path}")
    if isinstance(names, Sequence) and not isinstance(names, (bytes, bytearray)):
        return name_variables(network, names, "names")
    raise BadInputError(f"names: expected a file or a sequence of strings, found {type(names).__name__}")


def read_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Names in a text file, one a line.

    Parameters
    ----------
    path : str or path
        UTF-8 text. White space around a name is no part of it; blank lines at the end do not count.

    Raises
    ------
    BadInputError
        The file can't be read, is empty, has a blank line before its last name, or has a name twice.
    """
    where = f"names {os.fsdecode(path)}"
    try:
        # No line ends but these: str.splitlines would know others, which may be parts of a name.
        text = Path(path).read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        said = " ".join(str(error).split())
        raise BadInputError(f"{where}: the file can't be read ({type(error).__name__}: {said})"[:400]) from error
    names = [line.strip() for line in text.rstrip().split("\n")]
    if names == [""]:
        raise BadInputError(f"{where}, line 1: expected a name, found the end of the file")
    first: dict[str, int] = {}
    for line, name in enumerate(names, start=1):
        if not name:
            raise BadInputError(f"{where}, line {line}: expected a name, found an empty line")
        if name in first:
            raise BadInputError(f"{where}, line {line}: expected a new name, found {name!r} again (line {first[name]})")
        first[name] = line
    return tuple(names)
