"""`learn` on Markov random fields: Parquet to files, the algorithms, equal bytes, and what is refused."""

import itertools
import json
import math
import random
import re
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipeline import learn, load_network, plan, score
from pipeline.cli import main
from pipeline.normalised import normalise
from pipeline.uai import write_uai
from tasks.errors import BadInputError, ImpossibleDataError, TooLargeError
from tests.oracle import (
    FIELD_KINDS,
    Enumeration,
    as_table,
    incomplete_field,
    make_field,
    sample_field,
    with_potentials,
)

FILES = ("network.uai", "variables.txt", "parameters.parquet", "normalised.parquet", "sub_networks.parquet")
INCOMPLETE_ONLY = ("em", "lbfgs", "cg", "edml")


def flat(tables):
    return np.concatenate([np.asarray(t).ravel() for t in tables])


def write_parts(field, rows, where, n_parts=1):
    where.mkdir()
    borders = [len(rows) * p // n_parts for p in range(n_parts + 1)]
    for p, (a, b) in enumerate(itertools.pairwise(borders)):
        pq.write_table(as_table(field, rows[a:b]), where / f"{p}.parquet", row_group_size=max(1, (b - a) // 2))
    return where


def bytes_of(where):
    return [(where / name).read_bytes() for name in FILES]


# --- from Parquet to files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["complete", "partly", "at random", "hidden", "mixture"])
def test_end_to_end(kind, tmp_path):
    """Every file against computation, and the written network scores what the report says."""
    field, rows = incomplete_field(4, 5, 200, kind, max_states=2)
    data = write_parts(field, rows, tmp_path / "data", 3)
    result = learn(field, data, output=tmp_path / "out", pseudo_count=1.0, tolerance=1e-7)
    assert result.converged
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted([*FILES, "report.json"])
    here = Enumeration(result.learned)
    report = json.loads((tmp_path / "out" / "report.json").read_text())

    value, gradient = here.objective(here.eta, rows, pseudo_count=1.0)
    assert np.abs(gradient).max() <= 1.01e-7 * 201
    assert report["objective"] == pytest.approx(value, rel=1e-11)
    assert report["log_likelihood"] == pytest.approx(here.log_likelihood(here.eta, rows)[0], rel=1e-11)
    assert report["log_likelihood"] == result.log_likelihood
    assert report["log_z"] == result.log_z == pytest.approx(here.log_z(here.eta), rel=1e-11)
    assert report["log_likelihood"] == pytest.approx(report["data_term"] - 200 * report["log_z"], rel=1e-11)
    assert (report["rows"], report["unbounded"], report["converged"]) == (200, {}, True)
    assert len(report["history"]) == report["iterations"] + 1
    assert report["settings"]["pseudo_count"] == 1.0

    read = load_network(tmp_path / "out" / "network.uai", names=tmp_path / "out" / "variables.txt")
    assert (read.variables, read.scopes) == (field.variables, field.scopes)
    assert flat(read.tables).tobytes() == flat(result.learned.tables).tobytes()
    assert all(t.max() == 1.0 for t in read.tables)
    # UAI has no place for the states' names.
    numbered = data / ".." / "numbered.parquet"
    codes = {v: [None if row[i] < 0 else row[i] for row in rows] for i, v in enumerate(field.variables)}
    pq.write_table(pa.table({v: pa.array(c, pa.int64()) for v, c in codes.items()}), numbered)
    assert score(read, numbered).log_likelihood == pytest.approx(report["log_likelihood"], rel=1e-12)
    assert score(result.learned, data).log_likelihood == pytest.approx(report["log_likelihood"], rel=1e-12)

    table = pq.read_table(tmp_path / "out" / "parameters.parquet").to_pydict()
    at = 0
    expected = here.data_term(here.eta, rows)[1]
    for f, (scope, potentials) in enumerate(zip(field.scopes, result.learned.tables, strict=True)):
        for entry in np.ndindex(potentials.shape):
            assert table["factor"][at] == f
            assert table["variables"][at] == [field.variables[v] for v in scope]
            assert table["states"][at] == [field.states[v][x] for v, x in zip(scope, entry, strict=True)]
            assert table["potential"][at] == potentials[entry]
            assert table["log_potential"][at] == pytest.approx(np.log(potentials[entry]), rel=1e-14, abs=1e-300)
            assert table["expected_count"][at] == pytest.approx(expected[at], rel=1e-9, abs=1e-9)
            at += 1
    assert at == len(table["factor"])

    log_p = (here.logs(here.eta) - here.log_z(here.eta)).reshape(field.cardinalities)
    normal = pq.read_table(tmp_path / "out" / "normalised.parquet").to_pydict()
    total = dict.fromkeys(np.ndindex(log_p.shape), log_p[(0,) * 5])
    for names, states, number in zip(normal["variables"], normal["states"], normal["value"], strict=True):
        scope = [field.variables.index(v) for v in names]
        codes = [field.states[v].index(s) for v, s in zip(scope, states, strict=True)]
        assert min(codes) > 0
        for state in total:
            if all(state[v] == x for v, x in zip(scope, codes, strict=True)):
                total[state] += number
    for state, number in total.items():
        assert number == pytest.approx(log_p[state], abs=1e-9)

    pieces = pq.read_table(tmp_path / "out" / "sub_networks.parquet").to_pydict()
    assert len(pieces["variables"]) == report["sub_networks"]
    assert math.fsum(pieces["log_likelihood"]) == pytest.approx(report["data_term"], rel=1e-12)


def test_weights_count_rows_several_times(tmp_path):
    field, rows = incomplete_field(9, 4, 60, "at random", max_states=2)
    weights = [i % 3 for i in range(60)]
    repeated = [row for row, w in zip(rows, weights, strict=True) for _ in range(w)]
    a = learn(field, as_table(field, rows, w=weights), weight="w", pseudo_count=1.0)
    b = learn(field, as_table(field, repeated), pseudo_count=1.0)
    np.testing.assert_allclose(flat(a.learned.tables), flat(b.learned.tables), rtol=1e-9)
    assert a.report["total_weight"] == len(repeated)
    halves = learn(field, as_table(field, rows, w=[w / 2 for w in weights]), weight="w", pseudo_count=0.5)
    assert halves.log_likelihood == pytest.approx(a.log_likelihood / 2, rel=1e-4)


@pytest.mark.parametrize("algorithm", INCOMPLETE_ONLY)
@pytest.mark.parametrize("kind", ["partly", "mixture"])
def test_undecomposed_is_the_same(kind, algorithm):
    field, rows = incomplete_field(3, 5, 100, kind, max_states=2)
    table = as_table(field, rows)
    how = {"algorithm": algorithm, "pseudo_count": 1.0, "tolerance": 1e-6}
    apart, whole = learn(field, table, **how), learn(field, table, decompose=False, **how)
    assert len(whole.sub_networks) == 1 < len(apart.sub_networks)
    assert apart.converged
    assert whole.converged
    assert whole.log_likelihood == pytest.approx(apart.log_likelihood, rel=1e-8)
    assert whole.sub_networks[0].distinct_rows == len(set(rows))


# --- which algorithm -----------------------------------------------------------------------------------------------

TREE = make_field([2, 3, 2], [(0, 1), (1, 2), (1,)])
TRIANGLE = make_field([2, 2, 2], [(0, 1), (1, 2), (0, 2)])


def rows_of(field, n=300, missing=0.0, seed=0):
    rng = random.Random(seed)
    drawn = sample_field(rng, with_potentials(field, [rng.uniform(-1, 1) for _ in range(100)]), n)
    return [tuple(-1 if rng.random() < missing else x for x in row) for row in drawn]


def test_auto_chooses():
    for field, missing, options, wanted in (
        (TREE, 0.0, {}, "closed-form"),
        (TREE, 0.0, {"pseudo_count": 1.0}, "closed-form"),
        (TREE, 0.0, {"l2": 0.1}, "lbfgs"),
        (TREE, 0.2, {}, "lbfgs"),
        (TRIANGLE, 0.0, {}, "lbfgs"),
        (TRIANGLE, 0.2, {}, "lbfgs"),
    ):
        result = learn(field, as_table(field, rows_of(field, missing=missing)), **options)
        assert result.report["settings"]["algorithm"] == wanted
        assert result.converged
        assert plan(field, as_table(field, rows_of(field))).model["decomposable"] == (field is TREE)


@pytest.mark.parametrize("field", [TREE, TRIANGLE], ids=["tree", "triangle"])
def test_complete_data_have_one_normalised_form(field):
    table = as_table(field, rows_of(field))
    algorithms = ["lbfgs", "cg", "em", "edml", "ipf"] + (["closed-form"] if field is TREE else [])
    found = {a: learn(field, table, algorithm=a, tolerance=1e-9, max_iterations=5000) for a in algorithms}
    wanted = normalise(found["lbfgs"].learned)[0]
    for algorithm, result in found.items():
        assert result.converged, algorithm
        for key, values in normalise(result.learned)[0].items():
            # A moment's error of 1e-9 over the smallest moments, about 1e-2.
            np.testing.assert_allclose(values, wanted[key], atol=1e-5, err_msg=algorithm)


def test_what_no_row_shows_is_reported_as_unbounded(tmp_path):
    field = make_field([2, 2, 2], [(0, 1), (1, 2)])
    rows = [(0, 0, 0)] * 5 + [(0, 1, 1)] * 3 + [(1, 0, 1)] * 4
    write_parts(field, rows, tmp_path / "data")
    for algorithm in ("closed-form", "ipf", "em", "edml", "lbfgs", "cg"):
        report = learn(field, tmp_path / "data", algorithm=algorithm).report
        assert report["unbounded"] == {"factor 0 (v0, v1)": 1, "factor 1 (v1, v2)": 1}
    learn(field, tmp_path / "data", output=tmp_path / "out")
    written = pq.read_table(tmp_path / "out" / "parameters.parquet").to_pydict()
    assert written["log_potential"].count(-math.inf) == 2
    assert load_network(tmp_path / "out" / "network.uai").tables[0][1, 1] == 0.0
    for options in ({"l2": 0.1}, {"pseudo_count": 0.1}):
        result = learn(field, tmp_path / "data", **options)
        assert result.report["unbounded"] == {}
        assert np.isfinite(np.log(flat(result.learned.tables))).all()


def test_a_variable_of_one_state_and_constants():
    field = make_field([1, 2, 1], [(0,), (0, 1), (2,), ()], [[3.0], [[1.0, 2.0]], [1.0], 5.0])
    rows = [(0, 0, 0)] * 3 + [(0, 1, 0)] * 7
    for algorithm in ("auto", "lbfgs", "cg", "em", "edml", "ipf", "closed-form"):
        result = learn(field, as_table(field, rows), algorithm=algorithm, tolerance=1e-8)
        assert result.converged
        np.testing.assert_allclose(result.learned.tables[1], [[3 / 7, 1.0]], rtol=1e-6)
        assert result.learned.tables[3].shape == ()


# --- starts --------------------------------------------------------------------------------------------------------

ZEROS = make_field([2, 2, 2], [(0, 1), (1, 2)], [[[1.0, 2.0], [3.0, 0.0]], np.ones((2, 2))])


@pytest.mark.parametrize("algorithm", INCOMPLETE_ONLY)
def test_the_networks_own_start_keeps_its_zeros(algorithm):
    rng = random.Random(1)
    rows = [tuple(x if rng.random() < 0.8 else -1 for x in row) for row in sample_field(rng, ZEROS, 100)]
    table = as_table(ZEROS, rows)
    result = learn(ZEROS, table, algorithm=algorithm, start="network", tolerance=1e-6)
    assert result.converged
    assert result.learned.tables[0][1, 1] == 0.0
    gradient = Enumeration(result.learned).log_likelihood(Enumeration(result.learned).eta, rows)[1]
    assert np.abs(gradient).max() <= 1.01e-6 * 100
    assert result.report["history"][0] == pytest.approx(score(ZEROS, table).log_likelihood, rel=1e-12)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, 1, 0), "v0=s1, v1=s1"),
        ((1, 1, -1), "v0=s1, v1=s1"),
    ],
)
def test_rows_that_zeros_exclude_are_named(row, message, tmp_path):
    rows = [(0, 1, -1), (1, 0, 1), (-1, 1, 0), row, (0, 0, 0)]
    write_parts(ZEROS, rows, tmp_path / "data")
    where = f"{tmp_path}/data/0.parquet, row 3: "
    for algorithm in INCOMPLETE_ONLY:
        with pytest.raises(ImpossibleDataError) as refused:
            learn(ZEROS, tmp_path / "data", start="network", algorithm=algorithm, output=tmp_path / "out")
        text = str(refused.value)
        assert text.startswith(f"{where}{message} has probability zero under the start, network field's own potentials")
        assert "\n" not in text
        assert not (tmp_path / "out").exists()
    scored = score(ZEROS, tmp_path / "data")
    assert scored.log_likelihood == -math.inf
    assert scored.impossible[0].startswith(f"{where}{message} has probability zero")


