"""Simulate a dataset from a network into Parquet partitions, with entries and columns missing on demand."""

from __future__ import annotations

import difflib
import math
import operator
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.execution import make_executor
from pipeline.markov import AnyNetwork, MarkovNetwork
from pipeline.markov_learning import start_potentials
from pipeline.networks import load_network
from tasks.errors import BadInputError
from tasks.markov_sampling import field_sampler
from tasks.markov_terms import make_model, plan_model, scaled
from tasks.sampling import CHUNK, Codes, Sampler, blank_entries, choose, draw_rows, make_sampler

__all__ = ["Simulation", "simulate"]

# Cells held at a time by each thread: a row group of a million rows for a network of alarm's size, less for wide ones.
CELLS = 2**25


@dataclass(frozen=True)
class Simulation:
    """A simulated dataset.

    Attributes
    ----------
    where : str
        Its directory.
    files : tuple of str
        Its Parquet files, in the order of their rows.
    rows : int
        Over all files.
    columns : tuple of str
        Variables that have a column, in the network's order.
    hidden : tuple of str
        Variables left out.
    missing_variables : tuple of str
        Variables whose entries were blanked.
    missing_entries : int
        How many entries were blanked.
    seconds : float
        Wall-clock time.
    """

    where: str
    files: tuple[str, ...]
    rows: int
    columns: tuple[str, ...]
    hidden: tuple[str, ...]
    missing_variables: tuple[str, ...]
    missing_entries: int
    seconds: float


