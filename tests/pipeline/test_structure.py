"""Chow–Liu trees from Parquet to files, against computations that share no code with them."""

import itertools
import json
import math
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import dask
import dask.dataframe as dd
import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask.utils import key_split

from pipeline import learn, learn_structure, load_network, score, simulate
from pipeline.dataset import open_dataset
from pipeline.graph import pair_pass
from pipeline.stages import Reading, TreeTask
from pipeline.structure_output import draw
from tasks.errors import BadInputError, TooLargeError
from tasks.reading import Column
from tests.oracle import incomplete_data

TABLES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "tables"
# What equal data write alike; report.json has the seconds.
BYTES = ("network.bif", "network.uai", "variables.txt", "mutual_information.parquet", "tree.svg")


def rows_of(seed, n=6, n_rows=400, kind="complete"):
    """A random network's rows as a table whose columns are strings."""
    network, _, rows = incomplete_data(seed, n, n_rows, kind)
    return pa.table(
        {
            v: pa.array([None if r[i] < 0 else network.states[i][r[i]] for r in rows], pa.string())
            for i, v in enumerate(network.variables)
        }
    )


def information(pairs):
    """Mutual information of observed pairs of values from its definition, in plain Python."""
    n = len(pairs)
    joint, a, b = Counter(pairs), Counter(x for x, _ in pairs), Counter(y for _, y in pairs)
    return math.fsum(k / n * math.log(k * n / (a[x] * b[y])) for (x, y), k in joint.items())


def by_hand(table, missing=(None,)):
    """All pairs' mutual information, and networkx's tree over them."""
    columns = {n: table[n].to_pylist() for n in table.column_names}
    found = {}
    for x, y in itertools.combinations(columns, 2):
        both = zip(columns[x], columns[y], strict=True)
        found[frozenset((x, y))] = information([p for p in both if not set(p) & set(missing)])
    graph = nx.Graph()
    graph.add_nodes_from(columns)
    # Independent columns' terms cancel here to 1e-16, and to zero there.
    graph.add_weighted_edges_from((*sorted(pair), w) for pair, w in found.items() if w > 1e-13)
    return found, nx.maximum_spanning_tree(graph)


def edges_of(result):
    return {frozenset((e.parent, e.child)) for e in result.edges}


def check_against(result, found, tree):
    assert edges_of(result) == {frozenset(e) for e in tree.edges}
    for row in result.mutual_information.to_pylist():
        pair = frozenset((row["variable_1"], row["variable_2"]))
        # Sums of at most a hundred terms below one.
        assert row["mutual_information"] == pytest.approx(found[pair], abs=1e-13)
        assert row["in_tree"] == (pair in edges_of(result))
    assert len(result.mutual_information) == len(found)


def written(where, *args, **options):
    learn_structure(*args, output=where, **options)
    return [(where / f).read_bytes() for f in BYTES]


def write_parts(directory, table, cuts, **options):
    directory.mkdir()
    for i, (a, b) in enumerate(pairwise([0, *cuts, len(table)])):
        pq.write_table(table.slice(a, b - a), directory / f"part{i}.parquet", **options)
    return directory


# --- against independent computation --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_complete_data(seed):
    table = rows_of(seed)
    result = learn_structure(table)
    check_against(result, *by_hand(table))
    assert (result.report["parameters"], result.report["em"], result.report["notes"]) == ("closed form", None, [])
    # Rounding of sums over 400 rows.
    assert result.log_likelihood == pytest.approx(score(result.learned, table).log_likelihood, rel=1e-12)
    assert score(result.undirected, table).log_likelihood == pytest.approx(result.log_likelihood, rel=1e-12)
    columns = {n: table[n].to_pylist() for n in table.column_names}
    number = {v: i for i, v in enumerate(result.learned.variables)}
    for edge in result.edges:
        child = number[edge.child]
        for a, parent_state in enumerate(result.learned.states[number[edge.parent]]):
            own = [y for x, y in zip(columns[edge.parent], columns[edge.child], strict=True) if x == parent_state]
            wanted = [own.count(s) / len(own) for s in result.learned.states[child]]
            assert result.learned.tables[child][a] == pytest.approx(wanted, rel=1e-14)
        assert edge.available == 400


