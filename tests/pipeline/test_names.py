import numpy as np
import pytest

from pipeline.markov import MarkovNetwork
from pipeline.names import name_variables, read_names, with_names
from pipeline.network import Network
from tasks.errors import BadInputError

BAYESIAN = Network(
    "small", ("x0", "x1"), ((0, 1), (0, 1)), ((), (0,)), (np.array([0.2, 0.8]), np.array([[0.1, 0.9], [0.3, 0.7]]))
)
MARKOV = MarkovNetwork("small", ("x0", "x1"), ((0, 1), (0, 1)), ((0, 1),), (np.array([[1.0, 2.0], [3.0, 4.0]]),))


@pytest.mark.parametrize("network", [BAYESIAN, MARKOV], ids=["bayesian", "markov"])
def test_only_the_names_change(network):
    found = name_variables(network, ["rain", "wet grass"], "names")
    assert type(found) is type(network)
    assert found.variables == ("rain", "wet grass")
    assert found.states == network.states
    assert found.tables == network.tables
    assert network.variables == ("x0", "x1")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "there: expected 2 names, as many as network small has variables, found 0"),
        (["a"], "there: expected 2 names, as many as network small has variables, found 1"),
        (["a", "b", "c"], "there: expected 2 names, as many as network small has variables, found 3"),
        (["a", "a"], "there: expected names that differ, found 'a' as names 1 and 2"),
        (["a", ""], "there: expected a string that is not empty as name 2, found ''"),
        ([1, "a"], "there: expected a string that is not empty as name 1, found 1"),
    ],
)
def test_names_that_do_not_fit_are_refused(names, message):
    with pytest.raises(BadInputError, match=message):
        name_variables(MARKOV, names, "there")


@pytest.mark.parametrize(
    "content",
    [
        b"rain\nwet grass\n",
        b"rain\nwet grass",
        b"rain\r\nwet grass\r\n",
        b"rain\rwet grass\r",
        b"\xef\xbb\xbfrain\n wet grass \t\n\n  \n\n",
    ],
    ids=["plain", "no end of line", "crlf", "cr", "blanks"],
)
def test_names_are_read(content, tmp_path):
    (tmp_path / "names.txt").write_bytes(content)
    assert read_names(tmp_path / "names.txt") == ("rain", "wet grass")
    assert read_names(str(tmp_path / "names.txt")) == ("rain", "wet grass")
    assert with_names(MARKOV, tmp_path / "names.txt").variables == ("rain", "wet grass")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"names.txt: the file can't be read .FileNotFoundError"),
        (b"", r"names.txt, line 1: expected a name, found the end of the file"),
        (b"\n \n", r"names.txt, line 1: expected a name, found the end of the file"),
        (b"\na\n", r"names.txt, line 1: expected a name, found an empty line"),
        (b"a\n \nb\n", r"names.txt, line 2: expected a name, found an empty line"),
        (b"a\nb\na\n", r"names.txt, line 3: expected a new name, found 'a' again .line 1."),
        (b"a\n\xff\n", r"names.txt: the file can't be read .UnicodeDecodeError"),
        (b"a\n", r"names.txt: expected 2 names, as many as network small has variables, found 1"),
    ],
)
def test_files_that_hold_no_names_are_refused(content, message, tmp_path):
    if content is not None:
        (tmp_path / "names.txt").write_bytes(content)
    with pytest.raises(BadInputError, match=message) as caught:
        with_names(MARKOV, tmp_path / "names.txt")
    assert str(caught.value).startswith(f"names {tmp_path}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("names", [3, b"ab", {"a", "b"}, object()])
def test_other_things_are_not_names(names):
    with pytest.raises(BadInputError, match="names: expected a file or a sequence of strings, found "):
        with_names(MARKOV, names)


def test_a_directory_holds_no_names(tmp_path):
    with pytest.raises(BadInputError, match=r"the file can't be read .IsADirectoryError"):
        read_names(tmp_path)
    with pytest.raises(BadInputError, match=r"the file can't be read .ValueError"):
        read_names("a\0b")
