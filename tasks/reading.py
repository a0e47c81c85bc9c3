"""One partition of the data, from Parquet or an Arrow table to state codes.

    Parquet row groups / Arrow chunks
          │  dictionary (a few values)      │  indices, validity bitmap (one entry a row)
          ▼                                 │
    look-up table: value → code             │
          └──────────────► kernel ◄─────────┘
                             ▼
                   one row of `codes`

Only the dictionary, never a row, is looked at from Python. Parquet is read one column of some row groups at a
time: memory above the codes themselves is that of one decoded column, and its buffers are used again while warm.

`pyarrow.array` and `pyarrow.table` import pandas when it is installed, so neither is called on that path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types

from tasks.codes import MISSING, NOT_A_STATE, code_dtype, count_entries, translate
from tasks.errors import BadInputError

if TYPE_CHECKING:
    import pandas as pd

State = str | int | bool

# Small row groups are read several at a time: a call costs about 0.1 ms a column, whatever its rows.
ROWS_PER_READ = 1 << 18

# Entries decoded at a time: 8 MiB of dictionary indices.
CELLS_PER_READ = 1 << 21

# Integer states within so short a range are looked up by value, without finding the distinct values first.
MAX_DIRECT_RANGE = 1 << 16


@dataclass(frozen=True)
class Column:
    """A column to read.

    Attributes
    ----------
    name : str
        Of the column, and of the network variable.
    states : tuple of State
        The network's labels; a label's position is its code.
    """

    name: str
    states: tuple[State, ...]


@dataclass(frozen=True)
class ParquetPart:
    """Some row groups of one Parquet file.

    Attributes
    ----------
    path : str
        A local path, or a URL for fsspec.
    row_groups : tuple of int
        Which to read, ascending.
    n_rows : int
        Rows they had when the job was planned.
    storage_options : tuple of (str, object)
        For fsspec, where `path` is a URL.
    """

    path: str
    row_groups: tuple[int, ...]
    n_rows: int
    storage_options: tuple[tuple[str, object], ...] = ()

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path


@dataclass(frozen=True)
class TablePart:
    """A slice of a table in memory.

    Attributes
    ----------
    table : pyarrow.Table
        The slice; a column with nothing to do with the job costs nothing but its way to the worker.
    n_rows : int
        Rows of the slice.
    name : str
        What messages call it.
    first_row : int
        Where the slice begins in the whole table, for messages.
    """

    table: pa.Table = field(repr=False)
    n_rows: int
    name: str
    first_row: int = 0

    def __reduce__(self) -> tuple[Callable[..., TablePart], tuple[Any, ...]]:
        # Arrow pickles a slice with the whole buffers behind it; its IPC format cuts them to the slice.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return _unpickle_table_part, (sink.getvalue(), self.n_rows, self.name, self.first_row)


def _unpickle_table_part(stream: Any, n_rows: int, name: str, first_row: int) -> TablePart:
    with pa.ipc.open_stream(stream) as reader:
        return TablePart(reader.read_all(), n_rows, name, first_row)


Part = ParquetPart | TablePart


@dataclass(frozen=True)
class Partition:
    """One partition as codes.

    Attributes
    ----------
    codes : int8, int16 or int32 array, shape (n_columns, n_rows), C-contiguous
        State codes; -1 is missing. int8 unless some column has more than 127 states.
    weights : int64 or float64 array, shape (n_rows,), or None
        How many examples each row stands for; None where no weight column was asked for.
    """

    codes: NDArray[Any]
    weights: NDArray[Any] | None


@dataclass(frozen=True)
class PartitionScan:
    """What one partition holds, where footers and network don't tell.

    Attributes
    ----------
    name : str
        What messages call the partition.
    n_rows : int
        Its rows.
    missing : dict of str to int
        By column: nulls, NaNs and missing-value tokens.
    values : dict of str to frozenset of State
        By wanted column: the distinct values that rows really hold, missing ones left out.
    kinds : dict of str to str
        By column: "string", "integer", "float", "boolean" or "null".
    total_weight : int, float or None
        Sum of the weight column; None where there is none.
    """

    name: str
    n_rows: int
    missing: dict[str, int]
    values: dict[str, frozenset[State]]
    kinds: dict[str, str]
    total_weight: int | float | None


def read_partition(
    part: Part, columns: tuple[Column, ...], weight: str | None = None, missing_tokens: tuple[str, ...] = ()
) -> Partition:
    """The state codes of some columns of a partition.

    Parameters
    ----------
    part : ParquetPart or TablePart
        What to read.
    columns : tuple of Column
        Which columns, in the order of the codes' rows. Others are not read.
    weight : str or None
        A column of numbers that says how many examples each row stands for.
    missing_tokens : tuple of str
        Values that mean missing, as text, in a column of any kind; a token that is also a state is missing.

    Returns
    -------
    Partition
        Codes and weights.

    Raises
    ------
    BadInputError
        A value that some row holds is not a state; a weight is null, negative, not finite or not a number; a
        column has a type that can't hold states, or is not there; the file is gone, is damaged, or has other
        rows than `part.n_rows`.

    Notes
    -----
    Values are matched to states by their text: an integer by its decimal digits, a boolean by "True" or
    "False" in any case, else by "1" or "0". A float must be a whole number and is matched as that integer;
    NaN is missing. Binary values are text in UTF-8. Nulls are missing.

    One byte an entry and about a nanosecond beyond pyarrow's own decoding, with one decoded column at a time
    beside the codes.
    """
    dtype = code_dtype(max((len(c.states) for c in columns), default=1))
    codes = np.empty((len(columns), part.n_rows), dtype=dtype)
    translators = {c.name: _Translator(c, dtype, missing_tokens) for c in columns}
    rows = {c.name: i for i, c in enumerate(columns)}
    weights = _Weights(part.n_rows) if weight is not None else None
    for piece in _pieces(part, [*rows, *([weight] if weight is not None else [])]):
        start = piece.start
        for chunk in piece.chunks:
            stop = start + len(chunk)
            where = _Where(part.name, piece.name, piece.source_row + start - piece.start)
            if weights is not None and piece.name == weight:
                weights.fill(chunk, slice(start, stop), where)
            elif len(chunk):
                translators[piece.name].translate(chunk, codes[rows[piece.name], start:stop], where)
            start = stop
    return Partition(codes, None if weights is None else weights.values)


def scan_partition(
    part: Part,
    names: Sequence[str],
    want_values: frozenset[str] = frozenset(),
    weight: str | None = None,
    missing_tokens: tuple[str, ...] = (),
) -> PartitionScan:
    """What some columns of a partition hold: missing values, distinct values, kinds.

    Parameters
    ----------
    part : ParquetPart or TablePart
        What to read.
    names : sequence of str
        Which columns.
    want_values : frozenset of str
        Of these, the ones whose distinct values are wanted.
    weight : str or None
        A weight column, checked and summed.
    missing_tokens : tuple of str
        Values that mean missing, as text.

    Returns
    -------
    PartitionScan
        Counts in rows, never weighted.

    Raises
    ------
    BadInputError
        As `read_partition`, but that any value may be a state.
    """
    missing = dict.fromkeys(names, 0)
    values: dict[str, set[State]] = {name: set() for name in names if name in want_values}
    kinds = dict.fromkeys(names, "null")
    weights = _Weights(part.n_rows) if weight is not None else None
    tokens = frozenset(missing_tokens)
    for piece in _pieces(part, [*names, *([weight] if weight is not None else [])]):
        start = piece.start
        for chunk in piece.chunks:
            stop = start + len(chunk)
            where = _Where(part.name, piece.name, piece.source_row + start - piece.start)
            if weights is not None and piece.name == weight:
                weights.fill(chunk, slice(start, stop), where)
            else:
                kinds[piece.name] = kind = _supported_kind(chunk.type, where)
                n_missing, present = _distinct(chunk, kind, tokens, where)
                missing[piece.name] += n_missing
                if piece.name in values:
                    values[piece.name].update(present)
            start = stop
    return PartitionScan(
        name=part.name,
        n_rows=part.n_rows,
        missing=missing,
        values={name: frozenset(v) for name, v in values.items()},
        kinds=kinds,
        total_weight=None if weights is None else weights.values.sum().item(),
    )


def value_kind(arrow_type: pa.DataType) -> str | None:
    """What values of an Arrow type are to us: "string", "integer", "float", "boolean", "null"; None: unusable."""
    if types.is_dictionary(arrow_type):
        return value_kind(arrow_type.value_type)
    for kind, tests in _KINDS.items():
        if any(test(arrow_type) for test in tests):
            return kind
    return None


_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "string": (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
    ),
    "integer": (types.is_integer,),
    "float": (types.is_floating,),
    "boolean": (types.is_boolean,),
    "null": (types.is_null,),
}


def as_table_part(frame: pd.DataFrame, name: str, columns: tuple[str, ...]) -> TablePart:
    """Some columns of a pandas DataFrame as a partition; the index is left out.

    Parameters
    ----------
    frame : pandas.DataFrame
        One partition of a Dask DataFrame, or a whole frame.
    name : str
        What messages call it.
    columns : tuple of str
        Which columns, by the text of their labels.

    Raises
    ------
    BadInputError
        A column mixes kinds of values, so that it has no Arrow type.

    Notes
    -----
    The one place where pandas is touched. What pandas takes for missing (None, NaN, NA) becomes null.
    """
    labels = {str(label): i for i, label in enumerate(frame.columns)}
    arrays = []
    for column in columns:
        series = frame.iloc[:, labels[column]]
        try:
            arrays.append(pa.Array.from_pandas(series))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            seen = sorted({type(v).__name__ for v in series.dropna().head(10_000)})
            raise BadInputError(
                f"{name}: column {column!r} can't be read ({_first_line(error)}): expected strings, integers or "
                f"booleans of one kind, found {', '.join(seen)}"
            ) from error
    return TablePart(pa.Table.from_arrays(arrays, names=list(columns)), len(frame), name)


# --- where the data comes from ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """Consecutive rows of one column: `start` within the partition, `source_row` within its file or table."""

    name: str
    start: int
    source_row: int
    chunks: list[pa.Array]


@dataclass(frozen=True)
class _Where:
    """A place in the data, for messages; `row` is that of a chunk's first value, counted from 0."""

    source: str
    column: str
    row: int

    def value(self, value: object, offset: int) -> str:
        return f"{self.source}: column {self.column!r}, row {self.row + offset}: value {value!r}"