@pytest.fixture(scope="module")
def mushrooms():
    file = TABLES / "agaricus-lepiota.data"
    if not file.exists():
        pytest.skip("the table is not here")
    names, *lines = [line.split(",") for line in file.read_text().split()]
    return pa.table({name: [line[i] for line in lines] for i, name in enumerate(names)})


def test_mushrooms_complete(mushrooms, tmp_path):
    """Without the column that has missing values: tree and log likelihood, counted in plain Python."""
    table = mushrooms.drop_columns("stalk-root")
    data = write_parts(tmp_path / "data", mushrooms, [1000, 5000])
    result = learn_structure(data, columns=table.column_names, output=tmp_path / "out")
    found, tree = by_hand(table)
    check_against(result, found, tree)
    assert result.report["constant"] == ["veil-type"]
    assert (result.report["trees"], len(result.edges)) == (2, 20)
    # Any root: N Σ I over the edges, less N Σ H over the variables (Chow & Liu's decomposition).
    n = len(table)
    entropies = [-math.fsum(k / n * math.log(k / n) for k in Counter(c.to_pylist()).values()) for c in table.columns]
    wanted = n * (math.fsum(found[frozenset(e)] for e in tree.edges) - math.fsum(entropies))
    assert result.log_likelihood == pytest.approx(wanted, rel=1e-12)
    assert score(tmp_path / "out" / "network.bif", table).log_likelihood == pytest.approx(wanted, rel=1e-9)


def test_mushrooms_with_missing_values(mushrooms, tmp_path):
    data = write_parts(tmp_path / "data", mushrooms, [3000])
    result = learn_structure(data, missing_tokens=["?"])
    check_against(result, *by_hand(mushrooms, ("?",)))
    observed = len(mushrooms) - mushrooms["stalk-root"].to_pylist().count("?")
    assert result.report["pairs"] == {
        "counts": "pairwise available", "least_available": observed, "most_available": 8124, "never_together": 0,
    }  # fmt: skip
    assert result.report["parameters"] == "EM"
    assert result.converged
    scored = score(result.learned, data, missing_tokens=["?"]).log_likelihood
    assert result.log_likelihood == pytest.approx(scored, rel=1e-12)
    # Random starts end no higher, and this start alone would end 388 nats lower.
    again = learn(result.learned, data, missing_tokens=["?"], restarts=3)
    assert result.log_likelihood >= again.log_likelihood - 1e-3
    assert (
        "values are missing in stalk-root: each pair was counted over the 5,644 to 8,124" in result.report["notes"][0]
    )


def test_alarm_is_found_again(tmp_path):
    """31 of the tree's 36 edges are among the network's 46, measured with three seeds."""
    simulate("alarm", tmp_path / "alarm", rows=50_000, partitions=3, seed=1)
    network = load_network("alarm")
    true = {
        frozenset((network.variables[v], network.variables[p])) for v, own in enumerate(network.parents) for p in own
    }
    found = edges_of(learn_structure(tmp_path / "alarm"))
    assert len(found) == 36
    assert len(found & true) / len(found) > 0.8


def test_a_tree_is_found_whole(tmp_path):
    """Data of a tree give that tree, and parameters within five standard errors."""
    states = (("no", "yes"),) * 5
    strong = np.array([[0.8, 0.2], [0.3, 0.7]])
    truth = load_network("asia")
    truth = type(truth)(
        "five", tuple("abcde"), states, ((), (0,), (0,), (1,), (1,)), (np.array([0.4, 0.6]), *[strong] * 4)
    )
    simulate(truth, tmp_path / "rows", rows=40_000, seed=3)
    result = learn_structure(tmp_path / "rows", root="a")
    assert result.learned.parents == truth.parents
    for mine, theirs in zip(result.learned.tables, truth.tables, strict=True):
        # At least 10 000 rows a parent's state.
        assert np.abs(mine - theirs).max() < 5 * 0.5 / math.sqrt(10_000)


