"""The output directory: whole, or not there at all."""

import json
import os

import pyarrow.parquet as pq
import pytest

import pipeline.output
from pipeline import learn
from pipeline.output import check_output, whole_directory
from tasks.errors import BadInputError
from tests.oracle import as_table, incomplete_data

NAMES = ["network.bif", "parameters.parquet", "report.json", "sub_networks.parquet"]


@pytest.fixture(scope="module")
def job():
    network, _, rows = incomplete_data(81, 5, 60)
    return network, as_table(network, rows)


def names(path):
    return sorted(p.name for p in path.iterdir())


def test_everything_is_there(job, tmp_path):
    result = learn(*job, output=tmp_path / "deep" / "er" / "out")
    out = tmp_path / "deep" / "er" / "out"
    assert names(out) == NAMES
    assert names(out.parent) == ["out"]
    parameters = pq.read_table(out / "parameters.parquet")
    network = result.learned
    assert parameters.column_names == ["variable", "state", "parents", "parent_states", "value", "expected_count"]
    number = {v: i for i, v in enumerate(network.variables)}
    states = [{s: k for k, s in enumerate(x)} for x in network.states]
    rows = parameters.to_pylist()
    assert len({(r["variable"], r["state"], tuple(r["parent_states"])) for r in rows}) == len(rows)
    for row in rows:
        v = number[row["variable"]]
        assert row["parents"] == [network.variables[p] for p in network.parents[v]]
        at = [states[p][s] for p, s in zip(network.parents[v], row["parent_states"], strict=True)]
        at = (*at, states[v][row["state"]])
        assert row["value"] == network.tables[v][at]
        assert row["expected_count"] == result.expected_counts[v][at]
    records = pq.read_table(out / "sub_networks.parquet").to_pylist()
    assert [tuple(r["variables"]) for r in records] == [s.variables for s in result.sub_networks]
    assert [tuple(r["history"]) for r in records] == [s.history for s in result.sub_networks]
    assert "seconds" not in records[0]
    assert json.loads((out / "report.json").read_text())["network"] == "random"


@pytest.mark.parametrize("writer", ["write_bif", "parameters_table", "sub_networks_table"])
@pytest.mark.parametrize("existing", [False, True])
def test_whole_or_absent(job, tmp_path, monkeypatch, writer, existing):
    """A writer that fails half way leaves nothing, and what was there before as it was."""
    out = tmp_path / "out"
    if existing:
        learn(*job, output=out)
    before = {p.name: p.read_bytes() for p in out.iterdir()} if existing else None

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(pipeline.output, writer, fail)
    with pytest.raises(OSError, match="disk full"):
        learn(*job, output=out, overwrite=True)
    assert names(tmp_path) == (["out"] if existing else [])
    if existing:
        assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_it_appears_at_once(tmp_path):
    with whole_directory(tmp_path / "out", overwrite=False) as draft:
        (draft / "file").write_text("x")
        assert not (tmp_path / "out").exists()
    assert names(tmp_path) == ["out"]


def test_an_existing_directory_is_refused_before_any_work(job, tmp_path, monkeypatch):
    out = tmp_path / "out"
    learn(*job, output=out)
    before = (out / "report.json").read_bytes()

    def no(*args, **kwargs):
        raise AssertionError("work was done")

    monkeypatch.setattr("pipeline.learning.make_job", no)
    with pytest.raises(
        BadInputError, match=r"output .*out exists; name another directory, or replace it with --overwri"
    ):
        learn(*job, output=out)
    assert (out / "report.json").read_bytes() == before


def test_overwriting(job, tmp_path):
    out = tmp_path / "out"
    learn(*job, output=out, seed=1)
    learn(*job, output=out, seed=2, overwrite=True)
    assert names(out) == NAMES
    assert names(tmp_path) == ["out"]
    assert json.loads((out / "report.json").read_text())["settings"]["seed"] == 2
    # An empty directory is as good as none.
    (tmp_path / "empty").mkdir()
    learn(*job, output=tmp_path / "empty")
    assert names(tmp_path / "empty") == NAMES


def test_foreign_files_are_left_alone(job, tmp_path):
    """A directory of somebody else's, and a file of theirs among an earlier output."""
    home, out = tmp_path / "home", tmp_path / "out"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    learn(*job, output=out)
    (out / "notes.txt").write_text("an afternoon's")
    for directory, file in ((home, "thesis.tex"), (out, "notes.txt")):
        message = f"holds '{file}', which is no file of a learned network; --overwrite replaces only those"
        with pytest.raises(BadInputError, match=message):
            learn(*job, output=directory, overwrite=True)
    assert names(home) == ["thesis.tex"]
    assert names(out) == sorted([*NAMES, "notes.txt"])


def test_a_directory_filled_meanwhile_is_left_alone(job, tmp_path):
    """Two jobs with one name: the later one fails, and does not overwrite unasked."""
    out = tmp_path / "out"

    def race(stage, done, total):
        if stage == "solve" and done == 0:
            learn(*job, output=out, seed=1)

    with pytest.raises(BadInputError, match="was written by another job in the meantime; name another directory"):
        learn(*job, output=out, seed=2, progress=race)
    assert names(tmp_path) == ["out"]
    assert json.loads((out / "report.json").read_text())["settings"]["seed"] == 1


def test_a_link_stays_a_link(job, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    learn(*job, output=tmp_path / "link")
    learn(*job, output=tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == NAMES


def test_what_cannot_be_a_directory(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BadInputError, match="file exists and is not a directory; name another"):
        check_output(file, overwrite=True)
    with pytest.raises(BadInputError, match=r"file cannot be written \(.*\); name another"):
        check_output(file / "below", overwrite=False)
    with pytest.raises(BadInputError, match="output: expected a directory, found an empty name"):
        check_output("", overwrite=False)
    with pytest.raises(BadInputError, match="expected a local directory, found a URL"):
        check_output("memory://x", overwrite=False)
    if os.geteuid() != 0:  # root may write anywhere
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        with pytest.raises(BadInputError, match=r"closed cannot be written \(permission denied\); name another"):
            check_output(closed / "out", overwrite=False)
    assert check_output(tmp_path / "a" / "b", overwrite=False) == tmp_path / "a" / "b"
    assert names(tmp_path) in (["file"], ["closed", "file"])