def test_rows_with_missing_values_that_zeros_exclude_are_named(tmp_path):
    field = make_field([2, 2, 2], [(0, 1), (1, 2)], [[[1.0, 0.0], [3.0, 0.0]], np.ones((2, 2))])
    write_parts(field, [(0, 0, -1), (1, 0, 1), (-1, 1, 0)], tmp_path / "data")
    with pytest.raises(ImpossibleDataError, match=r"0\.parquet, row 2: v1=s1.* with v0 missing has probability zero"):
        learn(field, tmp_path / "data", start="network")


def test_a_start_without_tables_is_refused():
    from dataclasses import replace

    field = replace(TREE, tables=(TREE.tables[0], None, None))
    with pytest.raises(BadInputError, match=r"has no table for factor 1 \(v1, v2\): give a network with potentials"):
        learn(field, as_table(TREE, rows_of(TREE)), algorithm="lbfgs", start="network")
    assert learn(field, as_table(TREE, rows_of(TREE))).converged


# --- names ---------------------------------------------------------------------------------------------------------


def test_names_from_a_file_a_list_and_the_columns(tmp_path):
    field = make_field([2, 2, 2], [(0, 1), (1, 2), (0, 2)])
    (tmp_path / "f.uai").write_text(write_uai(field))
    names = ["rain", "wind", "sun"]
    (tmp_path / "names.txt").write_text("\n".join(names))
    rows = rows_of(field, missing=0.2)
    data = pa.table({n: pa.array([None if r[i] < 0 else r[i] for r in rows]) for i, n in enumerate(names)})
    plain = learn(tmp_path / "f.uai", data.rename_columns(["x0", "x1", "x2"]))
    assert plain.learned.variables == ("x0", "x1", "x2")
    for given in (tmp_path / "names.txt", names, tuple(names), "columns"):
        result = learn(tmp_path / "f.uai", data, names=given, output=tmp_path / "out", overwrite=True)
        assert result.learned.variables == tuple(names)
        assert flat(result.learned.tables).tobytes() == flat(plain.learned.tables).tobytes()
        assert (tmp_path / "out" / "variables.txt").read_text() == "rain\nwind\nsun\n"
        assert score(result.learned, data).log_likelihood == pytest.approx(result.log_likelihood, rel=1e-12)
    # The weight column is no variable.
    weighted = data.append_column("w", pa.array([2] * len(rows)))
    result = learn(tmp_path / "f.uai", weighted, names="columns", weight="w")
    assert result.report["total_weight"] == 2 * len(rows)
    assert score(tmp_path / "f.uai", weighted, names="columns", weight="w").total_weight == 2 * len(rows)
    with pytest.raises(BadInputError, match=r"the data's columns: expected 3 names, .* found 4"):
        learn(tmp_path / "f.uai", weighted, names="columns")