# --- the same answer, to the last byte ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["complete", "partly"])
def test_equal_bytes(tmp_path, threads, kind):
    table = rows_of(21, 8, 900, kind)
    wanted = written(tmp_path / "whole", table)
    for i, (n, cuts, rows) in enumerate([(1, [7, 300], 50), (2, range(20, 900, 20), 1000), (3, [], 64)]):
        threads(n)
        data = write_parts(tmp_path / f"data{i}", table, list(cuts), row_group_size=rows)
        assert written(tmp_path / f"out{i}", data) == wanted
    frame = table.to_pandas()
    assert written(tmp_path / "pandas", frame) == wanted
    assert written(tmp_path / "dask", dd.from_pandas(frame, npartitions=4)) == wanted


def test_the_order_of_columns_and_rows_does_not_matter():
    table = rows_of(22, 7, 300)
    result = learn_structure(table)
    shuffled = table.take(np.random.default_rng(0).permutation(300)).select(table.column_names[::-1])
    again = learn_structure(shuffled)
    assert [(e.parent, e.child) for e in again.edges] == [(e.parent, e.child) for e in result.edges]
    assert again.report["roots"] == result.report["roots"]
    assert again.log_likelihood == pytest.approx(result.log_likelihood, rel=1e-14)


def test_the_root_changes_no_probability():
    table = rows_of(23, 5, 200)
    likelihoods = {}
    for root in (None, *table.column_names):
        result = learn_structure(table, root=root)
        likelihoods[root] = result.log_likelihood
        assert root is None or root in result.report["roots"]
    assert likelihoods == pytest.approx(dict.fromkeys(likelihoods, likelihoods[None]), rel=1e-13)


# --- weights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["complete", "at random"])
def test_weights_are_repeated_rows(tmp_path, kind):
    table = rows_of(31, 6, 200, kind)
    times = np.random.default_rng(0).integers(0, 5, 200)
    # A state that only rows of no weight have stays one.
    times[:20] += 1
    repeated = table.take(np.repeat(np.arange(200), times))
    weighted = learn_structure(table.append_column("w", pa.array(times)), weight="w")
    plain = learn_structure(repeated)
    assert weighted.report["total_weight"] == len(repeated)
    assert edges_of(weighted) == edges_of(plain)
    assert weighted.mutual_information.equals(plain.mutual_information)
    assert weighted.log_likelihood == pytest.approx(plain.log_likelihood, rel=1e-9 if kind == "complete" else 1e-5)
    halves = learn_structure(table.append_column("w", pa.array(times / 2)), weight="w")
    assert edges_of(halves) == edges_of(plain)
    assert halves.log_likelihood == pytest.approx(plain.log_likelihood / 2, rel=1e-5)


def test_no_weight_at_all():
    table = pa.table({"a": ["x", "y"], "b": ["x", "y"], "w": [0, 0]})
    with pytest.raises(BadInputError, match="weight column 'w': all weights are zero; there is nothing to learn from"):
        learn_structure(table, weight="w")


# --- missing values, constants, forests -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["at random", "mar", "missing rows"])
def test_missing_values(kind):
    table = rows_of(41, 6, 500, kind)
    result = learn_structure(table)
    found, tree = by_hand(table)
    check_against(result, found, tree)
    for row in result.mutual_information.to_pylist():
        both = zip(table[row["variable_1"]].to_pylist(), table[row["variable_2"]].to_pylist(), strict=True)
        assert row["available"] == sum(None not in pair for pair in both)
    assert result.log_likelihood == pytest.approx(score(result.learned, table).log_likelihood, rel=1e-12)
    assert result.report["em"]["converged"] is result.converged is True


