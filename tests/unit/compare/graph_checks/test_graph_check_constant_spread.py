"""Nodes with constants for whose rounding no bound is known are held to what moving the constants makes of them."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(8)
OPSET = {"": 18, "com.microsoft": 1}


def recorded(nodes, values, *, constants=()):
    """Run nodes and record everything; the last output is the graph's."""
    found = dict(values)
    for node in nodes:
        found.update(run_node(node, found, OPSET))
    roles = {name: Role.CONSTANT if name in constants else Role.INPUT for name in values}
    tensors = [TensorInfo(name=name, role=role) for name, role in roles.items()]
    inputs = tuple(name for name in values if name not in constants)
    graph = Graph(nodes, tensors=tensors, inputs=inputs, outputs=nodes[-1].outputs[-1:], opset=OPSET)
    return MemoryRecording.single(graph, found)


def node(op, inputs, outputs, **attrs):
    outs = tuple(outputs.split())
    return Node(name=f"n_{outs[0]}", op=op, inputs=tuple(inputs.split()), outputs=outs, attrs=attrs)


def halved(values):
    """Round all to 16 bits and keep them in 32, as a runtime without 16 bit arithmetic does."""
    return {name: array.astype(np.float16).astype(np.float32) for name, array in values.items()}


CELLS = {
    "normalization": (
        node("BatchNormalization", "x w b m v", "y"),
        {"x": (1, 64, 5), "w": (64,), "b": (64,), "m": (64,), "v": (64,)},
        "m",
    ),
    "recurrent cell": (
        node("GRU", "x w r b", "y", hidden_size=16),
        {"x": (7, 1, 8), "w": (1, 48, 8), "r": (1, 48, 16), "b": (1, 96)},
        "r",
    ),
}


@pytest.mark.parametrize("case", CELLS)
def test_a_wrong_constant_in_16_bits_is_found_and_its_rounding_is_not(case):
    cell, shapes, spoilt = CELLS[case]
    values = {name: RNG.uniform(0.2, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    constants = set(shapes) - {"x"}
    reference = recorded((cell,), values, constants=constants)
    healthy = {**halved(values), "x": values["x"]}
    result = diff(reference, recorded((cell,), healthy, constants=constants))
    assert result.status is Status.WITHIN, result.verdict.sentence
    wrong = {**healthy, spoilt: np.roll(healthy[spoilt], 1, axis=-1)}
    result = diff(reference, recorded((cell,), wrong, constants=constants))
    assert result.origin == "n_y"
    assert f"{spoilt!r} differ from the reference" in result.verdict.sentence


def scaled(alpha):
    """Multiply matrices and divide by a constant; or by a factor that is folded into the product."""
    values = {"x": RNG.normal(size=(1, 12, 32)).astype(np.float32), "w": RNG.normal(size=(32, 32)).astype(np.float32)}
    first = node("MatMul", "x w", "h")
    divided = (first, node("MatMul", "h h", "p"), node("Div", "p c", "y"))
    values["x"] = np.resize(values["x"], (1, 32, 32))
    reference = recorded(divided, {**values, "c": np.float32(np.sqrt(8))}, constants=("w", "c"))
    folded = Node(
        name="n_y",
        op="FusedMatMul",
        domain="com.microsoft",
        inputs=("h", "h"),
        outputs=("y",),
        attrs={"alpha": alpha},
        origin=("n_p", "n_y"),
    )
    return diff(reference, recorded((first, folded), {**halved(values), "x": values["x"]}, constants=("w",)))


def test_a_factor_of_16_bits_may_be_folded_into_an_attribute():
    right = 1 / float(np.float16(np.sqrt(8)))
    result = scaled(right)
    assert result.status is Status.WITHIN, result.verdict.sentence
    assert scaled(right * 1.02).origin == "n_y"
