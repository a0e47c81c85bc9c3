"""What `learn` was asked for, checked as far as that goes without the network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.job import ALGORITHMS, AUXILIARIES, ESTIMATORS
from pipeline.priors import check_exponent
from tasks.errors import BadInputError


@dataclass(frozen=True)
class Options:
    """The settings of a learning job that say how to solve, as `pipeline.learn` describes them."""

    algorithm: str
    prior: float | Mapping[str, Any] | str | os.PathLike[str]
    damping: float
    accelerate: bool
    restarts: int
    seed: int
    tolerance: float
    max_iterations: int
    start: str
    drop_barren: bool
    decompose: bool
    l2: float
    pseudo_count: float
    estimator: str
    auxiliary: str
    on_missing: str


def make_options(**given: Any) -> Options:
    """Check each setting by itself.

    Raises
    ------
    BadInputError
        One is not what it has to be.
    """
    checked = dict(given)
    # A file or mapping needs the network.
    if isinstance(given["prior"], bool | int | float | np.number):
        checked["prior"] = check_exponent("prior", given["prior"])
    checked["tolerance"] = _number("tolerance", given["tolerance"], 0.0, 1.0, "a number from 0 to 1")
    checked["seed"] = _whole("seed", given["seed"], 0, 2**63)
    checked["restarts"] = _whole("restarts", given["restarts"], 1, 10**6)
    checked["max_iterations"] = _whole("max_iterations", given["max_iterations"], 1, 10**9)
    below_one = float(np.nextafter(1.0, 0.0))
    checked["damping"] = _number("damping", given["damping"], 0.0, below_one, "a number from 0 to below 1")
    checked["l2"] = _number("l2", given["l2"], 0.0, 1e15, "a penalty of at least 0")
    checked["pseudo_count"] = _number("pseudo_count", given["pseudo_count"], 0.0, 1e15, "examples, at least 0")
    if not isinstance(given["algorithm"], str) or given["algorithm"] not in ALGORITHMS:
        raise BadInputError(f"algorithm: expected one of {', '.join(ALGORITHMS)}, found {given['algorithm']!r}")
    if given["estimator"] not in ESTIMATORS:
        raise BadInputError(f"estimator: expected one of {', '.join(ESTIMATORS)}, found {given['estimator']!r}")
    if given["auxiliary"] not in AUXILIARIES:
        raise BadInputError(f"auxiliary: expected one of {', '.join(AUXILIARIES)}, found {given['auxiliary']!r}")
    if given["on_missing"] not in ("refuse", "em"):
        raise BadInputError(f"on_missing: expected 'refuse' or 'em', found {given['on_missing']!r}")
    for name, default in (("auxiliary", "exact"), ("on_missing", "refuse")):
        if given[name] != default and given["estimator"] != "lap":
            raise BadInputError(f"{name}: expected estimator 'lap', which it is of, found {given['estimator']!r}")
    if not isinstance(given["accelerate"], bool):
        raise BadInputError(f"accelerate: expected True or False, found {given['accelerate']!r}")
    if given["start"] not in ("random", "network"):
        raise BadInputError(f"start: expected 'random' or 'network', found {given['start']!r}")
    return Options(**checked)


def _number(name: str, value: Any, least: float, most: float, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not least <= value <= most:
        raise BadInputError(f"{name}: expected {expected}, found {value!r}")
    return float(value)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise BadInputError(f"{name}: expected a whole number from {least} to {most}, found {value!r}")
    return int(value)
