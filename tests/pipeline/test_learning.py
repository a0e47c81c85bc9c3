"""`learn` from end to end: the same bytes however it is run, and the likelihood recomputed by other means."""

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import learn, load_network, plan, score, simulate
from pipeline.models import to_pgmpy
from pipeline.network import Network
from tasks.errors import BadInputError, ImpossibleDataError
from tests import oracle
from tests.oracle import KINDS, as_table, incomplete_data, random_table, structure

FILES = ("network.bif", "parameters.parquet", "sub_networks.parquet")
# Tables that lie beside the repository where it is developed.
TABLES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "tables"


def outputs(tmp_path, network, data, **options):
    """The bytes of what a job writes."""
    where = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    learn(network, data, output=where, **options)
    return [(where / f).read_bytes() for f in FILES]


def write_parts(directory, table, cuts, **options):
    directory.mkdir()
    for i, (a, b) in enumerate(itertools.pairwise([0, *cuts, len(table)])):
        pq.write_table(table.slice(a, b - a), directory / f"part{i}.parquet", **options)
    return directory


def largest_difference(a: Network, b: Network) -> float:
    assert a.variables == b.variables
    return max(float(np.abs(x - y).max()) for x, y in zip(a.tables, b.tables, strict=True))


# --- the same answer, to the last byte -----------------------------------------------------------------------------


@pytest.mark.parametrize("decompose", [True, False])
@pytest.mark.parametrize("kind", ["at random", "partly"])
def test_nothing_but_the_data_matters(tmp_path, threads, kind, decompose):
    """Partitions, files, row groups, row order, column order, threads, dictionaries: equal bytes out."""
    network, _, rows = incomplete_data(41, 7, 400, kind)
    table = as_table(network, rows)
    options = {"decompose": decompose, "prior": 1.5, "restarts": 2}
    threads(1)
    wanted = outputs(tmp_path, network, table, **options)
    shuffled = table.take(pa.array(random.Random(0).sample(range(400), 400)))
    turned = shuffled.select(list(reversed(table.column_names)))
    coded = pa.table({n: turned[n].dictionary_encode() for n in turned.column_names})
    jobs = {
        "one file": write_parts(tmp_path / "one", table, []),
        "many files": write_parts(tmp_path / "many", shuffled, [0, 3, 50, 51, 200, 399]),
        "twenty files": write_parts(tmp_path / "twenty", shuffled, range(20, 400, 20)),
        "row groups": write_parts(tmp_path / "groups", turned, [123], row_group_size=37),
        "dictionaries": write_parts(tmp_path / "coded", coded, [250]),
        "no schema": write_parts(tmp_path / "plain", coded, [250], store_schema=False),
        "a table": turned,
        "pandas": turned.to_pandas(),
    }
    for n, (what, data) in zip(itertools.cycle((1, 2, 3)), jobs.items(), strict=False):
        threads(n)
        assert outputs(tmp_path, network, data, **options) == wanted, what
    assert len(pq.read_table(pa.BufferReader(wanted[1]))) == sum(t.size for t in network.tables)


def test_a_dask_frame_is_data_too(tmp_path):
    dataframe = pytest.importorskip("dask.dataframe")
    network, _, rows = incomplete_data(42, 5, 200)
    table = as_table(network, rows)
    frame = dataframe.from_pandas(table.to_pandas(), npartitions=3)
    assert outputs(tmp_path, network, frame) == outputs(tmp_path, network, table)


def test_names_of_states_do_not_matter():
    network, _, rows = incomplete_data(43, 6, 200)
    result = learn(network, as_table(network, rows))
    states = tuple(tuple(f"{v} {9 - x}, or so" for x in range(len(s))) for v, s in enumerate(network.states))
    other = replace(network, states=states)
    renamed = learn(other, as_table(other, rows))
    assert largest_difference(result.learned, renamed.learned) == 0
    assert renamed.log_likelihood == result.log_likelihood
    assert renamed.learned.states == states