# --- equal bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", INCOMPLETE_ONLY)
@pytest.mark.parametrize("kind", ["at random", "mixture"])
def test_equal_data_give_equal_bytes(kind, algorithm, tmp_path, threads):
    """Partitions, the order of rows, threads, in one task or iterated over the workers."""
    field, rows = incomplete_field(21, 6, 300, kind, max_states=2)
    # Pinned down by the first row: a shuffle must not make a variable hidden or observed.
    shuffled = random.Random(5).sample(rows, len(rows))
    ways = {
        "one": (1, rows, 1, 0.001),
        "parts": (7, rows, 2, 0.001),
        "shuffled": (3, shuffled, 2, 0.001),
        "spread": (1, rows, 2, 0.0),
        "spread shuffled": (5, shuffled, 3, 0.0),
    }
    found = {}
    for name, (n_parts, order, n_threads, overhead) in ways.items():
        write_parts(field, order, tmp_path / name, n_parts)
        threads(n_threads, overhead)
        result = learn(
            field, tmp_path / name, algorithm=algorithm, output=tmp_path / f"{name} out", pseudo_count=0.5,
            tolerance=1e-4, max_iterations=200, restarts=2,
        )  # fmt: skip
        assert result.report["together"] == (overhead > 0)
        found[name] = bytes_of(tmp_path / f"{name} out")
    for name, contents in found.items():
        for file, a, b in zip(FILES, found["one"], contents, strict=True):
            assert a == b, (name, file)


