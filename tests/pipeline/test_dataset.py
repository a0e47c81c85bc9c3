"""The dataset as the driver sees it: found, checked, cut into parts, and what its footers tell."""

import itertools
import os
import pickle

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dataset import observability, open_dataset, states_from_scans
from tasks.errors import BadInputError
from tasks.reading import Column, ParquetPart, TablePart, read_partition, scan_partition

XY = ("x", "y", "z")


def write(path, columns, **options):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return str(path)


@pytest.fixture
def directory(tmp_path):
    """Three files that differ in column order, row groups, dictionaries, integer width and what they say of types."""
    root = tmp_path / "data"
    write(root / "a.parquet", {"x": ["u", "v", None], "y": pa.array([1, 2, 3], pa.int8()), "other": [1.5, 2, 3]})
    write(
        root / "deep" / "b.parq",
        {"y": pa.array([3, 3, None, 1]), "x": pa.array(["w", "w", None, "v"]).dictionary_encode()},
        row_group_size=2,
    )
    write(root / "c.parquet", {"x": pa.nulls(2), "y": pa.array([1, 1], pa.int64())}, store_schema=False)
    for skipped in ("_metadata.parquet", ".hidden.parquet", "_temporary/d.parquet", "notes.txt"):
        (root / skipped).parent.mkdir(exist_ok=True)
        (root / skipped).write_text("not Parquet")
    return root


def scans_of(dataset, names=None, want=(), **options):
    return [
        scan_partition(p, names or dataset.needs_scan, frozenset(want), dataset.weight, dataset.missing_tokens)
        for p in dataset.parts
    ]


def test_a_directory(directory):
    dataset = open_dataset(str(directory), XY)
    assert [os.path.relpath(p.path, directory) for p in dataset.parts] == ["a.parquet", "c.parquet", "deep/b.parq"]
    assert dataset.n_rows == 9
    assert dataset.n_parts == 3
    assert dataset.columns == ("x", "y")
    assert dataset.ignored_columns == ("other",)
    assert dataset.kinds == {"x": "string", "y": "integer"}
    assert dataset.null_counts == {"x": 4, "y": 1}
    assert dataset.needs_scan == ()
    assert [f.rows for f in dataset.files] == [3, 2, 4]
    assert [f.size for f in dataset.files] == [os.path.getsize(f.path) for f in dataset.files]
    assert 0 < dataset.on_disk_bytes < sum(f.size for f in dataset.files)
    assert dataset.decoded_bytes > 0
    assert pickle.loads(pickle.dumps(dataset)) == dataset
    seen = observability(dataset)
    assert (seen.always_observed, seen.partly_observed, seen.hidden) == ((), ("x", "y"), ("z",))
    assert seen.missing == {"x": 4, "y": 1, "z": 9}
    assert seen.n_rows == 9


def test_every_way_to_name_the_same_files(directory, monkeypatch):
    files = [f.path for f in open_dataset(directory, XY).files]
    assert all(os.path.isabs(f) for f in files)
    monkeypatch.chdir(directory)
    ways = [
        ".",
        files,
        tuple(files),
        ["*.parquet", "deep"],
        [directory / "*.parquet", "deep/*"],
        "**/*.par*",
        f"file://{directory}",
    ]
    for data in ways:
        assert sorted(f.path for f in open_dataset(data, XY).files) == sorted(files), data
    assert [f.path for f in open_dataset("a.parquet", XY).files] == files[:1]
    (directory / "a[1].parquet").write_bytes((directory / "a.parquet").read_bytes())
    assert len(open_dataset("a[1].parquet", XY).files) == 1


def test_urls(directory):
    with fsspec.open("memory://dataset/deep/a.parquet", "wb") as file:
        file.write((directory / "a.parquet").read_bytes())
    for url in ("memory://dataset", "memory://dataset/**/*.parquet", "memory://dataset/deep/a.parquet"):
        dataset = open_dataset(url, XY, storage_options={})
        assert [f.path for f in dataset.files] == ["memory:///dataset/deep/a.parquet"]
        codes = read_partition(dataset.parts[0], (Column("x", ("u", "v")),)).codes
        assert codes.tolist() == [[0, 1, -1]]
    with pytest.raises(BadInputError, match="memory://nowhere: no such file or directory"):
        open_dataset("memory://nowhere", XY)
    with pytest.raises(BadInputError, match="nonsense://x: can't be opened: "):
        open_dataset("nonsense://x", XY)


