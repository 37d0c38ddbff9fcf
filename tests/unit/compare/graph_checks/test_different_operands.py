"""What two graphs say differently is found whatever it is: attributes, order of operands, outputs, extra nodes."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(5)
X = RNG.normal(size=(1, 2, 6, 6)).astype(np.float32)


def recorded(*nodes, x=X):
    """Run nodes and record everything; the last output is the graph's."""
    values = {"x": x}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    tensors = [TensorInfo(name="x", role=Role.INPUT)]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=nodes[-1].outputs[-1:], opset={"": 18})
    return MemoryRecording.single(graph, values)


def node(op, inputs, outputs, **attrs):
    outs = tuple(outputs.split())
    return Node(name=f"n_{outs[0]}", op=op, inputs=tuple(inputs.split()), outputs=outs, attrs=attrs)


A, B = node("Tanh", "x", "a"), node("Sigmoid", "x", "b")
CASES = {
    "operands in another order": ((A, B, node("Sub", "a b", "y")), (A, B, node("Sub", "b a", "y"))),
    "parts in another order": (
        (A, B, node("Concat", "a b", "y", axis=1)),
        (A, B, node("Concat", "b a", "y", axis=1)),
    ),
    "an attribute": (
        (A, node("AveragePool", "a", "y", kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=0)),
        (A, node("AveragePool", "a", "y", kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=1)),
    ),
    "an attribute of an activation": (
        (A, node("LeakyRelu", "a", "y", alpha=0.1)),
        (A, node("LeakyRelu", "a", "y", alpha=0.3)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_node_that_says_something_else_is_blamed(case):
    right, wrong = (recorded(*nodes) for nodes in CASES[case])
    assert diff(right, right).status is Status.IDENTICAL
    verdict = diff(right, wrong).verdict
    assert (verdict.status, verdict.first_divergence, verdict.origin) == (Status.DIVERGED, "n_y", "n_y")


def test_outputs_in_another_order_are_blamed():
    right = recorded(A, node("Split", "a", "p q", axis=1, num_outputs=2))
    wrong = recorded(A, node("Split", "a", "q p", axis=1, num_outputs=2))
    assert diff(right, wrong).first_divergence == "n_q"


def test_comparisons_turned_around_are_blamed_without_a_crash():
    right = recorded(A, B, node("Greater", "a b", "y"))
    wrong = recorded(A, B, node("Less", "a b", "y"))
    assert diff(right, wrong).first_divergence == "n_y"


def chain(quant, *, limits=None):
    """Quantize Tanh(x) with given parameters, each code the right one, and compare."""
    from qdebug.numerics.affine import quantize

    reference = recorded(A, node("Neg", "a", "y"))
    real = reference.load("a")
    codes = quantize(real, quant)
    nodes = (A, node("QuantizeLinear", "a s z", "a_q"))
    graph = Graph(
        nodes,
        tensors=[
            TensorInfo(name="x", role=Role.INPUT),
            TensorInfo(name="a_q", quant=quant, stands_for="a"),
            TensorInfo(name="s", role=Role.CONSTANT),
            TensorInfo(name="z", role=Role.CONSTANT),
        ],
        inputs=("x",),
        outputs=("a_q",),
        opset={"": 18},
    )
    arrays = {"x": X, "a": real, "a_q": codes, "s": quant.scale[0], "z": np.int8(quant.zero_point[0])}
    backend = MemoryRecording.single(graph, {name: np.asarray(value) for name, value in arrays.items()})
    result = diff(reference, backend, limits=limits or Limits(allow_uncompared=10))
    return next(entry for entry in result.nodes if entry.tensor == "a_q")


def test_a_fitting_scale_is_within():
    assert chain(QuantParams(dtype="int8", scale=np.float32(1 / 127))).status is Status.WITHIN


def test_a_range_far_too_narrow_is_said_though_every_code_is_the_nearest():
    entry = chain(QuantParams(dtype="int8", scale=np.float32(1 / 1270)))
    assert entry.status is Status.WITHIN
    assert "the range is too narrow" in entry.reason


def test_a_scale_far_too_coarse_is_said_though_every_code_is_the_nearest():
    entry = chain(QuantParams(dtype="int8", scale=np.float32(1.5)))
    assert entry.status is Status.WITHIN
    assert "the scale is too large" in entry.reason


def test_a_limit_in_steps_leaves_float_tensors_to_the_derived_limits():
    right = recorded(A, node("LeakyRelu", "a", "y", alpha=0.1))
    wrong = recorded(A, node("LeakyRelu", "a", "y", alpha=0.3))
    broken = MemoryRecording.single(right.graph, {**{n: right.load(n) for n in right.names}, "y": wrong.load("y")})
    assert diff(right, broken, limits=Limits(max_lsb=1)).first_divergence == "n_y"


def normalized(*, fused, scale, skip):
    """Record LayerNormalization(Tanh(x) + skip), as two nodes or as one."""
    given = {"k": skip, "g": scale, "b": np.linspace(-1, 1, 6).astype(np.float32)}
    nodes = [A, node("Add", "a k", "s"), node("LayerNormalization", "s g b", "y", axis=-1, epsilon=1e-5)]
    if fused:
        nodes[1:] = [node("SkipLayerNormalization", "a k g b", "y", epsilon=1e-5)]
        nodes[1] = replace(nodes[1], domain="com.microsoft")
    values = {"x": X, **given}
    for each in nodes:
        values.update(run_node(each, values, {"": 18, "com.microsoft": 1}))
    tensors = [TensorInfo(name="x", role=Role.INPUT)]
    tensors += [TensorInfo(name=name, role=Role.CONSTANT, shape=array.shape) for name, array in given.items()]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 18, "com.microsoft": 1})
    return MemoryRecording.single(graph, values)


def test_operands_of_fused_normalizations_are_held_against_their_own():
    scale, skip = np.linspace(1, 2, 6).astype(np.float32), RNG.normal(size=X.shape).astype(np.float32)
    right, fused = (normalized(fused=fused, scale=scale, skip=skip) for fused in (False, True))
    assert diff(right, fused).status is Status.IDENTICAL
    wrong = normalized(fused=True, scale=np.where(np.arange(6) == 2, 1, scale).astype(np.float32), skip=skip)
    for reference in (right, fused):
        sentence = diff(reference, wrong).verdict.sentence
        assert "1 of 6 elements of scale 'g' differ from the reference" in sentence
    other = normalized(fused=True, scale=scale, skip=skip[..., ::-1])
    assert "its scale" not in diff(right, other).verdict.sentence
    assert diff(right, other).status is Status.DIVERGED
