"""Reading: what a partition holds, against a plain-Python oracle, and every way in which it can be wrong."""

import itertools
import pickle
import re
import subprocess
import sys
from decimal import Decimal

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import reading
from tasks.codes import MISSING, code_dtype, translate
from tasks.errors import BadInputError
from tasks.reading import Column, ParquetPart, TablePart, as_table_part, read_partition, scan_partition

ABC = Column("x", ("a", "b", "c"))


def write(path, columns, **options):
    """Write a Parquet file of one column a keyword, and return it as one part."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    metadata = pq.read_metadata(path)
    return ParquetPart(str(path), tuple(range(metadata.num_row_groups)), metadata.num_rows)


def in_memory(values, arrow_type=None, name="x"):
    table = pa.table({name: pa.chunked_array(values) if isinstance(values, list) else values})
    return TablePart(table, table.num_rows, "a table")


def codes_of(part, column=ABC, tokens=()):
    return read_partition(part, (column,), None, tokens).codes[0].tolist()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.parquet"


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize(
    "arrow_type",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int64(), pa.large_string()),
    ],
    ids=str,
)
def test_strings_of_every_type_from_files_and_tables(path, arrow_type, store_schema):
    column = pa.array(["b", "a", None, "c", "b"]).cast(arrow_type)
    expected = [1, 0, MISSING, 2, 1]
    assert codes_of(in_memory(column)) == expected
    if not (pa.types.is_string_view(arrow_type) or pa.types.is_binary_view(arrow_type)):  # pyarrow can't write them all
        assert codes_of(write(path, {"x": column}, store_schema=store_schema)) == expected


@pytest.mark.parametrize(
    "index_type", [getattr(pa, f"{sign}int{n}")() for sign in ("", "u") for n in (8, 16, 32, 64)], ids=str
)
def test_dictionary_indices_of_every_type(index_type):
    column = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 1], index_type), ["c", "a", "b"])
    assert codes_of(in_memory(column)) == [1, MISSING, 2, 0]
    assert codes_of(in_memory(column.slice(1, 2))) == [MISSING, 2]


@pytest.mark.parametrize(
    "integer", [getattr(pa, f"{sign}int{n}")() for sign in ("", "u") for n in (8, 16, 32, 64)], ids=str
)
@pytest.mark.parametrize(
    "states", [(7, 0, 100), ("7", "0", "100"), (7, 0, 100, 10**30), (7, 0, 100, "10000000")], ids=str
)
def test_integers_by_their_decimal_text(path, integer, states):
    column = Column("x", states)
    data = {"x": pa.array([0, 7, None, 100, 0], integer)}
    assert codes_of(write(path, data), column) == [1, 0, MISSING, 2, 1]
    assert codes_of(in_memory(data["x"]), column) == [1, 0, MISSING, 2, 1]
    with pytest.raises(BadInputError, match=r"row 1: value 8 is not a state of this variable: expected one of"):
        codes_of(write(path, {"x": pa.array([0, 8], integer)}), column)


def test_integers_far_from_the_states_are_not_states():
    for value in (-(2**63), 2**63 - 1, -1, 3):
        with pytest.raises(BadInputError, match=f"value {value} is not a state"):
            codes_of(in_memory(pa.array([value], pa.int64())), Column("x", (0, 1, 2)))
    with pytest.raises(BadInputError, match="value 18446744073709551615 is not a state"):
        codes_of(in_memory(pa.array([2**64 - 1], pa.uint64())), Column("x", (-1, 0)))
    assert codes_of(in_memory(pa.array([2**64 - 1], pa.uint64())), Column("x", (0, 2**64 - 1))) == [1]


def test_integer_text_is_matched_exactly():
    with pytest.raises(BadInputError, match=r"value 7 is not a state .* expected one of '07', '\+7', '7.0'"):
        codes_of(in_memory(pa.array([7])), Column("x", ("07", "+7", "7.0")))


@pytest.mark.parametrize(
    "states", [("True", "False"), ("TRUE", "false"), ("1", "0"), (1, 0), (True, False), ("true", "0")], ids=str
)
def test_booleans(path, states):
    data = pa.array([True, False, None, True])
    for part in (write(path, {"x": data}), in_memory(data), in_memory(data.dictionary_encode())):
        assert codes_of(part, Column("x", states)) == [0, 1, MISSING, 0]
    assert codes_of(in_memory(data.slice(1, 2)), Column("x", states)) == [1, MISSING]
    with pytest.raises(BadInputError, match="value True is not a state of this variable: expected one of 'no', 'yes'"):
        codes_of(in_memory(data), Column("x", ("no", "yes")))


@pytest.mark.parametrize("arrow_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_are_integers_or_missing(arrow_type):
    values = pa.array(np.array([1, 0, np.nan, 2, -0.0], arrow_type.to_pandas_dtype()), arrow_type)
    assert codes_of(in_memory(values), Column("x", ("0", "1", "2"))) == [1, 0, MISSING, 2, 0]
    scan = scan_partition(in_memory(values), ["x"], frozenset("x"))
    assert (scan.missing, scan.values, scan.kinds) == ({"x": 1}, {"x": frozenset({0, 1, 2})}, {"x": "float"})


@pytest.mark.parametrize("value", [0.5, float("inf"), -1e300 / 3e299])
def test_a_float_that_is_not_whole_names_the_row(path, value):
    part = write(path, {"x": [1.0, None, 1.0, value]}, row_group_size=2)
    with pytest.raises(BadInputError, match=r"data.parquet: column 'x', row 3: value .* is not a whole number"):
        codes_of(part, Column("x", ("1",)))
    with pytest.raises(BadInputError, match=r"data.parquet: column 'x', row 3: value .* is not a whole number"):
        scan_partition(part, ["x"])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal("1.0")]),
        pa.array([0], pa.date32()),
        pa.array([0], pa.timestamp("us")),
        pa.array([0], pa.time64("us")),
        pa.array([["a"]]),
        pa.array([{"a": 1}]),
        pa.array([b"a"], pa.binary(1)),
    ],
    ids=lambda c: str(c.type),
)
def test_types_that_hold_no_states(column):
    message = rf"a table: column 'x' has type {re.escape(str(column.type))}: expected strings"
    with pytest.raises(BadInputError, match=message):
        codes_of(in_memory(column))
    with pytest.raises(BadInputError, match=message):
        scan_partition(in_memory(column), ["x"])


def test_a_column_of_type_null_is_missing(path):
    for column in (pa.nulls(3), pa.nulls(3).dictionary_encode(), pa.nulls(3, pa.string())):
        assert codes_of(in_memory(column)) == [MISSING] * 3
        assert scan_partition(in_memory(column), ["x"], frozenset("x")).missing == {"x": 3}
    assert codes_of(write(path, {"x": pa.nulls(3)}, store_schema=False)) == [MISSING] * 3


def test_bytes_that_are_not_text():
    with pytest.raises(BadInputError, match=r"column 'x': value b'\\xff' is not text in UTF-8"):
        codes_of(in_memory(pa.array([b"a", b"\xff"])))


def test_a_value_that_is_no_state_names_column_value_file_row_and_states(path):
    part = write(path, {"x": ["a", "b", "a", "zebra"], "y": [1, 2, 3, 4]}, row_group_size=2)
    message = r"data.parquet: column 'x', row 3: value 'zebra' is not a state .*: expected one of 'a', 'b', 'c'$"
    with pytest.raises(BadInputError, match=message):
        codes_of(part)
    # The row is counted in the file, whichever row groups are read.
    with pytest.raises(BadInputError, match="row 3: value 'zebra'"):
        codes_of(ParquetPart(part.path, (1,), 2))
    with pytest.raises(BadInputError, match=r"expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … \(20 in all\)"):
        codes_of(part, Column("x", tuple(range(20))))


def test_an_unused_dictionary_entry_need_not_be_a_state():
    dictionary = pa.array(["a", "unused", "b", None])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2, 3, None], pa.int8()), dictionary)
    assert codes_of(in_memory(column)) == [0, 1, MISSING, MISSING]
    scan = scan_partition(in_memory(column), ["x"], frozenset("x"))
    assert (scan.missing, scan.values) == ({"x": 2}, {"x": frozenset("ab")})
    with pytest.raises(BadInputError, match="row 1: value 'unused'"):
        codes_of(in_memory(pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), dictionary)))


def test_missing_tokens_apply_to_text_of_any_kind(path):
    tokens = ("?", "", "-9", "False", "99.5")
    data = {
        "s": ["a", "?", "", "b", None],
        "i": [1, -9, 2, -9, None],
        "b": [True, False, True, None, False],
        "f": [1.0, -9.0, 99.5, 2.0, None],
        "huge": [1, -9, 10**9, 1, None],
    }
    columns = (
        Column("s", ("a", "b")),
        Column("i", (1, 2)),
        Column("b", ("True", "False")),
        Column("f", (1, 2)),
        Column("huge", (1, 10**9)),
    )
    part = write(path, data)
    codes = read_partition(part, columns, None, tokens).codes
    assert codes.tolist() == [
        [0, -1, -1, 1, -1],
        [0, -1, 1, -1, -1],
        [0, -1, 0, -1, -1],
        [0, -1, -1, 1, -1],
        [0, -1, 1, 0, -1],
    ]
    scan = scan_partition(part, list(data), frozenset("sibf"), None, tokens)
    assert scan.missing == {"s": 3, "i": 3, "b": 3, "f": 3, "huge": 2}
    assert scan.values == {"s": {"a", "b"}, "i": {1, 2}, "b": {True}, "f": {1, 2}}
    assert scan.n_rows == 5


@pytest.mark.parametrize(
    ("cardinality", "dtype"), [(2, np.int8), (127, np.int8), (128, np.int16), (32767, np.int16), (32768, np.int32)]
)
def test_codes_are_as_wide_as_the_states_need(path, cardinality, dtype):
    assert code_dtype(cardinality) == dtype
    states = tuple(f"s{k}" for k in range(cardinality))
    order = np.random.default_rng(0).permutation(cardinality)
    part = write(path, {"x": [states[k] for k in order], "y": ["a"] * cardinality})
    codes = read_partition(part, (Column("x", states), Column("y", ("b", "a"))), None, ()).codes
    assert codes.dtype == dtype
    assert codes.flags.c_contiguous
    assert codes[0].tolist() == order.tolist()
    assert set(codes[1]) == {1}
    assert codes_of(in_memory(pa.array(order)), Column("x", tuple(range(cardinality)))) == order.tolist()


def test_only_named_columns_in_the_order_asked(path):
    part = write(path, {"unreadable": pa.array([[1], [2]]), "x": ["a", "c"], "x.y": ["b", "b"]})
    codes = read_partition(part, (Column("x.y", ("b",)), ABC), None, ()).codes
    assert codes.tolist() == [[0, 0], [0, 2]]
    assert read_partition(part, (), None, ()).codes.shape == (0, 2)


def test_row_groups_with_different_dictionaries(path, monkeypatch):
    values = ["a", "b", None, None, "c", "c", "b", "a", None]
    expected = [ABC.states.index(v) if v else MISSING for v in values]
    for size in (1, 2, 4, 9):
        part = write(path, {"x": values}, row_group_size=size)
        for at_once in (1, 3, 100):
            monkeypatch.setattr(reading, "ROWS_PER_READ", at_once)
            assert codes_of(part) == expected
    assert codes_of(ParquetPart(part.path, (0,), 9)) == expected


def test_part_of_a_file(path):
    part = write(path, {"x": list("abcabc"), "w": range(6)}, row_group_size=2)
    got = read_partition(ParquetPart(part.path, (0, 2), 4), (ABC,), "w", ())
    assert got.codes.tolist() == [[0, 1, 1, 2]]
    assert got.weights.tolist() == [0, 1, 4, 5]


@given(
    values=st.lists(st.sampled_from(["a", "b", "c", "?", None]), max_size=80),
    cuts=st.lists(st.integers(0, 80), max_size=4),
    start=st.integers(0, 20),
    n_states=st.sampled_from([3, 40, 200]),
    encode=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_any_chunks_and_offsets_give_the_oracles_codes(values, cuts, start, n_states, encode):
    states = ("a", "b", "c", *(f"s{k}" for k in range(n_states - 3)))
    bounds = [0, *sorted(min(c, len(values)) for c in cuts), len(values)]
    chunks = [pa.array(values, pa.string()).slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    if encode:
        chunks = [c.dictionary_encode() for c in chunks]
    part = in_memory(chunks)
    part = TablePart(part.table.slice(start), max(0, len(values) - start), "t")
    expected = [MISSING if v in (None, "?") else states.index(v) for v in values[start:]]
    assert codes_of(part, Column("x", states), ("?",)) == expected
    assert codes_of(pickle.loads(pickle.dumps(part)), Column("x", states), ("?",)) == expected
    scan = scan_partition(part, ["x"], frozenset("x"), None, ("?",))
    assert scan.missing["x"] == expected.count(MISSING)
    assert scan.values["x"] == set(values[start:]) - {None, "?"}


COLUMNS = {
    "string": (st.text(max_size=3), pa.string()),
    "category": (st.sampled_from(["u", "v", "ü w"]), pa.dictionary(pa.int32(), pa.string())),
    "integer": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "small": (st.integers(0, 5), pa.int8()),
    "boolean": (st.booleans(), pa.bool_()),
    "whole": (st.integers(-1000, 1000).map(float), pa.float64()),
}


@given(data=st.data(), row_group_size=st.integers(1, 30), store_schema=st.booleans(), dictionary=st.booleans())
@settings(max_examples=60, deadline=None)
def test_table_to_parquet_to_codes_against_the_oracle(tmp_path_factory, data, row_group_size, store_schema, dictionary):
    n_rows = data.draw(st.integers(0, 60))
    table = {
        name: data.draw(st.lists(st.none() | values, min_size=n_rows, max_size=n_rows), label=name)
        for name, (values, _) in COLUMNS.items()
    }
    path = tmp_path_factory.mktemp("round") / "t.parquet"
    arrow = pa.table({name: pa.array(values, COLUMNS[name][1]) for name, values in table.items()})
    part = write(path, arrow, row_group_size=row_group_size, store_schema=store_schema, use_dictionary=dictionary)
    text = {
        name: [None if v is None else str(int(v) if name == "whole" else v) for v in c] for name, c in table.items()
    }
    scan = scan_partition(part, list(table), frozenset(table))
    assert scan.missing == {name: c.count(None) for name, c in table.items()}
    assert scan.values == {name: set(c) - {None} for name, c in table.items()}
    columns = tuple(Column(name, tuple(sorted(scan.values[name], key=str))) for name in table)
    codes = read_partition(part, columns, None, ()).codes
    for column, got in zip(columns, codes.tolist(), strict=True):
        labels = [str(s) for s in column.states]
        assert got == [MISSING if v is None else labels.index(v) for v in text[column.name]]
    assert codes.shape == (len(table), n_rows)


@given(
    values=st.lists(st.none() | st.integers(0, 20), min_size=0, max_size=70),
    offset=st.integers(0, 20),
    n_entries=st.sampled_from([1, 3, 13, 14, 15, 21]),
)
@settings(max_examples=200, deadline=None)
def test_both_kernels_against_the_definition(values, offset, n_entries):
    table = np.array([*(k % 12 for k in range(n_entries)), -2, -1], np.int8)
    array = pa.array(values, pa.int8()).slice(offset)
    view, bits, first_bit = reading._buffers(array)
    out = np.full(len(array), 77, np.int8)
    bad = translate(view, bits, first_bit, 0, table, out)
    expected = [-1 if v is None else -2 if v >= n_entries else v % 12 for v in values[offset:]]
    assert out.tolist() == expected
    assert bad == (-2 in expected)


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (pa.array([3, 0, 5], pa.int16()), np.int64),
        (pa.array([3, 0, 5], pa.uint64()), np.int64),
        (pa.array([3, 0, 5]).dictionary_encode(), np.int64),
        (pa.array([3, 0, 5], pa.float32()), np.float64),
        (pa.array([Decimal("3.00"), Decimal(0), Decimal(5)]), np.float64),
    ],
    ids=lambda v: str(getattr(v, "type", v)),
)
def test_weights(path, column, dtype):
    data = {"x": ["a", "b", "c"], "w": column}
    for part in (write(path, data, row_group_size=2), TablePart(pa.table(data), 3, "t")):
        weights = read_partition(part, (ABC,), "w", ()).weights
        assert weights.dtype == dtype
        assert weights.tolist() == [3, 0, 5]
        assert scan_partition(part, ["x"], weight="w").total_weight == 8
    assert read_partition(part, (ABC,)).weights is None


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, 2, -3]), r"row 2: value -3 is no weight: expected a finite number, 0 or more"),
        (pa.array([1, None, 3]), r"row 1: value None is no weight: expected a number in every row"),
        (pa.nulls(3), r"row 0: value None is no weight"),
        (pa.array([1.0, float("nan"), 1.0]), r"row 1: value nan is no weight"),
        (pa.array([1.0, 1.0, float("inf")]), r"row 2: value inf is no weight"),
        (pa.array([1.0, -0.5, 1.0]), r"row 1: value -0.5 is no weight"),
        (pa.array(["1", "2", "3"]), r"weight column 'w' has type string: expected integers, floats or decimals"),
        (pa.array([True, True, True]), r"weight column 'w' has type bool: expected integers"),
        (pa.array([1, 1, 2**64 - 1], pa.uint64()), r"column 'w', row 2: value 18446744073709551615 is no weight"),
    ],
    ids=str,
)
def test_bad_weights_name_file_row_and_value(path, column, message):
    part = write(path, {"x": ["a", "b", "c"], "w": column})
    with pytest.raises(BadInputError, match=r"data.parquet: .*" + message):
        read_partition(part, (ABC,), "w", ())
    with pytest.raises(BadInputError, match=r"data.parquet: .*" + message):
        scan_partition(part, ["x"], weight="w")


def test_files_that_changed_since_the_plan(path, tmp_path):
    part = write(path, {"x": list("abc")})
    with pytest.raises(
        BadInputError, match=r"data.parquet: expected 4 rows in the row groups to read, found 3: the file has"
    ):
        read_partition(ParquetPart(part.path, (0, 7), 4), (ABC,), None, ())
    with pytest.raises(BadInputError, match=r"data.parquet: column 'y' is not there"):
        read_partition(part, (Column("y", ("a",)),), None, ())
    with pytest.raises(BadInputError, match="a table: column 'y' is not there"):
        read_partition(in_memory(pa.array(["a"])), (Column("y", ("a",)),), None, ())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInputError, match=r"data.parquet: can't be read as Parquet: ") as caught:
        codes_of(part)
    assert caught.value.__cause__ is not None
    assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(BadInputError, match=r"data.parquet: no such file"):
        codes_of(part)


def test_a_damaged_data_page(path):
    part = write(path, {"x": ["a", "b", "c"] * 1000}, compression="snappy")
    raw = bytearray(path.read_bytes())
    raw[4:60] = b"\xff" * 56
    path.write_bytes(raw)
    with pytest.raises(BadInputError, match=r"data.parquet: can't be read as Parquet: "):
        codes_of(part)


def test_urls(path):
    part = write(path, {"x": ["a", None, "c"], "w": [1, 2, 3]}, row_group_size=2)
    with fsspec.open("memory://reading/data.parquet", "wb") as file:
        file.write(path.read_bytes())
    remote = ParquetPart("memory://reading/data.parquet", part.row_groups, part.n_rows)
    got = read_partition(remote, (ABC,), "w", ())
    assert got.codes.tolist() == [[0, MISSING, 2]]
    assert got.weights.tolist() == [1, 2, 3]
    with pytest.raises(BadInputError, match=r"memory://reading/gone.parquet: no such file"):
        codes_of(ParquetPart("memory://reading/gone.parquet", (0,), 1))
    with pytest.raises(BadInputError, match=r"nonsense://x: "):
        codes_of(ParquetPart("nonsense://x", (0,), 1))


def test_a_pickled_slice_takes_its_own_rows_along_only():
    table = pa.table({"x": pa.array(["a", "b"] * 50_000).dictionary_encode()})
    part = TablePart(table.slice(10, 100), 100, "t", first_row=10)
    pickled = pickle.dumps(part)
    assert len(pickled) < 5_000
    again = pickle.loads(pickled)
    assert (again.n_rows, again.name, again.first_row) == (100, "t", 10)
    assert codes_of(again) == codes_of(part) == [0, 1] * 50


def test_pandas_frames_become_table_parts():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "x": ["a", None, "c"],
            "c": pd.Categorical(["u", None, "v"]),
            "n": pd.array([1, None, 2], "Int64"),
            5: [True, None, False],
        },
        index=[7, 7, 7],
    )
    part = as_table_part(frame, "frame", ("5", "n", "c", "x"))
    columns = (Column("5", ("False", "True")), Column("n", (1, 2)), Column("c", ("u", "v")), ABC)
    assert read_partition(part, columns, None, ()).codes.tolist() == [[1, -1, 0], [0, -1, 1], [0, -1, 1], [0, -1, 2]]
    with pytest.raises(BadInputError, match=r"frame: column 'x' can't be read .* found int, str"):
        as_table_part(pd.DataFrame({"x": pd.Series(["a", 1], dtype=object)}), "frame", ("x",))


def test_reading_parquet_imports_neither_pandas_nor_pgmpy(path):
    write(path, {"s": ["a", None], "i": [1, None], "b": [True, None], "f": [1.0, None], "w": [1, 2], "d": [1.0, 2.0]})
    script = f"""
import sys
from tasks.reading import *
part = ParquetPart({str(path)!r}, (0,), 2)
columns = (Column("s", ("a",)), Column("i", (1,)), Column("b", (True,)), Column("f", (1,)), Column("i", (1, 10**9)))
read_partition(part, columns[:4], "w", ("?",)), read_partition(part, columns[4:], "d", ())
scan_partition(part, ["s", "i", "b", "f"], frozenset("sibf"), "w", ("?",))
try:
    read_partition(part, (Column("s", ("b",)),), None, ())
except ValueError:
    pass
loaded = {{"pandas", "pgmpy", "dask"}} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", script], check=True)
