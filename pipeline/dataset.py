"""The data as the driver sees it: which partitions, which columns, what is always observed.

Parquet is known from its footers alone: no data page is read here. What a footer doesn't tell (`needs_scan`) is
asked of `tasks.reading.scan_partition`, one task a partition.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.errors import BadInputError
from tasks.reading import (
    ParquetPart,
    PartitionScan,
    State,
    TablePart,
    as_table_part,
    open_parquet,
    unsupported,
    unsupported_weight,
    value_kind,
    weight_kind,
)

PARQUET_SUFFIXES = (".parquet", ".parq")

# Opening a file is waiting, mostly: on a disk for 0.1 ms, on an object store for 100.
FOOTER_THREADS = 16


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of the dataset.

    Attributes
    ----------
    path : str
        Absolute local path, or URL.
    size : int
        Bytes.
    rows : int
        Rows.
    modified : str
        Modification time or ETag: with path and size, what tells whether the file is still the same.
    """

    path: str
    size: int
    rows: int
    modified: str


@dataclass(frozen=True)
class Dataset:
    """A dataset, opened but not read.

    Attributes
    ----------
    name : str
        What messages call it.
    variables : tuple of str
        The network's variables, in its order.
    parts : tuple of (ParquetPart, TablePart)
        The partitions that hold rows; empty for a Dask DataFrame, whose partitions are known as `frame_keys`.
    n_rows : int or None
        None for a Dask DataFrame: its scans tell.
    columns : tuple of str
        Those of `variables` that have a column, in the same order.
    ignored_columns : tuple of str
        Columns that are neither a variable nor the weight, sorted.
    kinds : dict of str to str
        By column: "string", "integer", "float", "boolean", "null" (all missing, or not known yet).
    null_counts : dict of str to (int or None)
        By column; None where the footers don't tell.
    needs_scan : tuple of str
        Columns whose missing entries only a scan can count.
    weight : str or None
        The weight column.
    missing_tokens : tuple of str
        Values that mean missing.
    on_disk_bytes : int or None
        Compressed bytes of the needed columns (for tables: bytes in memory); None for a Dask DataFrame.
    decoded_bytes : int or None
        Bytes of the needed columns as Arrow arrays, strings as int32 dictionary indices; None for a Dask
        DataFrame.
    files : tuple of DataFile
        Empty unless the data is Parquet.
    frame_keys : tuple
        For a Dask DataFrame: the key in `frame_graph` of each partition as a `TablePart`.
    frame_graph : mapping
        For a Dask DataFrame: the tasks behind `frame_keys`.
    """

    name: str
    variables: tuple[str, ...]
    parts: tuple[ParquetPart | TablePart, ...]
    n_rows: int | None
    columns: tuple[str, ...]
    ignored_columns: tuple[str, ...]
    kinds: Mapping[str, str]
    null_counts: Mapping[str, int | None]
    needs_scan: tuple[str, ...]
    weight: str | None = None
    missing_tokens: tuple[str, ...] = ()
    on_disk_bytes: int | None = None
    decoded_bytes: int | None = None
    files: tuple[DataFile, ...] = ()
    frame_keys: tuple[Any, ...] = ()
    frame_graph: Mapping[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def n_parts(self) -> int:
        """How many partitions there are to read."""
        return len(self.parts) + len(self.frame_keys)

    def part_keys(self, token: str, graph: dict[Any, Any]) -> list[Any]:
        """Add to `graph` what gives each partition as a `ParquetPart` or `TablePart`.

        Parameters
        ----------
        token : str
            Ends the new keys' names; those of a Dask DataFrame keep their own.
        graph : dict
            Written.

        Returns
        -------
        list of keys
            One a partition, in order.
        """
        graph.update(self.frame_graph)
        keys = [("part-" + token, i) for i in range(len(self.parts))]
        graph.update(zip(keys, self.parts, strict=True))
        return [*keys, *self.frame_keys]


@dataclass(frozen=True)
class Observability:
    """Which variables are observed, over the whole dataset.

    Attributes
    ----------
    always_observed, partly_observed, hidden : tuple of str
        Variables without a missing entry; with some; with no other, or without a column. In the network's order.
    missing : dict of str to int
        By variable, how many rows lack it.
    n_rows : int
        Rows of the dataset.
    """

    always_observed: tuple[str, ...]
    partly_observed: tuple[str, ...]
    hidden: tuple[str, ...]
    missing: Mapping[str, int]
    n_rows: int


def open_dataset(
    data: Any,
    variables: tuple[str, ...],
    weight: str | None = None,
    missing_tokens: tuple[str, ...] = (),
    rows_per_part: int = 1 << 20,
    storage_options: Mapping[str, object] | None = None,
) -> Dataset:
    """Find the data, read its footers, check its schema, and cut it into partitions.

    Parameters
    ----------
    data : str, path, list of those, DataFrame or table
        A directory, glob, file or fsspec URL of Parquet; or a pandas, Dask or Arrow table. In a directory the
        files are those ending in .parquet or .parq, at any depth, whose path has no part beginning with "." or "_".
    variables : tuple of str
        The network's.
    weight : str or None
        A column that says how many examples each row stands for.
    missing_tokens : tuple of str
        Values that mean missing, as text.
    rows_per_part : int
        Files and tables of more rows are split (files between row groups only); small ones are not merged.
    storage_options : mapping or None
        For fsspec.

    Returns
    -------
    Dataset
        Nothing but footers was read, and no Dask DataFrame computed.

    Raises
    ------
    BadInputError
        There is no data: a path, directory or glob without a file, no rows. It is not Parquet, or is truncated.
        No variable has a column, or one has a type that can't hold states, or comes twice, or differs in kind
        between files, or is missing from some of them. The weight column is not there, does not hold numbers, or
        is a variable.

    Notes
    -----
    Integers and floats are one kind: writers turn a column of integers with nulls into floats, file by file.
    """
    if rows_per_part < 1:
        raise BadInputError(f"rows_per_part is {rows_per_part}: expected 1 or more")
    if weight is not None and weight in variables:
        raise BadInputError(f"weight column {weight!r} is also a variable of the network: choose another column")
    job = _Job(tuple(variables), weight, tuple(missing_tokens), rows_per_part)
    pandas = sys.modules.get("pandas")
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return _open_table(data, "Arrow table", job)
    if pandas is not None and isinstance(data, pandas.DataFrame):
        names = _needed(job, [str(c) for c in data.columns], "pandas DataFrame")
        table = as_table_part(data, "pandas DataFrame", names).table
        return _open_table(table, "pandas DataFrame", job, [str(c) for c in data.columns])
    if hasattr(data, "__dask_graph__") and hasattr(data, "to_delayed") and hasattr(data, "columns"):
        return _open_dask(data, job)
    return _open_parquet(data, job, tuple(sorted((storage_options or {}).items())))


def column_names(data: Any, weight: str | None = None) -> tuple[str, ...]:
    """Names of the data's columns in their order, but for the weight column's; of several files, the first one's."""
    if hasattr(data, "columns") or isinstance(data, pa.Table | pa.RecordBatch):
        found = data.schema.names if isinstance(data, pa.Table | pa.RecordBatch) else data.columns
    else:
        found = _first_schema(data).names
    return tuple(str(c) for c in found if str(c) != weight)


def _first_schema(data: Any) -> pa.Schema:
    import fsspec

    _, paths = _find_files(data, ())
    try:
        with fsspec.open(paths[0], "rb") as file:
            return pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as cause:
        raise BadInputError(f"{paths[0]}: can't be read as Parquet ({' '.join(str(cause).split())})") from cause


def observability(dataset: Dataset, scans: Sequence[PartitionScan] | None = None) -> Observability:
    """Which variables are always, partly or never observed.

    Parameters
    ----------
    dataset : Dataset
        Of `open_dataset`.
    scans : sequence of PartitionScan, or None
        One a partition, of at least the columns `dataset.needs_scan`, where there are any.

    Raises
    ------
    BadInputError
        There are no rows, or a column's kind differs between partitions.
    """
    n_rows = dataset.n_rows
    if n_rows is None or dataset.needs_scan:
        if scans is None or len(scans) != dataset.n_parts:
            found = "none" if scans is None else len(scans)
            raise ValueError(f"{dataset.name}: a scan of each of {dataset.n_parts} partitions is needed, found {found}")
        n_rows = sum(s.n_rows for s in scans)
    _no_rows(dataset.name, n_rows)
    missing = dict.fromkeys(dataset.variables, n_rows)
    for name in dataset.columns:
        count = dataset.null_counts[name]
        if name in dataset.needs_scan:
            assert scans is not None
            _merged_kind(name, [(s.kinds[name], s.name) for s in scans])
            count = sum(s.missing[name] for s in scans)
        assert count is not None
        missing[name] = count
    return Observability(
        always_observed=tuple(v for v in dataset.variables if missing[v] == 0),
        partly_observed=tuple(v for v in dataset.variables if 0 < missing[v] < n_rows),
        hidden=tuple(v for v in dataset.variables if missing[v] == n_rows),
        missing=missing,
        n_rows=n_rows,
    )


def states_from_scans(variables: Sequence[str], scans: Sequence[PartitionScan]) -> dict[str, tuple[State, ...]]:
    """The states of variables that the network does not name, from the whole dataset.

    Parameters
    ----------
    variables : sequence of str
        Columns whose values every scan was asked for.
    scans : sequence of PartitionScan
        One a partition.

    Returns
    -------
    dict of str to tuple of State
        By column the union over all partitions, sorted: integers by number, False before True, strings by text.
        A column that holds no value at all is left out.

    Raises
    ------
    BadInputError
        A column's kind differs between partitions.
    """
    states: dict[str, tuple[State, ...]] = {}
    for name in variables:
        _merged_kind(name, ((s.kinds[name], s.name) for s in scans))
        # Of one kind by now, so they compare.
        values: list[Any] = sorted(set().union(*(s.values[name] for s in scans)))
        if values:
            states[name] = tuple(values)
    return states


# --- what is common to all kinds of data -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    variables: tuple[str, ...]
    weight: str | None
    missing_tokens: tuple[str, ...]
    rows_per_part: int

    @property
    def wanted(self) -> tuple[str, ...]:
        return self.variables if self.weight is None else (*self.variables, self.weight)


def _needed(job: _Job, names: Sequence[str], where: str) -> tuple[str, ...]:
    """Of a table's columns the ones to read, the weight last; an error if one comes twice."""
    counts = Counter(names)
    for name in job.wanted:
        if counts[name] > 1:
            raise BadInputError(f"{where}: column {name!r} comes {counts[name]} times: expected one column a name")
    return tuple(name for name in job.wanted if counts[name])


def _check_columns(job: _Job, needed: Sequence[str], names: Sequence[str], where: str) -> None:
    """An error unless some variable has a column, and the weight has."""
    if job.weight is not None and job.weight not in needed:
        raise BadInputError(f"{where}: weight column {job.weight!r} is not there: it has {_some(names)}")
    if not [name for name in needed if name != job.weight]:
        raise BadInputError(
            f"{where}: no variable of the network has a column: expected some of {_some(job.variables)}, "
            f"found {_some(names)}"
        )


def _check_type(job: _Job, name: str, arrow_type: pa.DataType, where: str) -> str:
    """The kind of a column; an error if its type is of no use."""
    if name == job.weight:
        if weight_kind(arrow_type) is None:
            raise BadInputError(unsupported_weight(where, name, arrow_type))
        return "float" if weight_kind(arrow_type) == "float64" else "integer"
    kind = value_kind(arrow_type)
    if kind is None:
        raise BadInputError(unsupported(where, name, arrow_type))
    return kind


def _check_weight_nulls(weight: str, null_count: int | None, where: str) -> None:
    """An error where a null is known of; what isn't known yet is met when the weights are read."""
    if null_count:
        raise BadInputError(f"{where}: weight column {weight!r} has {null_count} nulls: expected a number in every row")


def _merged_kind(name: str, kinds: Iterable[tuple[str, str]]) -> str:
    """The kind of a column over (kind, file) pairs: null goes with all, integers with floats."""
    merged, seen_in = "null", ""
    for kind, where in kinds:
        if kind in ("null", merged):
            continue
        if merged == "null":
            merged, seen_in = kind, where
        elif {kind, merged} == {"integer", "float"}:
            merged = "float"
        else:
            raise BadInputError(
                f"column {name!r} holds {_PLURAL[merged]} in {seen_in} and {_PLURAL[kind]} in {where}: expected one "
                "kind of value; convert one of them"
            )
    return merged


_PLURAL = {"string": "strings", "integer": "integers", "float": "floats", "boolean": "booleans"}


def _must_scan(kind: str, null_count: int | None, missing_tokens: Sequence[str]) -> bool:
    """Whether only the values can tell how many of them are missing."""
    if kind == "null":
        return False
    if null_count is None or kind == "float":  # a NaN is missing, and no null
        return True
    possible: dict[str, Callable[[str], Any]] = {
        "string": lambda token: True,
        "integer": lambda token: re.fullmatch(r"-?\d+", token),
        "boolean": lambda token: token in ("True", "False"),
    }
    return any(possible[kind](token) for token in missing_tokens)


def _no_rows(name: str, n_rows: int) -> None:
    if n_rows == 0:
        raise BadInputError(f"{name}: the data has no rows")


def _some(names: Sequence[str]) -> str:
    """A few names, for a message."""
    if not names:
        return "no columns"
    return ", ".join(repr(n) for n in names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "")


def _bytes_per_row(arrow_type: pa.DataType) -> float:
    kind = value_kind(arrow_type)
    if kind == "null":
        return 0.0
    if kind == "string" or pa.types.is_dictionary(arrow_type):
        return 4 + 1 / 8
    return arrow_type.bit_width / 8 + 1 / 8


# --- tables in memory --------------------------------------------------------------------------------------------


def _open_table(table: pa.Table, name: str, job: _Job, all_names: Sequence[str] | None = None) -> Dataset:
    names = list(all_names if all_names is not None else table.column_names)
    needed = _needed(job, names, name)
    _check_columns(job, needed, names, name)
    table = table.select(needed)
    kinds = {n: _check_type(job, n, table.schema.field(n).type, name) for n in needed}
    _no_rows(name, table.num_rows)
    columns = tuple(n for n in needed if n != job.weight)
    nulls = {n: _null_count(table.column(n)) for n in columns}
    if job.weight is not None:
        _check_weight_nulls(job.weight, _null_count(table.column(job.weight)), name)
    return Dataset(
        name=name,
        variables=job.variables,
        parts=tuple(
            TablePart(part, part.num_rows, name, start)
            for start in range(0, table.num_rows, job.rows_per_part)
            for part in [table.slice(start, job.rows_per_part)]
        ),
        n_rows=table.num_rows,
        columns=columns,
        ignored_columns=_ignored(job, names),
        kinds={n: kinds[n] for n in columns},
        null_counts=nulls,
        needs_scan=tuple(n for n in columns if _must_scan(kinds[n], nulls[n], job.missing_tokens)),
        weight=job.weight,
        missing_tokens=job.missing_tokens,
        on_disk_bytes=table.nbytes,
        decoded_bytes=round(sum(_bytes_per_row(f.type) for f in table.schema) * table.num_rows),
    )


def _null_count(column: pa.ChunkedArray) -> int | None:
    """Nulls of a column; None if its dictionary holds a null, which only the indices count."""
    if pa.types.is_dictionary(column.type) and any(chunk.dictionary.null_count for chunk in column.chunks):
        return None
    return int(column.null_count)


def _ignored(job: _Job, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names) - set(job.wanted)))


