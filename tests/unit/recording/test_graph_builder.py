"""A graph out of what is said of tensors, in any order."""

import json

import numpy as np
import pytest

from qdebug.errors import GraphError, RecordingError
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo
from qdebug.recording.graph_builder import (
    NO_FACTS,
    GraphBuilder,
    NodeFacts,
    apply_put_note,
    encode_put_note,
    node_facts,
)


def said(tensor, *, node=None, op=None, inputs=(), attrs=None, domain="", origin=(), placement=""):
    return node_facts(
        tensor, node=node, op=op, inputs=inputs, attrs=attrs, domain=domain, origin=origin, placement=placement
    )


def build(*puts, graph=None, shapes=()):
    builder = GraphBuilder(graph)
    for name, facts in puts:
        builder.note(name, (1,), said(name, **facts))
    for name, shape in shapes:
        builder.note(name, shape, NodeFacts())
    return builder.build(dict.fromkeys([*(name for name, _ in puts), *(name for name, _ in shapes)]))


def test_a_tensor_that_is_read_and_never_made_is_an_input():
    graph = build(("x", {}), ("y", {"op": "Relu", "inputs": ("x", "", "w")}), ("lone", {}))
    assert graph.inputs == ("x",)
    assert [(node.name, node.op, node.inputs) for node in graph.nodes] == [
        ("y", "Relu", ("x", "", "w")),
        ("lone", "Unknown", ()),
    ]
    assert {name: info.role for name, info in graph.tensors.items()} == {
        "x": Role.INPUT,
        "y": Role.ACTIVATION,
        "w": Role.ACTIVATION,
        "lone": Role.ACTIVATION,
    }


def test_nodes_keep_the_order_of_recording_where_it_is_one_of_the_graph():
    graph = build(("a", {}), ("b", {"op": "B"}), ("c", {}), ("e", {"op": "E", "inputs": ("d",)}), ("d", {"op": "D"}))
    assert [node.name for node in graph.nodes] == ["a", "b", "c", "d", "e"]


def test_a_node_without_name_gets_one_that_is_free():
    graph = build(("conv", {}), ("out", {"node": "conv", "op": "Conv"}), ("conv#2", {"node": "conv#2"}))
    assert {node.outputs[0]: node.name for node in graph.nodes} == {
        "out": "conv",
        "conv": "conv#3",
        "conv#2": "conv#2",
    }


def test_facts_of_a_node_add_up_over_its_tensors():
    graph = build(
        ("a", {"node": "n"}),
        ("b", {"node": "n", "op": "Split", "inputs": ("x",)}),
        ("a2", {"op": "Id", "inputs": "a"}),
        ("c", {"node": "n", "attrs": {"axis": 1}, "origin": "source"}),
    )
    assert graph.nodes[0] == Node(
        name="n", op="Split", inputs=("x",), outputs=("a", "b", "c"), attrs={"axis": 1}, origin=("source",)
    )


def test_what_was_said_first_holds_for_puts_that_say_nothing():
    builder = GraphBuilder()
    builder.note("y", (1,), said("y", node="n", op="Relu", inputs=("x",)))
    builder.note("y", (1,), said("y"))
    builder.note("y", (1,), said("y", op="Relu"))
    (node,) = builder.build(["y"]).nodes
    assert (node.name, node.op, node.outputs) == ("n", "Relu", ("y",))


def test_a_tensor_belongs_to_one_node():
    builder = GraphBuilder()
    builder.note("y", (1,), said("y", op="Relu"))
    with pytest.raises(RecordingError, match="'y' was first put as an output of node 'y', and now as an output of 'n'"):
        builder.note("y", (1,), said("y", node="n", op="Relu"))


def test_a_loop_through_several_nodes_is_refused_and_forgotten():
    builder = GraphBuilder()
    for tensor, read in [("b", "a"), ("c", "b"), ("d", "c")]:
        builder.note(tensor, (1,), said(tensor, op="Op", inputs=(read,)))
    with pytest.raises(GraphError, match="reads 'd'"):
        builder.note("a", (1,), said("a", op="Op", inputs=("x", "d")))
    with pytest.raises(GraphError, match="reads 'a'"):  # a second output of a node that a reader feeds
        builder.note("a", (1,), said("a", node="m", op="Op", inputs=("a",)))
    builder.note("a", (1,), said("a", op="Op", inputs=("x",)))
    assert [node.name for node in builder.build(["a", "b", "c", "d"]).nodes] == ["a", "b", "c", "d"]


def test_a_new_output_may_close_a_loop_too():
    builder = GraphBuilder()
    builder.note("one", (1,), said("one", node="n", op="Op", inputs=("z",)))
    builder.note("z", (1,), said("z", op="Op", inputs=("two",)))
    with pytest.raises(GraphError, match="reads 'z'"):
        builder.note("two", (1,), said("two", node="n"))


