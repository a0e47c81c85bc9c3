import dataclasses
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.bif import _TOKEN, read_bif, write_bif
from pipeline.network import Network
from tasks.errors import BadInputError, TooLargeError

SMALL = """network small {
}
variable A {
  type discrete [ 2 ] { yes, no };
}
variable B {
  type discrete [ 3 ] { low, mid, high };
}
variable X {
  type discrete [ 2 ] { on, off };
}
probability ( A ) {
  table 0.2, 0.8;
}
probability ( B | A ) {
  (yes) 0.1, 0.2, 0.7;
  (no) 0.5, 0.25, 0.25;
}
probability ( X | A, B ) {
  (yes, low) 0.1, 0.9;
  (yes, mid) 0.2, 0.8;
  (yes, high) 0.3, 0.7;
  (no, low) 0.4, 0.6;
  (no, mid) 0.45, 0.55;
  (no, high) 1e-3, .999;
}
"""
X_TABLE = np.array([[[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]], [[0.4, 0.6], [0.45, 0.55], [1e-3, 0.999]]])


def same(one: Network, other: Network) -> bool:
    """Equal to the last bit, states compared as text."""
    return (
        one.name == other.name
        and one.variables == other.variables
        and [[str(s) for s in states] for states in one.states] == [[str(s) for s in states] for states in other.states]
        and one.parents == other.parents
        and all(
            a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(one.tables, other.tables, strict=True)
        )
    )


def read(text: str) -> Network:
    return read_bif(text, "file", where="some/file.bif")


def read_or_message(text: str) -> Network | str:
    try:
        return read(text)
    except BadInputError as error:
        return str(error)