def test_only_footers_are_read(directory, monkeypatch):
    def no(*args, **kwargs):
        raise AssertionError("a data page was read")

    for name in ("read", "read_row_group", "read_row_groups", "iter_batches"):
        monkeypatch.setattr(pq.ParquetFile, name, no)
    assert open_dataset(directory, XY).n_rows == 9


def test_large_files_are_split_between_row_groups_and_small_ones_left(tmp_path):
    path = write(tmp_path / "large.parquet", {"x": [str(i % 3) for i in range(100)]}, row_group_size=7)
    for rows_per_part in (1, 7, 20, 50, 99, 100, 1000):
        parts = open_dataset(path, XY, rows_per_part=rows_per_part).parts
        assert [g for p in parts for g in p.row_groups] == list(range(15))
        assert sum(p.n_rows for p in parts) == 100
        assert max(p.n_rows for p in parts) <= max(7, rows_per_part)
    assert len(open_dataset(path, XY, rows_per_part=50).parts) == 3  # 50 and 50 is 49, 49 and 2 between row groups
    with pytest.raises(BadInputError, match="rows_per_part is 0: expected 1 or more"):
        open_dataset(path, XY, rows_per_part=0)


def test_footers_without_statistics_ask_for_a_scan(tmp_path):
    write(tmp_path / "a.parquet", {"x": ["u", None], "y": [1, 2]}, write_statistics=False)
    write(tmp_path / "b.parquet", {"x": ["v", "u"], "y": [None, 2]})
    dataset = open_dataset(tmp_path, XY)
    assert dataset.null_counts == {"x": None, "y": None}
    assert dataset.needs_scan == ("x", "y")
    seen = observability(dataset, scans_of(dataset))
    assert seen.missing == {"x": 1, "y": 1, "z": 4}
    for scans in (None, scans_of(dataset)[:1]):
        with pytest.raises(ValueError, match="a scan of each of 2 partitions is needed, found"):
            observability(dataset, scans)


def test_statistics_for_one_column_only(tmp_path):
    write(tmp_path / "a.parquet", {"x": ["u", None], "y": [1, None]}, write_statistics=["y"])
    dataset = open_dataset(tmp_path, XY)
    assert dataset.null_counts == {"x": None, "y": 1}
    assert dataset.needs_scan == ("x",)
    assert observability(dataset, scans_of(dataset)).missing == {"x": 1, "y": 1, "z": 2}


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [((), ("f",)), (("?",), ("s", "f")), (("-9",), ("s", "i", "f")), (("True",), ("s", "b", "f"))],
)
def test_tokens_are_looked_for_where_they_can_be(tmp_path, tokens, expected):
    data = {"s": ["a", "?"], "i": [1, -9], "b": [True, False], "f": [1.0, float("nan")], "n": pa.nulls(2)}
    path = write(tmp_path / "a.parquet", data)
    for source in (path, pa.table(data)):
        dataset = open_dataset(source, tuple("sibfn"), missing_tokens=tokens)
        assert dataset.needs_scan == expected
        seen = observability(dataset, scans_of(dataset))
        assert seen.missing["f"] == 1
        assert seen.hidden == ("n",)
        assert seen.missing["s"] == ("?" in tokens)
        assert seen.missing["i"] == ("-9" in tokens)
        assert seen.missing["b"] == ("True" in tokens)