@pytest.mark.parametrize("algorithm", ["closed-form", "ipf", "lbfgs"])
def test_equal_complete_data_give_equal_bytes(algorithm, tmp_path, threads):
    rows = rows_of(TREE)
    for name, n_parts, n_threads, overhead in (("a", 1, 1, 0.001), ("b", 6, 2, 0.0)):
        write_parts(TREE, rows, tmp_path / name, n_parts)
        threads(n_threads, overhead)
        learn(TREE, tmp_path / name, algorithm=algorithm, output=tmp_path / f"{name} out")
    assert bytes_of(tmp_path / "a out") == bytes_of(tmp_path / "b out")


def test_a_penalty_gives_equal_bytes_spread_out(tmp_path, threads):
    field, rows = incomplete_field(21, 5, 200, "at random", max_states=2)
    found = []
    for n_threads, overhead in ((1, 0.001), (2, 0.0)):
        threads(n_threads, overhead)
        for algorithm in ("em", "lbfgs"):
            out = tmp_path / f"{n_threads} {algorithm}"
            learn(field, as_table(field, rows), algorithm=algorithm, l2=0.1, max_iterations=10, output=out)
            found.append(bytes_of(out))
    assert found[:2] == found[2:]


def test_an_impossible_row_is_named_when_spread_out_too(tmp_path, threads):
    rows = [(0, 1, -1), (1, 0, 1), (-1, 1, 0), (1, 1, -1), (0, 0, 0)]
    threads(2, 0.0)
    with pytest.raises(ImpossibleDataError, match="v0=s1, v1=s1 has probability zero under the start"):
        learn(ZEROS, as_table(ZEROS, rows), start="network")


