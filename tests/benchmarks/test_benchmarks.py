"""The benchmarks, tiny, as tests; with --benchmark-enable the kernels are timed.

pytest tests/benchmarks --benchmark-enable
"""

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline import learn, load_network, simulate
from pipeline.execution import LocalExecutor
from pipeline.planning import make_job
from tasks.em import expected_counts
from tasks.inference import block_size
from tasks.pairs import count_pairs
from tasks.projection import Counts, project
from tasks.reading import Partition, read_partition
from tasks.scopes import pack_scopes
from tasks.solving import prepare, random_start
from tests.benchmarks import acceleration, decomposition, lap, race, reading, scaling, structure

ROWS = 4096
# Cases that speed is judged by: a fifth of the variables half missing, a tenth of all entries, a fifth hidden.
CASES = {
    "fifth-half-missing": {"missing": 0.5, "missing_variables": 0.2},
    "tenth-everywhere": {"missing": 0.1},
    "fifth-hidden": {"hidden": 0.2},
}


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request, tmp_path_factory):
    where = tmp_path_factory.mktemp("alarm") / "data"
    simulate("alarm", where, rows=ROWS, seed=1, **CASES[request.param])
    return where


def test_data_pass(case, benchmark):
    job = make_job("alarm", case, None, (), decompose=True, drop_barren=True, executor=LocalExecutor(1))
    partition = read_partition(job.dataset.parts[0], job.columns)
    scopes = pack_scopes(job.decomposition.sub_networks)
    found = benchmark(project, partition, scopes)
    assert found.n_rows == ROWS


def test_e_step(case, benchmark):
    job = make_job("alarm", case, None, (), decompose=True, drop_barren=True, executor=LocalExecutor(1))
    partition = read_partition(job.dataset.parts[0], job.columns)
    sub_networks = job.decomposition.sub_networks
    projection = project(partition, pack_scopes(sub_networks))
    k = max(range(len(sub_networks)), key=lambda k: len(projection.counts[k].instances or ()))
    problem = prepare(sub_networks[k], Counts(projection.counts[k].complete, projection.counts[k].instances), 1 << 30)
    theta = random_start(sub_networks[k], 0, 0)
    block = block_size(len(problem.counts.instances), len(theta))
    expected, log_likelihood, impossible = benchmark(expected_counts, problem.evidence, theta, block)
    assert impossible == -1
    assert log_likelihood < 0
    assert np.isfinite(expected).all()


def test_learn(case, benchmark):
    table = pq.read_table(case)
    network = load_network("alarm")
    result = benchmark(learn, network, table, max_iterations=5)
    assert result.report["rows"] == ROWS


def test_reading_runs():
    found = reading.compare(rows=2000, files=2, rounds=1)
    assert found["ratio"] > 0


def test_decomposition_runs():
    found = decomposition.compare("asia", observed=0.5, rows=200, seed=0, max_iterations=20)
    assert found["EM log likelihood"] == pytest.approx(found["D-EM log likelihood"], rel=0.05)


def test_against_pyagrum_runs():
    pytest.importorskip("pyagrum")
    from tests.benchmarks import against_pyagrum

    found = against_pyagrum.compare(rows=50, iterations=2)
    # Both do the same arithmetic; pyAgrum keeps tables in single precision on the way in.
    assert found["difference"] < 1e-6


def test_chain_is_learned():
    found = scaling.time_chain(50, rows=500)
    assert found["sub_networks"] == 40


def test_race_runs():
    found = race.main(["asia"], 1, 7, 30)
    # No start that stays can end above the best of all.
    assert all((losses >= 0).all() and times >= 1 for losses, times in found.values())


def test_races_on_paths_that_cross():
    """The winner begins last: halving drops it at 1 and keeps it at 2."""
    paths = [np.array(p, float) for p in ([-9, -5, -4.9], [-9, -6, -3, -2], [-9, -7, -6], [-9, -8, -7])]
    assert race.halving(paths, (1,)) == ([0, 1], 4 + 1 + 2)
    paths[1][1] = -7.5
    assert race.halving(paths, (1,)) == ([0, 2], 4 + 1 + 1)
    assert race.halving(paths, (2,))[0] == [1, 0]
    assert race.dropping_the_slow(paths, (2,), 0.1)[0] == [1]


def test_acceleration_runs():
    found = acceleration.main(["asia"], 2, 2.0, 1e-4, 500, datasets=2, n_rows=300)
    assert len(found) >= 4
    assert sum(acceleration.shares(found)) == pytest.approx(1)


def test_lap_runs(capsys):
    lap.main([3, 4], 50, ["exact", "dense", "pairwise"], workers=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[3:5] for line in lines[1:]] == [
        [str(n), kind] for n in (12, 24) for kind in ("exact", "dense", "pairwise")
    ]


def test_structure_runs():
    found = structure.measure(variables=6, rows=3000, files=2, missing=0.0, rounds=1)
    assert found["true edges"] == 1.0
    assert found["count"] > 0


def test_counting_pairs(benchmark):
    codes = np.random.default_rng(0).integers(-1, 2, (40, ROWS)).astype(np.int8)
    found = benchmark(count_pairs, Partition(codes, None), [2] * 40)
    assert found.n_rows == ROWS
