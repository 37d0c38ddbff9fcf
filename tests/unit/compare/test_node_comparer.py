"""What cannot be replayed is judged by its whole error, unless that may have come with what it reads."""

import numpy as np
import pytest

from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.present.reports.comparison import diff_markdown
from qdebug.present.reports.html import diff_html
from qdebug.present.sentences import found_sentences
from qdebug.session import DiffSession

RNG = np.random.default_rng(31)
X = RNG.normal(size=(4, 64)).astype(np.float32)
STEP = np.float32(0.8)
CODES = np.clip(np.round(X / STEP), -128, 127).astype(np.int8)
HELD = CODES * STEP


def of_unknown(x):
    """Do what no kernel is known of: it enlarges the error of what it reads a little."""
    return (np.sin(x) + x[:, ::-1] * np.float32(0.5)).astype(np.float32)


def reference():
    node = Node(name="odd", op="Odd", inputs=("x",), outputs=("y",), attrs={}, domain="my")
    tensors = [TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="y", role=Role.OUTPUT)]
    graph = Graph([node], tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {"x": X, "y": of_unknown(X)})


def backend(y):
    quant = QuantParams(dtype="int8", scale=STEP)
    nodes = [
        Node(name="q", op="QuantizeLinear", inputs=("x", "s"), outputs=("c",), attrs={}),
        Node(name="d", op="DequantizeLinear", inputs=("c", "s"), outputs=("r",), attrs={}),
        Node(name="odd", op="Odd", inputs=("r",), outputs=("y",), attrs={}, domain="my"),
    ]
    tensors = [
        TensorInfo(name="x", role=Role.INPUT),
        TensorInfo(name="s", role=Role.CONSTANT),
        TensorInfo(name="c", role=Role.ACTIVATION, quant=quant),
        TensorInfo(name="r", role=Role.ACTIVATION, stands_for="x"),
        TensorInfo(name="y", role=Role.OUTPUT),
    ]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {"x": X, "s": STEP, "c": CODES, "r": HELD, "y": y})


def sqnr(held, true):
    return 10 * np.log10(np.sum(true**2) / np.sum((held - true) ** 2))


def test_a_node_without_kernel_is_not_blamed_for_what_it_reads():
    y = of_unknown(HELD)
    assert 10 < sqnr(HELD, X) < 20
    assert sqnr(y, of_unknown(X)) < 20
    result = DiffSession(reference(), backend(y)).result()
    assert result.status is Status.ACCUMULATED, "what it reads keeps less than 20 dB, and so does the output"
    assert "The nodes that contribute most are not known: no kernel is known for Odd" in result.verdict.sentence
    odd = next(node for node in result.nodes if node.node == "odd")
    assert "no kernel is known" in odd.attribution_note
    assert [sample.status for sample in odd.samples] == [Status.WITHIN]


@pytest.mark.parametrize("wrong", [np.roll(of_unknown(HELD), 1, axis=1), np.zeros_like(X), 3 * of_unknown(HELD)])
def test_a_node_without_kernel_that_is_far_more_off_than_what_it_reads_is_found(wrong):
    result = DiffSession(reference(), backend(wrong)).result()
    assert result.verdict.first_divergence == "odd"
    assert "this includes the error of its inputs" in result.verdict.sentence


def test_a_limit_that_is_given_holds_for_a_node_without_kernel_too():
    result = DiffSession(reference(), backend(of_unknown(HELD)), limits=Limits(min_sqnr=20)).result()
    assert result.status is Status.DIVERGED


def scaled(factor):
    """Record three samples of a product with a constant; of the second everything is zero."""
    graph = Graph(
        [Node(name="mul", op="Mul", inputs=("x", "k"), outputs=("y",), attrs={})],
        tensors=[
            TensorInfo(name="x", role=Role.INPUT),
            TensorInfo(name="k", role=Role.CONSTANT),
            TensorInfo(name="y", role=Role.OUTPUT),
        ],
        inputs=("x",),
        outputs=("y",),
        opset={"": 17},
    )
    inputs = [X, np.zeros_like(X), X[::-1].copy()]
    arrays = {("x", number, 0): each for number, each in enumerate(inputs)}
    arrays |= {("y", number, 0): (each * np.float32(factor)).astype(np.float32) for number, each in enumerate(inputs)}
    return MemoryRecording(graph, {**arrays, ("k", 0, 0): np.float32(factor)})


def test_a_graph_that_differs_does_so_in_every_sample_that_shows_it():
    result = DiffSession(scaled(2.0), scaled(2.5)).result()
    mul = next(node for node in result.nodes if node.node == "mul")
    assert mul.declared is not None
    assert mul.status is Status.DIVERGED
    assert [sample.status for sample in mul.samples] == [Status.DIVERGED, Status.IDENTICAL, Status.DIVERGED]


def test_a_limit_that_is_given_decides_and_hides_nothing_that_was_found():
    result = DiffSession(scaled(2.0), scaled(2.5), limits=Limits(min_sqnr=0)).result()
    mul = next(node for node in result.nodes if node.node == "mul")
    assert (result.status, mul.status, mul.reason) == (Status.WITHIN, Status.WITHIN, None)
    (found,) = mul.findings
    assert (found.kind, found.role, found.evidence) == ("constant", "difference", "k")
    assert (found.amount, found.limit, found.unit) == (1.0, 0.0, "elements")
    (entry,) = (node for node in result.to_dict()["nodes"] if node["node"] == "mul")
    assert [each["sentence"] for each in entry["findings"]] == [found.sentence]
    assert f"Found within the given limits at Mul 'mul': {found.sentence}." in result.verdict.sentence
    said = "#1 mul is within the given limits, but has a finding: " + found.sentence
    assert said in found_sentences(result.nodes)[0]
    for text in (diff_markdown(result), diff_html({"backend": result})):
        assert "but has a finding" in text


def test_a_quantized_node_replayed_by_the_reference_s_nodes_says_why_its_whole_error_judges_it():
    step = np.float32(0.05)
    codes = np.clip(np.round(np.maximum(X, 0) / step), -128, 127).astype(np.int8)
    codes[:2] = 90
    runs = []
    for op, quant, y in (("Relu", None, np.maximum(X, 0)), ("Odd", QuantParams(dtype="int8", scale=step), codes)):
        node = Node(name="y", op=op, inputs=("x",), outputs=("y",), attrs={}, domain="" if quant is None else "my")
        tensors = [TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="y", role=Role.OUTPUT, quant=quant)]
        graph = Graph([node], tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
        runs.append(MemoryRecording.single(graph, {"x": X, "y": y}))
    odd = DiffSession(*runs).result().nodes[-1]
    assert odd.status is Status.DIVERGED
    assert odd.reason.endswith(
        "this includes the error of its inputs, because it was replayed with the reference's unquantized constants"
    )


@pytest.mark.parametrize("op", ["If", "Loop", "Scan"])
def test_of_a_node_that_runs_others_it_is_said_that_these_were_not_recorded(op):
    runs = []
    for y in (X, X + np.float32(9)):
        node = Node(name="y", op=op, inputs=("x",), outputs=("y",), attrs={})
        tensors = [TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="y", role=Role.OUTPUT)]
        graph = Graph([node], tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
        runs.append(MemoryRecording.single(graph, {"x": X, "y": y}))
    (entry,) = (node for node in DiffSession(*runs).result().nodes if node.op == op)
    assert entry.status is Status.DIVERGED
    assert entry.reason.endswith(
        f"this includes the error of its inputs, because the nodes inside this {op} were not recorded"
    )
    assert entry.attribution_note == f"the nodes inside this {op} were not recorded"