def test_order_of_states_parents_and_variables():
    """From the same start, written in another order, the same parameters in that order."""
    _, start, rows = incomplete_data(44, 6, 200)
    options = {"start": "network", "max_iterations": 20, "tolerance": 0}
    result = learn(start, as_table(start, rows), **options)
    rng = random.Random(0)
    shuffle = [rng.sample(range(len(s)), len(s)) for s in start.states]  # new position -> old state
    order = rng.sample(range(6), 6)  # new position -> old variable
    back = {old: new for new, old in enumerate(order)}

    def turned(network, v):
        """Variable v's table with every axis's states permuted and the parents in reverse."""
        table = network.tables[v]
        for axis, j in enumerate((*network.parents[v], v)):
            table = np.take(table, shuffle[j], axis=axis)
        parents = range(len(network.parents[v]))
        return np.transpose(table, (*reversed(parents), len(parents)))

    other = Network(
        "turned",
        tuple(start.variables[v] for v in order),
        tuple(tuple(start.states[v][x] for x in shuffle[v]) for v in order),
        tuple(tuple(back[p] for p in reversed(start.parents[v])) for v in order),
        tuple(turned(start, v) for v in order),
    )
    again = learn(other, as_table(start, rows), **options)
    assert again.log_likelihood == pytest.approx(result.log_likelihood, rel=1e-12)
    for new, v in enumerate(order):
        # Twenty iterations of sums in another order: 1e-16 a step, and EM contracts.
        np.testing.assert_allclose(again.learned.tables[new], turned(result.learned, v), rtol=1e-10, atol=1e-13)


# --- the right answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drop_barren", [True, False])
def test_decomposed_is_undecomposed(kind, drop_barren):
    """The same path from the same start where both take the same number of steps, and the likelihood by enumeration."""
    network, start, rows = incomplete_data(45, 6, 60, kind)
    if all(x < 0 for x in rows[0]) and len(rows) == 1:
        pytest.skip("the one row is empty")
    table = as_table(network, rows)
    options = {"start": "network", "drop_barren": drop_barren, "max_iterations": 7, "tolerance": 0}
    results = [learn(start, table, decompose=d, **options) for d in (True, False)]
    assert len(results[1].sub_networks) == 1
    assert results[0].log_likelihood == pytest.approx(results[1].log_likelihood, rel=1e-10, abs=1e-12)
    assert results[0].report["unlearnable"] == results[1].report["unlearnable"]
    for result in results:
        wanted = oracle.log_likelihood(result.learned, rows)
        assert result.log_likelihood == pytest.approx(wanted, rel=1e-10, abs=1e-12)
        scored = score(result.learned, table)
        assert scored.log_likelihood == pytest.approx(wanted, rel=1e-10, abs=1e-12)
        assert (scored.rows, scored.total_weight) == (len(rows), len(rows))
        for expected, learned in zip(result.expected_counts, result.learned.tables, strict=True):
            assert learned.sum(axis=-1) == pytest.approx(1, rel=1e-14)
            assert expected is None or expected.shape == learned.shape
    # Seven steps of equal arithmetic in another order.
    assert largest_difference(results[0].learned, results[1].learned) < 1e-9
    # By enumeration: the same start, the same steps; families that are solved at once are solved by then.
    path = oracle.em(start, rows, 7, drop_barren=drop_barren)[-1]
    for v, name in enumerate(network.variables):
        if name not in results[1].report["unlearnable"]:
            np.testing.assert_allclose(results[1].learned.tables[v], path.tables[v], rtol=1e-8, atol=1e-10)


def as_pyagrum(network):
    gum = pytest.importorskip("pyagrum")
    bn = gum.BayesNet()
    for name, states in zip(network.variables, network.states, strict=True):
        bn.add(gum.LabelizedVariable(name, name, list(states)))
    for v, name in enumerate(network.variables):
        for p in network.parents[v]:
            bn.addArc(network.variables[p], name)
        for u in configurations(network, v):
            bn.cpt(name)[{network.variables[p]: x for p, x in zip(network.parents[v], u, strict=True)}] = list(
                network.tables[v][u]
            )
    return bn


def configurations(network, v):
    return itertools.product(*(range(k) for k in network.tables[v].shape[:-1]))