def test_a_hidden_column_and_no_column_are_the_same(tmp_path):
    write(tmp_path / "a.parquet", {"x": ["u"], "y": pa.nulls(1)})
    write(tmp_path / "b.parquet", {"x": ["u"], "y": pa.nulls(1, pa.string())})
    seen = observability(open_dataset(tmp_path, XY))
    assert (seen.always_observed, seen.partly_observed, seen.hidden) == (("x",), (), ("y", "z"))


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (pa.array(["a"]), pa.array(["b"]).dictionary_encode(), "string"),
        (pa.array(["a"]), pa.array([b"b"]), "string"),
        (pa.array([1], pa.int32()), pa.array([1], pa.uint64()), "integer"),
        (pa.array([1]), pa.array([1.0]), "float"),
        (pa.nulls(1), pa.array([True]), "boolean"),
        (pa.nulls(1), pa.nulls(1), "null"),
    ],
    ids=str,
)
def test_kinds_that_go_together(tmp_path, one, other, kind):
    write(tmp_path / "1.parquet", {"x": one})
    write(tmp_path / "2.parquet", {"x": other})
    write(tmp_path / "3.parquet", {"x": one})
    assert open_dataset(tmp_path, XY).kinds == {"x": kind}


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (pa.array(["a"]), pa.array([1]), "strings in .*1.parquet and integers in .*3.parquet"),
        (pa.array([1]), pa.array([True]), "integers in .*1.parquet and booleans in .*3.parquet"),
        (pa.array([1.0]), pa.array(["a"]).dictionary_encode(), "floats in .*1.parquet and strings in .*3.parquet"),
    ],
    ids=str,
)
def test_kinds_that_conflict_name_both_files(tmp_path, one, other, message):
    write(tmp_path / "1.parquet", {"x": one})
    write(tmp_path / "2.parquet", {"x": pa.nulls(1)})
    write(tmp_path / "3.parquet", {"x": other})
    with pytest.raises(BadInputError, match=f"column 'x' holds {message}: expected one kind of value"):
        open_dataset(tmp_path, XY)


def test_a_column_in_some_files_only_names_both(tmp_path):
    write(tmp_path / "1.parquet", {"x": ["a"], "y": [1]})
    write(tmp_path / "2.parquet", {"x": ["a"]})
    with pytest.raises(BadInputError, match=r"column 'y' is in .*1.parquet and not in .*2.parquet: expected the same"):
        open_dataset(tmp_path, XY)
    assert open_dataset(tmp_path, ("x",)).n_rows == 2


def test_paths_with_nothing_in_them(tmp_path):
    with pytest.raises(BadInputError, match=r"gone.parquet: no such file or directory"):
        open_dataset(tmp_path / "gone.parquet", XY)
    with pytest.raises(BadInputError, match=r"no Parquet file \(\*.parquet, \*.parq\) in it, found an empty directory"):
        open_dataset(tmp_path, XY)
    with pytest.raises(BadInputError, match=r"\*.parquet: no file matches"):
        open_dataset(str(tmp_path / "*.parquet"), XY)
    with pytest.raises(BadInputError, match="data is an empty list"):
        open_dataset([], XY)
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(BadInputError, match="in it, found 1 other file"):
        open_dataset(tmp_path, XY)


def test_files_that_are_not_parquet(tmp_path, directory):
    for name, content in (("a.csv", b"x,y\n1,2\n" * 9), ("empty.parquet", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInputError, match=f"{name}: can't be read as Parquet: ") as caught:
            open_dataset(tmp_path / name, XY)
        assert "\n" not in str(caught.value)
    whole = (directory / "a.parquet").read_bytes()
    for kept in (4, len(whole) // 2, len(whole) - 1):
        (directory / "a.parquet").write_bytes(whole[:kept])
        with pytest.raises(BadInputError, match=r"a.parquet: can't be read as Parquet: "):
            open_dataset(directory, XY)


def test_no_rows(tmp_path):
    empty = pa.table({"x": pa.array([], pa.string())})
    write(tmp_path / "a.parquet", empty)
    for data in (tmp_path, empty):
        with pytest.raises(BadInputError, match="the data has no rows"):
            open_dataset(data, XY)
    write(tmp_path / "b.parquet", {"x": ["a"]})
    dataset = open_dataset(tmp_path, XY)
    assert (dataset.n_rows, len(dataset.parts), len(dataset.files)) == (1, 1, 2)


def test_no_variable_has_a_column(directory):
    message = r"no variable of the network has a column: expected some of 'p', 'q', found 'other', 'x', 'y'"
    with pytest.raises(BadInputError, match=message):
        open_dataset(directory, ("p", "q"))
    with pytest.raises(BadInputError, match="Arrow table: no variable of the network has a column"):
        open_dataset(pa.table({"a": [1]}), XY)


def test_duplicate_columns(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3]), pa.array([4])], ["x", "y", "x", "y"])
    for data in (table, write(tmp_path / "twice.parquet", table)):
        with pytest.raises(BadInputError, match="column 'x' comes 2 times: expected one column a name"):
            open_dataset(data, ("x",))
        with pytest.raises(BadInputError, match="no variable of the network has a column"):
            open_dataset(data, ("z",))