def test_a_small_network_is_read():
    found = read(SMALL)
    assert found.name == "small"
    assert found.variables == ("A", "B", "X")
    assert found.states == (("yes", "no"), ("low", "mid", "high"), ("on", "off"))
    assert found.parents == ((), (0,), (0, 1))
    np.testing.assert_array_equal(found.tables[0], [0.2, 0.8])
    np.testing.assert_array_equal(found.tables[1], [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    np.testing.assert_array_equal(found.tables[2], X_TABLE)


@pytest.mark.parametrize("declared", ["network unknown {", "network {"])
def test_a_network_without_a_name_takes_the_one_given(declared):
    assert read(SMALL.replace("network small {", declared)).name == "file"


ROWS = SMALL[SMALL.index("  (yes, low)") : SMALL.rindex("}")]
B_ROWS = "  (yes) 0.1, 0.2, 0.7;\n  (no) 0.5, 0.25, 0.25;\n"
MOVED = "variable B {\n  type discrete [ 3 ] { low, mid, high };\n}\n"


@pytest.mark.parametrize(
    "text",
    [
        SMALL.replace("\n", "\r\n"),
        SMALL.replace("\n", "\r"),
        SMALL.replace("\n", " "),
        re.sub(r"\s*([][(){};,|])\s*", r"\1", SMALL.replace("\n", " ")),
        "\ufeff" + SMALL,
        SMALL + "\n\n  // the end\n",
        "// one\n/* two\n ** / // */" + SMALL.replace("{", "{ /* } ; */").replace(";", "; // } ;\n"),
        SMALL.replace("yes, no", "yes // x\n, /* y */ no"),
        re.sub(r"([{;])\n", '\\1 property it\'s = (un, "{}" any // " ;\n', SMALL).replace(
            "};\n", '}; property "a" ; property b;'
        ),
        SMALL.replace(",", " "),
        SMALL.replace("( B | A )", "( B A )").replace("( X | A, B )", "( X A B )"),
        SMALL.replace("( B | A )", "(B,A)").replace("( X | A, B )", "( X, A, B )"),
        SMALL.replace("yes", '"yes"').replace("variable A", 'variable "A"'),
        SMALL.replace("(yes)", '("yes")').replace("{ low", '{ "low"').replace("( B", '( "B"'),
        SMALL.replace("(yes)", '("\\u0079es")'),
        SMALL.replace(ROWS, "  table 0.1, 0.2, 0.3, 0.4, 0.45, 1e-3, 0.9, 0.8, 0.7, 0.6, 0.55, 0.999;\n"),
        SMALL.replace(B_ROWS, "  default 0.5, 0.25, 0.25;\n  (yes) 0.1, 0.2, 0.7;\n"),
        SMALL.replace(B_ROWS, "  (yes) 0.1, 0.2, 0.7;\n  default 0.5, 0.25, 0.25;\n"),
        SMALL.replace("  table 0.2, 0.8;", "  default 2.0E-1 8.e-1;"),
        SMALL.replace(MOVED, "").replace("probability ( A )", MOVED + "probability ( A )"),
    ],
    ids=[
        *["crlf", "cr", "one line", "compact", "byte order mark", "comment at the end", "comments", "comment in list"],
        *["properties", "no commas", "no bar", "commas for a bar", "quoted states", "quoted elsewhere", "escaped"],
        *["table", "default first", "default last", "default alone", "declared later"],
    ],
)
def test_the_same_network_in_other_spellings(text):
    found = read(text)
    expected = read(SMALL)
    # A variable that is declared in another place keeps its place in the file; only the last example has one.
    assert found.variables in (("A", "B", "X"), ("A", "X", "B"))
    order = [found.variables.index(v) for v in expected.variables]
    assert [found.states[i] for i in order] == list(expected.states)
    assert [tuple(found.variables[p] for p in found.parents[i]) for i in order] == [(), ("A",), ("A", "B")]
    for i, table in zip(order, expected.tables, strict=True):
        np.testing.assert_array_equal(found.tables[i], table)


def test_table_order_is_that_of_another_reader(tmp_path):
    gum = pytest.importorskip("pyagrum")
    text = SMALL.replace(ROWS, "  table 0.1, 0.2, 0.3, 0.4, 0.45, 1e-3, 0.9, 0.8, 0.7, 0.6, 0.55, 0.999;\n")
    path = tmp_path / "small.bif"
    path.write_text(text)
    model = gum.loadBN(str(path))  # kept, as its CPT is a view that does not keep it alive
    cpt = model.cpt("X")
    assert cpt.names == ("X", "A", "B")
    other = np.moveaxis(cpt.toarray().transpose(), 0, -1)
    # pyAgrum parses to single precision, half a unit of which is 3e-8 below one.
    np.testing.assert_allclose(read(text).tables[2], other, rtol=0, atol=3e-8)


def test_a_file_cut_off_at_any_token_is_refused():
    ends = [m.end(1) for m in _TOKEN.finditer(SMALL) if m[1]]
    for end in ends[:-1]:
        with pytest.raises(BadInputError, match=r"^some/file.bif, line \d+: expected .*, found .*$"):
            read(SMALL[:end])
    assert same(read(SMALL[: ends[-1]]), read(SMALL))


def test_a_file_cut_off_at_any_character_is_refused():
    text = SMALL.replace("yes", '"y;e\\"s"').replace("{\n", "{ property p = 1;\n").rstrip()
    assert read(text).states[0] == ('y;e"s', "no")
    for end in range(len(text)):
        with pytest.raises(BadInputError, match=r"^some/file.bif(, line \d+: expected .*, found .*|: network .*)$"):
            read(text[:end])


def test_a_file_without_any_one_token_is_refused_or_the_same():
    """Where a file without it is valid (a bar, the only comma of a list), it is the same network."""
    expected = read(SMALL)
    for match in _TOKEN.finditer(SMALL):
        text = SMALL[: match.start(1)] + " " + SMALL[match.end(1) :]
        found = read_or_message(text)
        if isinstance(found, Network):
            assert match[1] in ("", ",", "|", "small")
            assert same(dataclasses.replace(found, name="small"), expected)
        else:
            assert re.fullmatch(r"some/file\.bif(, line \d+: expected .*, found|: network).*", found)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SMALL, "", "line 1: expected 'network', found the end of the file"),
        (SMALL, " \n // nothing \n", "expected 'network', found the end of the file"),
        (SMALL, "network x {\n}\n", "line 2: expected a variable, found the end of the file"),
        ("network small", "graph small", "line 1: expected 'network', found 'graph'"),
        ("variable B", "node B", "line 6: expected 'variable', 'probability' or the end of the file, found 'node'"),
        ("variable B", "variable A", "line 6: expected a new variable, found 'A' again"),
        ("type discrete [ 2 ] { yes", "type continuous [ 2 ] { yes", "line 4: expected 'discrete', found 'continuous'"),
        ("[ 2 ] { yes", "[ 3 ] { yes", r"line 4: expected the number of states of 'A' \(2 are listed\), found 3"),
        ("[ 2 ] { yes, no }", "[ 0 ] { }", r"number of states of 'A' \(0 are listed\), found 0"),
        ("[ 2 ] { yes", "[ -2 ] { yes", "line 4: expected the number of states, found '-2'"),
        ("yes, no }", "yes, yes }", "line 4: expected states of 'A' that differ, found 'yes' again"),
        ("yes, no }", "yes, no, }", "line 4: expected a state, found '}'"),
        ("low, mid, high", "low mid, high", "line 7: expected ',' or '}', found 'mid'"),
        ("low, mid, high", "low, mid high", "line 7: expected ',' or '}', found 'high'"),
        ("yes, no };", "yes, no }", "line 5: expected ';', found '}'"),
        ("yes, no }", 'yes, "no }', "line 4: expected .*, found quotes that are not closed on their line"),
        ("yes, no }", r'yes, "n\o" }', r"line 4: expected one of .* after a backslash in quotes, found \\o"),
        ("network small {", "network small { /* ", "line 1: expected '}', found a comment that is not closed"),
        (SMALL, "network small {\n property x }\n", "line 2: expected '}', found the end of the file"),
        ("type discrete [ 2 ] { on", "property x type discrete [ 2 ] { on", "line 11: expected 'type', found '}'"),
        ("( A ) {", "( C ) {", "line 12: expected a variable's name that is declared, found 'C'"),
        ("( A ) {", "( a ) {", "line 12: expected a variable's name that is declared, found 'a'"),
        ("( X | A, B )", "( X | A, C )", "line 19: expected a parent's name that is declared, found 'C'"),
        ("( X | A, B )", "( X | A, A )", "line 19: expected parents of 'X' that differ"),
        ("( X | A, B )", "( X | A, X )", "line 19: expected parents of 'X' that differ"),
        ("( X | A, B )", "( X | )", r"line 19: expected a parent's name, found '\)'"),
        ("( X | A, B )", "( A | X, B )", "line 19: expected one probability block a variable, found another for 'A'"),
        ("( B | A )", "( A )", "expected one probability block a variable, found another for 'A'"),
        (
            "probability ( A ) {\n  table 0.2, 0.8;\n}\n",
            "",
            "expected a probability block for variable 'A', found the end",
        ),
        ("  table 0.2, 0.8;\n", "", "line 13: expected a table for 'A', found '}'"),
        ("0.2, 0.8;\n}", "0.2, 0.8;\n", "expected 'table', 'default' or '}', found 'probability'"),
        ("table 0.2, 0.8;", "table 0.2, 0.3, 0.5;", "line 13: expected 2 probabilities, found 3"),
        ("table 0.2, 0.8;", "table 0.2;", "line 13: expected 2 probabilities, found 1"),
        ("table 0.2, 0.8;", "table ;", "line 13: expected 2 probabilities, found 0"),
        ("table 0.2, 0.8;", "table 0.2, 0.8", "line 14: expected ',' or ';', found '}'"),
        ("table 0.2, 0.8;", "table 0.2,, 0.8;", "line 13: expected a probability, found ','"),
        ("table 0.2, 0.8;", "table 0.2, 0.8; table 0.2, 0.8;", "line 13: expected one 'table', found another"),
        ("table 0.2, 0.8;", "table 0.2, 0.8; default 0.2, 0.8;", "expected 'table' or rows for 'A', found both"),
        ("table 0.2, 0.8;", "default 0.2, 0.8; default 0.2, 0.8;", "line 13: expected one 'default', found another"),
        ("table 0.2, 0.8;", "(yes) 0.2, 0.8;", r"line 13: expected 'table', 'default' or '}', found '\('"),
        ("table 0.2, 0.8;", "table -0.2, 1.2;", "line 13: expected a probability, found '-0.2'"),
        ("table 0.2, 0.8;", "table nan, 0.8;", "line 13: expected a probability, found 'nan'"),
        ("table 0.2, 0.8;", "table inf, 0.8;", "line 13: expected a probability, found 'inf'"),
        ("table 0.2, 0.8;", "table 1e999, 0.8;", "line 13: expected a probability, found '1e999'"),
        ("table 0.2, 0.8;", "table 0_2, 0.8;", "line 13: expected a probability, found '0_2'"),
        ("table 0.2, 0.8;", 'table "0.2", 0.8;', "line 13: expected a probability, found"),
        ("table 0.2, 0.8;", "table ٠, 1;", "line 13: expected a probability, found '٠'"),
        ("table 0.2, 0.8;", "table 0.2, 0.9;", "^some/file.bif: network small: .* variable 'A' sums to 1.1, not to 1"),
        ("table 0.2, 0.8;", "values 0.2, 0.8;", "line 13: expected 'table', 'default' or '}', found 'values'"),
        ("  (no, mid) 0.45, 0.55;\n", "", r"line 25: expected a row \(no, mid\) for 'X', found '}'"),
        ("(no, mid)", "(no, low)", r"line 24: expected each row once, found \(no, low\) again"),
        ("(no, mid)", '(no, "low")', r"line 24: expected each row once, found \(no, \"low\"\) again"),
        ("(no, mid)", "(mid, no)", r"line 24: expected a state of 'A' \(yes, no\), found 'mid'"),
        ("(no, mid)", "(no, middle)", r"line 24: expected a state of 'B' \(low, mid, high\), found 'middle'"),
        ("(no, mid)", "(no)", "line 24: expected 2 states, one of each parent, found 1"),
        ("(no, mid)", "(no, mid", r"line 24: expected ',' or '\)', found '0.45'"),
        (".999;\n}\n", ".999;\n}\n}", "line 27: expected 'variable', 'probability' or the end of the file, found '}'"),
        (".999;\n}\n", ".999;\n}\nthe end", "line 27: expected .* the end of the file, found 'the'"),
        ("probability ( A ) {\n  table 0.2, 0.8;", "probability ( A | X ) { default 0.2, 0.8;", "has a directed cycle"),
    ],
)
def test_what_is_wrong_is_told(old, new, message):
    assert old in SMALL
    with pytest.raises(BadInputError, match=message) as caught:
        read(SMALL.replace(old, new, 1))
    assert str(caught.value).startswith("some/file.bif")
    assert "\n" not in str(caught.value)


