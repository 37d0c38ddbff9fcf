"""A Relu of the reference that the backend leaves out is named, whatever stands in its place."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(8)
X = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)
W = (RNG.normal(size=(3, 3, 3, 3)) / 5).astype(np.float32)
QUANT = {zero: QuantParams(dtype="uint8", scale=np.float32(0.03), zero_point=zero) for zero in (0, 120)}


def node(op, inputs, output, **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def conv(output):
    return node("Conv", "x w", output, pads=(1, 1, 1, 1))


def recorded(*nodes, quants=None, **made):
    """Record nodes run on X; what a node with nodes of its own gives is a sum, far above what a Relu changes."""
    values = {"x": X, "w": W, "c": np.array(True), "s": np.float32(0.03), "z": np.uint8(120), "z0": np.uint8(0)}
    for each in nodes:
        if each.op == "If":
            values["y"] = np.float32(30) + values[each.inputs[1]]
        else:
            values.update(run_node(each, values, {"": 18}))
    values |= made
    roles = dict.fromkeys(["w", "s", "z", "z0"], Role.CONSTANT) | dict.fromkeys("xc", Role.INPUT)
    quants = quants or {}
    infos = [TensorInfo(name=name, role=role) for name, role in roles.items()]
    infos += [TensorInfo(name=name, quant=quant, dtype=quant.dtype) for name, quant in quants.items()]
    graph = Graph(nodes, tensors=infos, inputs=("x", "c"), outputs=nodes[-1].outputs, opset={"": 18})
    return MemoryRecording.single(graph, {name: each for name, each in values.items() if name in graph.tensors})


def full():
    return recorded(conv("a"), node("Relu", "a", "r"), node("If", "c r", "y"))


def test_a_relu_that_an_if_body_alone_reads_is_missed():
    """The output is near enough to pass by its whole error; what the If reads shows that the Relu is gone."""
    result = qdebug.diff(full(), recorded(conv("a"), node("If", "c a", "y")))
    row = next(each for each in result.nodes if each.tensor == "y")
    assert row.metrics.sqnr_db > 20
    assert (row.status, row.findings[0].kind) == ("diverged", "missing_node")
    assert row.findings[0].sentence == "it reads 'a' directly; the reference's Relu before it is missing"


def test_codes_that_a_relu_is_not_left_to_do_not_hide_that_it_is_missing():
    nodes = conv("a"), node("QuantizeLinear", "a s z", "q"), node("DequantizeLinear", "q s z", "d")
    result = qdebug.diff(full(), recorded(*nodes, node("If", "c d", "y"), quants={"q": QUANT[120]}))
    assert (result.first_divergence, result.status) == ("n_y", "diverged")


def test_codes_that_do_the_work_of_the_relu_are_no_finding():
    nodes = conv("a"), node("QuantizeLinear", "a s z0", "q"), node("DequantizeLinear", "q s z0", "d")
    result = qdebug.diff(full(), recorded(*nodes, node("If", "c d", "y"), quants={"q": QUANT[0]}))
    assert result.exit_code == 0


@pytest.mark.parametrize("shift", [0, 3e-6])
def test_an_if_that_does_the_relu_itself_is_no_finding(shift):
    right = full().load("y") + np.float32(shift)
    result = qdebug.diff(full(), recorded(conv("a"), node("If", "c a", "y"), y=right))
    assert result.exit_code == 0


def test_a_relu_that_was_merged_away_under_its_own_name_is_missing_and_no_arithmetic():
    """A quantizer gives the product the name of the Relu it drops, and trusts codes that not all readers read."""
    result = qdebug.diff(full(), recorded(conv("r"), node("If", "c r", "y")))
    row = next(each for each in result.nodes if each.tensor == "r")
    assert [each.kind for each in row.findings] == ["missing_node"]
    assert (
        row.reason
        == "the reference's Relu is missing here; without Relu, the reference's nodes reproduce the recorded values"
    )


def test_a_relu_that_a_node_has_inside_is_not_missing():
    """Nothing says that it has one, but its values do: then an error of it is one of arithmetic."""
    right = full().load("r")
    result = qdebug.diff(full(), recorded(conv("r"), node("If", "c r", "y"), r=right, y=full().load("y")))
    assert result.exit_code == 0
    wrong = right + (np.arange(right.size).reshape(right.shape) % 7 == 0).astype(np.float32)
    row = next(
        each
        for each in qdebug.diff(full(), recorded(conv("r"), node("If", "c r", "y"), r=wrong)).nodes
        if each.tensor == "r"
    )
    assert [each.kind for each in row.findings] == ["arithmetic"]
