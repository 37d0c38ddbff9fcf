"""What two graphs state differently of a node that nobody here can replay: a convolution in blocks of channels."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(8)
X = RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)
W = (RNG.normal(size=(6, 3, 3, 3)) * 0.4).astype(np.float32)
B = RNG.normal(size=6).astype(np.float32)
NORM = {"g": RNG.uniform(0.5, 2, 6), "o": RNG.normal(size=6), "m": RNG.normal(size=6), "v": RNG.uniform(0.5, 2, 6)}
NORM = {name: array.astype(np.float32) for name, array in NORM.items()}
EPSILON = 1e-5


def node(op, inputs, output, **more):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), **more)


def result_of(nodes, constants, opset):
    values = {"x": X, **constants}
    for each in nodes:
        values.update(run_node(each, values, opset))
    return values


def recorded(nodes, values, constants, *, layouts=()):
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    infos += [TensorInfo(name=name, layout=layout, shape=values[name].shape) for name, layout in layouts]
    opset = {"": 17, "com.microsoft.nchwc": 1}
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=nodes[-1].outputs, opset=opset)
    return MemoryRecording.single(graph, values)


def plain(norm=NORM):
    """Record Relu(BatchNormalization(Conv(x)))."""
    constants = {"w": W, "b": B, **norm}
    nodes = (
        node("Conv", "x w b", "c", attrs={"pads": [1, 1, 1, 1]}),
        node("BatchNormalization", "c g o m v", "n", attrs={"epsilon": EPSILON}),
        node("Relu", "n", "y"),
    )
    return recorded(nodes, result_of(nodes, constants, {"": 17}), constants)


def blocked(*, weight=W, norm=NORM):
    """Record the same as one node whose eight output channels, two of them of nothing, lie together in memory."""
    gain = norm["g"] / np.sqrt(norm["v"] + np.float32(EPSILON))
    folded, bias = weight * gain[:, None, None, None], (B - norm["m"]) * gain + norm["o"]
    nodes = [node("Conv", "x w b", "c", attrs={"pads": [1, 1, 1, 1]}), node("Relu", "c", "y")]
    values = result_of(nodes, {"w": folded, "b": bias}, {"": 17})
    y = np.pad(values["y"], ((0, 0), (0, 2), (0, 0), (0, 0)))
    stored = y.reshape(2, 1, 8, 8, 8).transpose(0, 1, 3, 4, 2).reshape(y.shape)
    kept = np.pad(folded, ((0, 2), (0, 0), (0, 0), (0, 0)))
    kept = kept.reshape(1, 8, 3, 3, 3).transpose(0, 2, 3, 4, 1).reshape(kept.shape)
    attrs = {"pads": [1, 1, 1, 1], "activation": "Relu"}
    one = node("Conv", "x w b", "y", attrs=attrs, domain="com.microsoft.nchwc")
    constants = {"w": kept, "b": np.pad(bias, (0, 2))}
    return recorded((one,), {"x": X, **constants, "y": stored}, constants, layouts=[("y", "NCHW8c")])


def test_what_is_stated_alike_is_no_difference():
    assert diff(plain(), blocked()).exit_code == 0


def wrong_weight():
    weight = W.copy()
    weight[2] = W[3]
    return blocked(weight=weight)


@pytest.mark.parametrize(
    ("backend", "kind", "evidence"),
    [
        (wrong_weight(), "weight", "w"),
        (blocked(norm=NORM | {"m": np.roll(NORM["m"], 1)}), "bias", "b"),
    ],
    ids=["weight", "bias"],
)
def test_a_wrong_constant_in_blocks_is_named(backend, kind, evidence):
    result = diff(plain(), backend)
    first = result.nodes[-1].findings[0]
    assert (result.origin, str(first.kind), first.evidence) == ("n_y", kind, evidence), result.verdict.sentence
    assert "(its BatchNormalization folded in)" in first.sentence
