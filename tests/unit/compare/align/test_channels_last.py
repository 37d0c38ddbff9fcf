"""A run with channels last throughout is compared with one that has them second: extents and values tell."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.align import channels_last as channels_last_module
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(8)
WEIGHTS = {
    "w0": RNG.normal(size=(6, 3, 3, 3)).astype(np.float32) / 4,
    "w1": RNG.normal(size=(6, 6, 3, 3)).astype(np.float32) / 6,
}
WORDS = {"Conv": "CONV_2D", "Relu": "RELU", "MaxPool": "MAX_POOL_2D", "Sigmoid": "LOGISTIC"}


def net(size, weights=WEIGHTS):
    """Record Conv, Relu, Conv, Relu, MaxPool, Sigmoid on an image."""
    x = RNG.normal(size=(1, 3, *size)).astype(np.float32)
    nodes = [
        Node(name="c0", op="Conv", inputs=("x", "w0"), outputs=("a",), attrs={"pads": (1, 1, 1, 1)}),
        Node(name="r0", op="Relu", inputs=("a",), outputs=("b",)),
        Node(name="c1", op="Conv", inputs=("b", "w1"), outputs=("c",), attrs={"pads": (1, 1, 1, 1)}),
        Node(name="r1", op="Relu", inputs=("c",), outputs=("d",)),
        Node(name="p", op="MaxPool", inputs=("d",), outputs=("e",), attrs={"kernel_shape": (2, 2), "strides": (2, 2)}),
        Node(name="s", op="Sigmoid", inputs=("e",), outputs=("y",)),
    ]
    values = {"x": x, **weights}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    tensors = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in weights)]
    return MemoryRecording.single(Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 18}), values)


def channels_last(full, *, fused=True, weights=True, wrong=None, second=None):
    """Hand over a run with channels last, in words of TensorFlow Lite; Relus inside the convolutions, unsaid.

    Args:
        full: The run with channels second.
        fused: Whether Relus are inside the convolutions.
        weights: Whether it tells the convolutions' weights.
        wrong: A tensor of which two channels are exchanged.
        second: A tensor that is handed over with channels second all the same.
    """
    with qdebug.Recorder(None, backend="harness") as rec:
        renamed = {}
        for name in ("x", *(node.outputs[0] for node in full.graph.nodes)):
            node = full.graph.producer(name)
            values = full.load(name) if name == second else np.ascontiguousarray(np.moveaxis(full.load(name), 1, -1))
            if name == wrong:
                values[..., 1:3] = values[..., 2:0:-1].copy()
            if node is None:
                rec.put("image", values)
                renamed[name] = "image"
            elif fused and node.op == "Conv":
                relu = full.graph.consumers(name)[0].outputs[0]
                renamed[relu] = f"layer {name}"
                read = [renamed[node.inputs[0]]]
                if weights:
                    weight = full.load(node.inputs[1]).transpose(0, 2, 3, 1)
                    rec.constant(f"filter {name}", np.ascontiguousarray(weight))
                    read.append(f"filter {name}")
                values = np.ascontiguousarray(np.moveaxis(full.load(relu), 1, -1))
                if relu == wrong:
                    values[..., 1:3] = values[..., 2:0:-1].copy()
                rec.put(renamed[relu], values, node=f"CONV_2D {name}", op="CONV_2D", inputs=read)
            elif not fused or node.op != "Relu":
                renamed[name] = f"layer {name}"
                rec.put(renamed[name], values, node=f"node {name}", op=WORDS[node.op], inputs=[renamed[node.inputs[0]]])
        rec.outputs(renamed["y"])
    return rec.recording


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", [(8, 12), (8, 8), (6, 6)])
def test_a_run_with_channels_last_is_compared_as_it_is(size, fused, weights):
    full = net(size)
    other = channels_last(full, fused=fused, weights=weights)
    for pair in ((full, other), (other, full)):
        result = qdebug.diff(*pair)
        assert result.exit_code == 0
        assert {node.metrics.mismatches for node in result.nodes} == {0}
    assert qdebug.diff(full, other).coverage.compared == (5 if fused else 7)


def test_values_of_huge_tensors_are_not_looked_at(monkeypatch):
    """Both sides as real numbers would take more memory than there is; what tensors are made of tells the order too."""
    monkeypatch.setattr(channels_last_module, "VALUES_READ_MAX_ELEMENTS", 0)
    monkeypatch.setattr(channels_last_module, "np", None)
    full = net((8, 12))
    result = qdebug.diff(full, channels_last(full, fused=False))
    assert result.exit_code == 0
    assert {node.metrics.mismatches for node in result.nodes} == {0}


@pytest.mark.parametrize("size", [(8, 12), (6, 6)])
def test_channels_that_are_swapped_are_a_finding(size):
    full = net(size)
    result = qdebug.diff(full, channels_last(full, wrong="d"))
    assert result.first_divergence == "CONV_2D c"


def test_a_transpose_that_is_missing_is_no_layout():
    """Nothing but a dense net: another order of dimensions is a fault, whatever the values are."""
    x = RNG.normal(size=(1, 5, 7)).astype(np.float32)
    nodes = [
        Node(name="r", op="Relu", inputs=("x",), outputs=("a",)),
        Node(name="t", op="Transpose", inputs=("a",), outputs=("b",), attrs={"perm": (0, 2, 1)}),
        Node(name="s", op="Sigmoid", inputs=("b",), outputs=("y",)),
    ]
    values = {"x": x}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    graph = Graph(nodes, inputs=("x",), outputs=("y",), opset={"": 18})
    good = MemoryRecording.single(graph, values)
    turned = {name: array.transpose(0, 2, 1) if name in ("b", "y") else array for name, array in values.items()}
    result = qdebug.diff(good, MemoryRecording.single(graph, turned))
    assert result.exit_code != 0
    assert any(node.status == "incomparable" for node in result.nodes)


@pytest.mark.parametrize("second", ["a", "b", "c", "d"])
def test_a_tensor_with_channels_second_among_others_is_told_by_its_values(second):
    """Its extents are equal, so that both orders fit; a harness may turn some tensors and hand over others."""
    full = net((6, 6))
    other = channels_last(full, fused=False, second=second)
    for pair in ((full, other), (other, full)):
        result = qdebug.diff(*pair)
        assert result.exit_code == 0
        assert {node.metrics.mismatches for node in result.nodes} == {0}


@pytest.mark.parametrize("perm", [(0, 1, 3, 2), (0, 2, 1, 3), (0, 3, 1, 2), (3, 2, 1, 0)])
def test_a_turn_whose_order_nobody_says_is_told_by_the_extents(perm):
    """It may be any order, not that of channels last alone; a second turn, unsaid as well, undoes it."""
    x = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    positive = np.maximum(x, 0)
    runs = []
    for turns in (False, True):
        with qdebug.Recorder(None, backend="harness") as rec:
            rec.put("x", x)
            rec.put("a", positive, node="relu", op="Relu", inputs=["x"])
            if turns:
                rec.put("turned", positive.transpose(perm), node="there", op="Transpose", inputs=["a"])
                rec.put("back", positive, node="back", op="Transpose", inputs=["turned"])
            rec.put("y", np.tanh(positive), node="tanh", op="Tanh", inputs=["back" if turns else "a"])
            rec.outputs("y")
        runs.append(rec.recording)
    result = qdebug.diff(*runs)
    assert result.exit_code == 0
    assert {node.tensor: node.metrics.mismatches for node in result.nodes} == dict.fromkeys(
        ("x", "a", "turned", "back", "y"), 0
    )