# --- score ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FIELD_KINDS)
def test_score_against_enumeration(kind):
    for seed in range(8):
        field, rows = incomplete_field(seed, 5, 40, kind)
        here = Enumeration(field)
        weights = [i % 3 for i in range(len(rows) - 1)] + [2]
        for given in (None, weights):
            table = as_table(field, rows, **({"w": given} if given else {}))
            result = score(field, table, weight="w" if given else None)
            assert result.log_likelihood == pytest.approx(here.log_likelihood(here.eta, rows, given)[0], rel=1e-11)
            assert result.impossible == ()


def test_a_network_that_excludes_everything_is_refused():
    field = make_field([2], [(0,), (0,)], [[0.0, 1.0], [1.0, 0.0]])
    table = as_table(field, [(0,), (1,)])
    for run in (lambda: learn(field, table, start="network", algorithm="lbfgs"), lambda: score(field, table)):
        with pytest.raises(BadInputError, match="the partition function is zero"):
            run()


def test_potentials_too_far_apart_for_a_double_are_refused():
    """Scaled to a maximum of one the smaller would be zero, and rows that show it impossible, which they are not."""
    field = make_field([2, 2], [(0, 1), (1,)], [[[1e300, 1e-300], [1.0, 0.0]], [1.0, 1.0]])
    table = as_table(field, [(0, 0), (0, 1), (-1, 1)])
    for run in (lambda: learn(field, table, start="network", algorithm="lbfgs"), lambda: score(field, table)):
        with pytest.raises(BadInputError, match=r"factor 0 \(v0, v1\) has positive entries from 1e-300 to 1e\+300"):
            run()
    near = make_field([2, 2], [(0, 1), (1,)], [[[1.0, 1e-300], [1e-3, 0.0]], [1e300, 1.0]])
    here = Enumeration(near)
    assert score(near, table).log_likelihood == pytest.approx(
        here.log_likelihood(here.eta, [(0, 0), (0, 1), (-1, 1)])[0], rel=1e-12
    )