@pytest.mark.parametrize("weight", [0.0, 1.0, 0.5])
def test_equal_to_pyagrum_after_every_iteration(tmp_path, weight):
    """Textbook EM by another implementation: useSmoothingPrior(w) is a Dirichlet exponent of 1 + w."""
    gum = pytest.importorskip("pyagrum")
    network, start, rows = incomplete_data(3, 6, 300)
    examples = [1 + i % 3 for i in range(300)]
    lines = [",".join(network.variables)]
    for row, n in zip(rows, examples, strict=True):
        line = ",".join(network.states[v][x] if x >= 0 else "?" for v, x in enumerate(row))
        lines += [line] * n
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    bn = as_pyagrum(start)
    table = as_table(network, rows, examples=examples)
    for iterations in (2, 3, 10):
        learner = gum.BNLearner(str(tmp_path / "rows.csv"), bn, ["?"])
        _ = learner.useSmoothingPrior(weight) if weight else learner.useNoPrior()
        learner.useEMWithDiffCriterion(1e-300, 0.0)
        learner.EMsetMaxIter(iterations)
        theirs = learner.learnParameters(bn)
        ours = learn(
            start, table, start="network", drop_barren=False, prior=1 + weight, weight="examples",
            max_iterations=iterations, tolerance=0,
        )  # fmt: skip
        assert learner.EMnbrIterations() == iterations
        for v, name in enumerate(network.variables):
            for u in configurations(network, v):
                given = {network.variables[p]: x for p, x in zip(network.parents[v], u, strict=True)}
                # Both are exact; ten iterations in different orders of summation.
                np.testing.assert_allclose(
                    np.ravel(theirs.cpt(name)[given]), ours.learned.tables[v][u], rtol=1e-9, atol=1e-12
                )
        theirs_by_row = math.fsum(
            n * second_opinion(theirs, network, row) for row, n in zip(rows, examples, strict=True)
        )
        assert ours.log_likelihood == pytest.approx(theirs_by_row, rel=1e-10)


def second_opinion(bn, network, row, known={}):  # noqa: B006  (one row's answer is asked for again and again)
    """Log probability of a row's observed entries by pyAgrum's inference."""
    gum = pytest.importorskip("pyagrum")
    evidence = {network.variables[v]: x for v, x in enumerate(row) if x >= 0}
    if not evidence:
        return 0.0
    key = (id(bn), row)
    if key not in known:
        engine = gum.LazyPropagation(bn)
        engine.setEvidence(evidence)
        known[key] = bn, math.log(engine.evidenceProbability())
    return known[key][1]


@pytest.mark.parametrize("kind", ["at random", "hidden", "mar"])
def test_log_likelihood_by_pyagrum_row_by_row(kind):
    network, _, rows = incomplete_data(46, 12, 150, kind, max_states=4, max_parents=3)
    result = learn(network, as_table(network, rows), tolerance=1e-3)
    bn = as_pyagrum(result.learned)
    wanted = math.fsum(second_opinion(bn, network, row) for row in rows)
    assert result.log_likelihood == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("drop_barren", [True, False])
def test_recovery(tmp_path, drop_barren):
    """Known parameters come back within a few standard errors of what 40 000 rows can tell."""
    rng = random.Random(5)
    states = (("a", "b"), ("a", "b", "c"), ("a", "b"), ("a", "b"))
    parents = ((), (0,), (0, 1), (2,))
    tables = tuple(random_table(rng, [len(states[p]) for p in (*ps, v)]) for v, ps in enumerate(parents))
    tables = tuple(0.8 * t + 0.2 / t.shape[-1] for t in tables)
    network = Network("known", ("p", "q", "r", "s"), states, parents, tables)
    simulate(network, tmp_path / "data", rows=40_000, partitions=3, missing=0.2, seed=1)
    result = learn(structure(network, 6), tmp_path / "data", drop_barren=drop_barren)
    assert result.converged
    for v, (found, true) in enumerate(zip(result.learned.tables, network.tables, strict=True)):
        # A configuration seen n times tells p to sqrt(p (1 - p) / n); missing entries cost at most half of that again.
        n = result.expected_counts[v].sum(axis=-1, keepdims=True)
        assert n.min() > 1000
        error = np.abs(found - true) / np.sqrt(true * (1 - true) / n)
        assert error.max() < 6
    truth = score(network, tmp_path / "data").log_likelihood
    # Twice the gain is a chi-square with as many degrees of freedom as free parameters: 1 + 4 + 6 + 2.
    assert 0 < 2 * (result.log_likelihood - truth) < 13 + 5 * math.sqrt(2 * 13)


