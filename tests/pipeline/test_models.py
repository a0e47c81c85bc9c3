import numpy as np
import pytest

from pipeline.models import from_pgmpy, to_pgmpy
from pipeline.networks import load_network
from tasks.errors import BadInputError
from tests.pipeline.test_networks import assert_same


@pytest.fixture(scope="module")
def alarm():
    return load_network("alarm")


@pytest.mark.parametrize("name", ["alarm", "child", "water", "munin1", "pathfinder"])
def test_a_network_is_a_valid_pgmpy_model_and_back(name):
    network = load_network(name)
    model = to_pgmpy(network)
    assert model.check_model()
    assert model.name == name
    assert tuple(model.nodes()) == network.variables
    for cpd in model.cpds:
        # What numpy's samplers ask of a distribution.
        assert np.abs(cpd.get_values().sum(axis=0) - 1).max() < 1e-8
    # Rows that are off by up to 3e-7 were divided by their sums.
    assert_same(load_network(model), network, atol=3e-7)


def test_values_mean_the_same_in_pgmpy(alarm):
    from pgmpy.inference import VariableElimination

    cpd = to_pgmpy(alarm).get_cpds("CATECHOL")
    i = alarm.variables.index("CATECHOL")
    at = {alarm.variables[p]: alarm.states[p][-1] for p in alarm.parents[i]}
    assert cpd.get_value(CATECHOL="NORMAL", **at) == alarm.tables[i][(-1,) * len(at) + (0,)]
    assert VariableElimination(to_pgmpy(load_network("asia"))).query(["tub"], show_progress=False).values[0] == (
        pytest.approx(0.01 * 0.05 + 0.99 * 0.01, abs=1e-12)
    )


def small_model(**state_names):
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork

    model = DiscreteBayesianNetwork([("A", "B")])
    states = {"A": state_names.get("A", ["y", "n"]), "B": state_names.get("B", ["u", "v"])}
    model.add_cpds(
        TabularCPD("A", 2, [[0.2], [0.8]], state_names={"A": states["A"]}),
        TabularCPD(
            "B",
            2,
            [[0.1, 0.3], [0.9, 0.7]],
            ["A"],
            [2],
            {"B": states["B"], "A": state_names.get("A_of_B", states["A"])},
        ),
    )
    return model


@pytest.mark.parametrize(
    "labels", [["y", "n"], [0, 1], [7, -1], [False, True], list(np.arange(2)), list(np.array([True, False]))]
)
def test_states_keep_their_types(labels):
    network = from_pgmpy(small_model(A=labels))
    plain = tuple(x.item() if isinstance(x, np.generic) else x for x in labels)
    assert network.states[0] == plain
    assert [type(x) for x in network.states[0]] == [type(x) for x in plain]
    again = from_pgmpy(to_pgmpy(network))
    assert [type(x) for x in again.states[0]] == [type(x) for x in plain]
    assert to_pgmpy(network).check_model()
    assert_same(network, again)


def test_a_childs_cpd_may_have_its_parents_states_in_another_order():
    found = from_pgmpy(small_model(A_of_B=["n", "y"]))
    np.testing.assert_array_equal(found.tables[1], [[0.3, 0.7], [0.1, 0.9]])


def test_structure_alone_goes_to_pgmpy_and_back():
    from pgmpy.models import DiscreteBayesianNetwork

    found = load_network(DiscreteBayesianNetwork([("B", "C"), ("A", "C")]))
    assert found.variables == ("B", "C", "A")
    assert found.parents == ((), (0, 2), ())
    assert found.states == found.tables == (None, None, None)
    assert set(to_pgmpy(found).edges()) == {("B", "C"), ("A", "C")}
    assert to_pgmpy(found).cpds == []


def test_a_user_s_own_class_of_model_is_taken():
    from pgmpy.models import DiscreteBayesianNetwork

    class Mine(DiscreteBayesianNetwork):
        pass

    assert load_network(Mine([("A", "B")])).variables == ("A", "B")


def test_models_that_are_not_whole_are_refused():
    from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork, LinearGaussianBayesianNetwork

    model = small_model()
    model.remove_cpds("A")
    with pytest.raises(BadInputError, match="expected a CPD for every variable, found none for A"):
        load_network(model)
    model = small_model()
    model.add_edge("C", "A")
    with pytest.raises(BadInputError, match="found none for C"):
        load_network(model)
    model = small_model()
    model.remove_edge("A", "B")
    with pytest.raises(BadInputError, match=r"CPD of 'B' to be given its parents by the edges .none., found A"):
        load_network(model)
    with pytest.raises(BadInputError, match=r"CPD of 'B' to have the states of 'A' \(y, n\), found y, no"):
        load_network(small_model(A_of_B=["y", "no"]))
    with pytest.raises(
        BadInputError, match=r"states of 'A' that are strings, integers or booleans, found 0.5 \(float\)"
    ):
        load_network(small_model(A=[0.5, 1.5]))
    with pytest.raises(BadInputError, match=r"expected nodes named by strings, found 1 \(int\)"):
        load_network(DiscreteBayesianNetwork([(1, 2)]))
    with pytest.raises(
        BadInputError, match="expected a pgmpy DiscreteBayesianNetwork, found LinearGaussianBayesianNetwork"
    ):
        load_network(LinearGaussianBayesianNetwork([("A", "B")]))
    with pytest.raises(BadInputError, match="expected a pgmpy DiscreteBayesianNetwork, found DiscreteMarkovNetwork"):
        load_network(DiscreteMarkovNetwork([("A", "B")]))
