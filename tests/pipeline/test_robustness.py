"""What users do to a tool: weights out of range, two jobs into one directory, links, starts that cannot be."""

import numpy as np
import pandas as pd
import pytest

from pipeline import BadInputError, ImpossibleDataError, learn, load_network
from pipeline.network import Network
from pipeline.output import check_output, whole_directory

YES_NO = {"asia": ["yes", "no", "yes"], "smoke": ["no", "no", None]}


def test_weights_beyond_64_bits_are_refused():
    frame = pd.DataFrame({**YES_NO, "w": [2**61, 2**61, 2**61]})
    with pytest.raises(BadInputError, match=r"weights sum to 6\.92e\+18, expected at most 4\.61e\+18"):
        learn("asia", frame, weight="w")


def test_weights_within_64_bits_are_exact():
    frame = pd.DataFrame({**YES_NO, "w": [2**60, 2**60 - 1, 1]})
    result = learn("asia", frame, weight="w")
    assert result.report["total_weight"] == 2**61
    asia = result.learned.tables[result.learned.variables.index("asia")]
    assert asia[0] == pytest.approx((2**60 + 1) / 2**61, rel=1e-15)


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("heavy", [10**12, 10**14, 10**16])
def test_one_heavy_row_is_no_bug(heavy, accelerate):
    rng = np.random.default_rng(3)
    names = ["asia", "smoke", "bronc", "lung", "xray"]
    frame = pd.DataFrame({n: rng.choice(["yes", "no"], 500) for n in names})
    frame["w"] = [heavy] + [1] * 499
    assert learn("asia", frame, weight="w", seed=1, accelerate=accelerate).report["total_weight"] == heavy + 499


def test_other_peoples_files_are_not_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text("{}")
    (tmp_path / "out" / "thesis.txt").write_text("precious")
    with pytest.raises(BadInputError, match=r"holds 'thesis\.txt'"):
        learn("asia", pd.DataFrame(YES_NO), output=tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "precious"


def write_two(path):
    """A job that ends while another, begun before it, still writes."""
    with whole_directory(path, overwrite=False) as second:
        (second / "report.json").write_text("second")
        with whole_directory(path, overwrite=False) as first:
            (first / "report.json").write_text("first")


def test_the_later_of_two_jobs_is_refused(tmp_path):
    path = check_output(tmp_path / "out", overwrite=False)
    with pytest.raises(BadInputError, match="written by another job"):
        write_two(path)
    assert (path / "report.json").read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "behind").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "behind")
    learn("asia", pd.DataFrame(YES_NO), output=tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "behind" / "network.bif").exists()
    learn("asia", pd.DataFrame(YES_NO), output=tmp_path / "link", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["behind", "link"]


@pytest.mark.parametrize(
    ("output", "reason"), [("/proc/nothing", "cannot be written"), ("a" * 300, "too long"), ("", "empty")]
)
def test_a_directory_that_cannot_be_is_refused_first(output, reason):
    with pytest.raises(BadInputError, match=reason):
        check_output(output, overwrite=False)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_iterations", 10**20), ("restarts", 10**20), ("prior", 1e308), ("tolerance", float("inf"))],
)
def test_settings_out_of_range(setting, value):
    with pytest.raises(BadInputError, match=f"{setting}: expected"):
        learn("asia", pd.DataFrame(YES_NO), **{setting: value})


def test_an_impossible_start_is_named_where_nothing_is_missing():
    asia = load_network("asia")
    tables = list(asia.tables)
    tables[asia.variables.index("asia")] = np.array([0.0, 1.0])
    start = Network("zero", asia.variables, asia.states, asia.parents, tuple(tables))
    with pytest.raises(ImpossibleDataError, match="row 0: asia=yes has probability zero"):
        learn(start, pd.DataFrame(YES_NO), start="network")
    assert learn(start, pd.DataFrame(YES_NO)).converged