def test_restarts_are_kept_by_sub_network():
    """Two hidden mixtures, apart: each keeps its own best start."""
    network, _, rows = incomplete_data(28, 6, 60, "hidden")
    twin = Network(
        "twins",
        (*network.variables, *(f"{v}'" for v in network.variables)),
        network.states * 2,
        (*network.parents, *(tuple(p + 6 for p in ps) for ps in network.parents)),
        network.tables * 2,
    )
    data = as_table(twin, [row + row for row in rows])
    several = learn(twin, data, restarts=5, seed=3)
    singles = [learn(twin, data, restarts=r, seed=3) for r in (1, 2)]
    for k, record in enumerate(several.sub_networks):
        assert len(record.restarts) == (5 if record.iterations else 0)
        assert record.log_posterior == max(record.restarts, default=record.log_posterior)
        for r, single in enumerate(singles, start=1):
            if record.iterations:
                assert single.sub_networks[k].restarts == record.restarts[:r]
    assert several.log_likelihood >= singles[0].log_likelihood


# --- what counts as data -------------------------------------------------------------------------------------------


def test_hidden_columns_absent_or_empty():
    """No column, a column of nulls, a column of missing tokens: hidden all the same."""
    network, _, rows = incomplete_data(47, 6, 100, "hidden")
    table = as_table(network, rows)
    hidden = [n for n in table.column_names if table[n].null_count == 100]
    assert hidden
    wanted = learn(network, table)
    assert sorted(wanted.report["hidden"]) == sorted(hidden)
    absent = learn(network, table.drop_columns(hidden))
    marked = table
    for name in hidden:
        marked = marked.set_column(marked.column_names.index(name), name, pa.array(["?"] * 100))
    tokens = learn(network, marked, missing_tokens=["?"])
    for other in (absent, tokens):
        assert largest_difference(other.learned, wanted.learned) == 0
        assert other.report["hidden"] == wanted.report["hidden"]
        assert other.log_likelihood == wanted.log_likelihood


def test_missing_tokens():
    network, _, rows = incomplete_data(48, 5, 100)
    table = as_table(network, rows)
    marks = ["?", "", "N/A"]
    marked = pa.table(
        {n: [marks[i % 3] if x is None else x for i, x in enumerate(table[n].to_pylist())] for n in table.column_names}
    )
    wanted = learn(network, table)
    found = learn(network, marked, missing_tokens=marks)
    assert largest_difference(found.learned, wanted.learned) == 0
    assert found.report["settings"]["missing_tokens"] == marks
    assert found.report["partly_observed"] == wanted.report["partly_observed"]
    with pytest.raises(BadInputError, match=r"row \d+: value '(\?|N/A|)' is not a state of this variable"):
        learn(network, marked)
    with pytest.raises(BadInputError, match=r"missing_tokens: expected strings, found 1"):
        learn(network, marked, missing_tokens=[1])
    one = pa.table({n: ["?" if x is None else x for x in table[n].to_pylist()] for n in table.column_names})
    assert largest_difference(learn(network, one, missing_tokens="?").learned, wanted.learned) == 0


@pytest.mark.parametrize("decompose", [True, False])
def test_weights_are_repeated_rows(decompose):
    network, _, rows = incomplete_data(49, 6, 80)
    weights = [(5 * i) % 4 for i in range(80)]
    repeated = [row for row, w in zip(rows, weights, strict=True) for _ in range(w)]
    wanted = learn(network, as_table(network, repeated), decompose=decompose)
    for column in (weights, [float(w) for w in weights]):
        data = as_table(network, rows, n=column)
        found = learn(network, data, weight="n", decompose=decompose)
        assert largest_difference(found.learned, wanted.learned) == 0
        assert found.log_likelihood == wanted.log_likelihood
        assert found.report["rows"] == 80
        assert found.report["total_weight"] == len(repeated)
        assert found.report["ignored_columns"] == []
        # Scoring decomposes always: the same terms, added in another order.
        again = score(wanted.learned, data, weight="n").log_likelihood
        assert again == pytest.approx(wanted.log_likelihood, rel=1e-13)
    # Scaling all weights scales the likelihood and nothing else; halves are exact.
    halves = learn(network, as_table(network, rows, n=[w / 2 for w in weights]), weight="n", decompose=decompose)
    assert largest_difference(halves.learned, wanted.learned) < 1e-9
    assert halves.log_likelihood == pytest.approx(wanted.log_likelihood / 2, rel=1e-12)
    assert halves.report["log_likelihood_per_row"] == pytest.approx(wanted.report["log_likelihood_per_row"], rel=1e-12)


