import numpy as np
import pytest

from pipeline.markov import MarkovNetwork, moralise
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
    from pgmpy.models import DiscreteBayesianNetwork, JunctionTree, LinearGaussianBayesianNetwork

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
        BadInputError,
        match="expected a pgmpy DiscreteBayesianNetwork, DiscreteMarkovNetwork or FactorGraph, found LinearGaussian",
    ):
        load_network(LinearGaussianBayesianNetwork([("A", "B")]))
    with pytest.raises(BadInputError, match="DiscreteMarkovNetwork or FactorGraph, found JunctionTree"):
        load_network(JunctionTree())


# ---- undirected models


STATES = {"A": ["y", "n"], "B": [0, 1, 2], "C": [False, True]}
AB = np.arange(1.0, 7.0).reshape(2, 3)
CB = np.arange(11.0, 17.0).reshape(2, 3)


def factor(variables, values, **states):
    from pgmpy.factors.discrete import DiscreteFactor

    return DiscreteFactor(list(variables), np.shape(values), values, {v: states.get(v, STATES[v]) for v in variables})


def markov_model(*factors, edges=(("C", "B"), ("B", "A"))):
    from pgmpy.models import DiscreteMarkovNetwork

    model = DiscreteMarkovNetwork(list(edges))
    model.add_factors(*factors)
    return model


def factor_graph(*factors, nodes=("C", "B", "A")):
    from pgmpy.models import FactorGraph

    model = FactorGraph()
    model.add_nodes_from(nodes)
    model.add_factors(*factors)
    model.add_nodes_from(factors)
    model.add_edges_from([(v, f) for f in factors for v in f.variables])
    return model


@pytest.mark.parametrize("make", [markov_model, factor_graph])
def test_an_undirected_model_is_a_markov_network(make):
    model = make(factor("AB", AB), factor("CB", CB), factor("B", [1.0, 0.0, 2.0]))
    assert model.check_model()
    found = load_network(model)
    assert isinstance(found, MarkovNetwork)
    assert found.variables == ("C", "B", "A")
    assert found.states == ((False, True), (0, 1, 2), ("y", "n"))
    assert found.scopes == ((2, 1), (0, 1), (1,))
    for table, values in zip(found.tables, (AB, CB, [1.0, 0.0, 2.0]), strict=True):
        np.testing.assert_array_equal(table, values)


def test_equal_factors_of_a_factor_graph_are_all_kept():
    """pgmpy makes one node of them."""
    found = from_pgmpy(factor_graph(factor("AB", AB), factor("AB", AB), factor("CB", CB)))
    assert found.scopes == ((2, 1), (2, 1), (0, 1))


def test_a_factor_graph_that_pgmpy_made_is_taken():
    """Strings stand for the factors in it."""
    factors = (factor("AB", AB), factor("AB", AB), factor("CB", CB), factor("B", [1.0, 0.0, 2.0]))
    graph = markov_model(*factors).to_factor_graph()
    assert "phi_A_B" in graph.nodes()
    found = from_pgmpy(graph)
    assert sorted(found.variables) == ["A", "B", "C"]
    assert [{found.variables[v] for v in scope} for scope in found.scopes] == [set("AB"), set("AB"), set("BC"), {"B"}]
    graph.add_node("D")
    with pytest.raises(BadInputError, match="variable 'D' is in no factor"):
        from_pgmpy(graph)


def test_factors_may_have_states_in_different_orders():
    other = factor("CB", CB[:, ::-1], B=[2, 1, 0])
    found = from_pgmpy(markov_model(factor("AB", AB), other))
    assert found.states[1] == (0, 1, 2)
    np.testing.assert_array_equal(found.tables[1], CB)


def test_states_without_names_are_numbers():
    from pgmpy.factors.discrete import DiscreteFactor

    found = from_pgmpy(markov_model(DiscreteFactor(["A", "B"], [2, 3], AB), edges=[("A", "B")]))
    assert found.states == ((0, 1), (0, 1, 2))


def test_a_graph_alone_has_a_factor_for_every_maximal_clique():
    triangle_and_tail = [("D", "C"), ("A", "B"), ("B", "C"), ("A", "C")]
    model = markov_model(edges=triangle_and_tail)
    model.add_node("E")
    found = load_network(model)
    assert found.variables == ("D", "C", "A", "B", "E")
    assert found.scopes == ((0, 1), (1, 2, 3), (4,))
    assert found.states == (None,) * 5
    assert found.tables == (None,) * 3