def _open_dask(frame: Any, job: _Job) -> Dataset:
    name = "Dask DataFrame"
    names = [str(c) for c in frame.columns]
    needed = _needed(job, names, name)
    _check_columns(job, needed, names, name)
    frame = frame[[label for label in frame.columns if str(label) in needed]]
    # An object column of the empty frame that describes the type is of type null here: its scan tells.
    schema = as_table_part(frame._meta, name, needed).table.schema
    kinds = {n: _check_type(job, n, schema.field(n).type, name) for n in needed}
    if hasattr(frame, "optimize"):
        frame = frame.optimize()
    graph = dict(frame.__dask_graph__())
    part_keys = []
    for i, key in enumerate(frame.__dask_keys__()):
        part_key = (f"table-part-{key[0]}", i)
        graph[part_key] = (partial(as_table_part, name=f"{name}, partition {i}", columns=needed), key)
        part_keys.append(part_key)
    columns = tuple(n for n in needed if n != job.weight)
    return Dataset(
        name=name,
        variables=job.variables,
        parts=(),
        n_rows=None,
        columns=columns,
        ignored_columns=_ignored(job, names),
        kinds={n: kinds[n] for n in columns},
        null_counts=dict.fromkeys(columns),
        needs_scan=columns,
        weight=job.weight,
        missing_tokens=job.missing_tokens,
        frame_keys=tuple(part_keys),
        frame_graph=graph,
    )


