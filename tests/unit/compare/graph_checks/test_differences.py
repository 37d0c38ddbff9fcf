"""What two graphs declare differently of a node."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

X = np.random.default_rng(2).uniform(-1, 1, (1, 4)).astype(np.float32)
STEP = np.float32(1 / 64)


def codes(values, scale=STEP, zero_point=128):
    return np.clip(np.rint(np.asarray(values) / scale) + zero_point, 0, 255).astype(np.uint8)


def recorded(constant, *, op="Add", coded=False):
    """Record one node with a constant, on real numbers or on codes."""
    real = X.astype(np.float32) + constant if op == "Add" else X * constant
    if not coded:
        graph = Graph(
            [Node(name="n", op=op, inputs=("x", "c"), outputs=("y",))],
            tensors=[TensorInfo(name="c", role=Role.CONSTANT)],
            inputs=["x"],
            outputs=["y"],
        )
        return MemoryRecording.single(graph, {"x": X, "c": np.asarray(constant, np.float32), "y": real})
    quant = QuantParams(dtype="uint8", scale=STEP, zero_point=128)
    parts = ("s", "z")
    graph = Graph(
        [
            Node(name="q", op="QuantizeLinear", inputs=("x", *parts), outputs=("x_q",)),
            Node(name="n", op=f"QLinear{op}", inputs=("x_q", *parts, "c", *parts, *parts), outputs=("y",)),
        ],
        tensors=[
            *(TensorInfo(name=name, role=Role.CONSTANT) for name in parts),
            TensorInfo(name="c", role=Role.CONSTANT, quant=quant),
            TensorInfo(name="x_q", quant=quant),
            TensorInfo(name="y", role=Role.OUTPUT, quant=quant),
        ],
        inputs=["x"],
        outputs=["y"],
    )
    arrays = {"s": STEP, "z": np.uint8(128), "x": X, "x_q": codes(X), "c": codes(constant), "y": codes(real)}
    return MemoryRecording.single(graph, {name: np.asarray(value) for name, value in arrays.items()})


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 4)])
def test_a_wrong_constant_of_codes_is_named_whatever_its_shape(shape):
    right, wrong = np.full(shape, 0.25, np.float32), np.full(shape, 0.5, np.float32)
    healthy = diff(recorded(right), recorded(right, coded=True))
    assert healthy.origin is None
    verdict = diff(recorded(right), recorded(wrong, coded=True)).verdict
    assert (verdict.first_divergence, verdict.origin) == ("n", "n")
    count = max(1, right.size)
    assert f"{count} of {count} elements of constant 'c' differ from the reference" in verdict.sentence


def chain(*, clamps):
    """Record Add(Abs(x), Relu(Neg(x))), with or without the Relu."""
    magnitude, turned = np.abs(X), np.maximum(-X, 0) if clamps else -X
    nodes = [Node(name="abs", op="Abs", inputs=("x",), outputs=("a",))]
    arrays = {"x": X, "a": magnitude, "b": -X, "y": magnitude + turned}
    nodes.append(Node(name="neg", op="Neg", inputs=("x",), outputs=("b",)))
    if clamps:
        nodes.append(Node(name="relu", op="Relu", inputs=("b",), outputs=("r",)))
        arrays["r"] = turned
    nodes.append(Node(name="add", op="Add", inputs=("a", "r" if clamps else "b"), outputs=("y",)))
    return MemoryRecording.single(Graph(nodes, inputs=["x"], outputs=["y"]), arrays)


def test_values_that_are_computed_are_never_called_constants():
    verdict = diff(chain(clamps=True), chain(clamps=False)).verdict
    assert verdict.origin == "add"
    assert (
        "the reference's Relu before it is missing here; without Relu, the reference's nodes "
        "reproduce the recorded values" in verdict.sentence
    )


def test_a_wrong_constant_may_come_first():
    def swapped(constant):
        given = recorded(constant)
        node = Node(name="n", op="Add", inputs=("c", "x"), outputs=("y",))
        graph = Graph([node], tensors=given.graph.tensors.values(), inputs=["x"], outputs=["y"])
        return MemoryRecording.single(graph, {name: given.load(name) for name in given.names})

    verdict = diff(swapped(np.float32(0.25)), swapped(np.float32(0.5))).verdict
    assert "1 of 1 elements of constant 'c' differ from the reference" in verdict.sentence


def looked_up(zero_point=None):
    """Record rows of a table, as real numbers or of codes that are made real after they are looked up."""
    table = np.random.default_rng(7).uniform(-1, 1, (20, 8)).astype(np.float32)
    rows = np.array([3, 0, 19], np.int64)
    lookup = Node(name="look", op="Gather", inputs=("t", "rows"), outputs=("y",), attrs={"axis": 0})
    if zero_point is None:
        graph = Graph([lookup], tensors=[TensorInfo(name="t", role=Role.CONSTANT)], inputs=["rows"], outputs=["y"])
        return MemoryRecording.single(graph, {"t": table, "rows": rows, "y": table[rows]})
    quant = QuantParams(dtype="uint8", scale=STEP, zero_point=zero_point)
    coded = codes(table)
    graph = Graph(
        [
            Node(name="look", op="Gather", inputs=("t_q", "rows"), outputs=("y_q",), attrs={"axis": 0}),
            Node(name="real", op="DequantizeLinear", inputs=("y_q", "s", "z"), outputs=("y",)),
        ],
        tensors=[
            TensorInfo(name="t_q", role=Role.CONSTANT, quant=quant),
            TensorInfo(name="y_q", quant=quant),
            *(TensorInfo(name=name, role=Role.CONSTANT) for name in "sz"),
        ],
        inputs=["rows"],
        outputs=["y"],
    )
    real = (coded[rows].astype(np.float32) - np.float32(zero_point)) * STEP
    arrays = {"t_q": coded, "rows": rows, "y_q": coded[rows], "s": STEP, "z": np.uint8(zero_point), "y": real}
    return MemoryRecording.single(graph, {name: np.asarray(value) for name, value in arrays.items()})


def test_a_table_read_by_a_zero_point_one_off_is_found_as_no_rounding_moves_all_of_it_by_a_step():
    assert diff(looked_up(), looked_up(128)).origin is None
    verdict = diff(looked_up(), looked_up(129)).verdict
    assert (verdict.first_divergence, verdict.origin) == ("look", "look")
    assert "of constant 't_q' differ from the reference" in verdict.sentence
