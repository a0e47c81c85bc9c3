import numpy as np
import pytest

from pipeline.xmlbif import read_xmlbif
from tasks.errors import BadInputError

SMALL = """<?xml version="1.0"?>
<!DOCTYPE BIF [
  <!ELEMENT BIF ( NETWORK )*>
  <!ATTLIST BIF VERSION CDATA #REQUIRED>
]>
<BIF VERSION="0.3">
<NETWORK>
<NAME>small</NAME>
<PROPERTY>author me</PROPERTY>
<VARIABLE TYPE="nature"><NAME>A</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no, &lt; 1</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature">
  <NAME> B </NAME><OUTCOME>low</OUTCOME><OUTCOME>mid</OUTCOME><OUTCOME>high</OUTCOME>
  <PROPERTY>position = (1, 2)</PROPERTY>
</VARIABLE>
<VARIABLE><NAME>X</NAME><VALUE>on</VALUE><VALUE>off</VALUE></VARIABLE>
<DEFINITION><FOR>A</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>
<DEFINITION><FOR>B</FOR><GIVEN>A</GIVEN><TABLE>0.1 0.2 0.7 <!-- A=no --> 0.5 0.25 0.25</TABLE></DEFINITION>
<DEFINITION>
  <FOR>X</FOR><GIVEN>A</GIVEN><GIVEN>B</GIVEN>
  <TABLE>
    0.1 0.9  0.2 0.8  0.3 0.7
    0.4 0.6  .45 .55  1e-3 0.999
  </TABLE>
</DEFINITION>
</NETWORK>
</BIF>
"""
A_DEFINITION = "<DEFINITION><FOR>A</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>\n"


def read(text):
    return read_xmlbif(text, "file", where="some/file.xml")


def test_a_small_network_is_read():
    found = read(SMALL)
    assert found.name == "small"
    assert found.variables == ("A", "B", "X")
    assert found.states == (("yes", "no, < 1"), ("low", "mid", "high"), ("on", "off"))
    assert found.parents == ((), (0,), (0, 1))
    np.testing.assert_array_equal(found.tables[1], [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    x_table = [[[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]], [[0.4, 0.6], [0.45, 0.55], [1e-3, 0.999]]]
    np.testing.assert_array_equal(found.tables[2], x_table)


def test_the_name_may_be_missing():
    assert read(SMALL.replace("<NAME>small</NAME>", "")).name == "file"


def test_a_file_cut_off_at_any_character_is_refused():
    for end in range(len(SMALL.rstrip())):
        with pytest.raises(BadInputError, match=r"^some/file.xml, line \d+: expected well-formed XML, found "):
            read(SMALL[:end])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SMALL, "", "line 1: expected well-formed XML, found no element found"),
        ("<!ELEMENT BIF ( NETWORK )*>", '<!ENTITY a "b">', "line 3: expected no <!ENTITY>, found one named 'a'"),
        ("<!ELEMENT BIF ( NETWORK )*>", '<!ENTITY % a SYSTEM "/etc/hosts">', "line 3: expected no <!ENTITY>"),
        (">A<", ">&unheard;<", "line 10: expected well-formed XML, found undefined entity"),
        (SMALL, "<smile/>", "line 1: expected <BIF>, found <smile>"),
        (SMALL, "<BIF/>", "line 1: expected a <NETWORK> in <BIF>, found none"),
        (SMALL, "<BIF><NETWORK/><NETWORK/></BIF>", "expected one <NETWORK> in <BIF>, found another"),
        (SMALL, "<BIF><NETWORK/></BIF>", "expected a <VARIABLE>, found none"),
        (SMALL, SMALL + "<BIF/>", "line 27: expected well-formed XML, found junk after document element"),
        ("<PROPERTY>author me</PROPERTY>", "author", "line 7: expected only elements in <NETWORK>, found 'author'"),
        ("PROPERTY>author me</PROPERTY", "ADDED>1</ADDED", "line 9: expected <NAME>, .* in <NETWORK>, found <ADDED>"),
        ('"nature"><NAME>A', '"decision"><NAME>A', 'line 10: expected TYPE="nature", found TYPE="decision"'),
        ("<NAME>X</NAME>", "", "line 15: expected a <NAME> in <VARIABLE>, found none"),
        ("<NAME>X</NAME>", "<NAME/>", "line 15: expected text in <NAME>, found none"),
        ("<NAME>X</NAME>", "<NAME><b>X</b></NAME>", "line 15: expected only text in <NAME>, found <b>"),
        ("<NAME>X</NAME>", "<NAME>A</NAME>", "line 15: expected a new variable, found 'A' again"),
        ("<VALUE>off</VALUE>", "<VALUE>on</VALUE>", "line 15: expected states of 'X' that differ, found 'on' again"),
        ("<VALUE>on</VALUE><VALUE>off</VALUE>", "", "line 15: expected an <OUTCOME> of 'X', found none"),
        ("<FOR>X</FOR>", "", "line 18: expected a <FOR> in <DEFINITION>, found none"),
        ("<FOR>X</FOR>", "<FOR>x</FOR>", "line 19: expected a declared variable in <FOR>, found 'x'"),
        ("<GIVEN>B</GIVEN>", "<GIVEN>C</GIVEN>", "line 19: expected a declared variable in <GIVEN>, found 'C'"),
        ("<GIVEN>B</GIVEN>", "<GIVEN>A</GIVEN>", "line 18: expected parents of 'X' that differ"),
        ("<GIVEN>B</GIVEN>", "<GIVEN>X</GIVEN>", "line 18: expected parents of 'X' that differ"),
        ("<FOR>X</FOR>", "<FOR>A</FOR>", "line 18: expected one <DEFINITION> a variable, found another for 'A'"),
        (A_DEFINITION, "", "line 7: expected a <DEFINITION> for variable 'A', found none"),
        ("<TABLE>0.2 0.8</TABLE>", "", "line 16: expected a <TABLE> in <DEFINITION>, found none"),
        ("0.2 0.8</TABLE>", "0.2</TABLE>", "line 16: expected 2 probabilities in <TABLE>, found 1"),
        ("0.2 0.8</TABLE>", "0.2 -0.8</TABLE>", "line 16: expected probabilities in <TABLE>, found '-0.8'"),
        ("0.2 0.8</TABLE>", "nan 0.8</TABLE>", "line 16: expected probabilities in <TABLE>, found 'nan'"),
        ("0.2 0.8</TABLE>", "1e999 0.8</TABLE>", "line 16: expected probabilities in <TABLE>, found '1e999'"),
        ("0.2 0.8</TABLE>", "0.2 0.9</TABLE>", "^some/file.xml: network small: .* variable 'A' sums to 1.1"),
        ("<GIVEN>A</GIVEN><TABLE>", "<GIVEN>X</GIVEN><TABLE>", "has a directed cycle: "),
    ],
)
def test_what_is_wrong_is_told(old, new, message):
    assert old in SMALL
    with pytest.raises(BadInputError, match=message) as caught:
        read(SMALL.replace(old, new, 1))
    assert str(caught.value).startswith("some/file.xml")
    assert "\n" not in str(caught.value)
