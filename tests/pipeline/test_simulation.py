"""Simulated datasets: what is in the files, and that they appear whole or not at all."""

import dataclasses
import random
import threading

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import pipeline.simulation
from pipeline.network import Network
from pipeline.simulation import simulate
from tasks.errors import BadInputError
from tests import oracle

NETWORK = Network(
    name="small",
    variables=("rain", "wet", "count", "flag", "mixed"),
    states=(("no", "yes"), ("dry", "damp", "wet"), (10, 20), (False, True), ("a", 1)),
    parents=((), (0,), (0, 1), (2,), ()),
    tables=(
        np.array([0.6, 0.4]),
        np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]),
        np.full((2, 3, 2), 0.5),
        np.array([[0.9, 0.1], [0.2, 0.8]]),
        np.array([0.5, 0.5]),
    ),
)


def read(where):
    return ds.dataset(where).to_table()


def no_leftovers(path):
    return [p.name for p in path.iterdir()] == []


def test_columns_have_the_types_of_their_labels(tmp_path):
    done = simulate(NETWORK, tmp_path / "out", rows=1000, partitions=3)
    table = read(tmp_path / "out")
    assert table.num_rows == done.rows == 1000
    assert table.schema.field("rain").type == pa.dictionary(pa.int8(), pa.string())
    assert table.schema.field("count").type == pa.int64()
    assert table.schema.field("flag").type == pa.bool_()
    assert set(table["count"].to_pylist()) == {10, 20}
    assert set(table["flag"].to_pylist()) == {False, True}
    assert set(table["mixed"].to_pylist()) == {"a", "1"}
    assert [f.rsplit("/", 1)[1] for f in done.files] == [f"part-{p:05d}.parquet" for p in range(3)]
    assert [pq.read_metadata(f).num_rows for f in done.files] == [333, 333, 334]


def test_values_follow_the_network(tmp_path):
    n = 50_000
    simulate(NETWORK, tmp_path / "out", rows=n)
    frame = read(tmp_path / "out").to_pandas()
    given = frame[frame["rain"] == "yes"]
    assert abs((given["wet"] == "wet").mean() - 0.6) < 5 * np.sqrt(0.24 / len(given))
    given = frame[frame["count"] == 20]
    assert abs(given["flag"].mean() - 0.8) < 5 * np.sqrt(0.16 / len(given))


@pytest.mark.parametrize("partitions", [2, 7, 100])
def test_rows_do_not_depend_on_the_partitions(tmp_path, partitions):
    settings = {"rows": 70_000, "missing": 0.3, "missing_variables": 0.4, "seed": 11}
    one = simulate(NETWORK, tmp_path / "one", **settings)
    many = simulate(NETWORK, tmp_path / "many", partitions=partitions, **settings)
    assert read(tmp_path / "one").to_pylist() == read(tmp_path / "many").to_pylist()
    assert one.missing_entries == many.missing_entries


def test_small_row_groups_change_nothing(tmp_path, monkeypatch):
    simulate(NETWORK, tmp_path / "one", rows=200_000)
    monkeypatch.setattr(pipeline.simulation, "CELLS", 1)
    simulate(NETWORK, tmp_path / "many", rows=200_000)
    assert pq.read_metadata(tmp_path / "many" / "part-00000.parquet").num_row_groups == 4
    assert read(tmp_path / "one").equals(read(tmp_path / "many"))


def test_missing_entries_are_nulls_that_the_footers_count(tmp_path):
    done = simulate(NETWORK, tmp_path / "out", rows=10_000, partitions=2, missing=0.5, missing_variables=0.4)
    assert len(done.missing_variables) == 2
    table = read(tmp_path / "out")
    total = 0
    for name in done.columns:
        counted = 0
        for file in done.files:
            group = pq.read_metadata(file).row_group(0)
            counted += group.column(table.schema.get_field_index(name)).statistics.null_count
        assert counted == table[name].null_count
        total += counted
        if name in done.missing_variables:
            assert abs(counted / 10_000 - 0.5) < 5 * np.sqrt(0.25 / 10_000)
        else:
            assert counted == 0
    assert done.missing_entries == total


def test_missing_alone_blanks_everywhere(tmp_path):
    done = simulate(NETWORK, tmp_path / "out", rows=1000, missing=0.1)
    assert done.missing_variables == NETWORK.variables
    assert all(c.null_count > 0 for c in read(tmp_path / "out").columns)


def test_missing_and_hidden_only_take_away(tmp_path):
    simulate(NETWORK, tmp_path / "all", rows=1000)
    simulate(NETWORK, tmp_path / "less", rows=1000, missing=0.5, hidden=("rain",))
    complete, less = read(tmp_path / "all"), read(tmp_path / "less")
    for name in less.column_names:
        pairs = zip(less[name].to_pylist(), complete[name].to_pylist(), strict=True)
        assert all(x is None or x == y for x, y in pairs)