# --- what is refused -----------------------------------------------------------------------------------------------


def invoke(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


def refused(tmp_path, *args, out="out"):
    """The one line of a command that ends with status 2, prints nothing and writes nothing."""
    before = sorted(tmp_path.rglob("*"))
    result = invoke(*args, *(["--output", tmp_path / out] if args[0] == "learn" else []))
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert sorted(tmp_path.rglob("*")) == before
    line, empty = result.stderr.split("\n")
    assert empty == ""
    assert line.startswith("error: ")
    return line


@pytest.fixture
def square(tmp_path):
    """A 4-cycle as a UAI file, and data: complete, and with values missing."""
    field = make_field([2] * 4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    (tmp_path / "square.uai").write_text(write_uai(field))
    for name, missing in (("full", 0.0), ("some", 0.2)):
        rows = rows_of(field, 50, missing)
        columns = {f"x{i}": pa.array([None if r[i] < 0 else r[i] for r in rows], pa.int8()) for i in range(4)}
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(columns), tmp_path / name / "0.parquet")
    return tmp_path / "square.uai"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[: len(t) // 2], "expected .* found"),
        (lambda t: t.replace("\n2 0 1\n", "\n2 0\n"), "expected .* found"),
        (lambda t: t.replace("\n2 0 1\n", "\n2 0 9\n"), "expected a variable of factor 0, from 0 to 3, found '9'"),
        (lambda t: t.replace("\n2 0 1\n", "\n2 1 1\n"), "expected variables of factor 0 that differ, found 1 again"),
        (lambda t: t.replace("1.0", "-1.0", 1), "a finite number .* found '-1.0'"),
        (lambda t: t.replace("1.0", "one", 1), "a finite number .* found 'one'"),
        (lambda t: t.replace("1.0", "nan", 1), "a finite number .* found 'nan'"),
        (lambda t: t.replace("\n4\n 1.0", "\n5\n 1.0", 1), "expected 4 as the number of entries of factor 0"),
        (lambda t: t.replace("\n2 2 2 2\n", "\n2 2 2\n"), "expected .* found"),
        (lambda t: t + "7", "expected the end of the file"),
        (lambda t: t.replace("MARKOV", "MARKOFF"), "expected 'MARKOV' or 'BAYES', found 'MARKOFF'"),
        (lambda t: "", "expected 'MARKOV' or 'BAYES'"),
        (lambda t: t.replace("\n4\n2 2 2 2", "\n5\n2 2 2 2 2", 1), "expected variable 4 in a scope, found it in none"),
    ],
)
def test_malformed_uai_is_one_line(square, tmp_path, change, message):
    bad = tmp_path / "bad.uai"
    bad.write_text(change(square.read_text()))
    for command in ("learn", "plan", "score"):
        line = refused(tmp_path, command, bad, tmp_path / "full")
        assert "bad.uai, line " in line
        assert re.search(message, line)
    assert "bad.uai, line " in refused(tmp_path, "simulate", bad, tmp_path / "new", "--rows", 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--algorithm", "hybrid"], "algorithm: expected one of auto, lbfgs, .* found 'hybrid'"),
        (["--algorithm", "gradient"], "expected one of auto, lbfgs"),
        (["--algorithm", "nonsense"], "algorithm: expected one of auto, em, .* found 'nonsense'"),
        (["--accelerate"], "accelerate: expected a Bayesian network"),
        (["--prior", "2"], "prior: expected a Bayesian network, .* use a pseudo count or l2"),
        (["--l2", "-1"], "l2"),
        (["--l2", "nan"], "l2"),
        (["--pseudo-count", "-1"], "pseudo.count"),
        (["--pseudo-count", "inf"], "pseudo.count"),
        (["--algorithm", "closed-form"], "expected a decomposable graph, .* use ipf, lbfgs or auto"),
        (["--algorithm", "edml", "--l2", "1"], "takes no l2 penalty; use lbfgs, cg or em"),
        (["--algorithm", "ipf", "--l2", "1"], "takes no l2 penalty"),
        (["--names", "nowhere.txt"], "names nowhere.txt: the file can't be read"),
        (["--damping", "1"], "damping"),
    ],
)
def test_options_that_do_not_fit_are_one_line(square, tmp_path, options, message):
    assert re.search(message, refused(tmp_path, "learn", square, tmp_path / "full", *options))


