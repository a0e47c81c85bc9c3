"""The plan: what it says, and what is refused before any work."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import learn, plan, simulate
from pipeline.network import Network
from tasks.elimination_order import find_order
from tasks.errors import BadInputError, TooLargeError
from tests.oracle import as_table, incomplete_data, make_field


def example():
    """V -> X -> Y -> Z of the thesis, and a hidden leaf."""
    states = (("v", "-v"), ("x", "-x"), ("y", "-y"), ("z", "-z", "?z"), ("l", "-l"))
    return Network("example", ("V", "X", "Y", "Z", "L"), states, ((), (0,), (1,), (2,), (3,)), (None,) * 5)


def test_a_plan_in_words(threads):
    executor = threads(2)
    executor.allowed_bytes = 3 << 30
    data = pa.table({"V": ["-v", "v", "v"], "X": ["x", "-x", "x"], "Z": ["-z", None, "-z"], "note": [1, 2, 3]})
    planned = plan(example(), data)
    assert str(replace(planned, on_disk_bytes=2048)).splitlines() == [
        "network          example: 5 variables, 16 parameters",
        "dataset          3 rows in 0 files, 1 part, 2 KiB to read",
        "always observed  2",
        "partly observed  Z",
        "hidden           Y, L",
        "ignored columns  note",
        "unlearnable      L",
        "tasks            1 read-partition, 1 project, 1 merge-counts, 1 compile, 3 solve on 2 threads",
        "memory           664 B a thread at least, 3 GiB allowed",
        "",
        "3 independent sub-networks: 2 complete (closed form, no iteration), 1 with missing values (iterated)",
        " learned  hidden  partly  boundary  parameters  rows at most  variables",
        "       2       1       1         1          10             3  Y, Z",
    ]
    assert json.loads(json.dumps(planned.as_dict()))["tasks"]["solve"] == 3
    piece = planned.sub_networks[2]
    assert (piece.variables, piece.boundary, piece.method) == (("Y", "Z"), ("X",), "iterative")
    # Two states of X, four of Z with missing: eight rows are possible, three are there.
    assert piece.max_rows == 3
    many = plan(example(), pa.concat_tables([data] * 10)).sub_networks[2]
    assert many.max_rows == 8


def test_a_plan_reads_no_data(tmp_path, monkeypatch):
    network, _, rows = incomplete_data(91, 6, 60)
    pq.write_table(as_table(network, rows), tmp_path / "x.parquet")

    def no(*args, **kwargs):
        raise AssertionError("a data page was read")

    for name in ("read", "read_row_group", "read_row_groups", "iter_batches"):
        monkeypatch.setattr(pq.ParquetFile, name, no)
    planned = plan(network, tmp_path)
    assert "scan" not in planned.tasks
    assert (planned.rows, planned.files, planned.parts) == (60, 1, 1)


def test_a_scan_is_planned_where_footers_do_not_tell(tmp_path):
    network, _, rows = incomplete_data(91, 6, 60)
    pq.write_table(as_table(network, rows), tmp_path / "x.parquet")
    assert plan(network, tmp_path, missing_tokens=["?"]).tasks["scan"] == 1
    pq.write_table(as_table(network, rows), tmp_path / "y.parquet", write_statistics=False)
    planned = plan(network, tmp_path)
    assert planned.tasks["scan"] == 2
    assert planned.partly_observed == plan(network, as_table(network, rows)).partly_observed


@pytest.fixture
def no_work(monkeypatch):
    """Fails if anything is read or counted."""

    def no(*args, **kwargs):
        raise AssertionError("work was done")

    monkeypatch.setattr("pipeline.learning.run_pass", no)
    monkeypatch.setattr("pipeline.graph.read", no)
    monkeypatch.setattr("pipeline.execution.warm_up", no)


def test_too_many_states(no_work, tmp_path, threads):
    """Twenty parents of twenty states: refused from the structure, no table of that size ever made."""
    states = (tuple(f"s{i}" for i in range(20)),) * 21
    wide = Network("wide", tuple(f"v{i}" for i in range(21)), states, (*[()] * 20, tuple(range(20))), (None,) * 21)
    data = pa.table({"v0": ["s1"], "v20": ["s2"]})
    message = (
        r"^network wide has 2,097,152,000,000,000,000,000,000,400 parameters, 2,097,152,000,000,000,000,000,000,000 of "
        r"them in the table of 'v20' \(20 parents\): learning needs at least [\d.,e+]+ TiB, allowed [\d.]+ GiB; merge "
        r"states or remove parents$"
    )
    for call in (lambda: plan(wide, data), lambda: learn(wide, data, output=tmp_path / "out")):
        with pytest.raises(TooLargeError, match=message):
            call()
    assert list(tmp_path.iterdir()) == []


def grid(side):
    """Hidden binary variables on a grid, and one observed below the last."""
    number = {(i, j): i * side + j for i in range(side) for j in range(side)}
    parents = [
        tuple(number[p] for p in ((i - 1, j), (i, j - 1)) if p in number) for i in range(side) for j in range(side)
    ]
    n = side * side
    names = (*(f"g{k}" for k in range(n)), "x")
    return Network("grid", names, (("0", "1"),) * (n + 1), (*parents, (n - 1,)), (None,) * (n + 1))


def test_too_large_a_treewidth(no_work, tmp_path, threads):
    executor = threads(2)
    executor.allowed_bytes = 1 << 20
    data = pa.table({"x": ["0", "1"]})
    message = (
        r"^144 variables are missing together \(g0, g1, .* and 136 more\): exact inference on them needs at least "
        r"[\d.]+ GiB, allowed 0\.000977 GiB; observe some of them, drop them from the network, or give the worker more"
    )
    for call in (lambda: plan(grid(12), data), lambda: learn(grid(12), data, output=tmp_path / "out")):
        with pytest.raises(TooLargeError, match=message):
            call()
    assert list(tmp_path.iterdir()) == []
    assert plan(grid(3), data).hidden == tuple(f"g{k}" for k in range(9))


def test_parts_too_large_for_memory(no_work, threads):
    network, _, rows = incomplete_data(91, 6, 500)
    executor = threads(2)
    executor.allowed_bytes = 6000
    data = as_table(network, rows * 4)
    message = (
        r"^learning network random needs at least [\d.]+ KiB a worker thread, allowed 5\.86 KiB; give the workers more "
        "memory or fewer threads, or write smaller row groups$"
    )
    with pytest.raises(TooLargeError, match=message):
        learn(network, data)


def test_alarm(tmp_path):
    """37 variables, a fifth of them half missing: the journey's first step on a known network."""
    simulate("alarm", tmp_path / "data", rows=2000, partitions=4, missing=0.5, missing_variables=0.2, seed=0)
    planned = plan("alarm", tmp_path / "data")
    assert (planned.rows, planned.files, planned.parts, planned.parameters) == (2000, 4, 4, 752)
    assert len(planned.partly_observed) == 7
    assert len(planned.always_observed) == 30
    assert (planned.hidden, planned.pruned, planned.ignored_columns) == ((), (), ())
    learned = [v for s in planned.sub_networks for v in s.variables]
    assert len(learned) == len(set(learned)) == 37
    assert planned.tasks == {
        "read-partition": 4, "project": 4, "merge-counts": 1, "compile": 1, "solve": len(planned.sub_networks),
    }  # fmt: skip
    assert sum(s.partly_observed for s in planned.sub_networks) == 7
    assert {s.method for s in planned.sub_networks if s.partly_observed == 0} == {"closed form"}
    assert planned.projected_bytes < 1 << 20 < planned.allowed_bytes
    assert "37 variables, 752 parameters" in str(planned)
    together = plan("alarm", tmp_path / "data", decompose=False)
    assert [len(s.variables) for s in together.sub_networks] == [37]