def test_fractional_weights_against_enumeration():
    _, start, rows = incomplete_data(50, 5, 60)
    rng = random.Random(1)
    weights = [rng.choice([0.0, 0.3, 1.7, 1e-3]) for _ in rows]
    options = {"start": "network", "max_iterations": 5, "tolerance": 0, "drop_barren": False, "decompose": False}
    result = learn(start, as_table(start, rows, w=weights), weight="w", **options)
    wanted = oracle.em(start, rows, 5, weights=weights)[-1]
    for a, b in zip(result.learned.tables, wanted.tables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert result.log_likelihood == pytest.approx(oracle.log_likelihood(wanted, rows, weights), rel=1e-10)
    assert result.report["total_weight"] == pytest.approx(math.fsum(weights), rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1, 1], "negative|-1"),
        ([1, None, 1], "null"),
        (["1", "2", "3"], "string"),
        ([0, 0, 0], "weight column 'w': all weights are zero; there is nothing to learn from"),
        ([1.0, float("nan"), 1.0], "nan|null"),
        ([1.0, float("inf"), 1.0], "inf"),
    ],
)
def test_bad_weights(tmp_path, weights, message):
    network, _, rows = incomplete_data(51, 3, 3, "complete")
    with pytest.raises(BadInputError, match=message):
        learn(network, as_table(network, rows, w=weights), weight="w", output=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_structure_without_states():
    """A pgmpy model without CPDs: states from the data, sorted, over all partitions."""
    models = pytest.importorskip("pgmpy.models")
    model = models.DiscreteBayesianNetwork([("a", "b"), ("a", "c")])
    data = pa.table({"a": [2, 10, 2, None, 10], "b": ["y", "x", "x", "z", None], "c": [True, False, None, True, True]})
    result = learn(model, data, drop_barren=False)
    states = dict(zip(result.learned.variables, result.learned.states, strict=True))
    assert states == {"a": (2, 10), "b": ("x", "y", "z"), "c": (False, True)}
    named = learn(result.learned, data, drop_barren=False)
    assert largest_difference(named.learned, result.learned) == 0
    assert set(result.network.nodes()) == {"a", "b", "c"}
    assert result.network.get_cpds("b").state_names["b"] == ["x", "y", "z"]
    with pytest.raises(BadInputError, match="variable 'c' names no states and the data show none of it"):
        learn(model, data.drop_columns(["c"]))
    with pytest.raises(BadInputError, match=r"has no table for 'a'.*or start at random"):
        learn(model, data, start="network")


def test_nothing_observed_at_all(tmp_path):
    """No row shows any variable: there is nothing to learn from, and that is said."""
    network, _, _ = incomplete_data(52, 3)
    empty = pa.table({n: pa.nulls(4, pa.string()) for n in network.variables})
    for call in (lambda: learn(network, empty, output=tmp_path / "out"), lambda: score(network, empty)):
        with pytest.raises(BadInputError, match="no variable of the network is ever observed"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_some_rows_without_anything_observed():
    network, start, rows = incomplete_data(53, 5, 40)
    empty = [(-1,) * 5] * 10
    for decompose in (True, False):
        options = {"start": "network", "decompose": decompose, "tolerance": 1e-8, "max_iterations": 5000}
        a, b = (learn(start, as_table(network, r), **options) for r in (rows, empty + rows))
        # Barren rows add nothing: the likelihood of nothing is one.
        assert b.log_likelihood == pytest.approx(a.log_likelihood, rel=1e-12)
        assert largest_difference(a.learned, b.learned) < 1e-12
        assert b.report["rows"] == 50


# --- what can't be learned -----------------------------------------------------------------------------------------


def test_unlearnable_parameters_are_counted_and_uniform():
    states = (("0", "1", "2"), ("0", "1"), ("0", "1", "2"), ("0", "1"))
    network = Network("gaps", ("a", "b", "h", "g"), states, ((), (0,), (1,), (2,)), (None,) * 4)
    data = pa.table({"a": ["0", "0", "1", "0"], "b": ["0", None, "1", "1"]})
    result = learn(network, data)
    # a=2 never happens: two parameters of b. h and g are hidden leaves: all of theirs.
    assert result.report["unlearnable"] == {"b": 2, "h": 6, "g": 6}
    assert result.learned.tables[1].tolist() == [[0.5, 0.5], [0.0, 1.0], [0.5, 0.5]]
    assert (result.learned.tables[2] == 1 / 3).all()
    assert (result.learned.tables[3] == 0.5).all()
    assert result.expected_counts[2] is None
    assert result.expected_counts[3] is None
    assert result.learned.tables[0].tolist() == [0.75, 0.25, 0.0]
    assert [r.variables for r in result.sub_networks] == [("a",), ("b",)]
    parameters = pq.read_table(write_and_read(result), columns=["variable", "expected_count"]).to_pylist()
    assert all((p["expected_count"] is None) == (p["variable"] in ("h", "g")) for p in parameters)
    smoothed = learn(network, data, prior=2.0)
    assert smoothed.report["unlearnable"] == {"b": 2, "h": 6, "g": 6}
    np.testing.assert_allclose(smoothed.learned.tables[0], np.array([4, 2, 1]) / 7, rtol=1e-14)


def write_and_read(result):
    from pipeline.output import parameters_table

    sink = pa.BufferOutputStream()
    pq.write_table(parameters_table(result.learned, result.expected_counts), sink)
    return pa.BufferReader(sink.getvalue())


def chain(b_given_a=((0.5, 0.5), (0.5, 0.5))):
    states = (("no", "yes"),) * 3
    tables = (np.array([0.5, 0.5]), np.array(b_given_a), np.array([[1.0, 0.0], [0.5, 0.5]]))
    return Network("chain", ("a", "b", "c"), states, ((), (0,), (1,)), tables)


def test_an_impossible_row_is_named(tmp_path):
    """File, row, states and what is missing, for a component with and without missing values."""
    start = chain(((1.0, 0.0), (0.5, 0.5)))  # a=no: b=no, and then c=no
    rows = [("yes", None, "yes"), ("no", "no", None), ("no", None, "no"), ("yes", "yes", "no"), ("no", None, "yes")]
    table = pa.table({n: [r[i] for r in rows] for i, n in enumerate("abc")})
    data = write_parts(tmp_path / "data", table, [2], row_group_size=1)
    message = (
        r"part1\.parquet, row 2: a=no, c=yes with b missing has probability zero under the start, network chain's own "
        r"parameters; mend the zeros in its tables or the data, or start at random"
    )
    for decompose in (True, False):
        with pytest.raises(ImpossibleDataError, match=message):
            learn(start, data, start="network", decompose=decompose, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ImpossibleDataError, match="Arrow table, row 4: a=no, c=yes with b missing has probability"):
        learn(start, table, start="network")
    assert learn(start, data).converged
    # Weightless rows explain nothing and need no explanation.
    assert learn(start, table.append_column("w", pa.array([1, 1, 1, 1, 0])), start="network", weight="w").converged
    complete = pa.table({"a": ["yes", "no", "no"], "b": ["no", "no", "yes"], "c": [None, "no", "no"]})
    with pytest.raises(ImpossibleDataError, match="row 2: a=no, b=yes has probability zero"):
        learn(start, complete, start="network", decompose=False, drop_barren=False)
    with pytest.raises(
        ImpossibleDataError, match=r"row 2: a=no, b=yes, c=no has probability zero|row 2: a=no, b=yes has"
    ):
        learn(start, complete, start="network", decompose=False)


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("prior", 0.5, r"prior: expected a Dirichlet exponent of at least 1 \(1 is maximum likelihood\), found 0\.5"),
        ("prior", "1", "cannot read the prior file 1: No such file"),
        ("prior", math.inf, "prior: expected .*, found inf"),
        ("prior", math.nan, "prior: expected .*, found nan"),
        ("prior", 1e16, r"prior: expected .*, found 1e\+16"),
        ("prior", True, "prior: expected .*, found True"),
        ("tolerance", -1e-9, "tolerance: expected a number from 0 to 1, found -1e-09"),
        ("tolerance", 1.5, r"tolerance: expected a number from 0 to 1, found 1\.5"),
        ("tolerance", math.nan, "tolerance: expected a number from 0 to 1, found nan"),
        ("tolerance", None, "tolerance: expected a number from 0 to 1, found None"),
        ("seed", -1, "seed: expected a whole number from 0 to 9223372036854775808, found -1"),
        ("seed", 1.0, r"seed: expected a whole number from 0 to 9223372036854775808, found 1\.0"),
        ("restarts", 0, "restarts: expected a whole number from 1 to 1000000, found 0"),
        ("restarts", True, "restarts: expected a whole number from 1 to 1000000, found True"),
        ("max_iterations", 0, "max_iterations: expected a whole number from 1 to 1000000000, found 0"),
        ("max_iterations", "many", "max_iterations: expected a whole number from 1 to 1000000000, found 'many'"),
        ("start", "middle", "start: expected 'random' or 'network', found 'middle'"),
        ("weight", "nothing", "weight column 'nothing' is not there"),
        ("output", "s3://bucket/x", "output s3://bucket/x: expected a local directory, found a URL"),
    ],
)
def test_settings_are_checked(setting, value, message):
    network, _, rows = incomplete_data(54, 3, 5)
    with pytest.raises(BadInputError, match=message):
        learn(network, as_table(network, rows), **{setting: value})