@pytest.mark.parametrize("algorithm", ["ipf", "closed-form"])
def test_algorithms_for_complete_data_refuse_missing_values(square, tmp_path, algorithm):
    line = refused(tmp_path, "learn", square, tmp_path / "some", "--algorithm", algorithm)
    assert f"algorithm {algorithm!r}: expected complete data, found values missing of x0, x1, x2, x3; use em" in line
    hidden = pq.read_table(tmp_path / "full" / "0.parquet").drop_columns(["x2"])
    with pytest.raises(BadInputError, match="found values missing of x2; use em"):
        learn(square, hidden, algorithm=algorithm)


@pytest.mark.parametrize("options", [["--l2", "1"], ["--pseudo-count", "1"], ["--algorithm", "ipf"]])
def test_bayesian_networks_refuse_what_is_for_fields(square, tmp_path, options):
    chain = tmp_path / "chain.uai"
    chain.write_text("BAYES 4 2 2 2 2 4 1 0 2 0 1 2 1 2 2 2 3 2 .5 .5 4 .5 .5 .5 .5 4 .5 .5 .5 .5 4 .5 .5 .5 .5")
    line = refused(tmp_path, "learn", chain, tmp_path / "full", *options)
    assert options[0].strip("-").replace("-", "_") in line.replace("pseudo count", "pseudo_count")


def test_data_that_do_not_match_are_one_line(square, tmp_path):
    good = pq.read_table(tmp_path / "full" / "0.parquet")
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(good.rename_columns(["a", "b", "c", "d"]), other / "0.parquet")
    assert "x0" in refused(tmp_path, "learn", square, other)
    pq.write_table(good.append_column("e", good["x0"]).rename_columns(["a", "b", "c", "d", "e"]), other / "0.parquet")
    line = refused(tmp_path, "learn", square, other, "--names", "columns")
    assert "the data's columns: expected 4 names, as many as network square has variables, found 5" in line
    pq.write_table(good.set_column(1, "x1", pa.array([2] * 50)), other / "0.parquet")
    assert "column 'x1', row 0: value 2 is not a state" in refused(tmp_path, "learn", square, other)
    assert "names" in refused(tmp_path, "learn", square, tmp_path / "full", "--names", square)


