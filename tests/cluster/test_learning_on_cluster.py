"""Learning on a real local cluster of two processes: the same bytes as in this one."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipeline.solving
from cluster import connect
from pipeline import learn, learn_structure, plan, score
from pipeline.execution import ClusterExecutor
from pipeline.network import Network
from tasks.errors import BadInputError, ImpossibleDataError, TooLargeError
from tests.oracle import as_table, incomplete_data

FILES = ("network.bif", "parameters.parquet", "sub_networks.parquet")


@pytest.fixture(scope="module")
def client():
    with connect("local", 2) as client:
        yield client


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Seven files of a network's incomplete rows."""
    network, start, rows = incomplete_data(101, 9, 4200, max_states=4)
    directory = tmp_path_factory.mktemp("parts")
    for i in range(7):
        pq.write_table(as_table(network, rows[600 * i : 600 * (i + 1)]), directory / f"{i}.parquet")
    return start, directory, as_table(network, rows)


def output(tmp_path, name, *args, **options):
    result = learn(*args, output=tmp_path / name, **options)
    return result, [(tmp_path / name / f).read_bytes() for f in FILES]


def test_equal_bytes(client, parts, tmp_path):
    start, directory, table = parts
    for i, options in enumerate(({"restarts": 2}, {"decompose": False, "max_iterations": 4}, {"start": "network"})):
        options = {"max_iterations": 30, **options}
        here, wanted = output(tmp_path, f"here{i}", start, directory, **options)
        there, found = output(tmp_path, f"there{i}", start, directory, client=client, **options)
        assert found == wanted
        assert there.log_likelihood == here.log_likelihood
        _, found = output(tmp_path, f"table{i}", start, table, client=client, **options)
        assert found == wanted


def test_a_giant_is_split_over_the_workers(client, parts, tmp_path, monkeypatch):
    start, directory, _ = parts
    slices = []
    real = pipeline.solving._iterate

    def counting(executor, parts, *rest):
        slices.append(len(parts))
        where = client.who_has(parts)
        slices.append(len({w for workers in where.values() for w in workers}))
        return real(executor, parts, *rest)

    monkeypatch.setattr(pipeline.solving, "_iterate", counting)
    options = {"decompose": False, "max_iterations": 5, "restarts": 2}
    _, wanted = output(tmp_path, "here", start, directory, **options)
    assert slices == []
    monkeypatch.setattr(ClusterExecutor, "overhead", 1e-12)
    _, found = output(tmp_path, "there", start, directory, client=client, **options)
    assert slices[0] == 2
    assert found == wanted


def test_score_and_plan(client, parts):
    start, directory, table = parts
    assert score(start, directory, client=client) == score(start, table)
    there, here = plan(start, directory, client=client), plan(start, directory)
    assert (there.sub_networks, there.rows, there.threads) == (here.sub_networks, 4200, 2)


def test_workers_import_neither_pgmpy_nor_pandas(client, parts):
    start, directory, _ = parts
    learn(start, directory, client=client, max_iterations=2)
    for modules in client.run(lambda: sorted({"pgmpy", "pandas", "numba"} & set(sys.modules))).values():
        assert modules == ["numba"]


def test_progress(client, parts):
    start, directory, _ = parts
    told: list = []
    learn(start, directory, client=client, max_iterations=2, progress=lambda *x: told.append(x))
    reads = [x[1:] for x in told if x[0] == "read-partition"]
    assert reads[0] == (0, 7)
    assert sorted(reads) == [(i, 7) for i in range(8)]


def test_errors_come_through_as_they_are(client, parts, tmp_path):
    """Raised in a task, worded for the user, of the same class as in this process."""
    start, _, table = parts
    bad = tmp_path / "bad"
    bad.mkdir()
    name = start.variables[0]
    column = ["nonsense" if i == 17 else x for i, x in enumerate(table[name].to_pylist())]
    pq.write_table(table.set_column(table.column_names.index(name), name, pa.array(column)), bad / "x.parquet")
    messages = []
    for where in (None, client):
        with pytest.raises(BadInputError, match=f"x.parquet: column '{name}', row 17: value 'nonsense' is not a") as e:
            learn(start, bad, client=where, output=tmp_path / "out")
        messages.append(str(e.value))
    assert messages[0] == messages[1]
    assert not (tmp_path / "out").exists()