def test_a_weight_that_is_a_variable():
    network, _, rows = incomplete_data(54, 3, 5)
    with pytest.raises(BadInputError, match=f"weight column '{network.variables[0]}' is a variable of network random"):
        learn(network, as_table(network, rows), weight=network.variables[0])


def test_the_limit_is_reported(tmp_path):
    network, _, rows = incomplete_data(55, 6, 100)
    result = learn(network, as_table(network, rows), max_iterations=2, tolerance=0, output=tmp_path / "out")
    assert not result.converged
    iterated = [r for r in result.sub_networks if r.iterations]
    assert {r.iterations for r in iterated} == {2}
    assert not any(r.converged for r in iterated)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["converged"], report["iterations"]) == (False, 2)
    assert report["not_converged"] == [list(r.variables) for r in iterated]
    assert [len(r.history) for r in iterated] == [3] * len(iterated)


def test_the_report(tmp_path):
    network, _, rows = incomplete_data(56, 6, 100, "partly")
    data = as_table(network, rows, extra=list(range(100)))
    result = learn(network, data, output=tmp_path / "out", seed=4)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report == json.loads(json.dumps(result.report))
    assert report["rows"] == 100
    assert report["log_likelihood"] == result.log_likelihood
    assert report["log_likelihood_per_row"] == pytest.approx(result.log_likelihood / 100, rel=1e-15)
    assert report["ignored_columns"] == ["extra"]
    groups = (report["always_observed"], report["partly_observed"], report["hidden"])
    assert sorted(itertools.chain(*groups)) == sorted(network.variables)
    assert report["partly_observed"] == [
        name for v, name in enumerate(network.variables) if any(row[v] < 0 for row in rows)
    ]
    assert report["sub_networks"] == len(result.sub_networks) > 1
    assert report["instances"] == sum(r.instances for r in result.sub_networks)
    assert report["settings"]["seed"] == 4
    assert {"plan", "compile", "count", "solve", "assemble", "total"} <= set(report["seconds"])
    assert {"numba", "numpy", "dask", "pyarrow"} <= set(report["versions"])
    whole = learn(network, data, decompose=False)
    assert whole.report["distinct_rows"] == len(set(rows))
    planned = plan(network, data)
    assert [s.variables for s in planned.sub_networks] == [r.variables for r in result.sub_networks]
    assert planned.tasks["read-partition"] == 1


