"""What a node does beside its own operator is seen as nodes of their own."""

from dataclasses import replace

import pytest

from qdebug.compare.align.expand import (
    clamps_at_zero,
    expand_fused_nodes,
    goes_into_weights,
    has_unknown_inputs,
    have_same_kind,
    parts_of,
)
from qdebug.model import Graph, Node, Role, TensorInfo


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
    assert expand_fused_nodes(graph) is graph


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
    graph = expand_fused_nodes(Graph([node], inputs=("x",), outputs=("y",)))
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
    assert have_same_kind(*nodes) is have_same_kind(*reversed(nodes)) is expected


def node(op, inputs="x w b", output="y", domain="com.microsoft", **attrs):
    return Node(name="n", op=op, inputs=tuple(inputs.split()), outputs=(output,), domain=domain, attrs=attrs)


@pytest.mark.parametrize(
    ("whole", "parts"),
    [
        (
            node("FusedConv", "x w b z", activation="Relu", group=2),
            [
                ("n", "FusedConv", ("x", "w", "b"), ("y/before Add",), {"group": 2}),
                ("n/Add", "Add", ("y/before Add", "z"), ("y/before Relu",), {}),
                ("n/Relu", "Relu", ("y/before Relu",), ("y",), {}),
            ],
        ),
        (
            node("FusedConv", "x w", activation="Clip", activation_params=(0.0, 6.0)),
            [
                ("n", "FusedConv", ("x", "w"), ("y/before Clip",), {}),
                ("n/Clip", "Clip", ("y/before Clip",), ("y",), {"min": 0.0, "max": 6.0}),
            ],
        ),
        (
            node("FusedGemm", activation="LeakyRelu", activation_alpha=0.3, alpha=2.0),
            [
                ("n", "FusedGemm", ("x", "w", "b"), ("y/before LeakyRelu",), {"alpha": 2.0}),
                ("n/LeakyRelu", "LeakyRelu", ("y/before LeakyRelu",), ("y",), {"alpha": 0.3}),
            ],
        ),
        (
            node("HardSwish", "x", domain=""),
            [
                ("n/HardSigmoid", "HardSigmoid", ("x",), ("y/before Mul",), {"alpha": 1 / 6, "beta": 0.5}),
                ("n", "Mul", ("x", "y/before Mul"), ("y",), {}),
            ],
        ),
        (
            node("QuickGelu", "x", alpha=2.0),
            [
                ("n/Mul", "Mul", ("x", "y/alpha"), ("y/before Sigmoid",), {}),
                ("n/Sigmoid", "Sigmoid", ("y/before Sigmoid",), ("y/before Mul",), {}),
                ("n", "Mul", ("x", "y/before Mul"), ("y",), {}),
            ],
        ),
        (node("Mish", "x", domain=""), [("n", "Mish", ("x",), ("y",), {})]),
        (node("Conv", domain=""), [("n", "Conv", ("x", "w", "b"), ("y",), {})]),
    ],
)
def test_each_part_has_a_name_what_it_reads_and_what_belongs_to_it(whole, parts):
    found = parts_of(whole)
    assert [(each.name, each.op, each.inputs, each.outputs, dict(each.attrs)) for each in found] == parts
    graph = expand_fused_nodes(Graph([whole], inputs=("x",), outputs=("y",)))
    assert [each.name for each in graph.nodes] == [name for name, *_ in parts]
    assert (graph.inputs, graph.outputs) == (("x",), ("y",))


def test_names_that_are_taken_are_told_apart():
    first = node("FusedConv", "x w", "y", activation="Relu")
    taken = [
        Node(name="n/Relu", op="Exp", inputs=("y/before Relu",), outputs=("e",)),
        Node(name="m", op="Exp", inputs=("y",), outputs=("y/before Relu'",)),
    ]
    graph = expand_fused_nodes(Graph([first, *taken], inputs=("x",), outputs=("e",)))
    names = [name for each in graph.nodes for name in (each.name, *each.outputs)]
    assert len(set(names)) == len(names) == 8
    assert graph.producer("y").op == "Relu"
    assert graph.producer(graph.producer("y").inputs[0]).op == "FusedConv"