def test_too_large_a_treewidth_is_refused_at_once(tmp_path):
    side = 40
    n = side * side
    pairs = [(v, v + 1) for v in range(n) if (v + 1) % side] + [(v, v + side) for v in range(n - side)]
    field = make_field([2] * n, pairs)
    (tmp_path / "grid.uai").write_text(write_uai(field))
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({f"x{i}": pa.array([0, 1], pa.int8()) for i in range(n)}), tmp_path / "data" / "0.parquet")
    began = time.perf_counter()
    for command in ("learn", "plan", "score"):
        line = refused(tmp_path, command, tmp_path / "grid.uai", tmp_path / "data")
        assert "the partition function of 1600 variables needs a jointree of treewidth " in line
        assert " GiB" in line
        assert "--estimator lap" in line
    line = refused(tmp_path, "simulate", tmp_path / "grid.uai", tmp_path / "new", "--rows", 2)
    assert "treewidth" in line
    assert time.perf_counter() - began < 30
    with pytest.raises(TooLargeError, match="treewidth"):
        learn(field, pa.table({f"v{i}": ["s0"] for i in range(n)}))


# --- the command line ----------------------------------------------------------------------------------------------


def test_the_commands_together(square, tmp_path):
    """simulate, plan, learn, score on one field, as a user would."""
    field = with_potentials(load_network(square), [random.Random(2).uniform(-1, 1) for _ in range(16)])
    square.write_text(write_uai(field))
    made = invoke("simulate", square, tmp_path / "rows", "--rows", 3000, "--partitions", 3, "--missing", 0.2)
    assert made.exit_code == 0, made.output
    planned = invoke("plan", square, tmp_path / "rows", "--json")
    assert json.loads(planned.stdout)["model"] == {"treewidth": 2, "bytes": 336, "decomposable": False} or (
        json.loads(planned.stdout)["model"]["treewidth"] == 2
    )
    assert "jointree of treewidth 2" in invoke("plan", square, tmp_path / "rows").stdout
    done = invoke("learn", square, tmp_path / "rows", "--output", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["settings"]["algorithm"] == "lbfgs"
    scored = invoke("score", tmp_path / "out" / "network.uai", tmp_path / "rows", "--json")
    assert json.loads(scored.stdout)["log_likelihood"] == pytest.approx(report["log_likelihood"], rel=1e-12)
    own = json.loads(invoke("score", square, tmp_path / "rows", "--json").stdout)["log_likelihood"]
    assert own < report["log_likelihood"] < own + 30
    words = invoke("learn", square, tmp_path / "rows", "--output", tmp_path / "words", "--algorithm", "edml")
    assert words.exit_code == 0, words.output
    assert "treewidth" in words.stdout
    stopped = invoke("learn", square, tmp_path / "rows", "--output", tmp_path / "few", "--max-iterations", 1)
    assert stopped.exit_code == 3
    assert "not converged after 1 iteration: moments of data and model differ by" in stopped.stderr


def test_unbounded_potentials_are_said(tmp_path):
    field = make_field([2, 2], [(0, 1)])
    (tmp_path / "pair.uai").write_text(write_uai(field))
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"x0": [0, 1, 1], "x1": [0, 0, 1]}), tmp_path / "data" / "0.parquet")
    done = invoke("learn", tmp_path / "pair.uai", tmp_path / "data", "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "1 potential without an example, of factor 0 (x0, x1): their best value is minus infinity" in done.stderr
    done = invoke("learn", tmp_path / "pair.uai", tmp_path / "data", "--output", tmp_path / "l2", "--l2", 0.5)
    assert "without an example" not in done.stderr
