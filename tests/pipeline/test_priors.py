"""Priors: numbers, mappings and files, and what is refused."""

import json

import numpy as np
import pytest

from pipeline import learn
from pipeline.network import Network
from pipeline.priors import Prior, make_prior, own_prior, prior_arrays, read_prior_file
from tasks.errors import BadInputError
from tasks.subnetwork import make_sub_network
from tests import oracle
from tests.oracle import as_table, incomplete_data

NETWORK = Network(
    "n", ("a", "b", "c"), (("no", "yes"), ("x", "y", "z"), ("0", "1")), ((), (0,), (0, 1)),
    (np.full(2, 0.5), np.full((2, 3), 1 / 3), np.full((2, 3, 2), 0.5)),
)  # fmt: skip
LAYOUT = make_sub_network("abc", [2, 3, 2], [0, 1, 2], [True] * 3, [[0], [0, 1], [0, 1, 2]])


def write(tmp_path, text, name="prior.toml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_form_in_a_file(tmp_path):
    text = """
default = 1.5
[variables]
a = [2, 3]
b = [[1, 2, 3], [4, 5, 6]]
[variables.c.yes]
x = [7, 8]
y = {1 = 9}
z = 2.0
"""
    prior = read_prior_file(write(tmp_path, text), NETWORK)
    pseudo = prior_arrays(prior, NETWORK, LAYOUT)
    exponents = [2, 3, 1, 2, 3, 4, 5, 6, *[1.5] * 6, 7, 8, 1.5, 9, 2, 2]
    assert pseudo.tolist() == [x - 1 for x in exponents]
    document = {"default": 1.5, "variables": {"a": [2, 3], "b": [[1, 2, 3], [4, 5, 6]]}}
    document["variables"]["c"] = {"yes": {"x": [7, 8], "y": {"1": 9}, "z": 2}}
    other = read_prior_file(write(tmp_path, json.dumps(document), "prior.json"), NETWORK)
    assert prior_arrays(other, NETWORK, LAYOUT).tolist() == pseudo.tolist()
    assert json.loads(json.dumps(prior.written)) == prior.written


def test_numbers_and_mappings():
    assert prior_arrays(make_prior(2, NETWORK), NETWORK, LAYOUT).tolist() == [1.0] * LAYOUT.n_parameters
    prior = make_prior({"b": np.array([2, 3, 4]), "a": 5}, NETWORK)
    assert prior_arrays(prior, NETWORK, LAYOUT).tolist() == [4, 4, 1, 2, 3, 1, 2, 3, *[0] * 12]
    assert prior.written == {"b": [2, 3, 4], "a": 5}
    assert make_prior(prior, NETWORK) is prior


def test_a_sub_network_without_exponents_of_its_own_needs_no_array():
    leaf = make_sub_network("bc", [3, 2], [0, 1], [False, True], [[0, 1]])
    prior = Prior(2.0, {"b": np.ones((2, 3))})
    assert own_prior(prior, NETWORK, leaf) is None
    assert own_prior(prior, NETWORK, LAYOUT) is not None


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (0.5, "prior: expected a Dirichlet exponent of at least 1 .*, found 0.5"),
        (float("nan"), "prior: expected a Dirichlet exponent of at least 1 .*, found nan"),
        (True, "prior: expected a Dirichlet exponent of at least 1 .*, found True"),
        ({"a": 0.5}, "variable 'a': expected a Dirichlet exponent of at least 1 .*, found 0.5"),
        ({"a": [1, float("nan")]}, "variable 'a': expected Dirichlet exponents of at least 1, found nan"),
        ({"a": [1, 0.9]}, "variable 'a': expected Dirichlet exponents of at least 1, found 0.9"),
        ({"a": [1, 2, 3]}, r"variable 'a': expected exponents of shape \(2,\), found shape \(3,\)"),
        ({"b": [[1, 2, 3]]}, r"variable 'b': expected exponents of shape \(2, 3\) or \(3,\), found shape \(1, 3\)"),
        ({"b": [[1, 2], [1, 2, 3]]}, r"variable 'b': expected exponents of shape \(2, 3\) or \(3,\), found"),
        ({"b": "two"}, r"variable 'b': expected exponents of shape \(2, 3\) or \(3,\), found 'two'"),
        ({"bb": 2}, "network n has no variable 'bb'; did you mean 'b'"),
        ({"b": {"maybe": 2}}, r"variable 'b': expected states of 'a' \(no, yes\), found 'maybe'"),
        ({"b": {"yes": {"w": 2}}}, r"variable 'b', a=yes: expected states of 'b' \(x, y, z\), found 'w'"),
        (2e15, r"prior: expected a Dirichlet exponent of at most 1e\+15, found 2000000000000000\.0"),
        ({"a": [1, 1e300]}, r"variable 'a': expected Dirichlet exponents of at most 1e\+15, found 1e\+300"),
        ({"a": float("inf")}, r"variable 'a': expected a Dirichlet exponent of at most 1e\+15, found inf"),
        (np.ones((3, 4)), r"prior: expected a Dirichlet exponent of at least 1 .*, found array\(\[\[1\."),
        ({"b": list("abc" * 90)}, r"variable 'b': expected exponents .*, found \['a', 'b', .*…$"),
        ({"a": {"yes": [1]}}, "variable 'a', a=yes: expected a Dirichlet exponent of at least 1"),
        ({"a": {"yes": {"no": 1}}}, "variable 'a', a=yes: expected a Dirichlet exponent of at least 1"),
    ],
)
def test_nonsense(prior, message):
    with pytest.raises(BadInputError, match=message) as raised:
        make_prior(prior, NETWORK)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("default = = 1", "p.toml", r"prior file .*p\.toml: not TOML: .*line 1"),
        ("{", "p.json", r"prior file .*p\.json: not JSON: .*line 1"),
        ("[1]", "p.json", "expected the keys 'default' and 'variables', found list"),
        ("default = 0.5", "p.toml", "'default': expected a Dirichlet exponent of at least 1 .*, found 0.5"),
        ("a = 2.0", "p.toml", "unknown key 'a'; the keys are 'default' and 'variables'"),
        ("variables = 2", "p.toml", "'variables': expected a table of variables, found 2"),
        ("[variables]\na = 0", "p.toml", "variable 'a': expected a Dirichlet exponent"),
        ("", "p.toml", "expected the key 'default' or 'variables', found neither: it says nothing"),
        ("{}", "p.json", "expected the key 'default' or 'variables', found neither: it says nothing"),
        ('{"default": 2, "default": 3}', "p.json", "not JSON: the key 'default' is there twice"),
        ('{"variables": {"a": 2, "a": 3}}', "p.json", "not JSON: the key 'a' is there twice"),
        ("[" * 100_000, "p.json", "not JSON: .*recursion"),
        ("default = " + "[" * 100_000, "p.toml", "not TOML: .*recursion"),
    ],
)
def test_files_that_make_no_sense(tmp_path, text, name, message):
    with pytest.raises(BadInputError, match=message):
        make_prior(write(tmp_path, text, name), NETWORK)


