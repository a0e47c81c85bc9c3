"""Dirichlet priors: one exponent for all parameters, one a variable, one a parameter; from Python or from a file.

A prior file is TOML, or JSON with the same keys:

    default = 1.0                      # of every parameter not named below; 1 where left out

    [variables]
    HYPOVOLEMIA = 2.0                  # all of the variable's parameters
    CVP = [1.0, 2.0, 2.0]              # by its states, in the network's order; alike under every parent configuration
    LVFAILURE = [[2, 1], [1.5, 1]]     # the table's own shape: its parents' states outside, its own inside

    [variables.STROKEVOLUME]           # by name: its parents' states from the outside in, then its own
    TRUE.TRUE = [1, 2, 2]
    TRUE.FALSE = {LOW = 3, HIGH = 2}
    FALSE = 2.0                        # whatever the remaining parents are

States that are not named have the default. An exponent psi adds (psi - 1) log theta to the log likelihood, and psi - 1
to the expected count in equation 2.1: 1 is maximum likelihood, 2 Laplace smoothing; below 1 there may be no maximum.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.network import Network
from tasks.errors import BadInputError
from tasks.subnetwork import SubNetwork

EXPECTED = "a Dirichlet exponent of at least 1 (1 is maximum likelihood)"
# A pseudo count beyond this would leave nothing of a single example's expected count: doubles have 53 bits.
LARGEST = 1e15


@dataclass(frozen=True)
class Prior:
    """Dirichlet exponents of a network's parameters.

    Attributes
    ----------
    default : float
        Of every parameter of a variable that `tables` does not have.
    tables : mapping of str to float64 array
        By variable, in the shape of its table.
    written : object
        As it was given, for the report.
    """

    default: float = 1.0
    tables: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    written: Any = 1.0


def make_prior(prior: object, network: Network) -> Prior:
    """Check a prior and lay it out.

    Parameters
    ----------
    prior : number, mapping, path or Prior
        One exponent; or by variable a number, or exponents in the shape of its states or its table, every other
        variable's being 1; or a prior file.
    network : Network
        With every variable's states known.

    Raises
    ------
    BadInputError
        An exponent is below 1 or not finite, a shape is wrong, a variable or state is unknown, or the file cannot be
        read.
    """
    if isinstance(prior, Prior):
        return prior
    if isinstance(prior, str | os.PathLike):
        return read_prior_file(prior, network)
    if isinstance(prior, Mapping):
        return _make("prior", 1.0, prior, network, _plain(prior))
    number = check_exponent("prior", prior)
    return Prior(number, {}, number)


def read_prior_file(path: str | os.PathLike[str], network: Network) -> Prior:
    """Read a prior file, as described at the top of this module.

    Raises
    ------
    BadInputError
        It cannot be read, is not TOML (or JSON, if its name ends so), or says something impossible of the network.
    """
    file = Path(path)
    kind = "JSON" if file.suffix.lower() == ".json" else "TOML"
    try:
        # Some editors begin a file with a byte order mark.
        text = file.read_text(encoding="utf-8-sig")
        document = json.loads(text, object_pairs_hook=_once) if kind == "JSON" else tomllib.loads(text)
    except OSError as cause:
        raise BadInputError(f"cannot read the prior file {path}: {cause.strerror}") from cause
    except UnicodeDecodeError as cause:
        line = cause.object[: cause.start].count(b"\n") + 1
        raise BadInputError(f"prior file {path}: not UTF-8 text (at line {line})") from cause
    except (ValueError, RecursionError) as cause:
        raise BadInputError(f"prior file {path}: not {kind}: {cause}") from cause
    where = f"prior file {path}"
    if not isinstance(document, dict):
        raise BadInputError(f"{where}: expected the keys 'default' and 'variables', found {type(document).__name__}")
    unknown = sorted(set(document) - {"default", "variables"})
    if unknown:
        raise BadInputError(f"{where}: unknown key {unknown[0]!r}; the keys are 'default' and 'variables'")
    if not document:
        raise BadInputError(f"{where}: expected the key 'default' or 'variables', found neither: it says nothing")
    variables = document.get("variables", {})
    if not isinstance(variables, dict):
        raise BadInputError(f"{where}: 'variables': expected a table of variables, found {_show(variables)}")
    return _make(
        where, check_exponent(f"{where}: 'default'", document.get("default", 1.0)), variables, network, document
    )


def _make(where: str, default: float, variables: Mapping[Any, Any], network: Network, written: Any) -> Prior:
    number = {v: i for i, v in enumerate(network.variables)}
    tables = {}
    for name, given in variables.items():
        if name not in number:
            close = difflib.get_close_matches(str(name), network.variables, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise BadInputError(f"{where}: network {network.name} has no variable {name!r}{hint}")
        tables[name] = _table(f"{where}: variable {name!r}", given, default, network, number[name])
    return Prior(default, tables, written)


def _table(where: str, given: Any, default: float, network: Network, i: int) -> NDArray[np.float64]:
    """A variable's exponents in the shape of its table."""
    members = [*network.parents[i], i]
    shape = tuple(network.cardinalities[j] for j in members)
    if isinstance(given, Mapping):
        table = np.full(shape, default)
        _fill(where, given, table, network, members)
        return table
    if isinstance(given, int | float | np.number) and not isinstance(given, bool):
        return np.full(shape, check_exponent(where, given))
    return np.array(np.broadcast_to(_array(where, given, shape), shape))