# --- Parquet -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Footer:
    """What the job needs of a file's footer."""

    file: DataFile
    names: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    group_rows: tuple[int, ...]
    null_counts: Mapping[str, int | None]
    on_disk_bytes: int


def _open_parquet(data: Any, job: _Job, storage_options: tuple[tuple[str, object], ...]) -> Dataset:
    name, paths = _find_files(data, storage_options)
    with ThreadPoolExecutor(min(FOOTER_THREADS, len(paths))) as pool:
        footers = list(pool.map(lambda path: _read_footer(path, job, storage_options), paths))
    needed = _check_schemas(name, footers, job)
    n_rows = sum(f.file.rows for f in footers)
    _no_rows(name, n_rows)
    columns = tuple(n for n in needed if n != job.weight)
    # A file without rows may have any kind: it is written by a partition that had nothing to infer one from.
    kinds = {
        n: _merged_kind(n, ((_check_type(job, n, f.types[n], f.file.path), f.file.path) for f in footers))
        for n in needed
    }
    nulls: dict[str, int | None] = {}
    for n in needed:
        counts = [f.file.rows if pa.types.is_null(f.types[n]) else f.null_counts[n] for f in footers]
        if n == job.weight:
            for f, count in zip(footers, counts, strict=True):
                _check_weight_nulls(job.weight, count, f.file.path)
            continue
        known = [c for c in counts if c is not None]
        nulls[n] = sum(known) if len(known) == len(counts) else None
    return Dataset(
        name=name,
        variables=job.variables,
        parts=tuple(part for f in footers for part in _split(f, job.rows_per_part, storage_options)),
        n_rows=n_rows,
        columns=columns,
        ignored_columns=_ignored(job, (n for f in footers for n in f.names)),
        kinds={n: kinds[n] for n in columns},
        null_counts=nulls,
        needs_scan=tuple(n for n in columns if _must_scan(kinds[n], nulls[n], job.missing_tokens)),
        weight=job.weight,
        missing_tokens=job.missing_tokens,
        on_disk_bytes=sum(f.on_disk_bytes for f in footers),
        decoded_bytes=round(sum(f.file.rows * sum(_bytes_per_row(f.types[n]) for n in needed) for f in footers)),
        files=tuple(f.file for f in footers),
    )