def test_the_learned_network_reads_back(tmp_path):
    network, _, rows = incomplete_data(57, 6, 100)
    result = learn(network, as_table(network, rows), output=tmp_path / "out")
    again = load_network(tmp_path / "out" / "network.bif")
    assert again.variables == result.learned.variables
    assert largest_difference(again, result.learned) == 0
    assert score(again, as_table(network, rows)).log_likelihood == pytest.approx(result.log_likelihood, rel=1e-14)
    model = result.network
    assert model.check_model()
    assert largest_difference(load_network(to_pgmpy(result.learned)), result.learned) < 1e-15


def test_progress_is_told():
    network, _, rows = incomplete_data(58, 6, 100)
    told: list = []
    learn(network, as_table(network, rows), progress=lambda *x: told.append(x))
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    assert stages == ["read-partition", "solve"]
    for stage in stages:
        steps = [(done, total) for s, done, total in told if s == stage]
        assert steps[0][0] == 0
        assert steps[-1][0] == steps[-1][1] > 0


# --- real tables ---------------------------------------------------------------------------------------------------

VOTES = [
    "party", "infants", "water", "budget", "physician", "salvador", "religious", "satellite", "contras", "missile",
    "immigration", "synfuels", "education", "superfund", "crime", "duty_free", "south_africa",
]  # fmt: skip
# Made by hand: what goes with the party, and votes that go together beyond it.
VOTES_RICH = {
    "physician": ["party"], "budget": ["party", "physician"], "salvador": ["party", "physician"],
    "contras": ["party", "salvador"], "satellite": ["party", "contras"], "missile": ["party", "contras"],
    "education": ["party", "budget"], "superfund": ["party", "education"], "crime": ["party", "superfund"],
    "religious": ["party", "salvador"], "infants": ["party"], "water": [], "synfuels": ["water", "party"],
    "immigration": [], "duty_free": ["party", "missile"], "south_africa": ["party", "duty_free"],
}  # fmt: skip
MUSHROOM_RICH = {
    "odor": ["edibility"], "spore-print-color": ["edibility", "odor"], "bruises": ["edibility"],
    "stalk-root": ["edibility", "bruises"], "habitat": ["stalk-root"], "population": ["habitat"],
    "ring-type": ["bruises", "stalk-root"], "gill-size": ["edibility"], "stalk-shape": ["stalk-root"],
    "stalk-surface-above-ring": ["ring-type"], "cap-shape": ["stalk-root"],
}  # fmt: skip


