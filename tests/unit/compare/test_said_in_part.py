"""A harness that says a part of what its nodes do is not told that its kernels are wrong; faults are found anyway."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(7)
X = RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)
WEIGHTS = {f"w{i}": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) / 6 for i in range(2)}
PADS = {"pads": (1, 1, 1, 1)}


def net(weights=WEIGHTS, alpha=0.3):
    """Return a recording of two Convs, each with a LeakyRelu, of which the Concat along the channels is taken."""
    nodes = [
        Node(name="c0", op="Conv", inputs=("x", "w0"), outputs=("a",), attrs=PADS),
        Node(name="l0", op="LeakyRelu", inputs=("a",), outputs=("b",), attrs={"alpha": 0.3}),
        Node(name="c1", op="Conv", inputs=("b", "w1"), outputs=("c",), attrs=PADS),
        Node(name="l1", op="LeakyRelu", inputs=("c",), outputs=("d",), attrs={"alpha": alpha}),
        Node(name="j", op="Concat", inputs=("b", "d"), outputs=("y",), attrs={"axis": 1}),
    ]
    values = {"x": X, **weights}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    tensors = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in weights)]
    return MemoryRecording.single(Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 18}), values)


def said_in_part(recording):
    """Hand over the nodes with what they read of the run, and neither constants nor attributes."""
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("x", X)
        for node in recording.graph.nodes:
            read = [name for name in node.inputs if not recording.graph.is_constant(name)]
            off = np.float32(1e-7) * RNG.normal(size=recording.load(node.outputs[0]).shape).astype(np.float32)
            rec.put(node.outputs[0], recording.load(node.outputs[0]) + off, node=node.name, op=node.op, inputs=read)
        rec.outputs("y")
    return rec.recording


def test_what_a_harness_leaves_unsaid_is_no_finding():
    result = qdebug.diff(net(), said_in_part(net()))
    assert result.exit_code == 0
    assert {node.status for node in result.nodes} <= {"identical", "within"}
    leaky = next(node for node in result.nodes if node.node == "l0")
    assert any("does not reproduce this tensor; the reference's does" in f.sentence for f in leaky.findings)
    assert leaky.introduced.rel_l2 < 1e-5


@pytest.mark.parametrize("place", ["c0", "c1", "l1"])
def test_a_fault_is_found_where_it_is_however_little_is_said(place):
    weights = {name: array + np.float32(0.05) * (f"c{name[1:]}" == place) for name, array in WEIGHTS.items()}
    result = qdebug.diff(net(), said_in_part(net(weights, alpha=0.2 if place == "l1" else 0.3)))
    assert (result.first_divergence, result.origin) == (place, place)
    assert [node.node for node in result.nodes if node.status == "diverged"] == [place]


def harness(alpha=0.3, *, quant=False, seed=1):
    """Return a run of a harness that says of a LeakyRelu what it reads, and not its slope; with rounding of its own."""
    noise = np.random.default_rng(seed).normal(size=X.shape).astype(np.float32)
    made = np.where(X > 0, X, np.float32(alpha) * X) * (1 + np.float32(1e-7) * noise)
    with qdebug.Recorder(None, backend=f"harness {seed}") as rec:
        rec.put("x", X)
        if quant:
            codes = np.clip(np.rint(made / np.float32(0.02)), -128, 127).astype(np.int8)
            rec.put("y", codes, node="l", op="LeakyRelu", inputs=("x",), scale=0.02, zero_point=0)
        else:
            rec.put("y", made, node="l", op="LeakyRelu", inputs=("x",))
        rec.outputs("y")
    return rec.recording


@pytest.mark.parametrize("quant", [False, True])
def test_what_both_leave_unsaid_is_no_finding(quant):
    result = qdebug.diff(harness(), harness(quant=quant, seed=2))
    (node,) = (node for node in result.nodes if node.node == "l")
    assert (result.exit_code, node.status, node.introduced) == (0, "within", None)
    assert node.attribution_note == "a replay of LeakyRelu does not reproduce the reference's values either"


@pytest.mark.parametrize("alpha", [0.2, 0.9, -0.3, np.nan])
def test_another_slope_is_a_finding_though_neither_says_its_own(alpha):
    result = qdebug.diff(harness(), harness(alpha, seed=2))
    assert (result.exit_code, result.first_divergence) == (1, "l")


def test_what_a_graph_says_wrongly_and_does_is_a_finding():
    """Where a node does what it is said to do, and that is something else, nothing is excused."""
    result = qdebug.diff(net(), net(alpha=0.2))
    assert result.first_divergence == "l1"
    assert "alpha" in result.verdict.sentence
