"""The data pass's graph: built without computing, of the planned size, with keys that say what they are."""

import os
import pickle

import dask
import dask.threaded
import pyarrow.parquet as pq
import pytest
from dask.utils import key_split

import tasks.reading
from pipeline.execution import LocalExecutor
from pipeline.graph import SPLIT_EVERY, data_pass, group_sub_networks, scan_graph
from pipeline.planning import make_job
from pipeline.stages import Reading
from tasks.subnetwork import make_sub_network
from tests.oracle import as_table, incomplete_data


@pytest.fixture
def dataset(tmp_path):
    network, _, rows = incomplete_data(61, 8, 200, "partly")
    table = as_table(network, rows)
    for i in range(20):
        pq.write_table(table.slice(10 * i, 10), tmp_path / f"{i:02}.parquet")
    return network, tmp_path


def build(network, data, drop_barren=True, by_row=False, threads=2, groups=None):
    job = make_job(
        network, data, None, (), decompose=not by_row, drop_barren=drop_barren, executor=LocalExecutor(threads)
    )
    reading = Reading(job.columns, None, ())
    members = groups or job.groups
    return job, data_pass(job.dataset, reading, job.decomposition.sub_networks, members, drop_barren, by_row, 1 << 30)


def by_stage(graph):
    counts: dict[str, int] = {}
    for key, task in graph.items():
        if isinstance(task, tuple) and callable(task[0]):
            counts[key_split(key)] = counts.get(key_split(key), 0) + 1
    return counts


def test_building_computes_nothing(dataset, monkeypatch):
    def no(*args, **kwargs):
        raise AssertionError("something was computed")

    for place, name in (
        (dask, "get"), (dask, "compute"), (dask.threaded, "get"), (dask.base, "compute"),
        (tasks.reading, "read_partition"), (tasks.reading, "scan_partition"), (pq.ParquetFile, "read_row_groups"),
        (pq.ParquetFile, "read"), (pq.ParquetFile, "iter_batches"),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, no)
    network, data = dataset
    _, passed = build(network, data)
    graph, keys = scan_graph(build(network, data)[0].dataset, network.variables, frozenset(), None, ())
    assert len(keys) == 20
    assert set(keys) < set(graph)
    assert passed.graph


@pytest.mark.parametrize("n_groups", [1, 3])
def test_the_plan_knows_the_number_of_tasks(dataset, n_groups):
    network, data = dataset
    job, passed = build(network, data)
    n = len(job.decomposition.sub_networks)
    assert n >= 3
    assert by_stage(passed.graph) == {
        **{k: v for k, v in job.plan.tasks.items() if k != "solve"},
        "measure": len(job.groups),
    }
    groups = tuple(tuple(range(g, n, n_groups)) for g in range(n_groups))
    _, passed = build(network, data, groups=groups)
    # 20 parts: three merges of at most eight, then one.
    assert by_stage(passed.graph) == {
        "read-partition": 20, "project": 20 * n_groups, "merge-counts": 4 * n_groups, "compile": n_groups,
        "measure": n_groups,
    }  # fmt: skip
    assert passed.members == groups
    assert len(passed.prepared) == len(passed.measured) == n_groups
    assert max(len(t[1]) for k, t in passed.graph.items() if key_split(k) == "merge-counts") == SPLIT_EVERY


@pytest.mark.parametrize("n_parts", [1, 2, 8, 9, 17, 20])
def test_every_dependency_is_there(dataset, n_parts):
    network, data = dataset
    _, passed = build(network, sorted(data.iterdir())[:n_parts])
    graph = passed.graph

    def missing(x):
        if isinstance(x, list):
            return [m for y in x for m in missing(y)]
        looks_like_a_key = isinstance(x, tuple) and x and isinstance(x[0], str) and "-" in x[0]
        return [x] if looks_like_a_key and x not in graph else []

    assert [m for task in graph.values() if isinstance(task, tuple) for x in task[1:] for m in missing(x)] == []
    # Every part is projected, and merged exactly once.
    merged = [x for k, t in graph.items() if key_split(k) == "merge-counts" for x in t[1]]
    assert len(merged) == len(set(merged))
    assert {k for k in graph if key_split(k) == "project"} <= set(merged)
    assert len([k for k in graph if key_split(k) == "project"]) == n_parts * len(passed.members)
    # And all that is merged ends in what is compiled.
    roots = [t[1] for k, t in graph.items() if key_split(k) == "compile"]
    assert {k for k in graph if key_split(k) == "merge-counts"} - set(merged) == set(roots)


def test_keys_are_a_function_of_data_and_settings(dataset):
    network, data = dataset
    first, again = (set(build(network, data)[1].graph) for _ in range(2))
    assert first == again
    assert first.isdisjoint(
        {k for k in build(network, data, drop_barren=False)[1].graph if k[0][:5] != "part-"} - first
    )
    for other in (build(network, data, drop_barren=False), build(network, data, by_row=True)):
        computed = {k for k in other[1].graph if key_split(k) in ("read-partition", "project", "compile")}
        assert computed.isdisjoint(first)
    path = sorted(data.iterdir())[3]
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(1, 1))
    changed = {k for k in build(network, data)[1].graph if key_split(k) in ("read-partition", "project", "compile")}
    assert changed.isdisjoint(first)


def test_tables_in_memory_have_keys_of_their_own():
    network, _, rows = incomplete_data(61, 4, 20)
    table = as_table(network, rows)
    first, again = (set(build(network, table)[1].graph) for _ in range(2))
    assert first.isdisjoint(again)


def test_a_graph_pickles(dataset):
    _, passed = build(*dataset)
    copy = pickle.loads(pickle.dumps(passed.graph))
    assert set(copy) == set(passed.graph)
    results = [LocalExecutor(1).gather(g, passed.measured) for g in (passed.graph, copy)]
    assert results[0] == results[1]
    rows, weight, sizes = results[0][0]
    assert (rows, weight) == (200, 200)
    assert len(sizes) == len(passed.members[0])


def pairs(n):
    return [
        make_sub_network([f"a{i}", f"b{i}"], [2, 2], [2 * i, 2 * i + 1], [i % 2 == 0] * 2, [[0], [0, 1]])
        for i in range(n)
    ]


def test_groups():
    many = pairs(40)
    # A second of work and less is one group; each sub-network is in exactly one.
    assert group_sub_networks(many, 1000, 4, 8) == (tuple(range(40)),)
    for rows in (10**7, 10**8, 10**9):
        groups = group_sub_networks(many, rows, 4, 8)
        assert sorted(k for g in groups for k in g) == list(range(40))
        assert len(groups) <= 16
    assert len(groups) == 16
    # No more projections than the scheduler can bear, and no more groups than sub-networks.
    assert len(group_sub_networks(many, 10**9, 10_000, 8)) == 2
    assert len(group_sub_networks(many[:3], 10**9, 4, 8)) == 3
    # Equal shares, as far as that goes.
    costs = [sum(20.0 + 3 if k % 2 == 0 else 3.0 for k in g) for g in group_sub_networks(many, 10**9, 4, 2)]
    assert max(costs) < 1.2 * min(costs)


def test_graph_building_is_linear_in_variables(dataset):
    """Tasks do not multiply with variables: a pass over 2 000 sub-networks is one task a part."""
    assert len(group_sub_networks(pairs(2000), 1000, 16, 2)) == 1