def test_a_default_cannot_ask_for_any_amount_of_memory():
    variables = "".join(f"variable v{i} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for i in range(40))
    roots = "".join(f"probability ( v{i} ) {{ table 0.5, 0.5; }}\n" for i in range(1, 40))
    given = ", ".join(f"v{i}" for i in range(1, 40))
    child = f"probability ( v0 | {given} ) {{ default 0.5, 0.5; }}\n"
    with pytest.raises(TooLargeError, match="line 42: the table of 'v0' has 1099511627776 entries"):
        read("network x {}\n" + variables + child + roots)
    with pytest.raises(BadInputError, match=r"expected a row \(a, a, a, .*\) for 'v0'"):
        read("network x {}\n" + variables + child.replace("default 0.5, 0.5;", "") + roots)


# Every kind of thing that has a meaning in the format, and anything else that UTF-8 holds.
NAMES = st.one_of(
    st.text(max_size=6),
    st.text(alphabet='"\\\n\r\t ,;|(){}[]/*.\x00\x85\u2028\ufeffa0', max_size=6),
    st.sampled_from(["network", "variable", "probability", "property", "type", "discrete", "default", "table"]),
    st.sampled_from(["//", "/* */", "0.5", "1e-3", "nan", "property x;", "é", "Asy/Patch", "<5", ">=7.5", "12+", ""]),
)


@st.composite
def networks(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    states = [
        tuple(draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)))
        if draw(st.booleans())
        else draw(st.sampled_from([(False, True), (0, 1, 2), (-1, 1)]))
        for _ in names
    ]
    order = draw(st.permutations(range(len(names))))
    parents = [()] * len(names)
    for k, i in enumerate(order):
        parents[i] = tuple(draw(st.permutations(order[:k]))[: draw(st.integers(0, min(k, 3)))])
    random_state = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tables = []
    for i in range(len(names)):
        shape = [len(states[p]) for p in parents[i]]
        table = random_state.dirichlet(np.full(len(states[i]), 0.1), size=shape)
        tables.append(table)
    name = draw(NAMES.filter(lambda n: n != "unknown"))
    return Network(name, tuple(names), tuple(states), tuple(parents), tuple(tables))


