"""The output directory: whole, or not there at all."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.bif import write_bif
from pipeline.markov import MarkovNetwork
from pipeline.network import Network
from pipeline.normalised import normalise
from pipeline.result import LearnResult, SubNetworkResult
from pipeline.uai import write_uai
from tasks.errors import BadInputError

FILES = {
    "network.bif",
    "network.uai",
    "variables.txt",
    "parameters.parquet",
    "normalised.parquet",
    "sub_networks.parquet",
    "mutual_information.parquet",
    "tree.svg",
    "report.json",
}


def check_output(output: str | os.PathLike[str], overwrite: bool) -> Path:
    """The directory to write, absolute; refused if it exists, unless it may be replaced or is empty.

    Raises
    ------
    BadInputError
        It exists, is not a directory, was not written by this project, or its parent cannot be written.
    """
    text = os.fsdecode(output)
    if not text:
        raise BadInputError("output: expected a directory, found an empty name")
    if "://" in text:
        raise BadInputError(
            f"output {text}: expected a local directory, found a URL; write locally, then copy it there"
        )
    try:
        # Through links: the directory behind one is replaced, not the link.
        path = Path(text).resolve()
        exists = path.exists()
    except (OSError, RuntimeError) as error:
        raise BadInputError(f"output {text[:80]}: {_reason(error)}; name another directory") from error
    if exists:
        if not path.is_dir():
            raise BadInputError(f"output {text} exists and is not a directory; name another")
        names = {p.name for p in path.iterdir()}
        if names and not overwrite:
            raise BadInputError(
                f"output {text} exists; name another directory, or replace it with --overwrite (overwrite=True)"
            )
        # A slip of the hand must not cost somebody a home directory.
        if others := sorted(names - FILES):
            raise BadInputError(
                f"output {text} holds {others[0]!r}, which is no file of a learned network; --overwrite replaces only "
                "those"
            )
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    try:
        # Tried, not asked: permissions do not tell all, least of all to root.
        trial = parent / _draft_name(path)
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        raise BadInputError(f"output {text}: {parent} cannot be written ({_reason(error)}); name another") from error
    return path


def _draft_name(path: Path) -> str:
    return f".{path.name}.{uuid.uuid4().hex[:12]}.part"


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


@contextmanager
def whole_directory(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """A directory to fill that takes the place of `path` at the end, or vanishes if anything goes wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / _draft_name(path)
    draft.mkdir()
    try:
        yield draft
        for file in draft.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        if overwrite and path.exists():
            old = path.parent / f".{path.name}.{uuid.uuid4().hex[:12]}.old"
            path.rename(old)
            draft.rename(path)
            shutil.rmtree(old)
        else:
            try:
                draft.rename(path)
            except OSError as error:
                # Only an empty directory gives way. This one was filled while the job ran.
                raise BadInputError(
                    f"output {path} was written by another job in the meantime; name another directory"
                ) from error
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def write_result(result: LearnResult, path: Path, overwrite: bool = False) -> None:
    """Write the network, its parameters, sub_networks.parquet and report.json into a new directory.

    A Bayesian network is network.bif; a Markov random field network.uai, with variables.txt for the names that a UAI
    file has no place for, and normalised.parquet.
    """
    with whole_directory(path, overwrite) as draft:
        network = result.learned
        if isinstance(network, MarkovNetwork):
            (draft / "network.uai").write_text(write_uai(network), encoding="utf-8")
            (draft / "variables.txt").write_text("".join(f"{v}\n" for v in network.variables), encoding="utf-8")
            pq.write_table(potentials_table(network, result.expected_counts), draft / "parameters.parquet")
            pq.write_table(normalised_table(network), draft / "normalised.parquet")
        else:
            (draft / "network.bif").write_text(write_bif(network), encoding="utf-8")
            pq.write_table(parameters_table(network, result.expected_counts), draft / "parameters.parquet")
        pq.write_table(sub_networks_table(result.sub_networks), draft / "sub_networks.parquet")
        text = json.dumps(result.report, indent=2, allow_nan=False, ensure_ascii=False)
        (draft / "report.json").write_text(text + "\n", encoding="utf-8")