def test_a_pair_never_observed_together():
    table = pa.table(
        {"a": ["x", "y", "x", None, None, None], "b": [None, None, None, "x", "y", "y"], "c": list("xyxyxy")}
    )
    result = learn_structure(table)
    assert result.report["pairs"]["never_together"] == 1
    assert result.report["notes"][1] == "pairs never observed together, which no edge can join: 1"
    assert {frozenset("ac"), frozenset("bc")} >= edges_of(result)


def test_constants_and_empty_columns_are_named():
    table = pa.table(
        {"k": ["same"] * 4, "a": ["x", "y", "x", "y"], "b": ["u", "v", "u", "v"], "none": pa.nulls(4, pa.string())}
    )
    result = learn_structure(table)
    assert edges_of(result) == {frozenset("ab")}
    assert result.learned.variables == ("k", "a", "b")
    assert result.learned.tables[0].tolist() == [1.0]
    assert result.report["constant"] == ["k"]
    assert result.report["empty"] == ["none"]
    assert result.report["notes"] == [
        "constant, so without an edge: k", "without any value, so left out: none",
    ]  # fmt: skip
    assert result.log_likelihood == pytest.approx(4 * math.log(0.5))


def test_nothing_but_constants():
    result = learn_structure(pa.table({"a": ["x", "x"], "b": [1, 1]}))
    assert (result.edges, result.report["trees"], result.log_likelihood) == ((), 2, 0.0)
    assert draw(result).startswith(b"<?xml")


def test_independent_columns_make_a_forest():
    """Exactly independent: every combination as often as the next."""
    rows = list(itertools.product("xy", "uvw", "st")) * 3
    table = pa.table({name: [r[i] for r in rows] for i, name in enumerate("abc")})
    table = table.append_column("copy", table["a"])
    result = learn_structure(table)
    assert edges_of(result) == {frozenset(("a", "copy"))}
    assert result.report["roots"] == ["a", "b", "c"]


def test_states_of_rows_without_weight():
    table = pa.table({"a": ["x", "y", "z"], "b": ["u", "v", "v"], "w": [1, 1, 0]})
    result = learn_structure(table, weight="w", root="a")
    assert result.learned.tables[1].tolist() == [[1, 0], [0, 1], [0.5, 0.5]]
    assert result.report["unlearnable"] == {"b": 2}
    assert "no example tells of some parameters, which are uniform, of b" in result.report["notes"]


def test_columns_like_keys_are_noted():
    table = pa.table({"id": list(range(60)), "a": ["x", "y"] * 30, "b": ["u", "u", "v"] * 20})
    assert "nearly every row has a value of its own in id:" in learn_structure(table).report["notes"][0]
    assert learn_structure(table, columns=["a", "b"]).report["notes"] == []


def test_the_prior_is_the_parameters_alone():
    table = rows_of(51, 5, 60)
    plain, smoothed = learn_structure(table), learn_structure(table, prior=2.0)
    assert edges_of(plain) == edges_of(smoothed)
    wanted = learn(smoothed.learned, table, prior=2.0)
    for mine, theirs in zip(smoothed.learned.tables, wanted.learned.tables, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-14)
    assert smoothed.log_likelihood == pytest.approx(wanted.log_likelihood, rel=1e-13)


def test_types_of_states():
    n = 50
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "number": pa.array(rng.integers(-3, 3, n)),
            "flag": pa.array(rng.random(n) < 0.5),
            "whole": pa.array(np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 2, n))),
            "text": pa.array(rng.choice(["ä b", 'q"', "1"], n)).dictionary_encode(),
        }
    )
    result = learn_structure(table)
    assert result.learned.states == ((-3, -2, -1, 0, 1, 2), (False, True), (0, 1), ("1", 'q"', "ä b"))
    assert score(result.learned, table).log_likelihood == pytest.approx(result.log_likelihood, rel=1e-12)


# --- files and picture ----------------------------------------------------------------------------------------------


