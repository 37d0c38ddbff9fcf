"""Rounding to codes inside a part that is compared as a whole is told from what the part is declared to do."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay import run_node

X = np.random.default_rng(8).normal(size=(1, 4, 8, 8)).astype(np.float32)


def node(op, inputs, outputs):
    return Node(name=f"n_{outputs}", op=op, inputs=tuple(inputs.split()), outputs=(outputs,))


def recorded(nodes, constants, quant=None):
    values = {"x": X, **constants}
    for each in nodes:
        values.update(run_node(each, values, {"": 18}))
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    infos += [TensorInfo(name="x", role=Role.INPUT), *([TensorInfo(name="q", quant=quant)] if quant else [])]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 18})
    return MemoryRecording.single(graph, values)


TANH = node("Tanh", "x", "t")
REFERENCE = recorded((TANH, node("Mul", "t t", "m"), node("Sqrt", "m", "r"), node("Neg", "r", "y")), {})


def backend(scale, *more):
    """The root of a square as an absolute value, in codes of a scale."""
    constants = {"s": np.float32(scale), "z": np.uint8(0), "k": np.float32(0.5)}
    coded = (node("Abs", "t", "a"), node("QuantizeLinear", "a s z", "q"), node("DequantizeLinear", "q s z", "d"))
    last = more[-1].outputs[0] if more else "d"
    nodes = (TANH, *coded, *more, node("Neg", last, "y"))
    return recorded(nodes, constants, QuantParams(dtype="uint8", scale=np.float32(scale)))


def declared(recording):
    result = diff(REFERENCE, recording)
    return result.status, str(result.nodes[-1].declared)


def test_rounding_inside_a_part_is_no_other_computation():
    assert declared(backend(0.37)) == (Status.ACCUMULATED, "None"), "the scale leaves too little of the output"


def test_what_rounding_leaves_nothing_of_is_said_to_be_that():
    result = diff(REFERENCE, backend(0.9))
    assert (result.status, result.nodes[-1].status, result.nodes[-1].declared) == ("accumulated", "within", None)
    assert result.nodes[-1].reason.startswith("rounding data to codes leaves an SQNR of")


@pytest.mark.parametrize("scale", [0.01, 0.37])
def test_another_computation_is_found_beside_rounding(scale):
    status, said = declared(backend(scale, node("Mul", "d k", "h")))
    assert status is Status.DIVERGED
    assert "does not compute what" in said


def test_what_the_codes_cut_off_is_no_rounding():
    status, said = declared(backend(0.001))
    assert status is Status.DIVERGED
    assert "does not compute what" in said