def parameters_table(network: Network, expected: Sequence[NDArray[np.float64] | None]) -> pa.Table:
    """A row a parameter: variable, state, parents, parent_states, value, expected_count (null where unlearnable)."""
    batches = []
    for i, variable in enumerate(network.variables):
        table, counts = network.tables[i], expected[i]
        assert table is not None
        labels = [[str(s) for s in network.states[j] or ()] for j in (*network.parents[i], i)]
        n, configurations = table.size, table.size // table.shape[-1]
        parents = [network.variables[j] for j in network.parents[i]]
        codes = np.indices(table.shape[:-1]).reshape(len(parents), configurations)
        given = [[labels[k][codes[k, u]] for k in range(len(parents))] for u in range(configurations)]
        each = np.repeat(np.arange(configurations), table.shape[-1])
        batches.append(
            pa.table(
                {
                    "variable": pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array([variable])),
                    "state": pa.array(labels[-1]).take(pa.array(np.tile(np.arange(table.shape[-1]), configurations))),
                    "parents": pa.array([parents], pa.list_(pa.string())).take(pa.array(np.zeros(n, np.int64))),
                    "parent_states": pa.array(given, pa.list_(pa.string())).take(pa.array(each)),
                    "value": pa.array(table.ravel()),
                    "expected_count": pa.nulls(n, pa.float64()) if counts is None else pa.array(counts.ravel()),
                }
            )
        )
    return pa.concat_tables(batches).unify_dictionaries().combine_chunks()


def potentials_table(network: MarkovNetwork, expected: Sequence[NDArray[np.float64] | None]) -> pa.Table:
    """A row a factor's entry: factor, variables, states, potential, log_potential, expected_count."""
    batches = []
    for f in network.learnable:
        table, counts = network.tables[f], expected[f]
        assert table is not None
        assert counts is not None
        with np.errstate(divide="ignore"):
            logs = np.log(table)
        scope = network.scopes[f]
        states = _states_of(network, scope, [range(k) for k in table.shape])
        batches.append(
            pa.table(
                {
                    "factor": pa.array(np.full(table.size, f, np.int32)),
                    "variables": _repeated([network.variables[v] for v in scope], table.size),
                    "states": pa.array(states, pa.list_(pa.string())),
                    "potential": pa.array(table.ravel()),
                    "log_potential": pa.array(logs.ravel()),
                    "expected_count": pa.array(counts.ravel()),
                }
            )
        )
    return pa.concat_tables(batches).combine_chunks()


def normalised_table(network: MarkovNetwork) -> pa.Table:
    """A row a normalised log potential (`pipeline.normalised`): variables, states, value, null where it has none."""
    potentials, _ = normalise(network)
    batches = []
    for scope, values in potentials.items():
        states = _states_of(network, scope, [range(1, k + 1) for k in values.shape])
        batches.append(
            pa.table(
                {
                    "variables": _repeated([network.variables[v] for v in scope], values.size),
                    "states": pa.array(states, pa.list_(pa.string())),
                    "value": pa.array(values.ravel(), mask=np.isnan(values.ravel())),
                }
            )
        )
    if not batches:  # every variable has one state
        text = pa.list_(pa.string())
        return pa.table(
            {"variables": pa.array([], text), "states": pa.array([], text), "value": pa.array([], pa.float64())}
        )
    return pa.concat_tables(batches).combine_chunks()


def _states_of(network: MarkovNetwork, scope: Sequence[int], ranges: Sequence[range]) -> list[list[str]]:
    """The states of every entry of a table, its last variable's running fastest."""
    labels = [[str((network.states[v] or ())[k]) for k in own] for v, own in zip(scope, ranges, strict=True)]
    return [list(entry) for entry in itertools.product(*labels)]


def _repeated(names: list[str], n: int) -> pa.Array:
    return pa.array([names], pa.list_(pa.string())).take(pa.array(np.zeros(n, np.int64)))


def sub_networks_table(records: Sequence[SubNetworkResult]) -> pa.Table:
    """A row a sub-network; without the seconds, so that equal jobs write equal bytes."""
    text = pa.list_(pa.string())
    return pa.table(
        {
            "variables": pa.array([r.variables for r in records], text),
            "boundary": pa.array([r.boundary for r in records], text),
            "distinct_rows": pa.array([r.distinct_rows for r in records], pa.int64()),
            "instances": pa.array([r.instances for r in records], pa.int64()),
            "iterations": pa.array([r.iterations for r in records], pa.int64()),
            "converged": pa.array([r.converged for r in records], pa.bool_()),
            "log_likelihood": pa.array([r.log_likelihood for r in records], pa.float64()),
            "log_posterior": pa.array([r.log_posterior for r in records], pa.float64()),
            "history": pa.array([r.history for r in records], pa.list_(pa.float64())),
            "restarts": pa.array([r.restarts for r in records], pa.list_(pa.float64())),
        }
    )
