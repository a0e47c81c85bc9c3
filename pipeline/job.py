"""A learning job as plain settings: from the command line's flags, or from a TOML file."""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from tasks.errors import BadInputError


@dataclass(frozen=True)
class Job:
    """What `dask pgm learn` is told.

    Attributes
    ----------
    network : str
        File or example network.
    data : tuple of str
        Files, directories, globs or URLs.
    output : str
        Directory to write.
    algorithm : str
        "auto", or one of those that the network's kind has.
    prior : float
        Dirichlet exponent; one is maximum likelihood, two Laplace smoothing.
    prior_file : str or None
        File of exponents by variable, in place of `prior`.
    estimator, auxiliary, on_missing : str
        Maximum likelihood, LAP or pseudo-likelihood; LAP's structure around a clique, and what it does where values are
        missing.
    l2, pseudo_count : float
        What keeps a Markov random field's potentials finite.
    names : str or None
        File with the variables' names, or "columns".
    damping : float
        Of EDML's and the hybrid's updates.
    accelerate : bool
        EM with guarded quasi-Newton steps.
    restarts, seed : int
        Starts per sub-network, and where their randomness comes from.
    tolerance : float
        A sub-network has converged when an iteration moves no parameter by more.
    max_iterations : int
        Per sub-network and start.
    start : str
        "random", or "network" for the tables the network comes with.
    keep_barren, no_decompose : bool
        Turn off dropping barren variables, and decomposition.
    missing_token : tuple of str
        Values that mean missing, besides null.
    weight : str or None
        Column that says how many examples a row stands for.
    workers : int or None
        Processes of a local cluster to start.
    scheduler : str or None
        Address of a running scheduler.
    overwrite, json : bool
        Replace the output directory; print the report as JSON.
    """

    network: str
    data: tuple[str, ...]
    output: str
    algorithm: str = "auto"
    prior: float = 1.0
    prior_file: str | None = None
    estimator: str = "exact"
    auxiliary: str = "exact"
    on_missing: str = "refuse"
    l2: float = 0.0
    pseudo_count: float = 0.0
    names: str | None = None
    damping: float = 0.5
    accelerate: bool = False
    restarts: int = 1
    seed: int = 0
    tolerance: float = 1e-5
    max_iterations: int = 1000
    start: str = "random"
    keep_barren: bool = False
    no_decompose: bool = False
    missing_token: tuple[str, ...] = ()
    weight: str | None = None
    workers: int | None = None
    scheduler: str | None = None
    overwrite: bool = False
    json: bool = False


@dataclass(frozen=True)
class _Setting:
    """What a setting has to be: in words, and as a test."""

    expected: str
    holds: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)


# As in tasks.solving and tasks.markov_solving, which would bring numba with them. Which of them a network has is known
# when it is read.
ESTIMATORS = ("exact", "lap", "pseudo-likelihood")
AUXILIARIES = ("exact", "dense", "pairwise")
ALGORITHMS = ("auto", "em", "edml", "hybrid", "gradient", "cg", "lbfgs", "ipf", "closed-form")

_TEXT = _Setting("text that is not empty", _is_text)
_FLAG = _Setting("true or false", lambda v: isinstance(v, bool))
_POSITIVE = _Setting("a whole number of at least 1", lambda v: _is_whole(v) and v >= 1)
_SETTINGS = {
    "network": _TEXT,
    "data": _Setting("text or a list of texts", lambda v: _is_text(v) or (_is_texts(v) and len(v) > 0 and all(v))),
    "output": _TEXT,
    "algorithm": _Setting(f"one of {', '.join(ALGORITHMS)}", lambda v: isinstance(v, str) and v in ALGORITHMS),
    "prior": _Setting("a finite number of at least 1", lambda v: _is_finite(v) and v >= 1),
    "prior_file": _TEXT,
    "estimator": _Setting(f"one of {', '.join(ESTIMATORS)}", lambda v: isinstance(v, str) and v in ESTIMATORS),
    "auxiliary": _Setting(f"one of {', '.join(AUXILIARIES)}", lambda v: isinstance(v, str) and v in AUXILIARIES),
    "on_missing": _Setting("'refuse' or 'em'", lambda v: v in ("refuse", "em")),
    "l2": _Setting("a finite number of at least 0", lambda v: _is_finite(v) and v >= 0),
    "pseudo_count": _Setting("a finite number of at least 0", lambda v: _is_finite(v) and v >= 0),
    "names": _TEXT,
    "damping": _Setting("a number from 0 to below 1", lambda v: _is_finite(v) and 0 <= v < 1),
    "accelerate": _FLAG,
    "restarts": _POSITIVE,
    "seed": _Setting("a whole number that is not negative", lambda v: _is_whole(v) and v >= 0),
    "tolerance": _Setting("a finite number above 0", lambda v: _is_finite(v) and v > 0),
    "max_iterations": _POSITIVE,
    "start": _Setting("'random' or 'network'", lambda v: v in ("random", "network")),
    "keep_barren": _FLAG,
    "no_decompose": _FLAG,
    # The empty string is a token too: a table read from a CSV file may be full of it.
    "missing_token": _Setting("text or a list of texts", lambda v: isinstance(v, str) or _is_texts(v)),
    "weight": _TEXT,
    "workers": _POSITIVE,
    "scheduler": _TEXT,
    "overwrite": _FLAG,
    "json": _FLAG,
}


