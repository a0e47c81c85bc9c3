import numpy as np
import pytest

from pipeline.network import SUM_TOLERANCE, Network
from tasks.errors import BadInputError


def network(**changes):
    """A -> B, two states each, with changes."""
    fields = {
        "name": "small",
        "variables": ("A", "B"),
        "states": (("y", "n"), (0, 1)),
        "parents": ((), (0,)),
        "tables": (np.array([0.2, 0.8]), np.array([[0.1, 0.9], [0.3, 0.7]])),
    }
    return Network(**{**fields, **changes})


def test_a_network_knows_its_cardinalities_and_order():
    found = network(parents=((1,), ()), tables=(np.full((2, 2), 0.5), np.array([0.2, 0.8])))
    assert found.cardinalities == (2, 2)
    assert found.topological_order == (1, 0)


def test_structure_alone_is_a_network():
    found = network(states=(None, None), tables=(None, None))
    assert found.topological_order == (0, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variables": (), "states": (), "parents": (), "tables": ()}, "network small: it has no variables"),
        ({"variables": ("A", "A")}, "variable 'A' is named more than once"),
        ({"states": ((), ("y", "n"))}, "variable 'A' has no states"),
        ({"states": (("y", "y"), (0, 1))}, "variable 'A': state 'y' is named more than once"),
        ({"states": (("1", 1), (0, 1))}, "variable 'A': state '1' is named more than once"),
        ({"parents": ((), (0, 0))}, "variable 'B': parent 'A' is named more than once"),
        ({"parents": ((), (1,))}, "variable 'B' is its own parent"),
        ({"parents": ((1,), (0,))}, "directed cycle: (A -> B -> A|B -> A -> B)"),
        ({"tables": (np.array([0.2, 0.3, 0.5]), None)}, r"variable 'A' has shape \(3,\), expected \(2,\)"),
        ({"tables": (np.array([-0.2, 1.2]), None)}, "variable 'A' has an entry -0.2"),
        ({"tables": (np.array([np.nan, 1.0]), None)}, "variable 'A' has an entry nan"),
        ({"tables": (np.array([np.inf, 1.0]), None)}, "variable 'A' has an entry inf"),
        ({"tables": (None, np.array([[0.1, 0.9], [0.3, 0.6]]))}, "variable 'B' sums to 0.9, not to 1, given A=n"),
    ],
)
def test_what_is_not_a_network_is_refused(changes, message):
    with pytest.raises(BadInputError, match=message):
        network(**changes)


def test_rounded_rows_pass_and_mistyped_ones_do_not():
    thirds = np.array([0.333, 0.333, 0.333])
    assert abs(thirds.sum() - 1) < SUM_TOLERANCE
    network(states=(("a", "b", "c"), (0, 1)), tables=(thirds, None))
    with pytest.raises(BadInputError, match=r"sums to 0\.99, not to 1"):
        network(tables=(np.array([0.2, 0.79]), None))