def _read_footer(path: str, job: _Job, storage_options: tuple[tuple[str, object], ...]) -> _Footer:
    with open_parquet(path, storage_options) as file:
        metadata: pq.FileMetaData = file.metadata
        schema: pa.Schema = file.schema_arrow
        names = tuple(schema.names)
        needed = _needed(job, names, path)
        # Leaves of nested columns are numbered too; a top-level column is one whose path is its name.
        leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        index = {leaf.path: i for i, leaf in enumerate(leaves) if leaf.path == leaf.name and leaf.name in needed}
        groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
        nulls: dict[str, int | None] = dict.fromkeys(needed, 0)
        on_disk = 0
        for group in groups:
            for name, i in index.items():
                chunk = group.column(i)
                on_disk += chunk.total_compressed_size
                statistics = chunk.statistics
                known = statistics is not None and statistics.has_null_count
                so_far = nulls[name]
                nulls[name] = so_far + statistics.null_count if known and so_far is not None else None
        size, modified = _identity(path, storage_options)
        return _Footer(
            file=DataFile(path, size, metadata.num_rows, modified),
            names=names,
            types={name: schema.field(name).type for name in needed},
            group_rows=tuple(g.num_rows for g in groups),
            null_counts=nulls,
            on_disk_bytes=on_disk,
        )