def test_a_file_named_twice(directory):
    with pytest.raises(BadInputError, match=r"a.parquet is named more than once: its rows would be counted twice"):
        open_dataset([directory, directory / "a.parquet"], XY)


@pytest.mark.parametrize(
    "data", [3, {"x": [1]}, None, [pa.table({"x": [1]})], np.zeros((2, 2))], ids=lambda d: type(d).__name__
)
def test_data_of_another_kind(data):
    with pytest.raises(
        BadInputError, match=r"data is a .*: expected a path, glob or URL of Parquet, a list of those, or"
    ):
        open_dataset(data, XY)


def test_types_that_hold_no_states(tmp_path):
    table = pa.table({"x": pa.array([0], pa.date32()), "y": [1], "nested": [{"x": 1, "y": 2}]})
    for data in (table, write(tmp_path / "a.parquet", table)):
        with pytest.raises(BadInputError, match=r"column 'x' has type date32\[day\]: expected strings"):
            open_dataset(data, XY)
        assert open_dataset(data, ("y",)).null_counts == {"y": 0}
        with pytest.raises(BadInputError, match=r"column 'nested' has type struct<x: int64, y: int64>"):
            open_dataset(data, ("y", "nested"))


def test_partition_directories(tmp_path):
    write(tmp_path / "x=1" / "a.parquet", {"y": [1, 2]})
    write(tmp_path / "x=2" / "_k=3" / "b.parquet", {"y": [1, 2]})
    with pytest.raises(BadInputError, match=r"a.parquet: 'x' is the key of a partition directory, not a column"):
        open_dataset(tmp_path, XY)
    with pytest.raises(BadInputError, match=r"b.parquet: '_k' is the key of a partition directory, not a column"):
        open_dataset(tmp_path, ("y",), weight="_k")
    assert open_dataset(tmp_path, ("y",)).n_rows == 4


def test_the_weight_column(tmp_path):
    write(tmp_path / "a.parquet", {"x": ["a"], "w": [2], "t": ["a"]})
    dataset = open_dataset(tmp_path, XY, weight="w")
    assert (dataset.columns, dataset.weight, dataset.ignored_columns) == (("x",), "w", ("t",))
    for data in (tmp_path, pa.table({"x": ["a"], "w": [2], "t": ["a"]})):
        with pytest.raises(BadInputError, match=r"weight column 'v' is not there: it has 't', 'w', 'x'|'x', 'w', 't'"):
            open_dataset(data, XY, weight="v")
        with pytest.raises(
            BadInputError, match="weight column 't' has type string: expected integers, floats or decimals"
        ):
            open_dataset(data, XY, weight="t")
        with pytest.raises(BadInputError, match="weight column 'x' is also a variable of the network"):
            open_dataset(data, XY, weight="x")
    write(tmp_path / "b.parquet", {"x": ["a"]})
    with pytest.raises(BadInputError, match=r"column 'w' is in .*a.parquet and not in .*b.parquet"):
        open_dataset(tmp_path, XY, weight="w")


def test_nulls_among_the_weights_are_known_from_the_footer(tmp_path):
    for column, nulls in ((pa.array([1, None, None]), 2), (pa.nulls(3), 3)):
        table = pa.table({"x": ["a", "b", "a"], "w": column})
        for data in (table, write(tmp_path / "a.parquet", table)):
            with pytest.raises(BadInputError, match=f"weight column 'w' has {nulls} nulls: expected a number in every"):
                open_dataset(data, XY, weight="w")