def test_files(tmp_path):
    table = pa.table({n: np.random.default_rng(i).integers(0, 2, 100) for i, n in enumerate(["b", "a", "<c> & d"])})
    result = learn_structure(table, output=tmp_path / "out")
    where = tmp_path / "out"
    assert sorted(p.name for p in where.iterdir()) == sorted([*BYTES, "report.json"])
    assert load_network(where / "network.bif").parents == result.learned.parents
    # UAI names nothing: its states are the integers from 0, as these columns' are.
    field = load_network(where / "network.uai", names=where / "variables.txt")
    assert score(field, table).log_likelihood == pytest.approx(result.log_likelihood, rel=1e-12)
    assert json.loads((where / "report.json").read_text())["edges"] == len(result.edges)
    written = pq.read_table(where / "mutual_information.parquet")
    assert written.column_names == ["variable_1", "variable_2", "mutual_information", "available", "in_tree"]
    strengths = written["mutual_information"].to_pylist()
    assert strengths == sorted(strengths, reverse=True)
    assert all(r["variable_1"] < r["variable_2"] for r in written.to_pylist())
    picture = (where / "tree.svg").read_text()
    assert "&lt;c&gt; &amp; d" in picture
    with pytest.raises(BadInputError, match="out exists; name another directory, or replace it with --overwrite"):
        learn_structure(table, output=where)
    learn_structure(table, output=where, overwrite=True)


@pytest.mark.filterwarnings("error")
def test_names_of_any_kind_in_the_picture(tmp_path):
    a = pa.array(["x", "y"] * 10)
    learn_structure(pa.table({"a\0b": a, "$x^2$": a, "木": a, "": a, "n" * 99: a}), output=tmp_path / "out")
    texts = [e.text for e in ElementTree.parse(tmp_path / "out" / "tree.svg").iter() if e.tag.endswith("}text")]
    assert {"a\ufffdb", "$x^2$", "木", "n" * 31 + "…"} < set(texts)


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = learn_structure(rows_of(61), output=tmp_path / "out")
    assert not (tmp_path / "out" / "tree.svg").exists()
    assert result.report["notes"] == ["no picture: it needs matplotlib, pip install matplotlib"]
    assert json.loads((tmp_path / "out" / "report.json").read_text())["notes"] == result.report["notes"]


