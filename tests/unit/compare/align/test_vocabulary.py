"""Graphs in the words of other frameworks are matched with one in words of ONNX; what is ONNX's stays as it is."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.align import align
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.model.operators import is_foreign, kinds_of, with_onnx_op
from qdebug.replay import run_node

RNG = np.random.default_rng(3)
X = RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)
WEIGHTS = {f"w{i}": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) / 6 for i in range(2)}
STEPS = (("Conv", "w0"), ("Relu", ""), ("Conv", "w1"), ("Sigmoid", ""), ("MaxPool", ""), ("Concat", ""))
WORDS = {
    "PyTorch": ("conv2d", "relu", "conv2d", "sigmoid", "max_pool2d", "cat"),
    "aten": ("aten.conv2d.default", "aten::relu_", "conv2d.default", "aten.sigmoid", "aten::max_pool2d", "cat.default"),
    "classes": ("Conv2d", "ReLU", "Conv2d", "Sigmoid", "MaxPool2d", "Concat"),
    "TensorFlow Lite": ("CONV_2D", "RELU", "CONV_2D", "LOGISTIC", "MAX_POOL_2D", "CONCATENATION"),
    "OpenVINO": ("Convolution", "Relu", "GroupConvolution", "Sigmoid", "MaxPool", "Concat"),
}


def reference():
    nodes, source, values = [], "x", {"x": X, **WEIGHTS}
    for place, (op, weight) in enumerate(STEPS):
        attrs = {"Conv": {"pads": (1, 1, 1, 1)}, "MaxPool": {"kernel_shape": (2, 2)}, "Concat": {"axis": 1}}.get(op, {})
        inputs = tuple(filter(None, (source, weight, source if op == "Concat" else "")))
        nodes.append(Node(name=f"n{place}", op=op, inputs=inputs, outputs=(f"t{place}",), attrs=attrs))
        values.update(run_node(nodes[-1], values, {"": 18}))
        source = f"t{place}"
    tensors = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in WEIGHTS)]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=(source,), opset={"": 18})
    return MemoryRecording.single(graph, values)


def said_in(words, full, *, scaled=None):
    """Hand over what a graph does in other words, with names of its own and without weights and attributes."""
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("image", X)
        before = "image"
        for place, word in enumerate(words):
            values = full.load(f"t{place}") * np.float32(1.5 if place == scaled else 1)
            read = (before, before) if place == len(words) - 1 else (before,)
            rec.put(f"made {place}", values, node=f"layer {place}", op=word, inputs=read)
            before = f"made {place}"
        rec.outputs(before)
    return rec.recording


@pytest.mark.parametrize("framework", WORDS)
def test_a_graph_in_other_words_is_matched_by_what_its_nodes_do(framework):
    full = reference()
    other = said_in(WORDS[framework], full)
    for pair in ((full, other), (other, full)):
        result = qdebug.diff(*pair)
        assert (result.coverage.compared, result.exit_code) == (7, 0)
    wrong = said_in(WORDS[framework], full, scaled=2)
    assert qdebug.diff(full, wrong).first_divergence == "layer 2"


def test_an_activation_that_another_framework_fuses_is_found():
    full = reference()
    relu = {"fused_activation_function": "RELU"}
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("image", X)
        rec.put("a", full.load("t1"), node="first", op="CONV_2D", inputs=("image",), attrs=relu)
        rec.put("b", full.load("t2"), node="second", op="CONV_2D", inputs=("a",), attrs={"fused_activation": "NONE"})
        rec.put("c", full.load("t3"), node="third", op="LOGISTIC", inputs=("b",))
    pairs = {pair.backend: pair.reference for pair in align(full, rec.recording).pairs}
    assert pairs == {"image": "x", "a": "t1", "b": "t2", "c": "t3"}


def test_a_silu_is_the_product_that_it_stands_for():
    nodes = [
        Node(name="s", op="Sigmoid", inputs=("x",), outputs=("gate",)),
        Node(name="m", op="Mul", inputs=("x", "gate"), outputs=("y",)),
        Node(name="r", op="Relu", inputs=("y",), outputs=("z",)),
    ]
    values = {"x": X}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    full = MemoryRecording.single(Graph(nodes, inputs=("x",), outputs=("z",), opset={"": 18}), values)
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("image", X)
        rec.put("silu", values["y"], node="a", op="SiLU", inputs=("image",))
        rec.put("relu", values["z"], node="b", op="ReLU", inputs=("silu",))
    assert {pair.backend: pair.reference for pair in align(full, rec.recording).pairs} == {
        "image": "x",
        "silu": "y",
        "relu": "z",
    }


@pytest.mark.parametrize(
    "op", ["Conv", "LSTM", "GRU", "Expand", "QLinearConv", "FusedConv", "Unknown", "Sum", "Mean", "Dropout", "Swish"]
)
def test_words_of_onnx_and_unknown_ones_are_left_alone(op):
    node = Node(name="n", op=op, inputs=("x",), outputs=("y",))
    assert with_onnx_op(node) is node


def test_one_node_of_each_kind_stands_for_the_others():
    plain, fused = ({}, {"fused_activation": "relu"})
    shared = Node(name="a", op="Conv", attrs=plain).attrs
    nodes = [
        Node(name="a", op="Conv", attrs=shared),
        Node(name="b", op="Conv", attrs=shared),
        Node(name="c", op="conv2d", attrs=shared),
        Node(name="d", op="Conv", attrs=fused),
    ]
    assert [node.name for node in kinds_of(nodes)] == ["a", "c", "d"]
    assert {node.op for node in kinds_of(nodes) if is_foreign(node)} == {"Conv", "conv2d"}


def test_nodes_that_are_gone_stand_for_no_others():
    """Attributes of a later node may lie where those of an earlier one lay."""
    made = (Node(name=str(at), op="Conv", attrs={"fused_activation": "relu"} if at == 99 else {}) for at in range(100))
    assert any(map(is_foreign, kinds_of(made)))