def _fill(
    where: str, given: Mapping[Any, Any], table: NDArray[np.float64], network: Network, members: list[int]
) -> None:
    """Write exponents that are named by state, the outermost member's first, into a table, in place."""
    variable = members[0]
    states = [str(s) for s in network.states[variable] or ()]
    for key, inner in given.items():
        if str(key) not in states:
            raise BadInputError(
                f"{where}: expected states of {network.variables[variable]!r} ({', '.join(states)}), found {key!r}"
            )
        k = states.index(str(key))
        there = f"{where}, {network.variables[variable]}={key}"
        if isinstance(inner, Mapping):
            if len(members) == 1:
                raise BadInputError(f"{there}: expected {EXPECTED}, found {_show(dict(inner))}")
            _fill(there, inner, table[k], network, members[1:])
        elif isinstance(inner, int | float | np.number) and not isinstance(inner, bool):
            table[k] = check_exponent(there, inner)
        else:
            table[k] = _array(there, inner, table.shape[1:])


def _array(where: str, given: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Exponents for the whole of a shape, or for its last axis."""
    expected = f"exponents of shape {shape}" + (f" or {shape[-1:]}" if len(shape) > 1 else "")
    try:
        array = np.asarray(given)
        if array.dtype.kind not in "iuf":
            raise ValueError
        array = array.astype(np.float64)
    except (ValueError, TypeError):
        raise BadInputError(f"{where}: expected {expected if shape else EXPECTED}, found {_show(given)}") from None
    if array.shape not in (shape, shape[-1:]) or not shape:
        raise BadInputError(f"{where}: expected {expected if shape else EXPECTED}, found shape {array.shape}")
    bad = array[~(array >= 1)]
    if bad.size:
        raise BadInputError(f"{where}: expected Dirichlet exponents of at least 1, found {float(bad.flat[0])!r}")
    if array.size and array.max() > LARGEST:
        raise BadInputError(
            f"{where}: expected Dirichlet exponents of at most {LARGEST:g}, found {float(array.max())!r}"
        )
    return array


def check_exponent(where: str, given: Any) -> float:
    """A single Dirichlet exponent.

    Raises
    ------
    BadInputError
        It is no number from 1 to `LARGEST`.
    """
    is_number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    if not is_number or not given >= 1:
        raise BadInputError(f"{where}: expected {EXPECTED}, found {_show(given)}")
    if given > LARGEST:
        raise BadInputError(f"{where}: expected a Dirichlet exponent of at most {LARGEST:g}, found {_show(given)}")
    return float(given)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; as in TOML, no key may come twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice")
        found[key] = value
    return found


def _show(value: Any) -> str:
    """What was found, on one line that can be read."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:80]}…"


def _plain(value: Any) -> Any:
    """A given prior as JSON-ready values."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, bool | int | float | str) else np.asarray(value).tolist()


def prior_arrays(prior: Prior, network: Network, sub_network: SubNetwork) -> NDArray[np.float64]:
    """Pseudo counts, exponents minus one, in a sub-network's layout, shape (n_parameters,)."""
    pseudo = np.full(sub_network.n_parameters, prior.default - 1.0)
    for f, name in enumerate(sub_network.component):
        if name in prior.tables:
            pseudo[int(sub_network.bases[f]) : int(sub_network.bases[f + 1])] = prior.tables[name].ravel() - 1.0
    return pseudo


def own_prior(prior: Prior, network: Network, sub_network: SubNetwork) -> NDArray[np.float64] | None:
    """The same where a sub-network has exponents of its own; None where the default tells all: graphs stay small."""
    if not any(name in prior.tables for name in sub_network.component):
        return None
    return prior_arrays(prior, network, sub_network)
