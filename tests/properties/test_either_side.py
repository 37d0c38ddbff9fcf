"""Two recordings of one quantized graph: both orders blame the same node, and name the same run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

import qdebug
from qdebug.compare.result.finding import FindingKind
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay import run_node

LAYERS = 4
SIZE = 64


def quant(scale):
    return QuantParams(dtype="int8", scale=np.float32(scale), zero_point=0)


def record(seed, *, wrong=None, how=None):
    """Record a chain of integer products; the codes of one layer are spoiled, and what follows is computed of them."""
    rng = np.random.default_rng(seed)
    nodes, infos = [], [TensorInfo(name="t0", quant=quant(0.05), dtype="int8")]
    values = {"t0": rng.integers(-127, 128, (4, SIZE)).astype(np.int8)}
    for at in range(LAYERS):
        names = [f"{name}{at}" for name in ("s", "z", "w", "ws", "wz", "os", "oz")]
        made = [0.05, 0, rng.integers(-127, 128, (SIZE, SIZE)), 0.004, 0, 0.05, 0]
        kinds = [np.float32, np.int8, np.int8, np.float32, np.int8, np.float32, np.int8]
        values |= {name: np.asarray(value).astype(kind) for name, value, kind in zip(names, made, kinds, strict=True)}
        infos += [TensorInfo(name=name, role=Role.CONSTANT) for name in names]
        infos.append(TensorInfo(name=f"t{at + 1}", quant=quant(0.05), dtype="int8"))
        nodes.append(Node(name=f"n{at}", op="QLinearMatMul", inputs=(f"t{at}", *names), outputs=(f"t{at + 1}",)))
    graph = Graph(nodes, tensors=infos, inputs=("t0",), outputs=(f"t{LAYERS}",), opset={"": 17})
    for at, node in enumerate(nodes):
        values |= run_node(node, values, graph.opset)
        if at == wrong:
            values[node.outputs[0]] = how(values[node.outputs[0]], rng)
    return MemoryRecording.single(graph, values)


SPOILED = {
    "overwritten": lambda codes, rng: rng.integers(-127, 128, codes.shape).astype(np.int8),
    "one row": lambda codes, rng: np.where(np.arange(codes.shape[1]) < 3, np.int8(0), codes),
    "negated": lambda codes, rng: (-codes.astype(np.int16)).clip(-128, 127).astype(np.int8),
}


@drawn(8)
@given(st.integers(0, 2**16), st.integers(0, LAYERS - 1), st.sampled_from(sorted(SPOILED)))
def test_both_orders_blame_one_node_and_one_run(seed, wrong, how):
    right, spoiled = record(seed), record(seed, wrong=wrong, how=SPOILED[how])
    forth, back = qdebug.diff(right, spoiled), qdebug.diff(spoiled, right)
    assert forth.first_divergence == back.first_divergence == f"n{wrong}"
    assert forth.origin == back.origin == f"n{wrong}"
    assert (forth.exit_code, back.exit_code) == (1, 1)
    accused = [{found.kind for found in result[f"n{wrong}"].findings} for result in (forth, back)]
    assert [FindingKind.REFERENCE in kinds for kinds in accused] == [False, True]
    assert back.verdict.sentence.startswith(f"The reference is wrong first at QLinearMatMul 'n{wrong}'")
    assert all(result[f"n{at}"].status != "diverged" for result in (forth, back) for at in range(wrong))


@pytest.mark.parametrize("op", ["MatMul", "Relu"])
def test_a_value_that_is_no_number_is_said_of_the_run_that_made_it(op):
    x, weight = (np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32) for _ in range(2))
    nodes = [
        Node(name="first", op=op, inputs=("x", "w") if op == "MatMul" else ("x",), outputs=("h",)),
        Node(name="second", op="Tanh", inputs=("h",), outputs=("y",)),
    ]
    infos = [TensorInfo(name="w", role=Role.CONSTANT)]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})

    def run(*, bad):
        values = {"x": x, "w": weight}
        values |= run_node(nodes[0], values, graph.opset)
        if bad:
            values["h"] = np.where(values["h"] == values["h"].max(), np.float32(np.nan), values["h"])
        return MemoryRecording.single(graph, values | run_node(nodes[1], values, graph.opset))

    forth, back = qdebug.diff(run(bad=False), run(bad=True)), qdebug.diff(run(bad=True), run(bad=False))
    assert [result.first_divergence for result in (forth, back)] == ["first", "first"]
    assert forth.verdict.sentence.startswith(f"The backend diverges first at {op} 'first'")
    assert back.verdict.sentence.startswith(f"The reference is wrong first at {op} 'first'")
