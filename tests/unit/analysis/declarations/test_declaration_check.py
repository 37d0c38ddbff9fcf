"""What a node is declared to do is held against its reference, whatever dimensions of extent 1 either side has."""

import numpy as np

from qdebug.analysis.results.result import Status
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node
from qdebug.session import diff

X = np.random.default_rng(4).normal(size=(1, 2, 6, 6)).astype(np.float32)
SHAPES = {"three": np.array([1, 6, 12], np.int64), "two": np.array([6, 12], np.int64)}
AXES = {"last": np.array([-1], np.int64), "before": np.array([2], np.int64)}


def node(op, inputs, outputs, **attrs):
    return Node(name=f"n_{outputs}", op=op, inputs=tuple(inputs.split()), outputs=(outputs,), attrs=attrs)


def recorded(nodes, constants, *, off=0.0):
    """Run nodes and record everything; a Tanh is off by a share."""
    values = {"x": X, **constants}
    for each in nodes:
        values.update(run_node(each, values, {"": 18}))
        if each.op == "Tanh":
            values["t"] = values["t"] * np.float32(1 + off)
    roles = dict.fromkeys(constants, Role.CONSTANT) | {"x": Role.INPUT}
    tensors = [TensorInfo(name=name, role=role) for name, role in roles.items()]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=nodes[-1].outputs, opset={"": 18})
    return MemoryRecording.single(graph, values)


def test_rows_of_a_batch_of_one_are_the_same_without_the_batch():
    """A runtime that makes a Gemm of a product with a bias takes the batch away before it, and puts it back."""
    constants = {**SHAPES, "w": np.linspace(-1, 1, 144, dtype=np.float32).reshape(12, 12), "b": np.ones(12, np.float32)}
    tanh, reshape = node("Tanh", "x", "t"), node("Reshape", "t three", "r")
    reference = recorded((tanh, reshape, node("MatMul", "r w", "m"), node("Add", "m b", "y")), constants)
    gemm = Node(name="fused", op="Gemm", inputs=("r2", "w", "b"), outputs=("g",), origin=("n_r", "n_m", "n_y"))
    own = (tanh, node("Reshape", "t two", "r2"), gemm, node("Reshape", "g three", "y"))
    result = diff(reference, recorded(own, constants, off=2.0**-23))
    assert [entry.tensor for entry in result.nodes] == ["x", "t", "r2", "g", "y"]
    assert result.status is Status.WITHIN, result.verdict.sentence


def test_a_reduction_along_another_axis_of_the_same_extent_is_named():
    """Both results have as many elements, and dimensions of extent 1 in other places."""
    first = node("ReduceSum", "x last", "s", keepdims=1)
    nodes = (node("Sub", "x s", "d"), node("Neg", "d", "y"))
    right = recorded((first, *nodes), AXES)
    wrong = recorded((node("ReduceSum", "x before", "s", keepdims=1), *nodes), AXES)
    verdict = diff(right, wrong).verdict
    assert verdict.status is Status.DIVERGED
    assert verdict.origin == "n_s", verdict.sentence