def _pieces(part: Part, names: Sequence[str]) -> Iterator[_Piece]:
    """The named columns, piece by piece; every column's pieces come in the order of their rows."""
    if isinstance(part, TablePart):
        for name in names:
            i = part.table.schema.get_field_index(name)
            if i < 0:
                raise BadInputError(f"{part.name}: column {name!r} is not there")
            yield _Piece(name, 0, part.first_row, part.table.column(i).chunks)
        return
    with open_parquet(part.path, part.storage_options, names) as file:
        sizes = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
        found = sum(sizes[g] for g in part.row_groups if g < len(sizes))
        if found != part.n_rows:
            raise BadInputError(
                f"{part.path}: expected {part.n_rows} rows in the row groups to read, found {found}: "
                "the file has changed since the job was planned; start again"
            )
        remote = "://" in part.path
        start = 0
        for groups in _reads(part.row_groups, sizes):
            # A few columns at a time keep memory small, and calls few where there are thousands of columns; over a
            # network one request for all of them matters more.
            width = len(names) if remote else max(1, CELLS_PER_READ // max(1, sum(sizes[g] for g in groups)))
            for columns in [list(names[i : i + width]) for i in range(0, len(names), width)]:
                with _readable(part.path):
                    table = file.read_row_groups(list(groups), columns=columns, use_threads=False)
                for name in columns:
                    yield _Piece(name, start, sum(sizes[: groups[0]]), table.column(name).chunks)
                del table
            start += sum(sizes[g] for g in groups)


def _reads(row_groups: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Runs of adjacent row groups of at most `ROWS_PER_READ` rows together, or one larger row group each."""
    run: list[int] = []
    rows = 0
    for g in row_groups:
        if run and (rows + sizes[g] > ROWS_PER_READ or g != run[-1] + 1):
            yield run
            run, rows = [], 0
        run.append(g)
        rows += sizes[g]
    if run:
        yield run


@contextmanager
def open_parquet(
    path: str, storage_options: tuple[tuple[str, object], ...] = (), names: Sequence[str] | None = None
) -> Iterator[pq.ParquetFile]:
    """A Parquet file opened, its string columns among `names` to be decoded as dictionaries.

    Raises
    ------
    BadInputError
        The file is gone, is not Parquet or is truncated, or has no column of one of the `names`.
    """
    handle = None
    with _readable(path):
        if "://" in path:
            import fsspec

            filesystem, inner = fsspec.core.url_to_fs(path, **dict(storage_options))
            handle = filesystem.open(inner, "rb")
        source = path if handle is None else handle
        try:
            file = pq.ParquetFile(source, pre_buffer=handle is not None)
            if names is not None:
                file = _with_dictionaries(file, source, path, names)
        except BaseException:
            if handle is not None:
                handle.close()
            raise
    try:
        yield file
    finally:
        file.close()
        if handle is not None:
            handle.close()


def _with_dictionaries(file: pq.ParquetFile, source: Any, path: str, names: Sequence[str]) -> pq.ParquetFile:
    schema = file.schema_arrow
    for name in names:
        if schema.get_field_index(name) < 0:
            raise BadInputError(f"{path}: column {name!r} is not there")
    # Asked for even where the file's Arrow schema says dictionary: else the values are decoded one by one and
    # encoded again (1.2 times as long; without an Arrow schema, five times).
    plain = [name for name in names if value_kind(schema.field(name).type) == "string"]
    if not plain:
        return file
    return pq.ParquetFile(source, metadata=file.metadata, read_dictionary=plain, pre_buffer=source is not path)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Failures of file systems and of Arrow's readers, as one line that names the file."""
    try:
        yield
    except (BadInputError, pa.ArrowMemoryError):
        raise
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: no such file") from error
    except (OSError, EOFError, pa.ArrowException) as error:
        raise BadInputError(f"{path}: can't be read as Parquet: {_first_line(error)}") from error
    except (ImportError, ValueError) as error:  # fsspec, of a protocol that it or this installation does not have
        raise BadInputError(f"{path}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# --- from values to codes --------------------------------------------------------------------------------------


class _Translator:
    """Turns chunks of one column into codes; the texts of its states are looked up once."""

    def __init__(self, column: Column, dtype: Any, missing_tokens: tuple[str, ...]) -> None:
        self.column = column
        self.dtype = dtype
        self.codes: dict[str, int] = {str(label): code for code, label in enumerate(column.states)}
        self.folded = {text.lower(): code for text, code in reversed(self.codes.items())}
        self.tokens = frozenset(missing_tokens)
        self.direct = self._direct_range()

    def _direct_range(self) -> tuple[int, NDArray[Any]] | None:
        """The lowest integer state and the look-up table from it on; None where there is none that is short."""
        whole: dict[int, int] = {}
        for text, code in self.codes.items():
            with suppress(ValueError):
                if str(int(text)) == text:
                    whole[int(text)] = code
        for token in self.tokens:
            with suppress(ValueError):
                if str(int(token)) == token:
                    whole[int(token)] = MISSING
        if not whole or max(whole) - min(whole) >= MAX_DIRECT_RANGE or not -(2**62) < min(whole) < 2**62:
            return None
        low = min(whole)
        table = [whole.get(low + k, NOT_A_STATE) for k in range(max(whole) - low + 1)]
        return low, self._look_up_table(table)

    def _look_up_table(self, codes: Sequence[int]) -> NDArray[Any]:
        """The codes, then what the kernel reads for a value out of range and for a null."""
        return np.array([*codes, NOT_A_STATE, MISSING], dtype=self.dtype)

    def _code(self, value: Any, kind: str) -> int:
        if _is_missing(value, kind, self.tokens):
            return MISSING
        text = _text(value, kind)
        if kind == "boolean" and text not in self.codes:
            return self.folded.get(text.lower(), self.codes.get(str(int(value)), NOT_A_STATE))
        return self.codes.get(text, NOT_A_STATE)

    def translate(self, chunk: pa.Array, out: NDArray[Any], where: _Where) -> None:
        """Write the chunk's codes to `out`.

        Raises
        ------
        BadInputError
            A row holds a value that is not a state.
        """
        kind = _supported_kind(chunk.type, where)
        if kind == "null":
            out[:] = MISSING
            return
        low = 0
        if kind == "boolean" and not types.is_dictionary(chunk.type):
            values = chunk.cast(pa.int8())
            table = self._look_up_table([self._code(False, kind), self._code(True, kind)])
        elif kind == "integer" and self.direct is not None and chunk.type in _DIRECT_TYPES:
            values = chunk
            low, table = self.direct
        else:
            encoded = _encoded(chunk)
            values = encoded.indices
            table = self._look_up_table([self._code(v, kind) for v in _dictionary_values(encoded, kind, where)])
        if translate(*_buffers(values), low, table, out):
            row = int(np.argmax(out == NOT_A_STATE))
            raise BadInputError(self._complaint(chunk[row].as_py(), kind, where, row))

    def _complaint(self, value: Any, kind: str, where: _Where, row: int) -> str:
        if isinstance(value, bytes):
            value = value.decode()
        place = where.value(value, row)
        if kind == "float" and not _is_whole(value):
            return f"{place} is not a whole number, and states are discrete: name its states or leave the column out"
        expected = ", ".join(repr(s) for s in self.column.states[:10])
        more = f", … ({len(self.column.states)} in all)" if len(self.column.states) > 10 else ""
        return f"{place} is not a state of this variable: expected one of {expected}{more}"


# What the kernel may take as it is: a signed type holds every difference from `low` without wrapping to a state.
_DIRECT_TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())


def _buffers(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8], int]:
    """Values, validity bitmap (empty: all valid) and the first row's bit, as views of an Arrow array's buffers."""
    data = array.buffers()[1]
    values: NDArray[Any] = np.frombuffer(data, dtype=_NUMPY[array.type], count=array.offset + len(array))[
        array.offset :
    ]
    # Some buffers are writable and some are not: two types to numba, and a kernel compiled for each.
    values.flags.writeable = False
    return values, _bitmap(array), array.offset


def _bitmap(array: pa.Array) -> NDArray[np.uint8]:
    validity = array.buffers()[0] if array.null_count else None
    bits: NDArray[np.uint8] = np.frombuffer(b"" if validity is None else validity, dtype=np.uint8)
    bits.flags.writeable = False
    return bits


_NUMPY = {
    getattr(pa, name)(): np.dtype(name)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float64")
}


def _supported_kind(arrow_type: pa.DataType, where: _Where) -> str:
    kind = value_kind(arrow_type)
    if kind is None:
        raise BadInputError(unsupported(where.source, where.column, arrow_type))
    return kind


def unsupported(source: str, column: str, arrow_type: pa.DataType) -> str:
    """The message for a column whose type can't hold states."""
    return (
        f"{source}: column {column!r} has type {arrow_type}: expected strings, dictionary-encoded values, integers "
        "or booleans; convert it, or leave it out"
    )


def _encoded(chunk: pa.Array) -> pa.DictionaryArray:
    """Any supported chunk as a dictionary array."""
    if types.is_dictionary(chunk.type):
        return chunk
    if types.is_string_view(chunk.type) or types.is_binary_view(chunk.type):
        chunk = chunk.cast(pa.large_string() if types.is_string_view(chunk.type) else pa.large_binary())
    elif types.is_float16(chunk.type):
        chunk = chunk.cast(pa.float32())
    return chunk.dictionary_encode()


def _dictionary_values(encoded: pa.DictionaryArray, kind: str, where: _Where) -> list[Any]:
    """The dictionary's values as Python has them; bytes as text.

    Raises
    ------
    BadInputError
        Bytes that are not UTF-8.
    """
    values: list[Any] = encoded.dictionary.to_pylist()
    if kind == "string" and any(isinstance(v, bytes) for v in values):
        for i, value in enumerate(values):
            if isinstance(value, bytes):
                try:
                    values[i] = value.decode()
                except UnicodeDecodeError as error:
                    raise BadInputError(
                        f"{where.source}: column {where.column!r}: value {value!r} is not text in UTF-8"
                    ) from error
    return values


def _text(value: Any, kind: str) -> str:
    """The text a value is matched by; a float that is not whole keeps its point and matches no integer."""
    return str(int(value)) if kind == "float" and _is_whole(value) else str(value)


def _is_missing(value: Any, kind: str, tokens: frozenset[str]) -> bool:
    if value is None or _text(value, kind) in tokens:
        return True
    return kind == "float" and (value != value or repr(value) in tokens)


def _is_whole(value: float) -> bool:
    return float(value).is_integer()


def _distinct(chunk: pa.Array, kind: str, tokens: frozenset[str], where: _Where) -> tuple[int, list[State]]:
    """How many rows of a chunk are missing, and the distinct values of the others."""
    if kind == "null" or len(chunk) == 0:
        return len(chunk), []
    encoded = _encoded(chunk)
    entries = _dictionary_values(encoded, kind, where)
    counts = np.zeros(len(entries) + 1, dtype=np.int64)
    count_entries(*_buffers(encoded.indices), counts)
    missing = int(counts[-1])
    present: list[State] = []
    for entry, (value, count) in enumerate(zip(entries, counts[:-1].tolist(), strict=True)):
        if count == 0:
            continue
        if _is_missing(value, kind, tokens):
            missing += count
        elif kind == "float" and not _is_whole(value):
            row = _first_row_with(encoded, entry)
            raise BadInputError(
                f"{where.value(value, row)} is not a whole number, and states are discrete: leave the column out"
            )
        else:
            present.append(int(value) if kind == "float" else value)
    return missing, present


def _first_row_with(encoded: pa.DictionaryArray, entry: int) -> int:
    table = np.zeros(len(encoded.dictionary) + 2, dtype=np.int8)
    table[entry] = NOT_A_STATE
    out = np.empty(len(encoded), dtype=np.int8)
    translate(*_buffers(encoded.indices), 0, table, out)
    return int(np.argmax(out == NOT_A_STATE))


# --- weights ---------------------------------------------------------------------------------------------------


class _Weights:
    """The weight column, filled chunk by chunk and checked; int64 where the column holds integers, else float64."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.filled: NDArray[Any] | None = None

    @property
    def values(self) -> NDArray[Any]:
        return np.empty(0, dtype=np.int64) if self.filled is None else self.filled

    def fill(self, chunk: pa.Array, rows: slice, where: _Where) -> None:
        """Copy a chunk to its rows.

        Raises
        ------
        BadInputError
            A weight that is null, negative or not finite; a column that does not hold numbers.
        """
        if types.is_dictionary(chunk.type):
            chunk = chunk.dictionary_decode()
        if weight_kind(chunk.type) is None:
            raise BadInputError(unsupported_weight(where.source, where.column, chunk.type))
        if chunk.null_count:
            valid = np.unpackbits(_bitmap(chunk), bitorder="little")[chunk.offset : chunk.offset + len(chunk)]
            row = 0 if types.is_null(chunk.type) else int(np.argmin(valid))
            raise BadInputError(f"{where.value(None, row)} is no weight: expected a number in every row")
        dtype = np.dtype(weight_kind(chunk.type))
        values = _buffers(_as_number(chunk, dtype))[0]
        bad = (values < 0) | ~np.isfinite(values)
        if values.dtype == np.uint64:
            bad = values > np.iinfo(np.int64).max
        if bad.any():
            row = int(np.argmax(bad))
            raise BadInputError(
                f"{where.value(chunk[row].as_py(), row)} is no weight: expected a finite number, 0 or more"
            )
        if self.filled is None:
            self.filled = np.empty(self.n_rows, dtype=dtype)
        self.filled[rows] = values


def _as_number(chunk: pa.Array, dtype: np.dtype[Any]) -> pa.Array:
    if types.is_float16(chunk.type):
        chunk = chunk.cast(pa.float32())
    if dtype == np.int64:
        return chunk if types.is_uint64(chunk.type) else chunk.cast(pa.int64())
    return chunk.cast(pa.float64())


def weight_kind(arrow_type: pa.DataType) -> str | None:
    """The type weights of an Arrow type are read as, "int64" or "float64"; None where it does not hold numbers."""
    if types.is_dictionary(arrow_type):
        return weight_kind(arrow_type.value_type)
    if types.is_integer(arrow_type) or types.is_null(arrow_type):
        return "int64"
    return "float64" if types.is_floating(arrow_type) or types.is_decimal(arrow_type) else None


def unsupported_weight(source: str, column: str, arrow_type: pa.DataType) -> str:
    """The message for a weight column that does not hold numbers."""
    return f"{source}: weight column {column!r} has type {arrow_type}: expected integers, floats or decimals"
