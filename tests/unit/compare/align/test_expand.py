"""What a node does beside its own operator is seen as nodes of their own."""

import pytest

from qdebug.compare.align.expand import alike, expanded, parts_of
from qdebug.model import Graph, Node, Role


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("DynamicQuantizeMatMul", ("x", "w", "scale", "zero", "bias")),
        ("MatMulIntegerToFloat", ("x", "w", "x_scale", "w_scale", "x_zero", "w_zero", "bias")),
        ("FusedConv", ("x", "w", "b", "bias")),
    ],
)
def test_what_is_added_to_a_result_is_an_add_of_its_own(op, inputs):
    node = Node(name="n", op=op, inputs=inputs, outputs=("y",), domain="com.microsoft", attrs={"alpha": 1.0})
    first, add = parts_of(node)
    assert (first.op, first.inputs, first.attrs) == (op, inputs[:-1], {"alpha": 1.0})
    assert (add.op, add.inputs, add.outputs) == ("Add", (first.outputs[0], "bias"), ("y",))


@pytest.mark.parametrize("inputs", [("x", "w", "scale", "zero"), ("x", "w", "scale", "zero", "")])
def test_a_node_without_bias_is_left_alone(inputs):
    node = Node(name="n", op="DynamicQuantizeMatMul", inputs=inputs, outputs=("y",), domain="com.microsoft")
    graph = Graph([node], inputs=("x",), outputs=("y",))
    assert expanded(graph) is graph


EMBEDDINGS = ("ids", "types", "words", "positions", "kinds", "gamma", "beta")


def test_the_ones_of_a_mask_are_counted_beside_the_sum_of_embeddings():
    inputs, outputs = (*EMBEDDINGS, "mask", "places"), ("y", "count")
    node = Node(name="n", op="EmbedLayerNormalization", inputs=inputs, outputs=outputs, domain="com.microsoft")
    count, embeddings = parts_of(node)
    assert (count.op, count.inputs, count.outputs) == ("ReduceSum", ("mask",), ("count",))
    assert embeddings.inputs == (*EMBEDDINGS, "", "places")
    assert embeddings.outputs == ("y", "")


@pytest.mark.parametrize(("more", "outputs"), [((), ("y", "count")), (("mask",), ("y",)), (("", "places"), ("y", "c"))])
def test_embeddings_without_a_mask_or_its_count_are_left_alone(more, outputs):
    inputs = (*EMBEDDINGS, *more)
    node = Node(name="n", op="EmbedLayerNormalization", inputs=inputs, outputs=outputs, domain="com.microsoft")
    assert parts_of(node) == (node,)


@pytest.mark.parametrize(("attrs", "ops"), [({"alpha": 1.0}, ["Sigmoid", "Mul"]), ({}, ["Mul", "Sigmoid", "Mul"])])
def test_a_quick_gelu_is_a_product_of_its_input_and_a_gate(attrs, ops):
    node = Node(name="n", op="QuickGelu", inputs=("x",), outputs=("y",), domain="com.microsoft", attrs=attrs)
    graph = expanded(Graph([node], inputs=("x",), outputs=("y",)))
    assert [(part.op, part.domain) for part in graph.nodes] == [(op, "") for op in ops]
    assert (graph.nodes[-1].inputs, graph.outputs) == (("x", graph.nodes[-2].outputs[0]), ("y",))
    given = [name for name in graph.nodes[0].inputs if name != "x"]
    assert [graph.tensors[name].role for name in given] == [Role.CONSTANT] * (len(ops) - 2)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Conv", "QLinearConv", True),
        ("ConvInteger", "ConvInteger", True),
        ("Conv", "ConvInteger", False),
        ("MatMulInteger", "MatMul", False),
        ("Conv", "MatMul", False),
    ],
)
def test_what_gives_sums_of_codes_is_like_nothing_that_gives_real_numbers(one, other, expected):
    nodes = [Node(name="n", op=op, inputs=("x", "w"), outputs=("y",)) for op in (one, other)]
    assert alike(*nodes) is alike(*reversed(nodes)) is expected