def test_impossible_rows_are_named(client, tmp_path):
    states = (("no", "yes"),) * 2
    start = Network("pair", ("a", "b"), states, ((), (0,)), (np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.5, 0.5]])))
    pq.write_table(pa.table({"a": [None, "no", None], "b": ["no", "no", "yes"]}), tmp_path / "rows.parquet")
    with pytest.raises(ImpossibleDataError, match=r"rows\.parquet, row 2: b=yes with a missing has probability zero"):
        learn(start, tmp_path, start="network", client=client)
    scored = score(start, tmp_path, client=client)
    assert len(scored.impossible) == 1
    assert "row 2: b=yes with a missing" in scored.impossible[0]


def test_what_workers_refuse(client, monkeypatch):
    """Too wide a treewidth that only the rows tell: found when their instances are compiled, on a worker."""
    side = 12
    number = {(i, j): i * side + j for i in range(side) for j in range(side)}
    parents = [
        tuple(number[p] for p in ((i - 1, j), (i, j - 1)) if p in number) for i in range(side) for j in range(side)
    ]
    n = side * side
    names = (*(f"g{k}" for k in range(n)), "x")
    grid = Network("grid", names, (("0", "1"),) * (n + 1), (*parents, (n - 1,)), (None,) * (n + 1))
    data = pa.table({**{v: ["0", None] for v in names[:n]}, "x": ["0", "1"]})
    executor = ClusterExecutor(client)
    executor.allowed_bytes = 1 << 20
    monkeypatch.setattr("pipeline.learning.make_executor", lambda client=None: executor)
    with pytest.raises(TooLargeError, match=r"144 variables are missing together \(g0, g1, .* allowed 0\.000977 GiB"):
        learn(grid, data, client=client)


def test_a_killed_worker_costs_time_and_no_bit(parts, tmp_path):
    """One of two processes ends in the middle: what it held is computed again, and the answer is the same."""
    start, directory, _ = parts
    options = {"decompose": False, "max_iterations": 10}
    _, wanted = output(tmp_path, "here", start, directory, **options)
    with connect("local", 2) as client:
        killed: list = []

        def kill(stage, done, total):
            if stage == "read-partition" and done >= 3 and not killed:
                killed.append(next(iter(client.nthreads())))
                client.run(lambda: __import__("os")._exit(1), workers=killed, on_error="ignore")

        _, found = output(tmp_path, "there", start, directory, client=client, progress=kill, **options)
        assert killed
    assert found == wanted


@pytest.mark.parametrize("options", [{}, {"weight": "w"}, {"columns": ["a", "b", "c"], "root": "c"}])
def test_structures_of_equal_bytes(client, tmp_path, options):
    """Complete columns, one with missing values, a constant: on two processes as in this one."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 3000)
    codes = {"a": a, "b": (a + (rng.random(3000) < 0.2)) % 3, "c": rng.integers(0, 40, 3000), "d": a % 2, "k": a * 0}
    table = pa.table({**{n: pa.array(c) for n, c in codes.items()}, "w": rng.integers(0, 9, 3000)})
    table = table.set_column(3, "d", pa.array(codes["d"], mask=rng.random(3000) < 0.1))
    data = tmp_path / "data"
    data.mkdir()
    for i in range(5):
        pq.write_table(table.slice(600 * i, 600), data / f"{i}.parquet")
    files = ("network.bif", "network.uai", "mutual_information.parquet", "tree.svg")
    outputs = []
    for where in (None, client):
        result = learn_structure(data, client=where, output=tmp_path / f"out{len(outputs)}", **options)
        outputs.append([(tmp_path / f"out{len(outputs)}" / f).read_bytes() for f in files])
        assert {"a", "b"} in [{e.parent, e.child} for e in result.edges]
    assert outputs[0] == outputs[1]


def test_structures_name_their_stages(client, parts):
    _, directory, _ = parts
    told: list = []
    learn_structure(directory, client=client, progress=lambda *x: told.append(x))
    assert ("scan", 7, 7) in told
    assert ("count-pairs", 7, 7) in told
    for modules in client.run(lambda: sorted({"pgmpy", "pandas", "matplotlib"} & set(sys.modules))).values():
        assert modules == []
