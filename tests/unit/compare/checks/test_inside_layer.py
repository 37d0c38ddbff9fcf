"""A known mistake inside a layer, of which the end alone was recorded, comes before operators that seem to differ."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.result.finding import FindingKind
from qdebug.model import Graph, MemoryRecording, Node, Role, RunInfo, TensorInfo

R = np.random.default_rng(7)
X, W, B = (R.normal(size=shape).astype(np.float32) for shape in ((1, 3, 12), (8, 3, 1), (1, 8, 1)))


def recorded(nodes, arrays, backend):
    roles = {"x": Role.INPUT, "y": Role.OUTPUT, "w": Role.CONSTANT, "b": Role.CONSTANT}
    infos = [
        TensorInfo(name=name, dtype="float32", shape=array.shape, role=roles.get(name, Role.ACTIVATION))
        for name, array in arrays.items()
    ]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"])
    return MemoryRecording(graph, {(name, 0, 0): array for name, array in arrays.items()}, RunInfo(backend=backend))


def conv():
    return np.einsum("nct,oc->not", X, W[:, :, 0])


def reference():
    nodes = [
        Node(name="conv", op="Conv", inputs=("x", "w"), outputs=("c",)),
        Node(name="add", op="Add", inputs=("c", "b"), outputs=("a",)),
        Node(name="relu", op="Relu", inputs=("a",), outputs=("y",)),
    ]
    made = {"c": conv(), "a": conv() + B, "y": np.maximum(conv() + B, 0)}
    return recorded(nodes, {"x": X, "w": W, "b": B, **made}, "onnxruntime")


def backend(y):
    nodes = [
        Node(name="conv", op="Conv", inputs=("x", "w", "b"), outputs=("inside",)),
        Node(name="relu", op="Relu", inputs=("inside",), outputs=("y",)),
    ]
    return recorded(nodes, {"x": X, "w": W, "b": B.reshape(-1), "y": y}, "npu")


@pytest.mark.parametrize(("times", "said"), [(0, "the bias is dropped in 'conv'"), (2, "the bias is added twice in")])
def test_a_lost_bias_inside_a_layer_is_named(times, said):
    result = qdebug.diff(reference(), backend(np.maximum(conv() + times * B, 0)))
    found = result.nodes[-1].findings[0]
    assert found.kind is FindingKind.ARITHMETIC
    assert said in found.sentence
    assert "(reproduces every element)" in found.sentence


def test_a_right_layer_and_unknown_numbers_are_no_lost_bias():
    right = qdebug.diff(reference(), backend(np.maximum(conv() + B, 0)))
    other = qdebug.diff(reference(), backend(np.maximum(conv() * np.float32(1.3) + B, 0)))
    assert not any("inside the layer" in each.sentence for run in (right, other) for each in run.nodes[-1].findings)
    assert right.nodes[-1].status == "identical"
