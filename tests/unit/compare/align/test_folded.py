"""A BatchNormalization in a convolution's weights is recognised by the constants, whatever the node is called."""

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(8)
X = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)
NORM = {name: RNG.uniform(0.5, 2, size=5).astype(np.float32) for name in ("scale", "shift", "mean", "var")}
WEIGHT = RNG.normal(size=(5, 3, 3, 3)).astype(np.float32)


def run(nodes, constants, names=("x", "y")):
    values = {names[0]: X, **constants}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    tensors = [TensorInfo(name=names[0], role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in constants)]
    graph = Graph(nodes, tensors=tensors, inputs=names[:1], outputs=names[1:], opset={"": 18})
    return MemoryRecording.single(graph, values)


def reference():
    norm = Node(name="norm", op="BatchNormalization", inputs=("c", "scale", "shift", "mean", "var"), outputs=("n",))
    nodes = [Node(name="conv", op="Conv", inputs=("x", "w"), outputs=("c",)), norm]
    return run([*nodes, Node(name="relu", op="Relu", inputs=("n",), outputs=("y",))], {"w": WEIGHT, **NORM})


def folded(weight, **attrs):
    gain = NORM["scale"] / np.sqrt(NORM["var"] + 1e-5)
    constants = {"k": weight, "b": NORM["shift"] - NORM["mean"] * gain}
    conv = Node(name="n1", op="Conv", inputs=("t0", "k", "b"), outputs=("t1",), attrs=attrs)
    return run([conv, Node(name="n2", op="Relu", inputs=("t1",), outputs=("t2",))], constants, ("t0", "t2"))


def test_the_folded_node_is_named_with_how_near_the_weights_are():
    gain = NORM["scale"] / np.sqrt(NORM["var"] + 1e-5)
    pairs = {pair.backend: pair for pair in align(reference(), folded(WEIGHT * gain.reshape(-1, 1, 1, 1))).pairs}
    assert {name: pair.reference for name, pair in pairs.items()} == {"t0": "x", "t1": "n", "t2": "y"}
    said, _, distance = pairs["t1"].reason.rpartition(", relative distance ")
    assert said.endswith("BatchNormalization 'norm' is folded into the weights (w x gain")
    assert float(distance.rstrip(")")) < 1e-6


@pytest.mark.parametrize("changed", [lambda w: w, lambda w: np.roll(w, 1, axis=0) * 3])
def test_weights_that_have_it_not_are_not_said_to(changed):
    pairs = align(reference(), folded(changed(WEIGHT).astype(np.float32))).pairs
    assert not any("folded in" in pair.reason for pair in pairs)
