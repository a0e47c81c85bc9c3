"""LAP and pseudo-likelihood through `learn` and the command line: the estimates, equal bytes, what is refused."""

import itertools
import json
import math
import random
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from cluster import connect
from pipeline import learn, load_network, score, simulate
from pipeline.cli import main
from pipeline.execution import LocalExecutor
from pipeline.local_learning import PseudoTerms, check_neighbourhoods
from pipeline.local_stages import LocalField, conditional_group, conditionals
from pipeline.normalised import normalise
from pipeline.stages import compile_group, merge, project
from pipeline.uai import write_uai
from tasks.errors import BadInputError, ImpossibleDataError, TooLargeError
from tasks.lap import AUXILIARIES, CliqueSystem
from tasks.markov_graph import Graph
from tasks.markov_terms import Penalty
from tests.oracle import (
    Enumeration,
    as_table,
    lattice_pairs,
    make_field,
    part_of,
    random_field,
    sample_field,
    uniform_field,
)

FILES = ("network.uai", "variables.txt", "parameters.parquet", "normalised.parquet", "sub_networks.parquet")
WAYS = [{"estimator": "lap", "auxiliary": a} for a in AUXILIARIES] + [{"estimator": "pseudo-likelihood"}]
WAY_IDS = [*AUXILIARIES, "pseudo-likelihood"]
GRID = uniform_field([*lattice_pairs(3, 3), *((v,) for v in range(9))], 1)
UNLIKE = uniform_field([(0, 1, 2), (2, 3), (3, 4), (4, 2), (4,), (5, 6), (7,)], 2, states=3)


def vector(field):
    """Normalised parameters, one after another."""
    return np.concatenate([v.ravel() for v in normalise(field)[0].values()])


def relative_error(one, other):
    return float(np.linalg.norm(vector(one) - vector(other)) / np.linalg.norm(vector(other)))


def true_table(field):
    """Every joint state once, its weight its probability: what LAP sees is then exact."""
    here = Enumeration(field)
    return as_table(field, [tuple(x) for x in here.states.tolist()], w=here.probabilities(here.eta))