def _identity(path: str, storage_options: tuple[tuple[str, object], ...]) -> tuple[int, str]:
    """Size in bytes, and modification time or ETag."""
    if "://" not in path:
        stat = os.stat(path)
        return stat.st_size, str(stat.st_mtime_ns)
    import fsspec

    filesystem, inner = fsspec.core.url_to_fs(path, **dict(storage_options))
    info = filesystem.info(inner)
    modified = next(
        (info[k] for k in ("ETag", "etag", "LastModified", "mtime", "modified", "created") if k in info), ""
    )
    return int(info.get("size") or 0), str(modified)


def _check_schemas(name: str, footers: Sequence[_Footer], job: _Job) -> tuple[str, ...]:
    """The needed columns; an error unless all files have all of them."""
    names = sorted({n for f in footers for n in f.names})
    for key in job.wanted:
        for footer in footers:
            if key not in footer.types and key in _partition_keys(footer.file.path):
                raise BadInputError(
                    f"{footer.file.path}: {key!r} is the key of a partition directory, not a column: write it into the "
                    "files as a column"
                )
    needed = _needed_in_any(job, footers)
    _check_columns(job, needed, names, name)
    for column in needed:
        having = [f.file.path for f in footers if column in f.types]
        lacking = [f.file.path for f in footers if column not in f.types]
        if lacking:
            raise BadInputError(
                f"column {column!r} is in {having[0]} and not in {lacking[0]}: expected the same columns in every file"
            )
    return needed


