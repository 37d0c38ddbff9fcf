"""A harness that knows names and values alone: they are compared by name, and faults are found where they are."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(5)
X = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)
WEIGHTS = {f"w{i}": RNG.normal(size=(3, 3, 3, 3)).astype(np.float32) / 5 for i in range(3)}


def chain(weights=WEIGHTS):
    """Return a recording of three Convs with a Relu after each, as a runtime with a graph records it."""
    nodes, source = [], "x"
    for place in range(3):
        conv, relu = f"conv{place}", f"relu{place}"
        inputs = (source, f"w{place}")
        nodes.append(Node(name=f"/{conv}", op="Conv", inputs=inputs, outputs=(conv,), attrs={"pads": (1, 1, 1, 1)}))
        nodes.append(Node(name=f"/{relu}", op="Relu", inputs=(conv,), outputs=(relu,)))
        source = relu
    values = {"x": X, **weights}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    tensors = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in weights)]
    return MemoryRecording.single(
        Graph(nodes, tensors=tensors, inputs=("x",), outputs=(source,), opset={"": 18}), values
    )


def bare(recording, *, named="tensor", outputs=True, without=()):
    """Hand over names and values of all but the constants, as a harness does that sees no graph."""
    with qdebug.Recorder(None, backend="harness") as rec:
        for tensor in recording.names:
            node = recording.graph.producer(tensor)
            if recording.graph.is_constant(tensor) or tensor in without:
                continue
            name = node.name if node is not None and named == "node" else tensor
            known = {"node": node.name} if node is not None and named == "both" else {}
            rec.put(f"dump of {name}" if known else name, recording.load(tensor), **known)
        if outputs and named == "tensor":
            rec.outputs(*recording.graph.outputs)
    return rec.recording


@pytest.mark.parametrize("outputs", [True, False])
def test_a_run_of_bare_names_is_compared_with_a_graph(outputs):
    full = chain()
    for pair in ((full, bare(full, outputs=outputs)), (bare(full, outputs=outputs), full)):
        result = qdebug.diff(*pair)
        assert result.coverage.compared == 7
        assert result.exit_code == 0


def test_a_name_may_be_that_of_the_node():
    full = chain()
    other = bare(full, named="node")
    for pair in ((full, other), (other, full)):
        result = qdebug.diff(*pair)
        assert (result.coverage.compared, result.exit_code) == (7, 0)
    assert {n.match_reason for n in qdebug.diff(full, other).nodes[1:]} == {"the node that computes it has this name"}
    assert qdebug.diff(full, bare(full, named="both")).coverage.compared == 7


def test_a_fault_in_bare_names_is_found_where_it_is():
    full = chain()
    wrong = chain({**WEIGHTS, "w1": WEIGHTS["w1"] + np.float32(0.05)})
    verdict = qdebug.diff(full, bare(wrong)).verdict
    assert (verdict.first_divergence, verdict.origin) == ("conv1", "conv1")
    verdict = qdebug.diff(full, bare(wrong, named="node")).verdict
    assert (verdict.first_divergence, verdict.origin) == ("/conv1", "/conv1")


def test_what_has_a_name_of_its_own_is_lost_and_not_taken_for_what_nothing_reads():
    full = chain()
    with qdebug.Recorder(None, backend="harness") as rec:
        for tensor in ("x", "conv0", "relu2"):
            rec.put(tensor, full.load(tensor))
        rec.put("layer 7", np.ones(3, np.float32))
    result = qdebug.diff(full, rec.recording)
    lost = {entry.tensor: entry.reason for entry in result.coverage.unmatched if entry.kind == "lost"}
    assert lost["layer 7"] == "only its name is known, and the reference has no tensor of this name"
    assert {"relu0", "conv1", "relu1", "conv2"} < lost.keys()
    assert result.exit_code == 3