def test_a_long_chain_takes_no_recursion():
    graph = build(*((f"t{number}", {"op": "Op", "inputs": (f"t{number - 1}",)}) for number in range(1100, 0, -1)))
    assert [node.name for node in graph.nodes[:2]] == ["t1", "t2"]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(2, 3)], (2, 3)),
        ([(2, 3), (2, 3)], (2, 3)),
        ([(2, 3), (4, 3)], (None, 3)),
        ([(2, 3), (4, 3), (2, 5)], (None, None)),
        ([(2, 3), (2, 3, 1)], None),
        ([(2, 3), (2,), (2, 3)], None),
        ([()], ()),
    ],
)
def test_shapes_say_what_all_samples_have_in_common(shapes, expected):
    assert build(shapes=[("x", shape) for shape in shapes]).tensors["x"].shape == expected


@pytest.mark.parametrize(
    ("declared", "seen", "expected"),
    [
        ((None, 3), (2, 3), (None, 3)),
        ((2, 3), (2, 3), (2, 3)),
        ((None, 4), (2, 3), (2, 3)),
        ((3,), (2, 3), (2, 3)),
        (None, (2, 3), (2, 3)),
    ],
)
def test_a_declared_shape_holds_unless_the_values_deny_it(declared, seen, expected):
    given = Graph(tensors=[TensorInfo(name="x", shape=declared)])
    assert build(graph=given, shapes=[("x", seen)]).tensors["x"].shape == expected


def test_attributes_are_compared_by_value_arrays_and_nan_included():
    builder = GraphBuilder()
    attrs = {"value": np.array([np.nan, 1]), "k": [1, 2]}
    builder.note("y", (1,), said("y", op="Op", attrs=attrs))
    builder.note("y", (1,), said("y", op="Op", attrs={"value": np.array([np.nan, 1]), "k": (1, 2)}))
    with pytest.raises(RecordingError, match="attrs"):
        builder.note("y", (1,), said("y", op="Op", attrs={**attrs, "value": np.array([np.nan, 2])}))


def test_messages_stay_short():
    builder = GraphBuilder()
    builder.note("y", (1,), said("y", op="Op", attrs={"a": "x" * 5000}))
    with pytest.raises(RecordingError) as caught:
        builder.note("y", (1,), said("y", op="Op", attrs={"a": "z" * 5000}))
    assert len(str(caught.value)) < 400


def test_what_is_said_counts_as_new_once():
    """Of a tensor: that it is there, a fact, another quantization; of its node: an operator, an input."""
    quants = [QuantParams(dtype="int8", scale=np.float32(scale)) for scale in (0.5, 0.25)]
    builder, seen = GraphBuilder(), []
    for facts, more in (
        ({}, {"dtype": "int8"}),
        ({}, {"dtype": "int8"}),
        ({}, {}),
        ({}, {"layout": "NCHW"}),
        ({}, {"layout": "NCHW"}),
        ({}, {"quant": quants[0]}),
        ({}, {"quant": quants[0]}),
        ({}, {"quant": quants[1]}),
        ({}, {"quant": quants[1]}),
        ({"op": "Relu"}, {}),
        ({"op": "Relu"}, {}),
        ({"op": "Relu", "inputs": ("x",)}, {"layout": "NCHW"}),
        ({"inputs": ("x",)}, {"layout": "NCHW"}),
    ):
        seen.append(builder.note("y", (1,), said("y", **facts) if facts else NodeFacts(), **more))
    new, quant = zip(*seen, strict=True)
    assert new == (True, False, False, True, False, True, False, True, True, True, False, True, False)
    assert [at for at, each in enumerate(quant) if each is not None] == [7, 8]  # of these values alone
    assert builder.quant("y") == quants[0]


@pytest.mark.parametrize(
    "facts",
    [
        {"node": "n", "op": "Conv", "inputs": ("x", "", "w")},
        {"op": "Relu"},
        {"node": "n"},
        {"inputs": ("x",), "domain": "d", "origin": ("a", "b"), "placement": "npu", "attrs": {"pads": [1, 1]}},
    ],
)
def test_a_note_tells_all_that_was_said_whether_or_not_it_names_what_was_not(facts):
    """Recorders of before wrote every fact of a node, empty ones too."""
    note = json.loads(json.dumps(encode_put_note("y", (2, 3), said("y", **facts), {"dtype": "int8"})))
    empty = {"domain": "", "inputs": [], "origin": [], "placement": "", "attrs": ""}
    graphs = []
    for node in (note["node"], empty | note["node"]):
        builder = GraphBuilder()
        apply_put_note(builder, {**note, "node": node})
        graphs.append(builder.build(["y"]))
    expected = GraphBuilder()
    expected.note("y", (2, 3), said("y", **facts), dtype="int8")
    for graph in graphs:
        assert graph.nodes == expected.build(["y"]).nodes
        assert dict(graph.tensors) == dict(expected.build(["y"]).tensors)


def test_nothing_is_noted_of_a_node_that_nobody_named():
    assert set(encode_put_note("y", (1,), NO_FACTS, {"dtype": "int8"})) == {"put", "shape", "dtype"}