def test_words_of_another_framework_are_shown_in_those_of_onnx():
    graph = expand_fused_nodes(Graph([node("CONV_2D", domain="", fused_activation_function="RELU6")], inputs=("x",)))
    assert [each.op for each in graph.nodes] == ["Conv", "Clip"]
    assert dict(graph.nodes[1].attrs) == {"min": 0.0, "max": 6.0}
    plain = Graph([node("Conv", domain=""), Node(name="r", op="Relu", inputs=("y",), outputs=("z",))], inputs=("x",))
    assert expand_fused_nodes(plain) is plain


@pytest.mark.parametrize(
    ("reader", "maker", "inputs", "folded"),
    [
        ("Mul", "Conv", "x w", True),
        ("Add", "Conv", "x w", True),
        ("Add", "FusedConv", "x w b", True),
        ("Mul", "MatMul", "x w", True),
        ("Add", "MatMul", "x w", False),  # it has no bias to take a term in
        ("Add", "MatMulIntegerToFloat", "x w s t z v b", True),
        ("Mul", "Mul", "x k", True),
        ("Add", "Mul", "x k", False),
        ("Add", "Add", "x k", True),
        ("Mul", "Add", "x k", False),
        ("Relu", "Conv", "x w", False),
        ("BatchNormalization", "Conv", "x w", True),
        ("Exp", "Mul", "x k", False),
    ],
)
def test_a_factor_or_a_term_goes_into_constants_that_can_take_it(reader, maker, inputs, folded):
    behind = node(reader, "y k", "z", domain="")
    assert goes_into_weights(behind, node(maker, inputs)) == folded


@pytest.mark.parametrize(
    ("nodes", "clamped"),
    [
        ([node("Relu", "x", "y", domain="")], True),
        ([node("FusedConv", "x w", "y", activation="Relu")], True),
        ([node("FusedConv", "x w", "y", activation="Tanh")], False),
        ([node("Clip", "x", "y", domain="", min=0.0, max=6.0)], True),
        ([node("Clip", "x", "y", domain="", min=-1.0, max=6.0)], False),
        ([node("Conv", "x w", "y", domain="")], False),
        ([node("Relu", "x", "a", domain=""), node("MaxPool", "a", "b", ""), node("Reshape", "b s", "y", "")], True),
        ([node("Relu", "x", "a", domain=""), node("Identity", "a", "y", "")], True),
        ([node("Relu", "x", "a", domain=""), node("Neg", "a", "y", "")], False),
        ([node("Reshape", "x s", "y", "")], False),
        ([], False),
    ],
)
def test_a_relu_is_seen_through_what_keeps_or_picks_values(nodes, clamped):
    named = [replace(each, name=f"n{at}") for at, each in enumerate(nodes)]
    assert clamps_at_zero(Graph(named, inputs=("x",)), "y") == clamped


def test_a_node_of_which_nobody_says_what_it_reads_says_nothing():
    assert has_unknown_inputs(Node(name="n", op="Conv", outputs=("y",)))
    assert has_unknown_inputs(Node(name="n", op="Conv", inputs=("",), outputs=("y",)))
    assert not has_unknown_inputs(node("Conv", "x"))
    assert not has_unknown_inputs(Node(name="n", op="Constant", outputs=("y",)))


def test_what_lies_within_a_node_is_laid_out_as_its_output():
    layout = "NCHW8c"
    node = Node(name="n", op="FusedConv", inputs=("x", "w", "b", "more"), outputs=("y",), domain="com.microsoft")
    graph = expand_fused_nodes(
        Graph([node], tensors=[TensorInfo(name="y", layout=layout)], inputs=("x",), outputs=("y",))
    )
    assert graph.tensors[graph.nodes[0].outputs[0]].layout == layout


def test_a_pool_of_what_a_relu_gives_has_its_zeros():
    def behind(op, **attrs):
        relu = Node(name="r", op="Relu", inputs=("x",), outputs=("a",))
        last = Node(
            name="p", op=op, inputs=("a", *(["s"] * 3 if op.startswith("QLinear") else [])), outputs=("y",), **attrs
        )
        return clamps_at_zero(Graph([relu, last], inputs=("x",), outputs=("y",)), "y")

    assert all(map(behind, ("MaxPool", "AveragePool", "QLinearAveragePool", "GlobalAveragePool", "Flatten")))
    assert not any(map(behind, ("Conv", "Sub", "Neg")))
