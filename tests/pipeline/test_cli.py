"""The command line: flags, exit statuses, and what is printed where."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import pipeline
from pipeline.cli import main
from pipeline.demo import run_demo
from tasks.errors import BadInputError, LikelihoodFellError, TooLargeError

CHAIN = """network chain {}
variable a { type discrete [ 2 ] { no, yes }; }
variable b { type discrete [ 2 ] { no, yes }; }
variable c { type discrete [ 2 ] { no, yes }; }
probability ( a ) { table 0.3, 0.7; }
probability ( b | a ) { (no) 0.9, 0.1; (yes) 0.2, 0.8; }
probability ( c | b ) { (no) 0.6, 0.4; (yes) 0.1, 0.9; }
"""


def invoke(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


def one_line(result, status):
    """The single line on standard error of a command that ended with a status and printed nothing else."""
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    line, empty = result.stderr.split("\n")
    assert empty == ""
    assert line.startswith("error: ")
    return line


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.bif"
    path.write_text(CHAIN)
    return path


@pytest.fixture
def rows(tmp_path, chain):
    result = invoke("simulate", chain, tmp_path / "rows", "--rows", 2000, "--partitions", 2, "--missing", 0.2)
    assert result.exit_code == 0, result.output
    return tmp_path / "rows"


def fake_result(converged=True):
    return SimpleNamespace(
        converged=converged,
        log_likelihood=-12.5,
        sub_networks=[
            SimpleNamespace(
                variables=("a", "[b]"),
                boundary=(),
                distinct_rows=None,
                instances=3,
                iterations=4,
                converged=converged,
                log_likelihood=-12.5,
                seconds=0.1,
            )
        ],
        report={
            "rows": 10,
            "log_likelihood": -12.5,
            "settings": {"algorithm": "em"},
            "log_likelihood_per_row": -1.25,
            "iterations": 4,
            "unlearnable": {"a": 2},
            "hidden": ["h"],
            "worst": math.nan,
        },
    )


@pytest.fixture
def learned(monkeypatch):
    """Stand in for `learn`, and keep what it is called with."""
    calls = []

    def learn(network, data, **settings):
        settings["progress"]("solve", 1, 1)
        calls.append({"network": network, "data": data, **settings})
        return fake_result()

    monkeypatch.setitem(vars(pipeline), "learn", learn)
    return calls


def raising(monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setitem(vars(pipeline), "learn", fail)


def test_importing_the_command_line_is_light():
    heavy = {"numpy", "numba", "pyarrow", "pandas", "pgmpy", "dask", "distributed", "rich", "scipy"}
    code = f"import sys, pipeline.cli; sys.exit(' '.join({heavy} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["", "simulate", "plan", "learn", "score", "structure", "run", "demo"])
def test_help(command):
    result = invoke(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_learn_passes_the_defaults_and_starts_no_cluster(learned, tmp_path):
    result = invoke("learn", "alarm", "data", "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    (call,) = learned
    call.pop("progress")
    assert call == {
        "network": "alarm",
        "data": "data",
        "algorithm": "auto",
        "estimator": "exact",
        "auxiliary": "exact",
        "on_missing": "refuse",
        "l2": 0.0,
        "pseudo_count": 0.0,
        "names": None,
        "prior": 1.0,
        "damping": 0.5,
        "accelerate": False,
        "restarts": 1,
        "seed": 0,
        "tolerance": 1e-5,
        "max_iterations": 1000,
        "start": "random",
        "drop_barren": True,
        "weight": None,
        "missing_tokens": (),
        "decompose": True,
        "client": None,
        "output": str(tmp_path / "out"),
        "overwrite": False,
    }


def test_learn_passes_every_flag(learned, tmp_path):
    flags = "--algorithm em --accelerate --prior 2 --restarts 3 --seed 4 --tolerance 1e-7"
    flags += " --max-iterations 50 --start network --keep-barren --l2 0.5 --pseudo-count 1 --names names.txt"
    flags += " --estimator lap --auxiliary dense --on-missing em"
    flags += " --no-decompose --missing-token ? --missing-token a,b --weight n --overwrite --json"
    result = invoke("learn", "net.bif", "one.parquet", "two.parquet", "--output", tmp_path, *flags.split())
    assert result.exit_code == 0, result.output
    (call,) = learned
    call.pop("progress")
    assert call == {
        "network": "net.bif",
        "data": ["one.parquet", "two.parquet"],
        "algorithm": "em",
        "estimator": "lap",
        "auxiliary": "dense",
        "on_missing": "em",
        "l2": 0.5,
        "pseudo_count": 1.0,
        "names": "names.txt",
        "prior": 2.0,
        "damping": 0.5,
        "accelerate": True,
        "restarts": 3,
        "seed": 4,
        "tolerance": 1e-7,
        "max_iterations": 50,
        "start": "network",
        "drop_barren": False,
        "weight": "n",
        "missing_tokens": ("?", "a,b"),
        "decompose": False,
        "client": None,
        "output": str(tmp_path),
        "overwrite": True,
    }


def test_learn_prints_tables_or_one_json_document(learned, tmp_path):
    human = invoke("learn", "alarm", "data", "--output", tmp_path / "out")
    assert "log likelihood" in human.stdout
    assert "a [b]" in human.stdout
    assert "\x1b" not in human.stdout
    assert human.stderr == ""  # a job of less than five seconds shows no progress in a file
    machine = invoke("learn", "alarm", "data", "--output", tmp_path / "out", "--json")
    assert json.loads(machine.stdout) == {**fake_result().report, "worst": None}


def test_run_is_learn_from_a_file(learned, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text('network = "alarm"\ndata = "d"\noutput = "o"\nmax-iterations = 7\njson = true\n')
    result = invoke("run", job)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == 10
    assert learned[0]["max_iterations"] == 7
    assert learned[0]["data"] == str(tmp_path / "d")
    job.write_text('network = "alarm"\n')
    assert "'data' is missing" in one_line(invoke("run", job), 2)


def test_not_converged_is_status_3(monkeypatch, tmp_path):
    monkeypatch.setitem(vars(pipeline), "learn", lambda *args, **kwargs: fake_result(converged=False))
    result = invoke("learn", "alarm", "data", "--output", tmp_path / "out")
    assert result.exit_code == 3
    assert "not converged: 1 of 1 sub-network stopped at 1000 iterations; raise --max-iterations" in result.stderr


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (BadInputError("data: not\nlike that"), 2, "error: data: not like that"),
        (TooLargeError("needs 9 GB of 1 GB"), 2, "error: needs 9 GB of 1 GB"),
        (LikelihoodFellError("it fell"), 1, "error: it fell (DASK_PGM_TRACEBACK=1 shows the traceback)"),
        (KeyError("oops"), 1, "error: KeyError: 'oops' (DASK_PGM_TRACEBACK=1 shows the traceback)"),
        (MemoryError(), 1, "error: MemoryError (DASK_PGM_TRACEBACK=1 shows the traceback)"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
    ],
)
def test_errors_are_one_line_and_a_status(monkeypatch, tmp_path, error, status, message):
    monkeypatch.delenv("DASK_PGM_TRACEBACK", raising=False)
    raising(monkeypatch, error)
    assert one_line(invoke("learn", "alarm", "data", "--output", tmp_path / "out"), status) == message


def test_the_traceback_can_be_had(monkeypatch, tmp_path):
    monkeypatch.setenv("DASK_PGM_TRACEBACK", "1")
    raising(monkeypatch, KeyError("oops"))
    result = invoke("learn", "alarm", "data", "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: KeyError: 'oops'\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("learn", "Missing argument 'NETWORK'"),
        ("learn alarm", "Missing argument 'DATA"),
        ("learn alarm data", "Missing option '--output'"),
        ("nonsense", "No such command 'nonsense'"),
        ("--nonsense", "No such option"),
        ("learn alarm data --output o --nonsense", "No such option"),
        ("learn alarm data --output o --prior high", "'--prior'"),
        ("learn alarm data --output o --prior nan", "--prior: expected a finite number of at least 1, found nan"),
        ("learn alarm data --output o --prior inf", "--prior: expected a finite number of at least 1, found inf"),
        ("learn alarm data --output o --prior -1", "--prior: expected a finite number of at least 1, found -1"),
        ("learn alarm data --output o --prior 0", "--prior: expected a finite number of at least 1, found 0"),
        ("learn alarm data --output o --restarts 0", "--restarts: expected a whole number of at least 1, found 0"),
        ("learn alarm data --output o --restarts 1.5", "'--restarts'"),
        ("learn alarm data --output o --seed -1", "--seed: expected a whole number that is not negative, found -1"),
        ("learn alarm data --output o --tolerance 0", "--tolerance: expected a finite number above 0, found 0"),
        ("learn alarm data --output o --tolerance nan", "--tolerance: expected a finite number above 0, found nan"),
        ("learn alarm data --output o --max-iterations 0", "--max-iterations: expected a whole number of at least 1"),
        ("learn alarm data --output o --start best", "'--start'"),
        ("learn alarm data --output o --workers 0", "--workers: expected a whole number of at least 1, found 0"),
        ("learn alarm data --output o --workers 1 --scheduler h:1", "--workers and --scheduler exclude each other"),
        ("learn alarm data --output o --scheduler nonsense", "'nonsense' is no scheduler address"),
        ("learn alarm  --output ", "Option '--output' requires an argument"),
        ("simulate alarm out", "Missing option '--rows'"),
        ("simulate alarm out --rows 0", "rows: expected at least 1, found 0"),
        ("simulate alarm out --rows 10 --partitions 11", "partitions: expected 1 to 10"),
        ("simulate alarm out --rows 10 --missing nan", "missing: expected a number from 0 to 1, found nan"),
        ("simulate alarm out --rows 10 --missing-variables 0.5", "--missing-variables needs --missing"),
        ("simulate alarm out --rows 10 --hidden nan", "hidden: expected names or a fraction"),
        ("simulate alarm out --rows 10 --hidden HISTORY,CVPP", "has no variable 'CVPP'; did you mean 'CVP'"),
        ("run nowhere.toml", "cannot read the job nowhere.toml: No such file"),
        ("demo --rows 3", "rows: the demonstration needs at least 8, found 3"),
    ],
)
def test_nonsense_flags(tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    assert message in one_line(invoke(*args.split()), 2)
    assert list(tmp_path.iterdir()) == []


def test_an_output_with_content_is_refused_before_anything_starts(learned, tmp_path):
    (tmp_path / "precious").write_text("kept")
    line = one_line(invoke("learn", "alarm", "data", "--output", tmp_path, "--workers", 2), 2)
    assert "exists; name another directory, or replace it with --overwrite" in line
    assert learned == []


def test_simulate_says_what_it_wrote(tmp_path, chain):
    where = tmp_path / "rows"
    flags = ["--rows", 100, "--partitions", 3, "--missing", 0.5, "--missing-variables", 0.5, "--hidden", "b"]
    result = invoke("simulate", chain, where, *flags)
    assert result.exit_code == 0, result.output
    assert f"100 rows of 2 variables in 3 files under {where}" in result.stdout
    assert "hidden b" in result.stdout
    assert "missing " in result.stdout
    assert len(list(where.iterdir())) == 3
    assert "is not empty" in one_line(invoke("simulate", chain, where, *flags), 2)


def test_the_whole_way_in_this_process(tmp_path, chain, rows):
    planned = invoke("plan", chain, rows, "--json")
    assert planned.exit_code == 0, planned.output
    assert isinstance(json.loads(planned.stdout), dict)
    assert invoke("plan", chain, rows).stdout.strip()

    output = tmp_path / "out"
    result = invoke("learn", chain, rows, "--output", output, "--json", "--tolerance", 1e-9)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["rows"] == 2000
    assert {"network.bif", "parameters.parquet", "sub_networks.parquet", "report.json"} <= {
        p.name for p in output.iterdir()
    }

    scored = invoke("score", output / "network.bif", rows, "--json")
    assert scored.exit_code == 0, scored.output
    # The same parameters, one of them through a file, summed in another order.
    assert json.loads(scored.stdout)["log_likelihood"] == pytest.approx(report["log_likelihood"], rel=1e-6)
    assert "log likelihood" in invoke("score", chain, rows).stdout

    assert "error: " in one_line(invoke("learn", chain, rows, "--output", output), 2)
    assert invoke("learn", chain, rows, "--output", output, "--overwrite").exit_code == 0


def test_not_converged_for_real(tmp_path, chain, rows):
    result = invoke("learn", chain, rows, "--output", tmp_path / "out", "--max-iterations", 1, "--tolerance", 1e-12)
    assert result.exit_code == 3, result.output
    assert (tmp_path / "out" / "network.bif").exists()


def test_structure(tmp_path, rows):
    out = tmp_path / "out"
    result = invoke("structure", rows, "--output", out, "--root", "a")
    assert result.exit_code == 0, result.output
    table = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert table["parameters"] == ["EM"]
    assert [table["a"][0], table["b"][0]] == ["b", "c"]
    assert f"written to {out}" in result.stdout
    assert "note: values are missing in a, b, c: each pair was counted over the" in result.stderr
    scored = invoke("score", out / "network.bif", rows, "--json")
    report = json.loads((out / "report.json").read_text())
    assert report["edges"] == 2
    assert json.loads(scored.stdout)["log_likelihood"] == pytest.approx(report["log_likelihood"], rel=1e-9)
    again = invoke("structure", rows, "--output", out, "--overwrite", "--columns", "a, b", "--prior", 2, "--json")
    assert json.loads(again.stdout)["settings"] == {
        "root": None, "prior": 2.0, "weight": None, "missing_tokens": [], "columns": ["a", "b"],
    }  # fmt: skip


def test_structure_on_a_local_cluster(tmp_path, rows):
    for name, flags in (("here", ()), ("there", ("--workers", 1))):
        assert invoke("structure", rows, "--output", tmp_path / name, *flags).exit_code == 0
    assert (tmp_path / "here" / "network.bif").read_bytes() == (tmp_path / "there" / "network.bif").read_bytes()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--columns", "a"], "a structure needs at least two columns, found only 'a'"),
        (["--columns", "a,d"], "columns: the data have no column 'd'"),
        (["--root", "x"], "root: there is no column 'x' to learn from"),
        (["--prior", "0"], "prior: expected a Dirichlet exponent of at least 1"),
        (["--weight", "a"], "weight column 'a' has type"),
        (["--workers", "0"], "--workers: expected a whole number of at least 1, found 0"),
        (["--workers", "2", "--scheduler", "tcp://x:1"], "--workers and --scheduler exclude each other"),
        (["--missing-token", "no", "--missing-token", "yes"], "needs at least two columns with values, found none"),
    ],
)
def test_a_structure_that_cannot_be_learned_is_one_line(tmp_path, rows, flags, message):
    assert message in one_line(invoke("structure", rows, "--output", tmp_path / "out", *flags), 2)
    assert not (tmp_path / "out").exists()


def test_a_structure_whose_em_stops_is_status_3(tmp_path, rows, monkeypatch):
    real = pipeline.learn
    monkeypatch.setattr("pipeline.structure.learn", lambda *a, **k: real(*a, **{**k, "max_iterations": 1}))
    result = invoke("structure", rows, "--output", tmp_path / "out")
    assert result.exit_code == 3
    assert "note: EM stopped at its limit of iterations, 1, before it had converged" in result.stderr


def test_missing_data_is_one_line(tmp_path, chain):
    one_line(invoke("learn", chain, tmp_path / "nowhere", "--output", tmp_path / "out"), 2)
    one_line(invoke("plan", tmp_path / "nowhere.bif", tmp_path), 2)
    assert not (tmp_path / "out").exists()


def command(*args, **kwargs):
    code = "from pipeline.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,
    )


def test_learn_on_a_local_cluster_gives_the_same_network(tmp_path, chain, rows):
    process = command("learn", chain, rows, "--output", tmp_path / "two", "--workers", 2, "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out)["rows"] == 2000
    assert "dashboard: http://127.0.0.1:" in err
    assert "Traceback" not in err
    assert invoke("learn", chain, rows, "--output", tmp_path / "one").exit_code == 0
    assert (tmp_path / "two" / "network.bif").read_bytes() == (tmp_path / "one" / "network.bif").read_bytes()


def test_an_unreachable_scheduler_in_a_real_process(tmp_path, chain, rows):
    process = command("learn", chain, rows, "--output", tmp_path / "out", "--scheduler", "tcp://127.0.0.1:1")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err == (
        "error: cannot reach the scheduler at tcp://127.0.0.1:1: Connection refused; "
        "start one with `dask scheduler`, or leave --scheduler out\n"
    )


def test_ctrl_c_leaves_one_line_and_no_files(tmp_path):
    # Enough rows for minutes: it has to stop for the signal.
    process = command("simulate", "alarm", tmp_path / "out", "--rows", 200_000_000, "--partitions", 50)
    deadline = time.monotonic() + 60
    while not any(tmp_path.glob(".out.*.partial/*.parquet")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "error: interrupted"
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("delay", [0.0, 0.5, 1.0])
def test_ctrl_c_during_the_start_of_a_cluster_is_one_line_too(tmp_path, chain, rows, delay):
    # As a terminal sends it: to every process of the job, workers included.
    process = command("learn", chain, rows, "--output", tmp_path / "out", "--workers", 2, start_new_session=True)
    time.sleep(1.0 + delay)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    # A fast machine may be done by then.
    assert process.returncode in (0, 130), err
    # Interrupted while the cluster closes, the output is there; whenever it is, it is whole.
    assert (tmp_path / "out" / "report.json").exists() == (tmp_path / "out").exists()
    assert (tmp_path / "out").exists() or process.returncode == 130


def test_a_reader_that_goes_away_is_no_matter(tmp_path, chain):
    process = command("simulate", chain, tmp_path / "out", "--rows", 10)
    process.stdout.close()
    err = process.stderr.read()
    process.wait(timeout=60)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_both_commands_are_installed(tmp_path):
    dask = os.path.join(os.path.dirname(sys.executable), "dask")
    own = os.path.join(os.path.dirname(sys.executable), "dask-pgm")
    if not (os.path.exists(dask) and os.path.exists(own)):
        pytest.skip("the package is not installed")
    for start in ([dask, "pgm"], [own]):
        done = subprocess.run([*start, "learn", "alarm"], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("error: Missing argument 'DATA")


def test_the_module_is_the_command_too(tmp_path):
    """`python -m` did nothing, and said so with status 0."""
    start = [sys.executable, "-m", "pipeline.cli", "learn", "alarm"]
    done = subprocess.run(start, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Missing argument 'DATA")


def test_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_demo(None, 5000)
    run_demo(None, 5000)
    out = capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dask-pgm-demo", "dask-pgm-demo-2"]
    for name in ("dask-pgm-demo", "dask-pgm-demo-2"):
        assert len(list((tmp_path / name / "data").iterdir())) == 8
        assert (tmp_path / name / "learned" / "network.bif").exists()
        assert f"The data and what was learned are in {tmp_path / name}\n" in out
    assert "dashboard: http://127.0.0.1:" in out
    with pytest.raises(BadInputError, match="dask-pgm-demo exists and is not an empty directory"):
        run_demo("dask-pgm-demo", 5000)
