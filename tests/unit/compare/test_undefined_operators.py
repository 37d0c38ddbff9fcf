"""A node of an operator without kernel and definition is not judged: only its whole error can tell against it."""

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.compare.result.finding import FindingKind
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.session import DiffSession

RNG = np.random.default_rng(11)
X = RNG.normal(size=(8, 16)).astype(np.float32)
W1, W2 = (RNG.normal(size=(16, 16)).astype(np.float32) for _ in range(2))
STEP = float(np.abs(W1).max()) / 31
CODES = np.rint(W1 / STEP).astype(np.int8)


def net(op, arrays, *, domain="", weight="w1", quant=None, left_out=()):
    nodes = [
        Node(name="first", op=op, domain=domain, inputs=("x", weight), outputs=("a",)),
        Node(name="last", op="MatMul", inputs=("a", "w2"), outputs=("y",)),
    ]
    tensors = [
        TensorInfo(name="x", role=Role.INPUT),
        TensorInfo(name=weight, role=Role.CONSTANT, quant=quant, dtype=arrays[weight].dtype.name),
        TensorInfo(name="w2", role=Role.CONSTANT),
        TensorInfo(name="y", role=Role.OUTPUT),
    ]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {name: each for name, each in arrays.items() if name not in left_out})


def reference():
    a = X @ W1
    return net("MatMul", {"x": X, "w1": W1, "w2": W2, "a": a, "y": a @ W2})


def packed(a, **said):
    return net("PackedMul", {"x": X, "p": CODES, "w2": W2, "a": a, "y": a @ W2}, domain="ai.vendor", weight="p", **said)


RIGHT = (X @ (CODES * np.float32(STEP))).astype(np.float32)


def test_a_node_that_nothing_defines_is_not_judged_where_the_reference_s_nodes_do_not_account_for_it():
    result = DiffSession(reference(), packed(RIGHT)).result()
    first = next(node for node in result.nodes if node.node == "first")
    assert (first.status, result.exit_code) == (Status.WITHIN, 3)
    assert [found.kind for found in first.findings] == [FindingKind.ERROR]
    assert first.findings[0].sentence.startswith("not judged, SQNR")
    assert first.findings[0].sentence.endswith("no kernel is known for PackedMul")
    assert "1 of 3 tensors were not judged (the first: 'a'" in result.shortcomings[0]


def test_it_is_within_its_limit_where_they_do():
    result = DiffSession(reference(), packed(X @ W1)).result()
    assert result.exit_code == 0


def test_its_whole_error_is_judged():
    result = DiffSession(reference(), packed(np.roll(RIGHT, 1, axis=0))).result()
    assert (result.exit_code, result.verdict.first_divergence) == (1, "first")
    assert FindingKind.OPERATOR not in {found.kind for node in result.nodes for found in node.findings}


def test_the_node_behind_it_is_not_accused_of_what_both_compute():
    result = DiffSession(reference(), packed(RIGHT, left_out=("a",))).result()
    assert all(node.status is not Status.DIVERGED for node in result.nodes)


@pytest.mark.parametrize("quant", [None, QuantParams(dtype="int8", scale=STEP, zero_point=0)])
def test_explain_gives_no_clean_bill_where_an_operator_on_codes_was_not_looked_at(quant):
    found = explain_recording(packed(RIGHT, quant=quant))
    assert [(node.status, node.on_codes) for node in found.nodes] == [
        (ExplainStatus.NO_KERNEL, True),
        (ExplainStatus.IN_BAND, False),
    ]
    assert (found.exit_code, len(found.not_looked_at)) == (3, 1)


def test_a_float_operator_without_kernel_counts_for_nothing():
    a = X @ W1
    run = net("Odd", {"x": X, "w1": W1, "w2": W2, "a": a, "y": a @ W2})
    assert explain_recording(run).exit_code == 0
