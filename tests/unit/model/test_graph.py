"""Graph and Node: order, look-ups, refusals, equality."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import GraphError
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo


def node(name, inputs=(), outputs=(), **more):
    return Node(name=name, op="Op", inputs=tuple(inputs), outputs=tuple(outputs), **more)


def diamond():
    return Graph(
        [node("a", ["x", "w"], ["t"]), node("b", ["t"], ["u"]), node("c", ["t", ""], ["v"]), node("d", "uv", "y")],
        tensors=[TensorInfo(name="w", role=Role.CONSTANT, shape=(3,))],
        inputs=["x"],
        outputs=["y"],
        name="diamond",
        opset={"": 13},
    )


def test_look_ups():
    graph = diamond()
    assert graph.producer("t").name == "a"
    assert graph.producer("x") is None
    assert graph.producer("nowhere") is None
    assert graph.position("y") == 3
    assert graph.position("w") is None
    assert [n.name for n in graph.consumers("t")] == ["b", "c"]
    assert graph.consumers("y") == ()
    assert graph.is_constant("w")
    assert not graph.is_constant("t")
    assert not graph.is_constant("nowhere")


def test_a_tensor_read_twice_by_one_node_has_one_reader_and_what_is_left_out_has_none():
    graph = Graph([node("a", ["x"], ["t"]), node("b", ["t", "", "t"], ["u"]), node("c", ["x", "t"], ["v"])])
    assert [n.name for n in graph.consumers("t")] == ["b", "c"]
    assert [n.name for n in graph.consumers("x")] == ["a", "c"]
    assert graph.consumers("") == ()


@drawn(50)
@given(st.lists(st.lists(st.sampled_from(["", *"pqrs"]), max_size=4), max_size=6))
def test_consumers_are_the_nodes_that_name_a_tensor(inputs):
    graph = Graph([node(f"n{at}", names, [f"o{at}"]) for at, names in enumerate(inputs)])
    for name in "pqrs":
        assert [n.name for n in graph.consumers(name)] == [f"n{at}" for at, names in enumerate(inputs) if name in names]


def test_tensors_that_only_nodes_name_are_known_bare():
    graph = diamond()
    assert graph.tensors["x"] == TensorInfo(name="x", role=Role.INPUT)
    assert graph.tensors["y"] == TensorInfo(name="y", role=Role.OUTPUT)
    assert graph.tensors["u"] == TensorInfo(name="u", role=Role.ACTIVATION)
    assert graph.tensors["w"].shape == (3,)
    assert "" not in graph.tensors


def test_given_order_is_kept_where_it_is_topological():
    nodes = [node("late", ["x"], ["a"]), node("early", ["x"], ["b"])]
    assert [n.name for n in Graph(nodes).nodes] == ["late", "early"]


def test_any_other_order_is_sorted_stably():
    graph = Graph([node("d", ["c"], ["y"]), node("b", ["x"], ["c"]), node("free", ["x"], ["z"])])
    assert [n.name for n in graph.nodes] == ["b", "d", "free"]
    assert graph.position("c") == 0
    assert [n.name for n in graph.consumers("c")] == ["d"]


@drawn(60)
@given(st.data())
def test_shuffled_nodes_come_back_in_topological_order(data):
    count = data.draw(st.integers(1, 12))
    edges = [data.draw(st.sets(st.integers(0, max(i - 1, 0)), max_size=3)) if i else set() for i in range(count)]
    nodes = [node(f"n{i}", [f"t{j}" for j in sorted(edges[i])], [f"t{i}"]) for i in range(count)]
    graph = Graph(data.draw(st.permutations(nodes)))
    assert {n.name for n in graph.nodes} == {n.name for n in nodes}
    for position, each in enumerate(graph.nodes):
        assert all(graph.position(tensor) < position for tensor in each.inputs)
        assert all(graph.position(tensor) == position for tensor in each.outputs)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("a", ["u"], ["t"]), node("b", ["t"], ["u"])], "cycle through node 'a'"),
        ([node("a", ["t"], ["t"])], "cycle through node 'a'"),
        ([node("a", [], ["t"]), node("b", [], ["t"])], "'t' is produced twice, by 'a' and by 'b'"),
        ([node("a", [], ["t", "t"])], "produced twice"),
        ([node("a", [], ["t"]), node("a", [], ["u"])], "Two nodes have the name 'a'"),
    ],
)
def test_what_is_no_graph_is_refused(nodes, message):
    with pytest.raises(GraphError, match=message):
        Graph(nodes)


def test_outputs_left_out_collide_with_nothing():
    graph = Graph([node("a", ["x"], ["", "t"]), node("b", ["t"], ["", "u"])])
    assert graph.position("u") == 1


def test_an_empty_graph_is_a_graph():
    graph = Graph()
    assert graph.nodes == ()
    assert dict(graph.tensors) == {}


def test_a_graph_survives_pickling():
    graph = pickle.loads(pickle.dumps(diamond()))  # noqa: S301  our own bytes
    assert graph.nodes == diamond().nodes
    assert dict(graph.tensors) == dict(diamond().tensors)
    assert (graph.name, dict(graph.opset), graph.inputs, graph.outputs) == ("diamond", {"": 13}, ("x",), ("y",))


def test_nodes_compare_by_value_with_arrays_among_their_attributes():
    first = node("a", attrs={"value": np.array([1.0, np.nan]), "axis": 1})
    assert first == node("a", attrs={"axis": 1, "value": np.array([1.0, np.nan])})
    assert hash(first) == hash(node("a", attrs={"axis": 1, "value": np.array([1.0, np.nan])}))
    assert first != node("a", attrs={"axis": 1, "value": np.array([1.0, 2.0])})
    assert first != node("a", attrs={"axis": 1})
    assert first != node("b", attrs=first.attrs)
    assert first != "a"


def test_the_attributes_of_a_node_cannot_change():
    attrs = {"value": np.zeros(2)}
    each = node("a", attrs=attrs)
    attrs["value"][0] = 1.0
    attrs["more"] = 1
    assert list(each.attrs) == ["value"]
    assert each.attrs["value"].tolist() == [0.0, 0.0]


def test_a_node_can_have_the_attributes_of_another():
    first = node("a", ["x"], ["t"], attrs={"axis": 1, "table": np.arange(2)})
    second = Node(name="a", op="Op", inputs=("x",), outputs=("t",), attrs=first.attrs)
    assert second.attrs is first.attrs
    assert second == first
    assert hash(second) == hash(first)


def test_a_copied_node_is_equal():
    each = node(
        "a", ["x"], ["y"], attrs={"value": np.arange(3)}, domain="ai.onnx.ml", origin=("p", "q"), placement="CPU"
    )
    assert copy.deepcopy(each) == each


def test_tensor_facts_carry_quantization():
    quant = QuantParams(dtype="int8", scale=0.5)
    info = TensorInfo(name="t", shape=(None, 3), dtype="int8", quant=quant, stands_for="t_float")
    assert Graph([node("a", ["x"], ["t"])], tensors=[info]).tensors["t"].quant == quant


def test_a_node_that_gives_one_tensor_twice_is_refused():
    with pytest.raises(GraphError, match="produced twice, by 'a' and by 'a'"):
        Graph([node("a", ["x"], ["t", "t"])])