def test_a_byte_order_mark_is_no_matter(tmp_path):
    for text, name in (("default = 2.0", "p.toml"), ('{"default": 2.0}', "p.json")):
        assert read_prior_file(write(tmp_path, "\ufeff" + text, name), NETWORK).default == 2.0


def test_what_was_given_can_be_reported():
    """Numbers of every kind, nested: the report is JSON."""
    given = {"a": [np.int64(2), np.float32(3)], "b": {"yes": (np.int32(1), 2, 3), "no": np.array([1, 2, 3])}}
    written = make_prior(given, NETWORK).written
    assert json.loads(json.dumps(written)) == {"a": [2, 3.0], "b": {"yes": [1, 2, 3], "no": [1, 2, 3]}}


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInputError, match=r"cannot read the prior file .*nowhere\.toml: No such file"):
        make_prior(str(tmp_path / "nowhere.toml"), NETWORK)
    (tmp_path / "latin.toml").write_bytes(b"default = 1 # \xe9\n")
    with pytest.raises(BadInputError, match=r"latin\.toml: not UTF-8 text \(at line 1\)"):
        make_prior(tmp_path / "latin.toml", NETWORK)


@pytest.mark.parametrize("decompose", [True, False])
def test_learn_with_exponents_by_variable(decompose):
    """Every variable told the same number is that number; and one told otherwise differs in its own table alone."""
    network, _, rows = incomplete_data(12, 5, 80, "complete")
    table = as_table(network, rows)
    uniform = learn(network, table, prior=2.0, decompose=decompose)
    told = learn(network, table, prior=dict.fromkeys(network.variables, 2.0), decompose=decompose)
    for a, b in zip(uniform.learned.tables, told.learned.tables, strict=True):
        assert np.array_equal(a, b)
    assert told.report["log_posterior"] == uniform.report["log_posterior"] < uniform.log_likelihood
    assert told.report["settings"]["prior"] == dict.fromkeys(network.variables, 2.0)
    first = network.variables[0]
    exponents = np.arange(1, len(network.states[0]) + 1)
    one = learn(network, table, prior={first: exponents}, decompose=decompose)
    counts = oracle.expected_counts(network, rows)[0] + exponents - 1.0
    np.testing.assert_allclose(one.learned.tables[0], counts / counts.sum(axis=-1, keepdims=True), rtol=1e-14)


def test_the_split_path_uses_it_too(giant, threads, splits):
    network, _, table = giant
    prior = {network.variables[1]: 3.0, network.variables[2]: 2.0}
    threads(1)
    whole = learn(network, table, prior=prior, max_iterations=4, decompose=False)
    assert splits == []
    threads(2, overhead=0.0)
    split = learn(network, table, prior=prior, max_iterations=4, decompose=False)
    assert splits == [2]
    for a, b in zip(whole.learned.tables, split.learned.tables, strict=True):
        assert np.array_equal(a, b)