@pytest.mark.parametrize(("hidden", "names"), [(["wet", "flag"], ("wet", "flag")), ("wet", ("wet",)), ((), ())])
def test_hidden_by_name(tmp_path, hidden, names):
    done = simulate(NETWORK, tmp_path / "out", rows=10, hidden=hidden)
    assert done.hidden == names
    assert set(read(tmp_path / "out").column_names) == set(NETWORK.variables) - set(names)


def test_hidden_by_fraction_and_missing_among_the_rest(tmp_path):
    for seed in range(10):
        where = tmp_path / str(seed)
        done = simulate(NETWORK, where, rows=10, hidden=0.4, missing=0.5, missing_variables=0.67, seed=seed)
        assert len(done.hidden) == 2
        assert len(done.missing_variables) == 2
        assert not set(done.hidden) & set(done.missing_variables)


def test_example_network_by_name(tmp_path):
    done = simulate("alarm", tmp_path / "out", rows=100)
    assert len(done.columns) == 37


def test_remote_url():
    fsspec = pytest.importorskip("fsspec")
    done = simulate(NETWORK, "memory://somewhere/out", rows=100, partitions=2)
    memory = fsspec.filesystem("memory")
    assert sorted(memory.ls("/somewhere", detail=False)) == ["/somewhere/out"]
    with memory.open("/somewhere/out/part-00001.parquet") as file:
        assert pq.read_table(file).num_rows == 50
    assert done.files[0] == "memory://somewhere/out/part-00000.parquet"
    with pytest.raises(BadInputError, match="somewhere/out exists and is not empty"):
        simulate(NETWORK, "memory://somewhere/out", rows=100)
    with pytest.raises(BadInputError, match="cannot write to nothing://x"):
        simulate(NETWORK, "nothing://x", rows=100)
    memory.rm("/somewhere", recursive=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 0}, "rows: expected at least 1, found 0"),
        ({"rows": -5}, "rows: expected at least 1, found -5"),
        ({"rows": 2.5}, "rows: expected a whole number, found 2.5"),
        ({"rows": True}, "rows: expected a whole number, found True"),
        ({"partitions": 0}, "partitions: expected 1 to 100"),
        ({"partitions": 101}, "partitions: expected 1 to 100"),
        ({"seed": -1}, "seed: expected a number that is not negative, found -1"),
        ({"missing": 1.5}, "missing: expected a number from 0 to 1, found 1.5"),
        ({"missing": float("nan")}, "missing: expected a number from 0 to 1, found nan"),
        ({"missing": "a lot"}, "missing: expected a number from 0 to 1, found 'a lot'"),
        ({"missing": 0.5, "missing_variables": -0.1}, "missing_variables: expected a number from 0 to 1, found -0.1"),
        ({"hidden": 1.0}, "hidden: expected names or a fraction .* found 1.0"),
        ({"hidden": float("nan")}, "hidden: expected names or a fraction .* found nan"),
        ({"hidden": -0.5}, "hidden: expected names or a fraction .* found -0.5"),
        ({"hidden": 0.95}, "every variable of the network is hidden"),
        ({"hidden": NETWORK.variables}, "every variable of the network is hidden"),
        ({"hidden": ["rains"]}, "network small has no variable 'rains'; did you mean 'rain'"),
        ({"hidden": ["zzz"]}, "network small has no variable 'zzz'$"),
    ],
)
def test_nonsense_is_refused_and_nothing_written(tmp_path, settings, message):
    with pytest.raises(BadInputError, match=message):
        simulate(NETWORK, tmp_path / "new" / "out", **{"rows": 100, **settings})
    assert no_leftovers(tmp_path)


def test_a_network_without_tables_is_refused(tmp_path):
    bare = Network("bare", ("a",), (("x", "y"),), ((),), (None,))
    with pytest.raises(BadInputError, match="network bare: variable 'a' has no table"):
        simulate(bare, tmp_path / "out", rows=10)
    assert no_leftovers(tmp_path)


def test_destinations(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="file exists and is not a directory"):
        simulate(NETWORK, tmp_path / "file", rows=10)
    with pytest.raises(BadInputError, match=r"cannot write to .*file/below: (File exists|Not a directory)"):
        simulate(NETWORK, tmp_path / "file" / "below", rows=10)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("kept")
    with pytest.raises(BadInputError, match="full exists and is not empty"):
        simulate(NETWORK, tmp_path / "full", rows=10)
    assert (tmp_path / "full" / "precious").read_text() == "kept"
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(BadInputError, match="is the current directory"):
        simulate(NETWORK, ".", rows=10)
    with pytest.raises(BadInputError, match="found an empty name"):
        simulate(NETWORK, "", rows=10)
    monkeypatch.chdir(tmp_path)
    simulate(NETWORK, "empty", rows=10)
    simulate(NETWORK, "new/deeper", rows=10)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "full", "new"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt("stop")])