def test_too_many_variables_for_a_picture(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.structure_output.MOST_DRAWN", 5)
    result = learn_structure(rows_of(61), output=tmp_path / "out")
    assert result.report["notes"] == ["no picture: 6 variables are more than the 5 that one shows"]


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pipeline.structure_output.write_uai", fail)
    with pytest.raises(OSError, match="disk full"):
        learn_structure(rows_of(61), output=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_pgmpy_model():
    result = learn_structure(rows_of(62))
    assert {frozenset(e) for e in result.network.edges} == edges_of(result)
    assert result.network.check_model()


# --- the graph ------------------------------------------------------------------------------------------------------


def test_graph(tmp_path, monkeypatch):
    """Built without computing, of the expected size, with keys that say what they are and do not change."""
    table = rows_of(71, 4, 200)
    data = write_parts(tmp_path / "data", table, range(10, 200, 10))
    dataset = open_dataset(data, tuple(table.column_names))
    columns = tuple(Column(n, tuple(sorted(set(table[n].to_pylist())))) for n in table.column_names)
    task = TreeTask(tuple(table.column_names), tuple(len(c.states) for c in columns), None)
    monkeypatch.setattr("pipeline.graph.read", lambda *_: pytest.fail("computed"))
    graph, key = pair_pass(dataset, Reading(columns, None, ()), task)
    counts = Counter(key_split(k) for k, t in graph.items() if isinstance(t, tuple) and callable(t[0]))
    assert counts == {"read-partition": 20, "count-pairs": 20, "merge-pairs": 3 + 1, "fit-tree": 1}
    assert pair_pass(dataset, Reading(columns, None, ()), task)[1] == key
    other = TreeTask(task.names, task.cardinalities, 0)
    assert pair_pass(dataset, Reading(columns, None, ()), other)[1] != key
    monkeypatch.undo()
    graph, key = pair_pass(dataset, Reading(columns, None, ()), task)
    assert dask.get(graph, key).n_rows == 200


def test_progress():
    told = []
    learn_structure(rows_of(72, 4, 50), progress=lambda *x: told.append(x))
    assert told == [("scan", 0, 1), ("scan", 1, 1), ("count-pairs", 0, 1), ("count-pairs", 1, 1)]


# --- what is refused ------------------------------------------------------------------------------------------------

TABLE = pa.table({"alpha": ["x", "y"], "beta": ["u", "v"], "empty": pa.nulls(2, pa.string()), "w": [1, 1]})


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (TABLE.select(["alpha"]), {}, "a structure needs at least two columns, found only 'alpha'"),
        (TABLE.select(["alpha", "w"]), {"weight": "w"}, "a structure needs at least two columns, found only 'alpha'"),
        (TABLE.select(["alpha", "empty"]), {}, "Arrow table: a structure needs at least two columns with values"),
        (TABLE, {"columns": ["alpha"]}, "a structure needs at least two columns, found only 'alpha'"),
        (TABLE, {"columns": []}, "a structure needs at least two columns, found none"),
        (TABLE, {"columns": ["alpha", "bet"]}, "columns: the data have no column 'bet'; did you mean 'beta'"),
        (TABLE, {"columns": ["alpha", "w"], "weight": "w"}, "columns: the data have no column 'w'$"),
        (TABLE, {"columns": 5}, "columns: expected names, found 5"),
        (TABLE, {"columns": ["beta", "beta"]}, "columns: 'beta' is named more than once"),
        (TABLE, {"root": "alph"}, "root: there is no column 'alph' to learn from; did you mean 'alpha'"),
        (TABLE, {"root": "w", "columns": ["alpha", "beta"]}, "root: there is no column 'w' to learn from$"),
        (TABLE, {"root": "empty"}, "root: column 'empty' holds no value at all"),
        (TABLE, {"prior": 0.5}, "prior: expected a Dirichlet exponent of at least 1"),
        (TABLE, {"weight": "weigth"}, "weight column 'weigth' is not there"),
        (TABLE, {"missing_tokens": [1]}, "missing_tokens: expected strings, found 1"),
        (TABLE.slice(0, 0), {}, "the data has no rows"),
        (pa.table({"a": [0.5, 1.0], "b": [1, 2]}), {}, "column 'a', row 0: value 0.5 is not a whole number, and"),
        (pa.table({"a": [[1]], "b": [1]}), {}, "column 'a' has type list.*convert it, or leave it out"),
        ("no/such/data", {}, "no/such/data: no such file or directory"),
    ],
)  # fmt: skip
def test_bad_input(tmp_path, data, options, message):
    with pytest.raises(BadInputError, match=message):
        learn_structure(data, output=tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_too_many_states(threads, tmp_path):
    """An identifier, named with the way out; no more of its values than the limit leave a worker."""
    executor = threads(1)
    executor.allowed_bytes = 80 * 1000**2 + 1
    table = pa.table({"a": ["x", "y"] * 2500, "id": list(range(5000))})
    data = write_parts(tmp_path / "data", table, [2500])
    match = r"the 2 columns have 2,004 states or more, 2,002 of them column 'id': .*--columns"
    with pytest.raises(TooLargeError, match=match):
        learn_structure(data)
    # The pairs of so few states fit, the rows beside them do not.
    table = table.append_column("b", table["a"])
    executor.allowed_bytes = 10_000
    with pytest.raises(TooLargeError, match=r"a part of 5,000 rows with 2 columns needs .* write smaller row groups"):
        learn_structure(table, columns=["a", "b"])


def test_a_file_that_is_no_parquet_is_one_line(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(BadInputError, match=r"rows\.csv: can't be read as Parquet"):
        learn_structure(str(file))