def test_arrow_tables(directory):
    table = pq.read_table(directory / "deep" / "b.parq")
    for data in (table, table.combine_chunks().to_batches()[0]):
        dataset = open_dataset(data, XY, rows_per_part=3)
        assert [(p.n_rows, p.first_row) for p in dataset.parts] == [(3, 0), (1, 3)]
        assert dataset.null_counts == {"x": 1, "y": 1}
        assert dataset.needs_scan == ()
        assert dataset.parts[0].table.column_names == ["x", "y"]
    with_null = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    dataset = open_dataset(pa.table({"x": with_null}), XY)
    assert dataset.needs_scan == ("x",)
    assert observability(dataset, scans_of(dataset)).missing["x"] == 1


def test_pandas_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "x": pd.Categorical(["a", None, "b"]),
            "y": pd.array([1, None, 2], "Int64"),
            "z": np.array([True, None, False], dtype=object),
            "f": [1.0, np.nan, 2.0],
            "mixed": np.array(["a", 1, None], dtype=object),
            "when": pd.to_datetime(["2020-01-01"] * 3),
        },
        index=[5, 5, 1],
    )
    dataset = open_dataset(frame, ("x", "y", "z", "f", "q"), rows_per_part=2)
    assert dataset.kinds == {"x": "string", "y": "integer", "z": "boolean", "f": "float"}
    assert dataset.ignored_columns == ("mixed", "when")
    assert observability(dataset, scans_of(dataset)).missing == {"x": 1, "y": 1, "z": 1, "f": 1, "q": 3}
    with pytest.raises(BadInputError, match=r"pandas DataFrame: column 'mixed' can't be read .* found int, str"):
        open_dataset(frame, ("x", "mixed"))
    with pytest.raises(BadInputError, match="pandas DataFrame: column 'when' has type timestamp"):
        open_dataset(frame, ("x", "when"))
    with pytest.raises(BadInputError, match="pandas DataFrame: column 'x' comes 2 times"):
        open_dataset(pd.concat([frame, frame], axis=1), ("x",))
    with pytest.raises(BadInputError, match="pandas DataFrame: the data has no rows"):
        open_dataset(frame[:0], ("x",))


def run(dataset, function, **arguments):
    """What `function` makes of each partition, by way of a graph."""
    dask = pytest.importorskip("dask")
    from functools import partial

    graph = {}
    keys = dataset.part_keys("token", graph)
    for i, key in enumerate(keys):
        graph["test", i] = (partial(function, **arguments), key)
    return list(dask.get(graph, [("test", i) for i in range(len(keys))]))


def test_dask_frames():
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"x": ["a", "b", None, "a", "b"], "o": 1, "y": [1, 2, 3, 3, 2], "w": [1, 1, 2, 1, 1]})
    whole = dd.from_pandas(frame, npartitions=2)
    dataset = open_dataset(whole, XY, weight="w")
    assert (dataset.n_rows, dataset.parts, dataset.n_parts) == (None, (), 2)
    assert (dataset.columns, dataset.ignored_columns) == (("x", "y"), ("o",))
    assert dataset.needs_scan == ("x", "y")
    scans = run(dataset, scan_partition, names=("x", "y"), want_values=frozenset("xy"), weight="w")
    assert observability(dataset, scans).missing == {"x": 1, "y": 0, "z": 5}
    assert states_from_scans(("x", "y"), scans) == {"x": ("a", "b"), "y": (1, 2, 3)}
    columns = (Column("y", (1, 2, 3)), Column("x", ("a", "b")))
    codes = [p.codes for p in run(dataset, read_partition, columns=columns)]
    assert np.hstack(codes).tolist() == [[0, 1, 2, 2, 1], [0, 1, -1, 0, 1]]
    with pytest.raises(ValueError, match="Dask DataFrame: a scan of each of 2 partitions is needed, found none"):
        observability(dataset)
    empty = open_dataset(whole[whole.y > 9], XY)
    with pytest.raises(BadInputError, match="Dask DataFrame: the data has no rows"):
        observability(empty, run(empty, scan_partition, names=("x", "y")))
    with pytest.raises(BadInputError, match="Dask DataFrame: no variable of the network has a column"):
        open_dataset(whole, ("p",))