def test_a_failure_part_way_leaves_nothing(tmp_path, monkeypatch, error):
    real, calls, lock = pipeline.simulation.draw_rows, [], threading.Lock()

    def failing(*args):
        with lock:
            calls.append(args)
            if len(calls) > 3:
                raise error
        real(*args)

    monkeypatch.setattr(pipeline.simulation, "draw_rows", failing)
    with pytest.raises(type(error), match=str(error)):
        simulate(NETWORK, tmp_path / "new" / "out", rows=100_000, partitions=10)
    assert no_leftovers(tmp_path)


def test_progress_counts_rows(tmp_path):
    seen = []
    simulate(NETWORK, tmp_path / "out", rows=100, partitions=4, progress=lambda *args: seen.append(args))
    assert [s[1] for s in seen] == [25, 50, 75, 100]
    assert {(s[0], s[2]) for s in seen} == {("simulate", 100)}


# --- Markov random fields ------------------------------------------------------------------------------------------


def test_a_field_is_drawn_from_exactly(tmp_path):
    """Every factor's moments and every joint state within five standard deviations; cycles and zeros included."""
    field = oracle.make_field(
        [2, 3, 2, 2],
        [(0, 1), (1, 2), (2, 3), (3, 0), (1,)],
        [[[1, 2, 0], [3, 1, 2]], [[1, 4], [2, 2], [1, 3]], [[3, 1], [1, 2]], [[1, 5], [2, 1]], [1, 2, 0.5]],
    )
    n = 40_000
    simulate(field, tmp_path / "out", rows=n, partitions=3, seed=7)
    columns = read(tmp_path / "out").to_pydict()
    rows = list(zip(*(columns[v] for v in field.variables), strict=True))
    here = oracle.Enumeration(field)
    wanted = here.probabilities(here.eta)
    states = [tuple(field.states[v][x] for v, x in enumerate(state)) for state in here.states.tolist()]
    counts = np.array([rows.count(state) for state in states])
    assert counts.sum() == n
    assert (counts[wanted == 0] == 0).all()
    assert (np.abs(counts - n * wanted) <= 5 * np.sqrt(n * wanted * (1 - wanted))).all()
    moments = here.moments(counts / n)
    exact = here.marginals(here.eta)
    assert (np.abs(moments - exact) <= 5 * np.sqrt(exact * (1 - exact) / n)).all()


def test_a_fields_rows_depend_on_the_seed_alone(tmp_path):
    field = oracle.random_field(random.Random(3), 5)
    ways = {"one": (1, 7), "four": (4, 7), "again": (1, 7), "other": (1, 8)}
    found = {}
    for name, (partitions, seed) in ways.items():
        simulate(field, tmp_path / name, rows=5000, partitions=partitions, seed=seed)
        found[name] = read(tmp_path / name).to_pydict()
    assert found["one"] == found["four"] == found["again"] != found["other"]
    simulate(field, tmp_path / "fewer", rows=2000, seed=7)
    assert read(tmp_path / "fewer").to_pydict() == {k: v[:2000] for k, v in found["one"].items()}


def test_missing_and_hidden_only_take_entries_of_a_field_away(tmp_path):
    field = oracle.random_field(random.Random(3), 6)
    simulate(field, tmp_path / "full", rows=3000)
    done = simulate(field, tmp_path / "some", rows=3000, missing=0.3, missing_variables=0.5, hidden=["v1", "v4"])
    full, some = read(tmp_path / "full").to_pydict(), read(tmp_path / "some").to_pydict()
    assert done.hidden == ("v1", "v4")
    assert done.columns == tuple(some) == ("v0", "v2", "v3", "v5")
    assert len(done.missing_variables) == 2
    blanked = 0
    for v, column in some.items():
        assert all(a in (b, None) for a, b in zip(column, full[v], strict=True))
        assert (None in column) == (v in done.missing_variables)
        blanked += column.count(None)
    assert blanked == done.missing_entries
    assert abs(blanked / 6000 - 0.3) < 5 * np.sqrt(0.21 / 6000)


def test_a_field_without_tables_or_without_states_left_is_refused(tmp_path):
    field = oracle.make_field([2, 2], [(0, 1)])
    with pytest.raises(BadInputError, match=r"has no table for factor 0 \(v0, v1\)"):
        simulate(dataclasses.replace(field, tables=(None,)), tmp_path / "out", rows=5)
    nothing = oracle.make_field([2, 2], [(0, 1), (0,), (1,)], [[[1, 0], [1, 1]], [1, 0], [0, 1]])
    with pytest.raises(BadInputError, match="nothing can be drawn: the potentials exclude every state"):
        simulate(nothing, tmp_path / "out", rows=5)
    assert no_leftovers(tmp_path)