def simulate(
    network: Any,
    where: str | os.PathLike[str],
    rows: int,
    partitions: int = 1,
    missing: float = 0.0,
    missing_variables: float = 1.0,
    hidden: float | str | Sequence[str] = (),
    seed: int = 0,
    *,
    names: object = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Simulation:
    """Draw rows from a network and write them as a directory of Parquet files.

    Parameters
    ----------
    network : str, path or model
        Whatever `load_network` takes; it must have tables.
    where : path or fsspec URL
        Directory to write: must not exist, or be empty. It appears whole or not at all.
    rows : int
        How many rows, at least one.
    partitions : int
        How many files, from one to `rows`; their sizes differ by at most one row. The rows do not depend on it.
    missing : float
        Probability with which an entry is blanked.
    missing_variables : float
        The fraction of the variables that have a column to which `missing` applies; rounded to a whole number of
        variables, drawn at random.
    hidden : float, name or sequence of names
        Variables left out: by name, or a fraction drawn at random.
    seed : int
        Not negative. The same seed gives the same rows; more `rows` continue them, and `missing` and `hidden` only
        take entries away.
    names : path or sequence of str, optional
        What to call the network's variables, see `load_network`.
    progress : callable, optional
        Called with ("simulate", rows written, rows).

    Raises
    ------
    BadInputError
        A setting out of range, an unknown name in `hidden`, no variable left, a network without tables, or a
        destination that exists.
    """
    begin = time.perf_counter()
    model = load_network(network, names=names)
    rows, partitions, seed = (_integer(n, v) for n, v in (("rows", rows), ("partitions", partitions), ("seed", seed)))
    if rows < 1:
        raise BadInputError(f"rows: expected at least 1, found {rows}")
    if not 1 <= partitions <= rows:
        raise BadInputError(f"partitions: expected 1 to {rows} (the number of rows), found {partitions}")
    if seed < 0:
        raise BadInputError(f"seed: expected a number that is not negative, found {seed}")
    missing = _rate("missing", missing)
    missing_variables = _rate("missing_variables", missing_variables)

    left_out = _hidden(model, hidden, seed)
    kept = [i for i in range(len(model.variables)) if i not in set(left_out)]
    if not kept:
        raise BadInputError("hidden: every variable of the network is hidden, so that no column is left to write")
    blanked = choose(kept, round(missing_variables * len(kept)), seed, purpose=1) if missing > 0 else ()
    sampler = _sampler(model)
    borders = [rows * p // partitions for p in range(partitions + 1)]
    columns = _Columns(model, kept)

    names = [f"part-{p:05d}.parquet" for p in range(partitions)]
    stop = threading.Event()
    lock = threading.Lock()
    done = missing_entries = 0

    def write(p: int, sink: Any) -> None:
        nonlocal done, missing_entries
        group = max(1, CELLS // (CHUNK * len(model.variables))) * CHUNK
        with pq.ParquetWriter(sink, columns.schema) as writer:
            for first in range(borders[p], borders[p + 1], group):
                codes = sampler.make_codes(min(group, borders[p + 1] - first))
                # In steps of a chunk, so that an interruption is noticed soon.
                for lo in range(0, codes.shape[1], CHUNK):
                    if stop.is_set():
                        return
                    piece = codes[:, lo : lo + CHUNK]
                    draw_rows(sampler, seed, first + lo, piece)
                    blank_entries(piece, seed, first + lo, blanked, missing)
                table = columns.table(codes)
                writer.write_table(table, row_group_size=codes.shape[1])
                with lock:
                    done += table.num_rows
                    missing_entries += sum(c.null_count for c in table.columns)
                    if progress is not None:
                        progress("simulate", done, rows)

    with _new_directory(where) as directory:

        def write_file(p: int) -> None:
            with directory.open(names[p]) as sink:
                write(p, sink)

        with ThreadPoolExecutor(min(partitions, os.cpu_count() or 1)) as pool:
            futures = [pool.submit(write_file, p) for p in range(partitions)]
            try:
                finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
            except BaseException:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    return Simulation(
        where=directory.where,
        files=tuple(f"{directory.where}/{name}" for name in names),
        rows=rows,
        columns=tuple(model.variables[i] for i in kept),
        hidden=tuple(model.variables[i] for i in left_out),
        missing_variables=tuple(model.variables[i] for i in blanked),
        missing_entries=missing_entries,
        seconds=time.perf_counter() - begin,
    )


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise BadInputError(f"{name}: expected a whole number, found {value!r}") from None


def _rate(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= float(value) <= 1:
        raise BadInputError(f"{name}: expected a number from 0 to 1, found {value!r}")
    return float(value)


def _hidden(model: AnyNetwork, hidden: float | str | Sequence[str], seed: int) -> tuple[int, ...]:
    """Indices of the variables to leave out, in the network's order."""
    n = len(model.variables)
    if isinstance(hidden, int | float | np.number):
        if isinstance(hidden, bool) or not math.isfinite(hidden) or not 0 <= hidden < 1:
            raise BadInputError(
                f"hidden: expected names or a fraction of the variables, from 0 to below 1, found {hidden!r}"
            )
        return choose(range(n), round(float(hidden) * n), seed, purpose=0)
    names = [hidden] if isinstance(hidden, str) else list(hidden)
    for name in names:
        if name not in model.variables:
            close = difflib.get_close_matches(str(name), model.variables, n=3, cutoff=0.5)
            hint = f"; did you mean {', '.join(map(repr, close))}?" if close else ""
            raise BadInputError(f"hidden: network {model.name} has no variable {name!r}{hint}")
    return tuple(i for i, v in enumerate(model.variables) if v in set(names))


def _sampler(model: AnyNetwork) -> Sampler:
    if isinstance(model, MarkovNetwork):
        theta, _ = scaled(start_potentials(model, "nothing can be drawn from it"), model.graph.bases)
        allowed = make_executor().allowed_bytes
        return field_sampler(make_model(model.graph, plan_model(model.graph, allowed), allowed), theta)
    tables: list[NDArray[np.float64]] = []
    for variable, table in zip(model.variables, model.tables, strict=True):
        if table is None:
            raise BadInputError(
                f"network {model.name}: variable {variable!r} has no table, so that nothing can be drawn from it"
            )
        tables.append(table)
    return make_sampler(model.topological_order, model.parents, tables)


class _Columns:
    """How codes become Arrow columns: names as dictionaries, numbers and booleans as themselves."""

    def __init__(self, model: AnyNetwork, kept: Sequence[int]) -> None:
        self.kept = kept
        self.labels: list[tuple[pa.Array, bool]] = []
        fields = []
        for i in kept:
            states = model.states[i]
            assert states is not None  # a variable with a table has states
            kinds = {type(s) for s in states}
            if kinds == {bool} or kinds == {int}:
                labels, encoded = pa.array(list(states)), False
                fields.append((model.variables[i], labels.type))
            else:
                labels, encoded = pa.array([str(s) for s in states], pa.string()), True
                index = pa.from_numpy_dtype(np.min_scalar_type(-len(states)))
                fields.append((model.variables[i], pa.dictionary(index, pa.string())))
            self.labels.append((labels, encoded))
        self.schema = pa.schema(fields)

    def table(self, codes: Codes) -> pa.Table:
        arrays = []
        for i, (labels, encoded), field in zip(self.kept, self.labels, self.schema, strict=True):
            indices = pa.array(codes[i], mask=codes[i] < 0)
            if encoded:
                indices = indices.cast(field.type.index_type)
                arrays.append(pa.DictionaryArray.from_arrays(indices, labels, safe=False))
            else:
                arrays.append(labels.take(indices))
        return pa.Table.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True)
class _Directory:
    """A directory being filled: `where` is its name to be, `temporary` its name until then."""

    where: str
    temporary: str
    file_system: Any

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        path = f"{self.temporary}/{name}"
        if self.file_system is None:
            yield path
        else:
            with self.file_system.open(path, "wb") as sink:
                yield sink


@contextmanager
def _new_directory(where: str | os.PathLike[str]) -> Iterator[_Directory]:
    """Fill a directory under another name beside it, and rename it at the end; on any failure remove it."""
    text = os.fspath(where)
    if not text:
        raise BadInputError("where: expected a directory to write, found an empty name")
    if "://" in text and not text.startswith("file://"):
        with _new_remote_directory(text) as directory:
            yield directory
        return
    path = Path(os.path.realpath(text.removeprefix("file://")))
    if path.is_dir() and path == Path.cwd():
        raise BadInputError(f"{text} is the current directory: name one that does not exist yet")
    if path.exists() and not path.is_dir():
        raise BadInputError(f"{text} exists and is not a directory; name one that does not exist yet")
    try:
        if path.is_dir() and any(path.iterdir()):
            raise BadInputError(f"{text} exists and is not empty; name another directory, or remove it first")
        made = [p for p in path.parents if not p.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
        temporary.mkdir()
    except OSError as cause:
        raise BadInputError(f"cannot write to {text}: {cause.strerror}") from cause
    try:
        yield _Directory(str(path), str(temporary), None)
        # Renaming over an empty directory is atomic; over one that someone has filled meanwhile, it fails.
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in made:
            # Nothing was written also means no empty directories on the way; one that others use by now stays.
            try:
                parent.rmdir()
            except OSError:
                break
        raise


@contextmanager
def _new_remote_directory(url: str) -> Iterator[_Directory]:
    """The same on a store that fsspec knows. Object stores rename by copying, so there "at once" is not exact."""
    from fsspec.core import url_to_fs

    try:
        file_system, path = url_to_fs(url.rstrip("/"))
        if file_system.exists(path) and (not file_system.isdir(path) or file_system.ls(path, detail=False)):
            raise BadInputError(f"{url} exists and is not empty; name another directory, or remove it first")
        temporary = f"{path}.{uuid.uuid4().hex[:8]}.partial"
        file_system.makedirs(temporary, exist_ok=True)
    except (ImportError, ValueError, OSError) as cause:
        if isinstance(cause, BadInputError):
            raise
        raise BadInputError(f"cannot write to {url}: {' '.join(str(cause).split())}") from cause
    try:
        yield _Directory(url.rstrip("/"), temporary, file_system)
        file_system.mv(temporary, path, recursive=True)
    except BaseException:
        if file_system.exists(temporary):
            file_system.rm(temporary, recursive=True)
        raise