def _needed_in_any(job: _Job, footers: Sequence[_Footer]) -> tuple[str, ...]:
    present = {n for f in footers for n in f.types}
    return tuple(n for n in job.wanted if n in present)


def _partition_keys(path: str) -> set[str]:
    """The keys of directories named key=value."""
    directories = path.split("://", 1)[-1].replace(os.sep, "/").split("/")[:-1]
    return {d.split("=", 1)[0] for d in directories if "=" in d}


def _split(
    footer: _Footer, rows_per_part: int, storage_options: tuple[tuple[str, object], ...]
) -> Iterable[ParquetPart]:
    """The file's row groups in runs of about equal size, of at most `rows_per_part` rows where row groups allow."""
    rows = footer.file.rows
    target = rows / max(1, -(-rows // rows_per_part))
    options = storage_options if "://" in footer.file.path else ()
    run: list[int] = []
    held = 0
    for g, n in enumerate(footer.group_rows):
        if held and (held + n / 2 > target or held + n > rows_per_part):
            yield ParquetPart(footer.file.path, tuple(run), held, options)
            run, held = [], 0
        if n:
            run.append(g)
            held += n
    if held:
        yield ParquetPart(footer.file.path, tuple(run), held, options)


# --- finding files -----------------------------------------------------------------------------------------------


def _find_files(data: Any, storage_options: tuple[tuple[str, object], ...]) -> tuple[str, list[str]]:
    """What to call the data, and its files; those of each path sorted."""
    if isinstance(data, str | os.PathLike):
        name = os.fspath(data)
        return str(name), _expand(str(name), storage_options)
    if not isinstance(data, list | tuple) or not all(isinstance(d, str | os.PathLike) for d in data):
        kind = type(data).__module__ + "." + type(data).__qualname__
        raise BadInputError(
            f"data is a {kind.removeprefix('builtins.')}: expected a path, glob or URL of Parquet, a list of those, or "
            "a pandas, Arrow or Dask table"
        )
    if not data:
        raise BadInputError("data is an empty list: expected paths of Parquet files")
    paths = [p for d in data for p in _expand(str(os.fspath(d)), storage_options)]
    twice = [p for p, k in Counter(paths).items() if k > 1]
    if twice:
        raise BadInputError(f"{twice[0]} is named more than once: its rows would be counted twice")
    return str(os.fspath(data[0])) + (f" and {len(data) - 1} more" if len(data) > 1 else ""), paths


def _expand(where: str, storage_options: tuple[tuple[str, object], ...]) -> list[str]:
    """The Parquet files of a directory, glob, file or URL."""
    import fsspec

    is_url = "://" in where
    location = where if is_url else os.path.abspath(os.path.expanduser(where))
    try:
        filesystem, root = fsspec.core.url_to_fs(location, **(dict(storage_options) if is_url else {}))
        is_local = "file" in (filesystem.protocol if isinstance(filesystem.protocol, tuple) else (filesystem.protocol,))
        if filesystem.isfile(root):
            found = [root]
        elif filesystem.isdir(root):
            found = _in_directory(filesystem, root)
            if not found:
                others = len(filesystem.find(root))
                raise BadInputError(
                    f"{where}: no Parquet file ({', '.join('*' + s for s in PARQUET_SUFFIXES)}) in it, found "
                    + (f"{others} other file{'s' * (others > 1)}" if others else "an empty directory")
                )
        elif any(c in root for c in "*?["):
            fixed = posixpath.dirname(re.split(r"[*?[]", root, maxsplit=1)[0])
            matches = [m for m in sorted(filesystem.glob(root)) if not _is_skipped(m, fixed)]
            # "**" matches a directory and what is in it.
            found = list(
                dict.fromkeys(
                    f for m in matches for f in (_in_directory(filesystem, m) if filesystem.isdir(m) else [m])
                )
            )
            if not found:
                raise BadInputError(f"{where}: no file matches")
        else:
            raise BadInputError(f"{where}: no such file or directory")
        return found if is_local else [filesystem.unstrip_protocol(path) for path in found]
    except (OSError, ImportError, ValueError) as error:
        if isinstance(error, BadInputError):
            raise
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInputError(f"{where}: can't be opened: {line}") from error


def _in_directory(filesystem: Any, root: str) -> list[str]:
    found = sorted(filesystem.find(root))
    return [path for path in found if path.endswith(PARQUET_SUFFIXES) and not _is_skipped(path, root)]


def _is_skipped(path: str, root: str) -> bool:
    """Whether a part of the path below `root` is hidden: what writers leave half-done, and their side files."""
    return any(map(_is_hidden, path[len(root) :].strip("/").split("/")))


def _is_hidden(name: str) -> bool:
    # A key=value directory may begin with an underscore: its name is a column's.
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