def test_opening_a_dask_frame_computes_nothing():
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")

    def explode(frame):
        if len(frame):
            raise AssertionError("computed")
        return frame

    frame = dd.from_pandas(pd.DataFrame({"x": ["a"] * 4}), npartitions=2)
    exploding = frame.map_partitions(explode, meta=frame._meta)
    assert open_dataset(exploding, XY).n_parts == 2


def test_partitions_of_a_dask_frame_may_not_differ_in_kind():
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    import dask

    with dask.config.set({"dataframe.convert-string": False}):
        frames = [pd.DataFrame({"x": pd.Series(v, dtype=object)}) for v in (["a"], [1])]
        whole = dd.from_map(lambda i: frames[i], [0, 1], meta=frames[0][:0])
        dataset = open_dataset(whole, XY)
        scans = run(dataset, scan_partition, names=("x",), want_values=frozenset("x"))
    message = "column 'x' holds strings in Dask DataFrame, partition 0 and integers in Dask DataFrame, partition 1"
    for check in (lambda: observability(dataset, scans), lambda: states_from_scans(("x",), scans)):
        with pytest.raises(BadInputError, match=message):
            check()


def test_part_keys_of_files_and_tables(directory):
    for data in (directory, pa.table({"x": ["a", "b"]})):
        dataset = open_dataset(data, XY)
        assert run(dataset, lambda part: part) == list(dataset.parts)
        assert {type(p) for p in dataset.parts} < {ParquetPart, TablePart}


def test_states_are_the_union_in_order(tmp_path):
    write(
        tmp_path / "1.parquet", {"i": [10, 2], "b": [True, True], "s": ["é", "a"], "f": [2.0, None], "n": pa.nulls(2)}
    )
    write(tmp_path / "2.parquet", {"i": [-1, 2], "b": [False, None], "s": ["B", "10"], "f": [10, 1], "n": pa.nulls(2)})
    dataset = open_dataset(tmp_path, tuple("ibsfn"))
    scans = scans_of(dataset, dataset.columns, "ibsfn")
    expected = {"i": (-1, 2, 10), "b": (False, True), "s": ("10", "B", "a", "é"), "f": (1, 2, 10)}
    for order in (scans, scans[::-1]):
        assert states_from_scans(dataset.columns, order) == expected
    assert states_from_scans((), []) == {}


@given(
    rows=st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 3)), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    row_group_size=st.integers(1, 9),
    rows_per_part=st.integers(1, 50),
    statistics=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_any_partitioning_gives_the_same(tmp_path_factory, rows, cuts, row_group_size, rows_per_part, statistics):
    root = tmp_path_factory.mktemp("cut")
    bounds = [0, *sorted(min(c, len(rows)) for c in cuts), len(rows)]
    for k, (start, stop) in enumerate(itertools.pairwise(bounds)):
        x, y = [r[0] for r in rows[start:stop]], [r[1] for r in rows[start:stop]]
        table = pa.table({"x": pa.array(x, pa.string()), "y": pa.array(y, pa.int16())})
        write(root / f"{k}.parquet", table, row_group_size=row_group_size, write_statistics=statistics)
    dataset = open_dataset(root, XY, rows_per_part=rows_per_part)
    seen = observability(dataset, scans_of(dataset) if dataset.needs_scan else None)
    assert seen.missing == {
        "x": [r[0] for r in rows].count(None),
        "y": [r[1] for r in rows].count(None),
        "z": len(rows),
    }
    columns = (Column("x", ("a", "b")), Column("y", (0, 1, 2, 3)))
    codes = np.hstack([read_partition(p, columns).codes for p in dataset.parts])
    assert codes.T.tolist() == [[-1 if x is None else "ab".index(x), -1 if y is None else y] for x, y in rows]
