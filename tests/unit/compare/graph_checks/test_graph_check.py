"""What a node is declared to do is held against its reference, whatever dimensions of extent 1 either side has."""

import numpy as np

from qdebug.api import diff
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay import run_node

X = np.random.default_rng(4).normal(size=(1, 2, 6, 6)).astype(np.float32)
SHAPES = {"three": np.array([1, 6, 12], np.int64), "two": np.array([6, 12], np.int64)}
AXES = {"last": np.array([-1], np.int64), "before": np.array([2], np.int64)}


def node(op, inputs, outputs, **attrs):
    return Node(name=f"n_{outputs}", op=op, inputs=tuple(inputs.split()), outputs=(outputs,), attrs=attrs)


def recorded(nodes, constants, *, off=0.0, quants=None):
    """Run nodes and record everything; a Tanh is off by a share."""
    values = {"x": X, **constants}
    for each in nodes:
        values.update(run_node(each, values, {"": 18}))
        if each.op == "Tanh":
            values["t"] = values["t"] * np.float32(1 + off)
    roles = dict.fromkeys(constants, Role.CONSTANT) | {"x": Role.INPUT}
    known = quants or {}
    tensors = [TensorInfo(name=name, role=role, quant=known.get(name)) for name, role in roles.items()]
    tensors += [TensorInfo(name=name, quant=quant) for name, quant in known.items() if name not in roles]
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


def masked(mask):
    """Record Tanh(x) + mask, in real numbers and in codes; the lowest of the mask's is below all float32."""
    real = np.where(mask, np.float32(-3.4028235e38), np.float32(0))
    one = recorded((node("Tanh", "x", "t"), node("Add", "t k", "s")), {"k": real})
    step = 3.4028235e38 / 255
    scales = {"t": (1 / 127, 0), "k": (step * 1.00001, 127), "s": (step / 1.001, 127)}
    quants = {f"{name}_q": QuantParams(dtype="int8", scale=s, zero_point=z) for name, (s, z) in scales.items()}
    constants = {"k_q": np.where(mask, -128, 127).astype(np.int8)}
    for name, (scale, zero) in scales.items():
        constants |= {f"{name}_s": np.float32(scale), f"{name}_z": np.asarray(zero, np.int8)}
    inputs = ("t_q", "t_s", "t_z", "k_q", "k_s", "k_z", "s_s", "s_z")
    added = Node(name="add", op="QLinearAdd", domain="com.microsoft", inputs=inputs, outputs=("s_q",))
    nodes = (node("Tanh", "x", "t"), node("QuantizeLinear", "t t_s t_z", "t_q"), added)
    return one, recorded(nodes, constants, quants=quants)


def test_a_mask_that_is_infinite_in_codes_is_that_of_the_reference():
    one, other = masked(np.arange(6) > 3)
    result = diff(one, other)
    assert result.status is Status.WITHIN, result.verdict.sentence
    assert diff(one, masked(np.arange(6) > 2)[1]).first_divergence == "add"