def write_parts(field, rows, where, n_parts=1, **more):
    where.mkdir()
    borders = [len(rows) * p // n_parts for p in range(n_parts + 1)]
    for p, (a, b) in enumerate(itertools.pairwise(borders)):
        table = as_table(field, rows[a:b], **{k: v[a:b] for k, v in more.items()})
        pq.write_table(table, where / f"{p}.parquet", row_group_size=max(1, (b - a) // 2))
    return where


def bytes_of(where):
    return [(where / name).read_bytes() for name in FILES]


def data_of(field, n, seed=0):
    return sample_field(random.Random(seed), field, n)


# --- estimates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", [GRID, UNLIKE], ids=["grid", "unlike"])
@pytest.mark.parametrize("way", [*WAYS[:2], WAYS[3]], ids=["exact", "dense", "pseudo-likelihood"])
def test_true_marginals_give_the_true_parameters(field, way):
    result = learn(field, true_table(field), weight="w", tolerance=1e-8, **way)
    assert result.converged
    # A moment's error of 1e-8 (LAP's: 1e-9) over the smallest moments, about 1e-2.
    np.testing.assert_allclose(vector(result.learned), vector(field), atol=1e-6)
    assert result.log_z == pytest.approx(Enumeration(result.learned).log_z(Enumeration(result.learned).eta), rel=1e-9)


@pytest.mark.parametrize("way", WAYS, ids=WAY_IDS)
def test_many_rows_come_close_to_maximum_likelihood(way):
    table = as_table(GRID, data_of(GRID, 100_000))
    best = learn(GRID, table, tolerance=1e-8)
    result = learn(GRID, table, tolerance=1e-8, **way)
    assert result.converged
    error = relative_error(result.learned, best.learned)
    assert 1e-6 < error < 0.02
    # Few nats below the maximum: a quarter to a half a parameter, for 21 of them.
    assert 0 <= best.log_likelihood - result.log_likelihood < 10
    here = Enumeration(result.learned)
    assert result.log_likelihood == pytest.approx(score(result.learned, table).log_likelihood, rel=1e-11)
    assert result.log_z == pytest.approx(here.log_z(here.eta), rel=1e-11)


def test_theorem_6_from_integers():
    """Counts that are exactly a distribution of the family: LAP, dense and maximum likelihood are that distribution."""
    rng = random.Random(4)
    pairs = lattice_pairs(3, 3)
    field = make_field([2] * 9, pairs, [[[rng.randint(1, 3) for _ in "01"] for _ in "01"] for _ in pairs])
    here = Enumeration(field)
    counts = np.rint(np.exp(here.logs(here.eta))).astype(np.int64)
    table = as_table(field, [tuple(x) for x in here.states.tolist()], w=counts)
    best = learn(field, table, weight="w", tolerance=1e-10)
    assert best.report["total_weight"] == counts.sum()
    for auxiliary in ("exact", "dense"):
        result = learn(field, table, weight="w", estimator="lap", auxiliary=auxiliary, tolerance=1e-13)
        np.testing.assert_allclose(vector(result.learned), vector(field), atol=1e-8)
    np.testing.assert_allclose(vector(best.learned), vector(field), atol=1e-6)


def test_on_a_tree_lap_is_maximum_likelihood():
    """A_q's marginal of the maximum is the maximum on A_q: whatever the rows, few or many."""
    field = uniform_field([(0, 1), (1, 2), (1, 3), (3, 4), (3, 5)], 3, states=3)
    table = as_table(field, data_of(field, 200))
    best = learn(field, table, pseudo_count=1.0)
    assert best.report["settings"]["algorithm"] == "closed-form"
    result = learn(field, table, pseudo_count=1.0, estimator="lap")
    np.testing.assert_allclose(vector(result.learned), vector(best.learned), atol=1e-6)
    assert result.log_likelihood == pytest.approx(best.log_likelihood, rel=1e-9)


def test_pseudo_counts_are_examples_spread_evenly():
    """The same as rows of every joint state with that weight."""
    field = uniform_field(lattice_pairs(2, 3), 4)
    rows = data_of(field, 30)
    every = [tuple(x) for x in Enumeration(field).states.tolist()]
    weights = [1.0] * 30 + [2.0 / len(every)] * len(every)
    for way in WAYS[:3]:
        given_count = learn(field, as_table(field, rows), pseudo_count=2.0, **way)
        as_rows = learn(field, as_table(field, rows + every, w=weights), weight="w", **way)
        np.testing.assert_allclose(vector(given_count.learned), vector(as_rows.learned), atol=1e-5)
        assert given_count.report["unbounded"] == {}


@pytest.mark.parametrize("way", WAYS, ids=WAY_IDS)
def test_weights_count_rows_several_times(way):
    rows = data_of(GRID, 800)
    weights = [1 + i % 3 for i in range(len(rows))]
    repeated = [row for row, w in zip(rows, weights, strict=True) for _ in range(w)]
    a = learn(GRID, as_table(GRID, rows, w=weights), weight="w", **way)
    b = learn(GRID, as_table(GRID, repeated), **way)
    np.testing.assert_allclose(vector(a.learned), vector(b.learned), atol=1e-7)
    assert a.report["total_weight"] == len(repeated)
    assert a.log_likelihood == pytest.approx(b.log_likelihood, rel=1e-10)


@pytest.mark.parametrize("way", WAYS, ids=WAY_IDS)
@pytest.mark.parametrize(
    ("cardinalities", "scopes"),
    [
        ([2, 3], [(1, 0)]),
        ([4], [(0,)]),
        ([2, 2, 2], [(0,), (1, 0), (0, 1), (2,), (2,)]),
        ([2, 1, 3, 1], [(0, 1), (), (1, 2), (3,), (2, 0)]),
        ([1], [(0,)]),
        ([2, 2, 2, 2, 2], [(4, 0), (), (2, 3), (1,)]),
    ],
    ids=["one factor", "one variable", "not maximal", "one state, a constant", "nothing", "apart"],
)
def test_odd_fields(way, cardinalities, scopes, tmp_path):
    field = make_field(cardinalities, scopes)
    rng = random.Random(5)
    rows = [tuple(rng.randrange(k) for k in cardinalities) for _ in range(400)]
    # All of these graphs are decomposable, or a triangle; exact maximum likelihood is the same as LAP's.
    best = learn(field, as_table(field, rows), tolerance=1e-9)
    result = learn(field, as_table(field, rows), tolerance=1e-9, output=tmp_path / "out", **way)
    assert result.converged
    assert [t.shape for t in result.learned.tables] == list(field.shapes)
    read = load_network(tmp_path / "out" / "network.uai", names=tmp_path / "out" / "variables.txt")
    if any(k > 1 for k in cardinalities):
        np.testing.assert_allclose(vector(read), vector(best.learned), atol=1e-5)
    assert result.log_likelihood == pytest.approx(best.log_likelihood, rel=1e-8, abs=1e-9)


def test_names_from_the_columns(tmp_path):
    (tmp_path / "f.uai").write_text(write_uai(make_field([2, 2, 2], [(0, 1), (1, 2)])))
    rows = data_of(uniform_field([(0, 1), (1, 2)], 6), 200)
    data = pa.table({n: pa.array([r[i] for r in rows]) for i, n in enumerate(["rain", "wind", "sun"])})
    for way in WAYS:
        result = learn(tmp_path / "f.uai", data, names="columns", **way)
        assert result.learned.variables == ("rain", "wind", "sun")
        assert {v for s in result.sub_networks for v in s.variables} == {"rain", "wind", "sun"}


def test_a_lattice_beyond_any_jointree():
    """22 x 22: no log likelihood, and the rest as ever."""
    field = uniform_field(lattice_pairs(22, 22), 7)
    rng = np.random.default_rng(0)
    table = pa.table({v: [f"s{x}" for x in rng.integers(0, 2, 200)] for v in field.variables})
    for way in WAYS[::2]:
        result = learn(field, table, pseudo_count=1.0, **way)
        assert result.converged
        assert math.isnan(result.log_likelihood)
        assert result.report["log_likelihood"] is result.report["log_z"] is None
        assert result.report["cliques"] == len(result.sub_networks) == 2 * 22 * 21
        assert result.report["largest_neighbourhood"] == 8
    assert learn(field, table, estimator="pseudo-likelihood", l2=0.1).converged


# --- equal bytes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    with connect("local", 2) as client:
        yield client


@pytest.mark.parametrize("way", WAYS, ids=WAY_IDS)
def test_equal_data_give_equal_bytes(way, tmp_path, threads, client):
    rows = data_of(GRID, 900)
    found = {}
    for name, order, n_parts, n_threads in (
        ("one", rows, 1, 1), ("parts", rows, 7, 2), ("shuffled", random.Random(1).sample(rows, len(rows)), 3, 2)
    ):  # fmt: skip
        write_parts(GRID, order, tmp_path / name, n_parts)
        threads(n_threads)
        learn(GRID, tmp_path / name, output=tmp_path / f"{name} out", **way)
        found[name] = bytes_of(tmp_path / f"{name} out")
    learn(GRID, tmp_path / "parts", output=tmp_path / "cluster out", client=client, **way)
    found["cluster"] = bytes_of(tmp_path / "cluster out")
    for name, contents in found.items():
        for file, a, b in zip(FILES, found["one"], contents, strict=True):
            assert a == b, (name, file)


def test_groups_of_cliques_do_not_matter(monkeypatch):
    table = as_table(GRID, data_of(GRID, 300))
    for way in WAYS:
        wanted = [t.tobytes() for t in learn(GRID, table, **way).learned.tables]
        monkeypatch.setattr("pipeline.local_learning.CLIQUES_PER_GROUP", 2)
        monkeypatch.setattr("pipeline.local_learning.VARIABLES_PER_GROUP", 2)
        assert [t.tobytes() for t in learn(GRID, table, **way).learned.tables] == wanted
        monkeypatch.undo()


# --- pseudo-likelihood (equation 8) --------------------------------------------------------------------------------


def pseudo_terms(field, rows, weights=None, l2=0.0, n_groups=2):
    """The project's own terms of a field and rows, its variables in some groups."""
    graph: Graph = field.graph
    n = len(graph.names)
    local = LocalField(CliqueSystem(graph), tuple(range(n)), (False,) * n, "exact", 1 << 30)
    partition = part_of(rows, rows, weights or [])
    handles = []
    for k in range(n_groups):
        own = list(range(n * k // n_groups, n * (k + 1) // n_groups))
        group = conditional_group(local, own)
        handles.append(conditionals(compile_group(merge([project(partition, group)]), group), local, own))
    counts = np.zeros(graph.n_parameters)
    for row, w in zip(rows, weights or [1] * len(rows), strict=True):
        for f, scope in enumerate(graph.scopes):
            shape = [graph.cardinalities[v] for v in scope]
            counts[int(graph.bases[f]) + int(np.ravel_multi_index([row[v] for v in scope], shape))] += w
    degree = np.repeat([len(s) for s in graph.scopes], np.diff(graph.bases))
    n_examples = float(sum(weights or [1] * len(rows)))
    return PseudoTerms(LocalExecutor(1), handles, graph, degree * counts, n_examples, Penalty(l2=l2))


def pseudo_likelihood(field, eta, rows, weights=None):
    """Σ_n Σ_m log p(x_m | the others), from the joint."""
    here = Enumeration(field)
    logs = here.logs(eta).reshape(field.cardinalities)
    total = []
    for row, w in zip(rows, weights or [1] * len(rows), strict=True):
        for v in range(len(row)):
            line = logs[tuple(slice(None) if u == v else x for u, x in enumerate(row))]
            total.append(w * (line[row[v]] - np.logaddexp.reduce(line)))
    return math.fsum(total)


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([0.0, 0.3]), st.booleans())
@settings(max_examples=40)
def test_objective_and_gradient(seed, n, l2, weighted):
    """Against the definition and its differences; factors of one to three variables."""
    rng = random.Random(seed)
    field = random_field(rng, n, max_states=3, max_arity=3, max_joint=200)
    rows = sample_field(rng, field, 12)
    weights = [rng.randint(1, 4) for _ in rows] if weighted else None
    terms = pseudo_terms(field, rows, weights, l2, n_groups=rng.randint(1, n))
    eta = np.random.default_rng(seed).normal(size=field.graph.n_parameters)

    def objective(x):
        return pseudo_likelihood(field, x, rows, weights) - 0.5 * l2 * float(x @ x)

    point = terms.evaluate(eta)
    assert point.log_likelihood == pytest.approx(pseudo_likelihood(field, eta, rows, weights), rel=1e-10, abs=1e-10)
    assert point.objective == pytest.approx(objective(eta), rel=1e-10, abs=1e-10)
    gradient = point.expected - terms.n_examples * point.marginals - l2 * eta
    np.testing.assert_allclose(gradient, approx_fprime(eta, objective, 1e-6), atol=2e-3)


def test_the_maximum_of_pseudo_likelihood():
    rows = data_of(UNLIKE, 400)
    for l2 in (0.0, 0.5):
        result = learn(UNLIKE, as_table(UNLIKE, rows), estimator="pseudo-likelihood", l2=l2, tolerance=1e-8)
        assert result.converged
        assert result.report["moment_error"] <= 1e-8
        here = Enumeration(result.learned)
        value = pseudo_likelihood(UNLIKE, here.eta, rows)
        assert result.report["pseudo_log_likelihood"] == pytest.approx(value, rel=1e-10)
        history = result.report["history"]
        assert len(history) == result.report["iterations"] + 1
        if not l2:
            assert history[-1] == max(history)
            rng = np.random.default_rng(0)
            for _ in range(20):
                near = here.eta + rng.normal(scale=0.05, size=len(here.eta))
                assert pseudo_likelihood(UNLIKE, near, rows) < value
    plain = learn(UNLIKE, as_table(UNLIKE, rows), estimator="pseudo-likelihood")
    assert np.linalg.norm(vector(result.learned)) < np.linalg.norm(vector(plain.learned))


# --- missing values (experimental) ---------------------------------------------------------------------------------


def test_em_inside_local_problems(tmp_path):
    field = uniform_field(lattice_pairs(2, 3), 8)
    rows = data_of(field, 20_000)
    rng = random.Random(0)
    some = [tuple(-1 if rng.random() < 0.2 else x for x in row) for row in rows]
    whole = learn(field, as_table(field, rows))
    exact = learn(field, as_table(field, some))
    for auxiliary in AUXILIARIES:
        result = learn(
            field, as_table(field, some), estimator="lap", auxiliary=auxiliary, on_missing="em",
            output=tmp_path / "out", overwrite=True,
        )  # fmt: skip
        assert result.converged
        report = json.loads((tmp_path / "out" / "report.json").read_text())
        assert report["experimental"] == "EM inside local problems"
        assert report["log_likelihood"] is None
        assert relative_error(result.learned, exact.learned) < 0.1
        assert relative_error(result.learned, field) < 0.2
    assert relative_error(whole.learned, field) < 0.15
    # Of complete data the option changes nothing, and nothing is experimental.
    for auxiliary in AUXILIARIES:
        a = learn(field, as_table(field, rows), estimator="lap", auxiliary=auxiliary, on_missing="em")
        b = learn(field, as_table(field, rows), estimator="lap", auxiliary=auxiliary)
        assert [t.tobytes() for t in a.learned.tables] == [t.tobytes() for t in b.learned.tables]
        assert a.report["experimental"] is None


def test_em_where_few_are_missing_is_near_complete():
    """One value of one variable is missing: only cliques near it notice, and hardly."""
    rows = data_of(GRID, 3000)
    some = [(-1, *rows[0][1:]), *rows[1:]]
    a = learn(GRID, as_table(GRID, rows), estimator="lap")
    b = learn(GRID, as_table(GRID, some), estimator="lap", on_missing="em", tolerance=1e-9)
    assert 0 < np.abs(vector(a.learned) - vector(b.learned)).max() < 0.01


def test_em_takes_pseudo_counts_and_weights():
    field = make_field([2, 2], [(0, 1)])
    rows = [(0, 0), (1, 1), (0, -1)]
    table = as_table(field, rows, w=[3, 2, 1])
    with pytest.raises(BadInputError, match="found 0 examples of v0="):
        learn(field, table, weight="w", estimator="lap", on_missing="em")
    result = learn(field, table, weight="w", estimator="lap", on_missing="em", pseudo_count=1.0, tolerance=1e-9)
    best = learn(field, table, weight="w", pseudo_count=1.0, tolerance=1e-9)
    np.testing.assert_allclose(vector(result.learned), vector(best.learned), atol=1e-5)


def test_em_that_drives_states_to_zero_is_one_line(monkeypatch):
    """Without a pseudo count the likelihood's best may be at the border; it takes EM a while to get there."""

    def fail(*_):
        raise ImpossibleDataError("the partition function is zero", (), ())

    monkeypatch.setattr("pipeline.local_stages._solve_incomplete", fail)
    field = make_field([2, 2, 2], [(0, 1), (1, 2)])
    table = as_table(field, [(0, 0, 1), (1, 1, -1)])
    with pytest.raises(BadInputError, match=r"^estimator 'lap': EM around clique \(v\d, v\d\) .*; give --pseudo-count"):
        learn(field, table, estimator="lap", on_missing="em")


def test_nothing_is_compiled_in_a_timed_stage():
    """In a process of its own: after the warm-up the kernels that LAP needs are there."""
    code = (
        "from tasks.warmup import warm_up; warm_up(kernels='markov')\n"
        "from tasks import ipf; assert ipf._fit.signatures, 'cold'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr


# --- what is refused -----------------------------------------------------------------------------------------------


def invoke(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


def refused(tmp_path, *args):
    """The one line of a command that ends with status 2, prints nothing and writes nothing."""
    before = sorted(tmp_path.rglob("*"))
    result = invoke("learn", *args, "--output", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert sorted(tmp_path.rglob("*")) == before
    line, empty = result.stderr.split("\n")
    assert empty == ""
    assert line.startswith("error: ")
    return line


@pytest.fixture
def square(tmp_path):
    """A 4-cycle as a UAI file, and data: complete, with values missing, with a column missing."""
    field = uniform_field([(0, 1), (1, 2), (2, 3), (3, 0)], 9)
    (tmp_path / "square.uai").write_text(write_uai(field))
    rows = data_of(field, 200)
    for name, rate, shown in (("full", 0.0, 4), ("some", 0.2, 4), ("hidden", 0.0, 3)):
        rng = random.Random(0)
        columns = {f"x{i}": [None if rng.random() < rate else r[i] for r in rows] for i in range(shown)}
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({k: pa.array(c, pa.int8()) for k, c in columns.items()}), tmp_path / name / "0.parquet")
    return tmp_path / "square.uai"


LAP, PSEUDO = ("--estimator", "lap"), ("--estimator", "pseudo-likelihood")


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (
            "some",
            LAP,
            "expected complete data, found values missing of x0, x1, x2, x3: .*--on-missing em .*experimental",
        ),
        ("some", PSEUDO, "expected complete data, found values missing of x0, x1, x2, x3: .*use --estimator exact"),
        ("hidden", LAP, "expected values of every variable, found none of x3"),
        ("hidden", PSEUDO, "expected values of every variable, found none of x3"),
        ("hidden", (*LAP, "--on-missing", "em"), "expected values of every variable, found none of x3"),
        ("full", ("--estimator", "guess"), "--estimator: expected one of exact, lap, pseudo-likelihood, found 'guess'"),
        ("full", (*LAP, "--auxiliary", "guess"), "--auxiliary: expected one of exact, dense, pairwise, found 'guess'"),
        ("full", (*LAP, "--on-missing", "guess"), "--on-missing: expected 'refuse' or 'em', found 'guess'"),
        ("full", ("--auxiliary", "dense"), "auxiliary: expected estimator 'lap', which it is of, found 'exact'"),
        (
            "full",
            (*PSEUDO, "--auxiliary", "dense"),
            "auxiliary: expected estimator 'lap', .* found 'pseudo-likelihood'",
        ),
        ("some", (*PSEUDO, "--on-missing", "em"), "on_missing: expected estimator 'lap', .* found 'pseudo-likelihood'"),
        ("full", (*LAP, "--algorithm", "lbfgs"), "algorithm: estimator 'lap' has its own, found 'lbfgs'"),
        ("full", (*PSEUDO, "--algorithm", "cg"), "algorithm: estimator 'pseudo-likelihood' has its own, found 'cg'"),
        ("full", (*LAP, "--prior", "2"), "prior: estimator 'lap' does not take it"),
        ("full", (*LAP, "--restarts", "3"), "restarts: estimator 'lap' does not take it"),
        ("full", (*PSEUDO, "--start", "network"), "start: estimator 'pseudo-likelihood' does not take it"),
        ("full", (*LAP, "--accelerate"), "accelerate: estimator 'lap' does not take it"),
        ("full", (*LAP, "--no-decompose"), "decompose: estimator 'lap' does not take it"),
        ("full", (*LAP, "--l2", "1"), "l2: estimator 'lap' does not take it; use a pseudo count"),
        ("full", (*PSEUDO, "--pseudo-count", "1"), "pseudo_count: estimator 'pseudo-likelihood' .*; use an l2 penalty"),
    ],
)
def test_refusals_are_one_line(square, tmp_path, data, options, message):
    assert re.search(message, refused(tmp_path, square, tmp_path / data, *options))


@pytest.mark.parametrize("way", WAYS[::3], ids=WAY_IDS[::3])
def test_a_bayesian_network_is_refused(way):
    table = pa.table({"asia": ["yes", "no"]})
    with pytest.raises(BadInputError, match="expected a Markov random field, found Bayesian network asia"):
        learn("asia", table, **way)


@pytest.mark.parametrize(
    ("setting", "value"), [("estimator", "LAP"), ("estimator", None), ("auxiliary", 3), ("on_missing", "drop")]
)
def test_unknown_settings_from_python(setting, value):
    options = {"estimator": "lap", setting: value}
    with pytest.raises(BadInputError, match=f"{setting}: expected"):
        learn(GRID, as_table(GRID, data_of(GRID, 5)), **options)


@pytest.mark.parametrize("auxiliary", AUXILIARIES)
def test_a_state_without_an_example_is_named(auxiliary, tmp_path):
    """The clique that lacks it, although another is read first that meets it."""
    field = make_field([2, 2, 2, 2], [(0, 1), (1, 2), (2, 3)])
    rows = [x for x in itertools.product((0, 1), repeat=4) if x[2:] != (1, 1)] * 3
    with pytest.raises(BadInputError) as found:
        learn(field, as_table(field, rows), estimator="lap", auxiliary=auxiliary, output=tmp_path / "out")
    assert "found 0 examples of v2=s1, v3=s1: potentials around it have no finite estimate; give --pseudo-count" in str(
        found.value
    )
    assert "\n" not in str(found.value)
    assert not (tmp_path / "out").exists()
    assert learn(field, as_table(field, rows), estimator="lap", auxiliary=auxiliary, pseudo_count=1.0).converged


def test_pseudo_likelihood_says_what_is_unbounded():
    field = make_field([2, 2], [(0, 1)])
    table = as_table(field, [(0, 0), (0, 1), (1, 1)] * 5)
    assert learn(field, table, estimator="pseudo-likelihood").report["unbounded"] == {"factor 0 (v0, v1)": 1}
    assert learn(field, table, estimator="pseudo-likelihood", l2=0.1).report["unbounded"] == {}


def star(n_leaves, tied=False):
    """A hub with leaves; `tied`: the leaves hang together beyond its neighbourhood."""
    pairs = [(0, k) for k in range(1, n_leaves + 1)]
    if tied:
        pairs += [(k, n_leaves + k) for k in range(1, n_leaves + 1)]
        pairs += [(n_leaves + k, n_leaves + k + 1) for k in range(1, n_leaves)]
    return make_field([2] * (1 + n_leaves * (1 + tied)), pairs)


@pytest.mark.parametrize("auxiliary", ["dense", "pairwise"])
def test_a_hub_is_too_wide(auxiliary, tmp_path):
    """40 leaves: their structure is a tree, but dense and pairwise would join them all."""
    field = star(40)
    (tmp_path / "star.uai").write_text(write_uai(field))
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    columns = {f"x{i}": pa.array(rng.integers(0, 2, 300), pa.int8()) for i in range(41)}
    pq.write_table(pa.table(columns), tmp_path / "data" / "0.parquet")
    line = refused(tmp_path, tmp_path / "star.uai", tmp_path / "data", *LAP, "--auxiliary", auxiliary)
    assert re.search(
        rf"clique \(x0, x1\) has a neighbourhood of 41 variables, too many for auxiliary '{auxiliary}' in .* GiB; "
        "use --auxiliary exact$",
        line,
    )
    done = invoke("learn", tmp_path / "star.uai", tmp_path / "data", "--output", tmp_path / "out", *LAP)
    assert done.exit_code == 0, done.output


def test_a_hub_whose_leaves_hang_together_is_for_pseudo_likelihood():
    field = star(40, tied=True)
    rng = np.random.default_rng(0)
    table = pa.table({v: [f"s{x}" for x in rng.integers(0, 2, 300)] for v in field.variables})
    for auxiliary in AUXILIARIES:
        with pytest.raises(
            TooLargeError, match=r"\(v0, v1\) .* of \d+ variables, .*; use --estimator pseudo-likelihood"
        ):
            learn(field, table, estimator="lap", auxiliary=auxiliary)
    assert learn(field, table, estimator="pseudo-likelihood", l2=0.1).converged


def test_tables_that_do_not_fit_together_are_refused():
    """Each clique's is small, all of them are not; pairwise holds no table over a whole neighbourhood."""
    system = CliqueSystem(make_field([2] * 125, lattice_pairs(5, 5, 5)).graph)
    said = "count tables of 300 neighbourhoods of up to 12 variables take .* GiB with auxiliary '{}', allowed .* GiB; "
    for auxiliary in ("exact", "dense"):
        assert check_neighbourhoods(system, auxiliary, 1 << 17, 16) == 12
        with pytest.raises(TooLargeError, match=said.format(auxiliary) + "use --auxiliary pairwise"):
            check_neighbourhoods(system, auxiliary, 1 << 17)
    assert check_neighbourhoods(system, "pairwise", 1 << 17) == 12
    # A hub of 18 leaves: 2^17 states of the others, but no table over them.
    assert check_neighbourhoods(CliqueSystem(star(18).graph), "exact", 1 << 20) == 19
    with pytest.raises(TooLargeError, match="count tables of 18 neighbourhoods"):
        check_neighbourhoods(CliqueSystem(star(18).graph), "dense", 1 << 23)


# --- the command line ----------------------------------------------------------------------------------------------


def test_the_commands_together(tmp_path):
    field = uniform_field(lattice_pairs(3, 3), 10)
    (tmp_path / "lattice.uai").write_text(write_uai(field))
    simulate(tmp_path / "lattice.uai", tmp_path / "rows", rows=20_000, partitions=3)
    exact = learn(tmp_path / "lattice.uai", tmp_path / "rows")
    for way in (*((*LAP, "--auxiliary", a) for a in AUXILIARIES), PSEUDO):
        command = (
            "learn",
            tmp_path / "lattice.uai",
            tmp_path / "rows",
            "--output",
            tmp_path / "out",
            "--overwrite",
            *way,
        )
        done = invoke(*command)
        assert done.exit_code == 0, done.output
        assert way[-1] in done.stdout
        assert "written to" in done.stdout
        report = json.loads(invoke(*command, "--json").stdout)
        assert report["settings"]["estimator"] == way[1]
        learned = load_network(tmp_path / "out" / "network.uai")
        assert relative_error(learned, exact.learned) < 0.05
        scored = json.loads(invoke("score", tmp_path / "out" / "network.uai", tmp_path / "rows", "--json").stdout)
        assert scored["log_likelihood"] == pytest.approx(report["log_likelihood"], rel=1e-11)


def test_a_job_file(tmp_path, square):
    (tmp_path / "job.toml").write_text(
        'network = "square.uai"\ndata = "full"\noutput = "out"\nestimator = "lap"\nauxiliary = "pairwise"\n'
        "pseudo-count = 1.0\njson = true\n"
    )
    done = invoke("run", tmp_path / "job.toml")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["settings"]["auxiliary"] == "pairwise"


def test_not_converged_is_said(tmp_path, square, monkeypatch):
    done = invoke("learn", square, tmp_path / "full", "--output", tmp_path / "a", *PSEUDO, "--max-iterations", 1)
    assert done.exit_code == 3
    assert "not converged after 1 iteration: moments" in done.stderr
    monkeypatch.setattr("pipeline.local_stages.MAX_SWEEPS", 1)
    done = invoke("learn", square, tmp_path / "full", "--output", tmp_path / "b", *LAP)
    assert done.exit_code == 3
    assert "not converged: 4 of 4 cliques; a larger --pseudo-count helps\n" in done.stderr
    em = (*LAP, "--on-missing", "em", "--max-iterations", 1)
    done = invoke("learn", square, tmp_path / "some", "--output", tmp_path / "c", *em)
    assert done.exit_code == 3
    assert "experimental" in done.stdout
    assert "helps; or raise --max-iterations\n" in done.stderr
