"""Markov random fields on a real local cluster of two processes: the same bytes as in this one."""

import pyarrow.parquet as pq
import pytest

from cluster import connect
from pipeline import learn, plan, score
from pipeline.execution import ClusterExecutor
from pipeline.markov_learning import RemoteTerms
from tasks.errors import ImpossibleDataError
from tests.oracle import as_table, incomplete_field, make_field

FILES = ("network.uai", "variables.txt", "parameters.parquet", "normalised.parquet", "sub_networks.parquet")
ALGORITHMS = ("lbfgs", "cg", "em", "edml")
OPTIONS = {"pseudo_count": 0.5, "max_iterations": 8}


@pytest.fixture(scope="module")
def client():
    with connect("local", 2) as client:
        yield client


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Five files of a field's incomplete rows; several sub-networks."""
    field, rows = incomplete_field(21, 7, 1000, "mixture", max_states=2, max_arity=3)
    directory = tmp_path_factory.mktemp("parts")
    for i in range(5):
        pq.write_table(as_table(field, rows[200 * i : 200 * (i + 1)]), directory / f"{i}.parquet")
    return field, directory


def output(where, *args, **options):
    result = learn(*args, output=where, **{**OPTIONS, **options})
    return result, [(where / f).read_bytes() for f in FILES]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_equal_bytes_together_and_spread_out(client, parts, tmp_path, monkeypatch, algorithm):
    _, wanted = output(tmp_path / "here", *parts, algorithm=algorithm)
    together, found = output(tmp_path / "together", *parts, algorithm=algorithm, client=client)
    assert together.report["together"]
    assert found == wanted
    monkeypatch.setattr(ClusterExecutor, "overhead", 0.0)
    spread, found = output(tmp_path / "spread", *parts, algorithm=algorithm, client=client)
    assert not spread.report["together"]
    assert found == wanted
    assert spread.log_likelihood == together.log_likelihood


def test_complete_data(client, tmp_path):
    field, rows = incomplete_field(8, 6, 500, "complete", max_states=2, max_arity=2)
    for algorithm in ("ipf", "auto"):
        _, wanted = output(tmp_path / f"here {algorithm}", field, as_table(field, rows), algorithm=algorithm)
        _, found = output(
            tmp_path / f"there {algorithm}", field, as_table(field, rows), algorithm=algorithm, client=client
        )
        assert found == wanted


def test_score_and_plan(client, parts):
    field, directory = parts
    assert score(field, directory, client=client) == score(field, directory)
    there, here = plan(field, directory, client=client), plan(field, directory)
    assert (there.model, there.sub_networks, there.threads) == (here.model, here.sub_networks, 2)


def test_impossible_rows_are_named(client, tmp_path, monkeypatch):
    """Raised in a task, worded for the user: together and spread out."""
    field = make_field([2, 2, 2], [(0, 1), (1, 2)], [[[1, 2], [3, 0]], [[1, 1], [1, 1]]])
    rows = [(0, 1, -1), (1, -1, 1), (-1, 1, 0), (1, 1, -1), (0, 0, 0)]
    pq.write_table(as_table(field, rows), tmp_path / "rows.parquet")
    for overhead in (ClusterExecutor.overhead, 0.0):
        monkeypatch.setattr(ClusterExecutor, "overhead", overhead)
        with pytest.raises(ImpossibleDataError, match=r"rows\.parquet, row 3: v0=s1, v1=s1 has probability zero"):
            learn(field, tmp_path / "rows.parquet", start="network", client=client, output=tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("algorithm", ["lbfgs", "edml"])
def test_a_worker_killed_in_mid_run_costs_time_and_no_bit(parts, tmp_path, monkeypatch, algorithm):
    """One of two processes ends between two evaluations: its data terms, or the model, are made again elsewhere."""
    _, wanted = output(tmp_path / "here", *parts, algorithm=algorithm)
    monkeypatch.setattr(ClusterExecutor, "overhead", 0.0)
    killed: list = []
    real = RemoteTerms.evaluate
    calls = [0]
    with connect("local", 2) as client:

        def evaluate(self, eta):
            calls[0] += 1
            if calls[0] == 4:
                held = client.who_has([self.model, *self.terms])
                # Whoever holds the model term: with it goes what only it had.
                killed.extend(held[self.model.key][:1])
                client.run(lambda: __import__("os")._exit(1), workers=killed, on_error="ignore")
            return real(self, eta)

        monkeypatch.setattr(RemoteTerms, "evaluate", evaluate)
        result, found = output(tmp_path / "there", *parts, algorithm=algorithm, client=client)
    assert killed
    assert not result.report["together"]
    assert found == wanted
