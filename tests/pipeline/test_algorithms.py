"""Algorithms through `learn` and the command line."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import pipeline
from pipeline import learn
from pipeline.cli import main
from pipeline.job import ALGORITHMS, Job, read_job
from tasks import markov_solving, solving
from tasks.errors import BadInputError
from tests.oracle import as_table, incomplete_data

LEAST = 'network = "alarm"\ndata = "rows"\noutput = "out"\n'


def data(seed=28, n=6, rows=80, kind="partly"):
    network, start, raw = incomplete_data(seed, n, rows, kind)
    return network, start, as_table(network, raw)


def test_the_command_line_knows_the_same_algorithms():
    assert set(ALGORITHMS) == {*solving.ALGORITHMS, *markov_solving.MARKOV_ALGORITHMS}


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "em", "accelerate": True},
        {"algorithm": "gradient"},
        {"algorithm": "cg"},
        {"algorithm": "edml"},
        {"algorithm": "hybrid"},
    ],
)
def test_each_climbs_as_high_as_em(options):
    network, _, table = data()
    plain = learn(network, table, prior=2.0, tolerance=1e-7, max_iterations=5000)
    other = learn(network, table, prior=2.0, tolerance=1e-7, max_iterations=5000, **options)
    assert other.converged
    # The same optimum, a prior keeping it from the border; EM stops a little below it.
    assert other.report["log_posterior"] == pytest.approx(plain.report["log_posterior"], rel=1e-8)
    assert other.report["settings"]["algorithm"] == options["algorithm"]
    assert other.report["settings"]["accelerate"] == options.get("accelerate", False)


def test_decomposed_and_undecomposed_em_reach_the_same_likelihood():
    _, start, table = data(rows=200)
    for options in ({}, {"accelerate": True}):
        ends = [
            learn(
                start, table, start="network", decompose=d, prior=2.0, tolerance=1e-8, max_iterations=20000, **options
            ).log_likelihood
            for d in (True, False)
        ]
        assert ends[0] == pytest.approx(ends[1], rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [{"accelerate": True}, {"algorithm": "edml"}, {"algorithm": "hybrid"}, {"algorithm": "gradient"}],
    ids=["accelerate", "edml", "hybrid", "gradient"],
)
def test_other_algorithms_are_never_split(giant, threads, splits, options):
    network, _, table = giant
    threads(1)
    one = learn(network, table, max_iterations=3, decompose=False, **options)
    threads(2, overhead=0.0)
    two = learn(network, table, max_iterations=3, decompose=False, **options)
    assert splits == []
    for a, b in zip(one.learned.tables, two.learned.tables, strict=True):
        assert np.array_equal(a, b)
    # Plain EM on the same data is.
    learn(network, table, max_iterations=1, decompose=False)
    assert splits == [2]


@pytest.mark.parametrize("algorithm", ["em", "edml", "hybrid"])
@pytest.mark.parametrize("decompose", [True, False])
def test_a_weight_column_with_fractions(algorithm, decompose):
    """Quarters of rows and, with four times the pseudo counts, rows written out as often."""
    network, start, raw = incomplete_data(31, 6, 60, "partly")
    quarters = [(1, 2, 3, 7)[i % 4] for i in range(len(raw))]
    options = {"algorithm": algorithm, "decompose": decompose, "start": "network", "max_iterations": 20}
    weighted = as_table(network, raw, w=[q / 4 for q in quarters])
    one = learn(start, weighted, weight="w", prior=1.5, **options)
    repeated = as_table(network, [row for row, q in zip(raw, quarters, strict=True) for _ in range(q)])
    four = learn(start, repeated, prior=3.0, **options)
    assert one.report["total_weight"] == len(repeated) / 4
    assert 4 * one.log_likelihood == pytest.approx(four.log_likelihood, rel=1e-11)
    for a, b in zip(one.learned.tables, four.learned.tables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_the_spread_of_optima():
    network, _, table = data(28, 6, 60, "hidden")
    result = learn(network, table, restarts=8, max_iterations=3000)
    spread = result.report["restarts"]
    assert spread["best"] >= spread["worst"]
    assert 1 <= spread["distinct"] <= 8
    iterated = [s for s in result.sub_networks if s.restarts]
    assert spread["sub_networks"] == len(iterated)
    assert spread["best"] == pytest.approx(sum(s.log_posterior for s in iterated), rel=1e-12)
    json.dumps(result.report, allow_nan=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"algorithm": "EM"},
            "algorithm: expected one of auto, em, edml, hybrid, gradient, cg, lbfgs, ipf, closed-form, found 'EM'",
        ),
        ({"algorithm": "cg", "accelerate": True}, "accelerate: expected algorithm 'em', .*, found 'cg'"),
        ({"accelerate": 1}, "accelerate: expected True or False, found 1"),
        ({"damping": -0.5}, "damping: expected a number from 0 to below 1, found -0.5"),
        ({"damping": 1.5}, "damping: expected a number from 0 to below 1, found 1.5"),
        ({"damping": "half"}, "damping: expected a number from 0 to below 1, found 'half'"),
        ({"prior": {"nobody": 2.0}}, "has no variable 'nobody'"),
    ],
)
def test_nonsense(options, message):
    network, _, table = data()
    with pytest.raises(BadInputError, match=message):
        learn(network, table, **options)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--algorithm magic",
            "--algorithm: expected one of auto, em, edml, hybrid, gradient, cg, lbfgs, ipf, closed-form, found 'magic'",
        ),
        ("--algorithm cg --accelerate", "--accelerate: expected --algorithm em, found 'cg'"),
        ("--damping 1", "--damping: expected a number from 0 to below 1, found 1"),
        ("--damping 0.3", "--damping: expected --algorithm edml or hybrid, found 'em'"),
        ("--damping 0.3 --algorithm cg", "--damping: expected --algorithm edml or hybrid, found 'cg'"),
        ("--damping nan", "--damping: expected a number from 0 to below 1, found nan"),
        ("--prior 2 --prior-file p.toml", "--prior and --prior-file exclude each other"),
        ("--prior-file nowhere.toml", "cannot read the prior file nowhere.toml: No such file"),
    ],
)
def test_nonsense_flags(tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    network, _, table = data()
    import pyarrow.parquet as pq

    from pipeline.bif import write_bif

    (tmp_path / "n.bif").write_text(write_bif(network))
    pq.write_table(table, tmp_path / "d.parquet")
    result = CliRunner().invoke(main, ["learn", "n.bif", "d.parquet", "--output", "out", *flags.split()])
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_jobs(tmp_path, monkeypatch):
    path = tmp_path / "job.toml"
    path.write_text(LEAST + 'algorithm = "hybrid"\nprior-file = "p.toml"\ndamping = 0.25\n')
    job = read_job(path)
    assert (job.algorithm, job.prior_file, job.damping) == ("hybrid", str(tmp_path / "p.toml"), 0.25)
    assert isinstance(job, Job)
    calls = []

    def fake(*args, **kwargs):
        calls.append(kwargs)
        raise BadInputError("enough")

    monkeypatch.setitem(vars(pipeline), "learn", fake)
    CliRunner().invoke(main, ["run", str(path)])
    assert (calls[0]["prior"], calls[0]["algorithm"]) == (str(tmp_path / "p.toml"), "hybrid")
    path.write_text(LEAST + "accelerate = true\nalgorithm = 'edml'\n")
    with pytest.raises(BadInputError, match="'accelerate': expected 'algorithm' em, found 'edml'"):
        read_job(path)
