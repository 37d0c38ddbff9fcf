"""A recorded layout and the attribute channels_last=1 say the same, to a comparison and to a search."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node
from qdebug.reproduce.reproducer import make_reproducer

RNG = np.random.default_rng(4)
X = RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)
W = (RNG.normal(size=(3, 4, 3, 3)) / 5).astype(np.float32)
SAYS = ("layout", "attribute", "both")


def chain():
    def node(op, source, made, **attrs):
        return Node(name=f"n_{made}", op=op, inputs=tuple(source.split()), outputs=(made,), attrs=attrs)

    window = {"kernel_shape": (2, 2), "strides": (2, 2)}
    nodes = [
        node("Conv", "x w", "c", pads=(1, 1, 1, 1)),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "m", **window),
        node("AveragePool", "m", "a", **window),
        node("GlobalAveragePool", "a", "y"),
    ]
    values = {"x": X, "w": W}
    for each in nodes:
        values.update(run_node(each, values, {"": 18}))
    infos = [TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="w", role=Role.CONSTANT)]
    return MemoryRecording.single(Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 18}), values)


def last(full, says, *, quantized=False, off=0.0):
    """Record the chain with channels last, as codes if asked; the input is off by some."""
    with qdebug.Recorder(None, backend="npu") as rec:
        facts = {"scale": 0.01, "zero_point": 0} if quantized else {}
        stored = (lambda a: np.clip(np.rint(a / 0.01), -128, 127).astype(np.int8)) if quantized else np.asarray
        rec.constant("w", stored(W), **facts)
        layout = {"layout": "NHWC"} if says in ("layout", "both") else {}
        made = {"x": X + np.float32(off), "w": W}
        rec.put("x", stored(np.moveaxis(made["x"], 1, -1)), **facts, **layout)
        for node in full.graph.nodes:
            made.update(run_node(node, made, {"": 18}))
            attrs = {**node.attrs, "channels_last": 1} if says in ("attribute", "both") else dict(node.attrs)
            values = stored(np.moveaxis(made[node.outputs[0]], 1, -1))
            rec.put(
                node.outputs[0], values, node=node.name, op=node.op, inputs=node.inputs, attrs=attrs, **facts, **layout
            )
        rec.outputs("y")
    return rec.recording


@pytest.mark.parametrize("side", ["reference", "backend"])
@pytest.mark.parametrize("says", SAYS)
def test_a_comparison_replays_nodes_in_the_layout_that_was_recorded(says, side):
    """What came in is told from what a node makes, in float and whichever side has channels last."""
    full = chain()
    pair = (last(full, says), last_second(full)) if side == "reference" else (full, last(full, says, off=0.1))
    result = qdebug.diff(*pair, limits=qdebug.Limits(allow_different_inputs=True))
    assert result.exit_code == 0
    for row in result.nodes[1:]:
        assert row.propagated is not None, (row.tensor, row.attribution_note)
        assert row.attribution_note is None
        assert row.introduced.rmse < 1e-6 < row.propagated.rmse


def last_second(full):
    """Return the chain with channels second, whose input is off."""
    made = {"x": X + np.float32(0.1), "w": W}
    for node in full.graph.nodes:
        made.update(run_node(node, made, {"": 18}))
    return MemoryRecording.single(full.graph, made)


@pytest.mark.parametrize("says", SAYS)
def test_a_search_reads_the_same_layout(says):
    found = qdebug.explain(last(chain(), says, quantized=True))
    assert {node.op: node.status for node in found.nodes if node.op in ("MaxPool", "Conv")}["MaxPool"] == "explained"
    assert "no_kernel" not in {node.status for node in found.nodes}


def test_a_layout_that_nobody_states_is_named_as_a_shape_that_does_not_fit():
    found = qdebug.explain(last(chain(), "nothing", quantized=True))
    reasons = {node.op: node.reason for node in found.nodes}
    assert "channels_last=1" in reasons["Conv"]
    assert reasons["GlobalAveragePool"] == "the replay has shape (1, 1, 1, 1), but the recorded tensor has (1, 1, 1, 3)"


@pytest.mark.parametrize("says", SAYS)
def test_a_reproducer_reads_the_same_layout(says):
    made = make_reproducer(last(chain(), says, quantized=True), "n_c")
    assert made.unit.channels_last
