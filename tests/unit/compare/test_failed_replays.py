"""A replay that fails though a kernel and recorded inputs are there: said, counted, and never a judgement."""

import numpy as np
import pytest

import qdebug
from qdebug.errors import AlignmentError, RecordingError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay import registry

X = np.random.default_rng(0).normal(size=(4, 32)).astype(np.float32)
OPS = ("Exp", "Neg", "Tanh", "Abs")


def run(*, nodes, hard=(), off=0.0, op="Sinh"):
    """Record a chain; the nodes of some places have an operator of their own, and an error of their own."""
    made, graph_nodes, values = X, [], {"x": X}
    for at in range(nodes):
        name = op if at in hard else "Tanh"
        made = (np.sinh(made) if at in hard else np.tanh(made)).astype(np.float32)
        made = made + np.float32(off) if at in hard else made * np.float32(1 + (1e-7 if off else 0))
        graph_nodes.append(Node(name=f"n{at}", op=name, inputs=(f"t{at}" if at else "x",), outputs=(f"t{at + 1}",)))
        values[f"t{at + 1}"] = made
    return MemoryRecording.single(Graph(graph_nodes, inputs=("x",), outputs=(f"t{nodes}",), opset={"": 17}), values)


@pytest.fixture
def without_memory(monkeypatch):
    def fails(call):
        raise MemoryError

    assert registry.has_kernel("Sinh")
    monkeypatch.setitem(registry._KERNELS, ("", "Sinh"), fails)


@pytest.mark.parametrize("off", [1e-4, 5.0])
def test_whether_there_is_memory_for_a_replay_decides_no_verdict(without_memory, off):
    """However large the error is: neither WITHIN by 20 dB, nor DIVERGED by it."""
    result = qdebug.diff(run(nodes=4, hard={3}), run(nodes=4, hard={3}, off=off), min_output_sqnr=-np.inf)
    node = result["n3"]
    assert (node.status, node.judged_by, node.failed_replay) == ("within", "none", True)
    assert "not judged" in node.reason
    assert "its replay failed" in node.reason
    assert result.exit_code == 3
    assert "the replays of 1 of 4 nodes failed (the first: 'n3'" in result.verdict.sentence
    judged = result.to_dict()["judged"]
    assert (judged["not_judged"], judged["failed_replays"]) == (1, 1)
    assert "1 replay FAILED" in str(result)


def test_few_failed_replays_are_said_and_do_not_change_the_exit_code(without_memory):
    pair = run(nodes=20, hard={7}), run(nodes=20, hard={7}, off=1e-6)
    result = qdebug.diff(*pair)
    assert result.exit_code == 0
    assert "1 not judged, 1 replay FAILED" in str(result)


@pytest.mark.parametrize(("allowed", "code"), [((), 3), (("t4",), 0), (1, 0)])
def test_failed_replays_can_be_accepted(without_memory, allowed, code):
    pair = run(nodes=4, hard={3}), run(nodes=4, hard={3}, off=1e-6)
    assert qdebug.diff(*pair, limits=qdebug.Limits(allow_uncompared=allowed)).exit_code == code


def test_nodes_without_kernel_or_graph_never_change_the_exit_code():
    pair = run(nodes=4, hard={1, 2, 3}, op="Odd"), run(nodes=4, hard={1, 2, 3}, op="Odd", off=1e-7)
    result = qdebug.diff(*pair)
    assert result.exit_code == 0
    assert result.coverage.judged.failed_replays == 0


def test_a_file_that_cannot_be_read_is_no_node_without_replay(monkeypatch):
    reference, backend = run(nodes=3, hard={1}), run(nodes=3, hard={1}, off=1e-3)
    load = backend.load

    def damaged(tensor, sample=0, step=0):
        if tensor == "t2" and damaged.calls:
            raise RecordingError("the file is damaged")
        damaged.calls += tensor == "t2"
        return load(tensor, sample, step)

    damaged.calls = 0
    monkeypatch.setattr(backend, "load", damaged)
    with pytest.raises(RecordingError, match="damaged"):
        qdebug.diff(reference, backend)


@pytest.mark.parametrize("whose", ["backend", "both"])
def test_a_replay_that_is_no_number_accuses_nobody(whose):
    """A weight was recorded wrong: the reference's tells what the node gives, or nothing does."""
    weight = np.random.default_rng(1).normal(size=(32, 8)).astype(np.float32)
    nodes = [Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("y",))]
    infos = [TensorInfo(name="w", role=Role.CONSTANT)]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})

    def record(kept, factor):
        return MemoryRecording.single(graph, {"x": X, "w": kept, "y": (X @ weight) * np.float32(factor)})

    bad = weight * np.float32(np.nan)
    result = qdebug.diff(record(bad if whose == "both" else weight, 1), record(bad, 1 + 1e-6))
    assert result["fc"].failed_replay is (whose == "both")
    assert ("produces NaN where" in str(result["fc"].reason)) is (whose == "both")
    assert result.first_divergence is None


def test_a_replay_that_is_no_number_is_compared_with_no_tensor_of_another_size():
    """A scale that is not a number, and a reference of another network: an error says so."""
    quant = QuantParams(dtype="int8", scale=np.float32(np.nan), zero_point=0)
    infos = [TensorInfo(name=name, dtype="int8", quant=quant) for name in "xy"]
    nodes = [Node(name="n", op="DequantizeLinear", inputs=("x",), outputs=("y",))]
    codes = np.arange(16, dtype=np.int8).reshape(1, 4, 4)
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",))
    backend = MemoryRecording.single(graph, {"x": codes, "y": codes})
    reference = Graph([Node(name="n", op="Relu", inputs=("x",), outputs=("y",))], inputs=("x",), outputs=("y",))
    with pytest.raises(AlignmentError, match="can be compared"):
        qdebug.diff(MemoryRecording.single(reference, {"x": X[:, :3], "y": X[:, :3]}), backend)