def test_many_sub_networks_are_cut_short_in_print():
    n = 30
    names = tuple(f"v{i:02}" for i in range(n))
    network = Network("many", names, (("0", "1"),) * n, ((),) * n, (np.array([0.5, 0.5]),) * n)
    data = pa.table({v: ["0", None] for v in names})
    lines = str(plan(network, data)).splitlines()
    assert lines[-1] == "… and 10 more"
    assert lines[3] == "partly observed  30: v00, v01, v02, v03, v04, v05, v06, v07 and 22 more"


def test_what_a_plan_checks():
    network, _, rows = incomplete_data(91, 4, 10)
    with pytest.raises(BadInputError, match="no variable of the network has a column"):
        plan(network, pa.table({"other": [1]}))
    with pytest.raises(BadInputError, match="missing_tokens: expected strings, found 0"):
        plan(network, as_table(network, rows), missing_tokens=[0])


def test_a_field_is_planned_with_its_jointree():
    side = 6
    n = side * side
    pairs = [(v, v + 1) for v in range(n) if (v + 1) % side] + [(v, v + side) for v in range(n - side)]
    grid = make_field([2] * n, pairs)
    data = pa.table({v: ["s0", "s1"] if i % 7 else [None, "s1"] for i, v in enumerate(grid.variables)})
    planned = plan(grid, data)
    order = find_order(grid.variables, grid.cardinalities, grid.scopes)
    assert planned.model == {"treewidth": order.treewidth, "bytes": order.n_bytes, "decomposable": False}
    assert (planned.parameters, planned.pruned) == (4 * len(pairs), ())
    text = str(planned)
    assert f"model term       jointree of treewidth {order.treewidth}, " in text
    assert "; not decomposable" in text
    assert "complete (counted once, not iterated)" in text
    tree = make_field([2] * 3, [(0, 1), (1, 2)])
    assert "decomposable: complete data have a closed form" in str(plan(tree, pa.table({"v0": ["s0"], "v1": ["s1"]})))
    assert plan(tree, pa.table({"v0": ["s0"], "v1": ["s1"]})).as_dict()["model"]["decomposable"]


def test_a_field_whose_jointree_does_not_fit_is_refused_before_any_work(no_work, threads):
    executor = threads(2)
    side = 12
    n = side * side
    pairs = [(v, v + 1) for v in range(n) if (v + 1) % side] + [(v, v + side) for v in range(n - side)]
    grid = make_field([2] * n, pairs)
    executor.allowed_bytes = 1 << 20
    with pytest.raises(
        TooLargeError, match=r"of 144 variables needs a jointree of treewidth \d+ or more and at least "
    ):
        learn(grid, pa.table({v: ["s0"] for v in grid.variables}))