def real_table(file, names):
    if not (TABLES / file).exists():
        pytest.skip("the table is not here")
    lines = [line.split(",") for line in (TABLES / file).read_text().split()]
    if names is None:
        names, lines = lines[0], lines[1:]
    return pa.table({name: pa.array([line[i] for line in lines]) for i, name in enumerate(names)})


def made_by_hand(table, parents):
    """A network over some columns of a table, its states those in the table."""
    names = list(dict.fromkeys(itertools.chain(parents, *parents.values())))
    states = tuple(tuple(sorted(set(table[n].to_pylist()) - {"?"})) for n in names)
    number = {n: i for i, n in enumerate(names)}
    return Network("hand", tuple(names), states, tuple(tuple(number[p] for p in parents.get(n, [])) for n in names),
                   (None,) * len(names))  # fmt: skip


@pytest.mark.parametrize("structure_", ["naive", "rich"])
@pytest.mark.parametrize(
    ("file", "names", "rich", "rows"),
    [("house-votes-84.data", VOTES, VOTES_RICH, 435), ("agaricus-lepiota.data", None, MUSHROOM_RICH, 8124)],
)
def test_real_tables(tmp_path, file, names, rich, rows, structure_):
    table = real_table(file, names)
    root = table.column_names[0]
    parents = rich if structure_ == "rich" else {n: [root] for n in table.column_names[1:]}
    network = made_by_hand(table, parents)
    data = write_parts(tmp_path / "data", table, [rows // 3, rows // 2])
    result = learn(network, data, missing_tokens=["?"], prior=1.1)
    assert result.converged
    assert result.report["rows"] == rows == len(table)
    missing = [n for n in network.variables if "?" in table[n].to_pylist()]
    assert result.report["partly_observed"] == missing
    assert missing == (["stalk-root"] if rows == 8124 else [n for n in network.variables if n != "party"])
    codes = [dict(zip(s, range(len(s)), strict=True)) for s in network.states]
    columns = [[codes[v].get(x, -1) for x in table[n].to_pylist()] for v, n in enumerate(network.variables)]
    bn = as_pyagrum(result.learned)
    by_row: dict = {}
    for row in zip(*columns, strict=True):
        by_row[row] = by_row.get(row, 0) + 1
    # Every distinct row of the small table; of the other every twentieth, and score for those alone.
    if rows == 435:
        wanted = math.fsum(n * second_opinion(bn, network, row) for row, n in by_row.items())
        assert result.log_likelihood == pytest.approx(wanted, rel=1e-10)
    else:
        some = list(zip(*columns, strict=True))[::40]
        wanted = math.fsum(second_opinion(bn, network, row) for row in some)
        assert score(result.learned, as_table(network, some)).log_likelihood == pytest.approx(wanted, rel=1e-10)
        total = score(result.learned, data, missing_tokens=["?"]).log_likelihood
        assert result.log_likelihood == pytest.approx(total, rel=1e-12)
    again = learn(network, data, missing_tokens=["?"], prior=1.1, decompose=False)
    # Concave or not, both start alike; they stop within the tolerance of 1e-5 of a stationary point each.
    assert again.log_likelihood == pytest.approx(result.log_likelihood, rel=1e-5)


def test_one_row_one_variable():
    network = Network("one", ("x",), (("a", "b"),), ((),), (None,))
    result = learn(network, pa.table({"x": ["b"]}))
    assert result.learned.tables[0].tolist() == [0.0, 1.0]
    assert (result.log_likelihood, result.converged, result.report["iterations"]) == (0.0, True, 0)