@settings(deadline=None, max_examples=150)
@given(networks())
def test_writing_then_reading_gives_the_same_network(network):
    text = write_bif(network)
    assert same(read_bif(text, "other"), network)
    # A file's line ends and its encoding change nothing either.
    assert same(read_bif(text.replace("\n", "\r\n").encode().decode(), "other"), network)
    assert write_bif(read_bif(text, "other")) == text


@settings(deadline=None, max_examples=150)
@given(networks(), st.randoms(use_true_random=False))
def test_a_damaged_file_is_refused_or_whole(network, source: random.Random):
    tokens = [(m.start(1), m.end(1)) for m in _TOKEN.finditer(write_bif(network))]
    text = write_bif(network)
    (start, end), (other, other_end) = source.choice(tokens), source.choice(tokens)
    damaged = text[:start] + text[other:other_end] + text[end:]
    found = read_or_message(damaged)
    if isinstance(found, str):
        assert found.startswith("some/file.bif")
        assert "\n" not in found
    else:
        assert len(found.variables) == len(network.variables)
        assert all(table is not None for table in found.tables)


def test_a_lone_surrogate_is_escaped():
    network = Network("x", ("\ud800\udc00",), (("a", "b"),), ((),), (np.array([0.5, 0.5]),))
    text = write_bif(network)
    assert text.isascii()
    assert same(read_bif(text, "x"), network)


def test_ordinary_names_are_written_as_in_the_published_files():
    canonical = SMALL.replace("1e-3, .999", "0.001, 0.999")
    assert write_bif(read(canonical)) == canonical


def test_a_negative_zero_is_written_as_zero():
    network = Network("x", ("A",), (("a", "b"),), ((),), (np.array([-0.0, 1.0]),))
    assert "table 0.0, 1.0;" in write_bif(network)


def test_what_bif_cannot_hold_is_not_written():
    with pytest.raises(BadInputError, match="network x: the states of variable 'A' are unknown"):
        write_bif(Network("x", ("A",), (None,), ((),), (None,)))
    with pytest.raises(BadInputError, match="network x: variable 'A' has no table"):
        write_bif(Network("x", ("A",), (("a", "b"),), ((),), (None,)))


@pytest.mark.parametrize(
    "junk", ["/*" * 50_000, '"' * 50_001, " " * 100_000, "{;" * 50_000, "{ property " * 20_000, "{ property ;" * 20_000]
)
@pytest.mark.timeout(20)
def test_reading_junk_takes_linear_time(junk):
    with pytest.raises(BadInputError, match=r"some/file\.bif, line"):
        read("network x { }" + junk + "\nz")