def make_job(settings: Mapping[str, Any], spell: Callable[[str], str] = str) -> Job:
    """Check settings and fill in the defaults.

    Parameters
    ----------
    settings : mapping
        By the names of `Job`'s attributes.
    spell : callable
        How messages name a setting.

    Raises
    ------
    BadInputError
        One is missing, or is not what it has to be; the message names it.
    """
    for field in fields(Job):
        if field.default is MISSING and field.name not in settings:
            raise BadInputError(f"{spell(field.name)} is missing: expected {_SETTINGS[field.name].expected}")
    values = dict(settings)
    for name, value in values.items():
        if not _SETTINGS[name].holds(value):
            raise BadInputError(f"{spell(name)}: expected {_SETTINGS[name].expected}, found {value!r}")
        if name in ("data", "missing_token"):
            values[name] = (value,) if isinstance(value, str) else tuple(value)
    if "workers" in values and "scheduler" in values:
        raise BadInputError(
            f"{spell('workers')} and {spell('scheduler')} exclude each other: a running scheduler has its own workers"
        )
    if "prior" in values and "prior_file" in values:
        raise BadInputError(f"{spell('prior')} and {spell('prior_file')} exclude each other: the file has a default")
    if values.get("accelerate") and values.get("algorithm", "em") not in ("em", "auto"):
        raise BadInputError(f"{spell('accelerate')}: expected {spell('algorithm')} em, found {values['algorithm']!r}")
    if "damping" in values and values.get("algorithm", "em") not in ("edml", "hybrid"):
        raise BadInputError(
            f"{spell('damping')}: expected {spell('algorithm')} edml or hybrid, found {values.get('algorithm', 'em')!r}"
        )
    return Job(**values)


def read_job(path: str | os.PathLike[str]) -> Job:
    """Read a job from a TOML file whose keys are the flags of `dask pgm learn`.

    Parameters
    ----------
    path : path
        The file. Relative paths in it start from its directory.

    Raises
    ------
    BadInputError
        The file can't be read or is not TOML (with the line), or a key is unknown, twice there, missing, or not
        what it has to be.
    """
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as cause:
        raise BadInputError(f"cannot read the job {path}: {cause.strerror}") from cause
    except UnicodeDecodeError as cause:
        line = cause.object[: cause.start].count(b"\n") + 1
        raise BadInputError(f"job {path}: not UTF-8 text (at line {line})") from cause
    except tomllib.TOMLDecodeError as cause:
        raise BadInputError(f"job {path}: not TOML: {cause}") from cause

    settings: dict[str, Any] = {}
    written: dict[str, str] = {}
    for key, value in document.items():
        name = key.replace("-", "_")
        if name not in _SETTINGS:
            close = difflib.get_close_matches(name, _SETTINGS, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(_SETTINGS)}"
            raise BadInputError(f"job {path}: unknown key {key!r}; {hint}")
        if name in settings:
            raise BadInputError(f"job {path}: {written[name]!r} and {key!r} are the same setting")
        settings[name], written[name] = value, key
    try:
        job = make_job(settings, lambda name: repr(written.get(name, name)))
    except BadInputError as cause:
        raise BadInputError(f"job {path}: {cause}") from cause
    here = path.absolute().parent
    located = {
        "network": _locate_network(job.network, here),
        "data": tuple(_locate(d, here) for d in job.data),
        "output": _locate(job.output, here),
        "prior_file": None if job.prior_file is None else _locate(job.prior_file, here),
        "names": job.names if job.names in (None, "columns") else _locate(str(job.names), here),
    }
    return Job(**{f.name: located.get(f.name, getattr(job, f.name)) for f in fields(Job)})


def _locate(text: str, here: Path) -> str:
    """A path relative to the job's directory, as one that any directory can start from; URLs are left alone."""
    return text if "://" in text else str(here / Path(text).expanduser())


def _locate_network(text: str, here: Path) -> str:
    """The same, but a bare word that is no file there is the name of an example network."""
    is_word = not Path(text).suffix and not set(text) & {"/", os.sep}
    return text if is_word and not (here / text).is_file() else _locate(text, here)
