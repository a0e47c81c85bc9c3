"""`score`: against enumeration, and what it says of impossible rows."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import score
from pipeline.network import Network
from tasks.errors import BadInputError
from tests import oracle
from tests.oracle import KINDS, as_table, incomplete_data


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(KINDS), st.booleans())
@settings(max_examples=40)
def test_against_enumeration(seed, n, kind, weighted):
    network, start, rows = incomplete_data(seed, n, 25, kind)
    if all(x < 0 for row in rows for x in row):
        return
    weights = [i % 4 + 1 for i in range(len(rows))] if weighted else None
    data = as_table(start, rows, **({"w": weights} if weighted else {}))
    result = score(start, data, weight="w" if weighted else None)
    wanted = oracle.log_likelihood(start, rows, weights)
    assert result.log_likelihood == pytest.approx(wanted, rel=1e-10, abs=1e-12)
    assert (result.rows, result.total_weight) == (len(rows), sum(weights or [1] * len(rows)))
    assert result.log_likelihood_per_row == pytest.approx(result.log_likelihood / result.total_weight, rel=1e-15)
    assert result.impossible == ()
    assert network.variables == start.variables


def twins():
    """Two chains a -> b and c -> d, side by side; b=yes rules a=no out, and d=yes c=no."""
    table = np.array([[1.0, 0.0], [0.5, 0.5]])
    states = (("no", "yes"),) * 4
    return Network("twins", tuple("abcd"), states, ((), (0,), (), (2,)), (np.array([0.5, 0.5]), table) * 2)


def test_impossible_rows_are_named_one_a_sub_network(tmp_path):
    rows = [
        ("yes", "yes", "yes", "no"),
        ("no", "no", "no", None),
        (None, "no", "no", "yes"),
        ("no", "yes", "no", "yes"),
    ]
    table = pa.table({n: [r[i] for r in rows] for i, n in enumerate("abcd")})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=2)
    result = score(twins(), tmp_path)
    assert result.log_likelihood == -math.inf
    path = tmp_path / "rows.parquet"
    assert sorted(result.impossible) == [
        f"{path}, row 2: c=no, d=yes has probability zero under network twins's parameters",
        f"{path}, row 3: a=no, b=yes has probability zero under network twins's parameters",
    ]
    assert json.loads(json.dumps(result.as_dict(), allow_nan=False))["log_likelihood"] is None
    one = score(twins(), table.slice(0, 3))
    assert [m[:24] for m in one.impossible] == ["Arrow table, row 2: c=no"]
    fine = score(twins(), table.slice(0, 2))
    wanted = math.log(0.5 * 0.5) + math.log(0.5 * 0.5) + math.log(0.5) + math.log(0.5)
    assert fine.log_likelihood == pytest.approx(wanted, rel=1e-14)
    assert fine.as_dict()["log_likelihood"] == fine.log_likelihood


def test_what_cannot_be_scored():
    network, _, rows = incomplete_data(3, 4, 10)
    with pytest.raises(BadInputError, match=f"has no table for '{network.variables[2]}': a score needs a network with"):
        score(replace(network, tables=(*network.tables[:2], None, *network.tables[3:])), as_table(network, rows))
    with pytest.raises(BadInputError, match="weight column 'w': all weights are zero; there is nothing to score"):
        score(network, as_table(network, rows, w=[0] * 10), weight="w")


def test_tables_rounded_in_print_are_made_to_sum_to_one():
    """A third to three decimals is a third: else every row would lose a thousandth."""
    network = Network("thirds", ("a",), (("x", "y", "z"),), ((),), (np.full(3, 0.333),))
    assert score(network, pa.table({"a": ["x", "z"]})).log_likelihood == pytest.approx(-2 * math.log(3), rel=1e-14)


@pytest.mark.parametrize("as_file", [True, False])
def test_rows_are_numbered_through_all_parts(tmp_path, as_file):
    """The second part of a large file or table begins where the first ends."""
    n = (1 << 20) + 9
    a = np.zeros(n, np.int8)
    a[-2] = 1
    data = pa.table({"a": a})
    network = Network("coin", ("a",), ((0, 1),), ((),), (np.array([1.0, 0.0]),))
    if as_file:
        pq.write_table(data, tmp_path / "large.parquet", row_group_size=1 << 19)
        data = tmp_path / "large.parquet"
    (message,) = score(network, data).impossible
    assert f", row {n - 2}: a=1 has probability zero under network coin's parameters" in message