def test_a_markov_network_goes_to_pgmpy_and_back():
    one = from_pgmpy(markov_model(factor("AB", AB), factor("CB", CB), factor("B", [1.0, 0.0, 2.0])))
    model = to_pgmpy(one)
    assert model.check_model()
    assert list(model.nodes()) == ["C", "B", "A"]
    back = from_pgmpy(model)
    assert (back.variables, back.states, back.scopes) == (one.variables, one.states, one.scopes)
    assert [t.tobytes() for t in back.tables] == [t.tobytes() for t in one.tables]
    assert [[type(s) for s in states] for states in back.states] == [[bool] * 2, [int] * 3, [str] * 2]


def test_the_partition_function_is_the_same_in_pgmpy():
    """Constants, which pgmpy's factors can't be, go into the first factor."""
    states = (("y", "n"), (0, 1, 2))
    tables = (np.array(3.0), AB, np.array([1.0, 0.0, 2.0]), np.array(0.5))
    network = MarkovNetwork("constants", ("A", "B"), states, ((), (0, 1), (1,), ()), tables)
    model = to_pgmpy(network)
    assert [f.variables for f in model.factors] == [["A", "B"], ["B"]]
    # 1.5 (1 + 4) 1 + 1.5 (3 + 6) 2, in integers and halves.
    assert model.get_partition_function() == 34.5


def test_alarm_as_a_markov_network_means_the_same_in_pgmpy(alarm):
    model = to_pgmpy(moralise(alarm))
    assert model.check_model()
    again = load_network(model)
    assert again.scopes == moralise(alarm).scopes
    assert all((a == b).all() for a, b in zip(again.tables, alarm.tables, strict=True))
    ours = {frozenset(e) for e in to_pgmpy(alarm).to_markov_model().edges()}
    assert {frozenset(e) for e in model.edges()} == ours


def test_structure_alone_goes_to_pgmpy_as_edges():
    model = to_pgmpy(load_network(markov_model(edges=[("A", "B"), ("B", "C"), ("A", "C")])))
    assert len(model.edges()) == 3
    assert model.factors == []


def test_undirected_models_that_are_not_whole_are_refused():
    from pgmpy.models import FactorGraph

    ab, cb = factor("AB", AB), factor("CB", CB)
    with pytest.raises(BadInputError, match=r"expected a factor for every edge, found none over 'B' and 'C'"):
        load_network(markov_model(ab, factor("C", [1.0, 2.0])))
    with pytest.raises(BadInputError, match=r"any two variables of factor 0 \(A, B\), found none between 'A' and 'B'"):
        load_network(markov_model(ab, cb, edges=[("C", "B"), ("C", "A")]))
    with pytest.raises(BadInputError, match="variable 'C' is in no factor"):
        load_network(factor_graph(ab))
    with pytest.raises(BadInputError, match=r"expected factor 1 to have the states of 'B' \(0, 1, 2\), found 0, 1, 3"):
        load_network(markov_model(ab, factor("CB", CB, B=[0, 1, 3])))
    with pytest.raises(BadInputError, match=r"expected factor 1 to have the states of 'B' \(0, 1, 2\), found 0, 1$"):
        load_network(markov_model(ab, factor("CB", CB[:, :2], B=[0, 1])))
    with pytest.raises(BadInputError, match=r"expected 3 states of 'B' in factor 0, found 2: 0, 1"):
        load_network(markov_model(factor("AB", AB, B=[0, 1]), cb))
    with pytest.raises(BadInputError, match=r"states of 'A' that are strings, integers or booleans, found 0.5 .float"):
        load_network(markov_model(factor("AB", AB, A=[0.5, 1.5]), cb))
    with pytest.raises(BadInputError, match=r"the table of factor 0 \(A, B\) has an entry -1.0"):
        load_network(markov_model(factor("AB", -np.ones((2, 3))), cb))
    gone = markov_model(ab, cb)
    gone.remove_node("A")
    with pytest.raises(BadInputError, match=r"factor 0 to be over nodes of the model, found 'A' in it"):
        load_network(gone)
    with pytest.raises(BadInputError, match=r"expected nodes named by strings, found 1 \(int\)"):
        load_network(markov_model(edges=[(1, 2)]))
    with pytest.raises(BadInputError, match=r"expected nodes named by strings, found \('A', 0\) \(tuple\)"):
        load_network(factor_graph(ab, cb, nodes=("A", "B", "C", ("A", 0))))
    with pytest.raises(
        BadInputError, match="expected a factor graph with factors, found none; add them by add_factors"
    ):
        load_network(FactorGraph())
    forgotten = factor_graph(ab, factor("C", [1.0, 2.0]))
    forgotten.add_node(cb)
    with pytest.raises(BadInputError, match="found one that is not, over C, B; add it by add_factors"):
        load_network(forgotten)
    strange = markov_model(ab, cb)
    strange.factors.append("ab")
    with pytest.raises(BadInputError, match="expected DiscreteFactors, found str"):
        load_network(strange)
    with pytest.raises(BadInputError, match="network unknown: it has no variables"):
        load_network(markov_model(edges=()))
