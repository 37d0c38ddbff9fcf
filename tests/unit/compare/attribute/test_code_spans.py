"""The real values that codes, or an activation folded into a node, hold a tensor to."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.align import align
from qdebug.compare.attribute.code_spans import (
    clamp_unless_recorded_unclamped,
    folded_clamp,
    span_after,
    span_before,
    uniform_span,
)
from qdebug.compare.attribute.plan import plan
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.numerics.affine import dequantize, quantize

QUANT = QuantParams(dtype="int8", scale=np.float32(0.5), zero_point=-8)
X = np.array([-1.0, 2.0, 9.0], np.float32)


def test_the_span_of_codes_is_that_of_the_lowest_and_highest():
    assert uniform_span(QUANT) == (-60.0, 67.5)


@pytest.mark.parametrize(
    "quant",
    [
        None,
        QuantParams(dtype="int8", scale=np.array([1.0, 2.0]), zero_point=np.array([0, 0]), axis=0),
        QuantParams(dtype="float8_e4m3fn", scale=0.5, zero_point=0),
    ],
)
def test_there_is_none_where_channels_differ_or_codes_are_no_integers(quant):
    assert uniform_span(quant) == (None, None)


def test_what_was_codes_is_held_to_them():
    nodes = [Node(name="dq", op="DequantizeLinear", inputs=("q", "s"), outputs=("r",))]
    graph = Graph(nodes, tensors=[TensorInfo(name="q", quant=QUANT)], inputs=("q",), outputs=("r",))
    assert span_before(graph, "r") == span_before(graph, "q") == (-60.0, 67.5)
    assert span_before(graph, "s") == (None, None)


@pytest.mark.parametrize(("op", "bounds"), [("Relu", (0.0, np.inf)), ("Identity", None)])
def test_an_activation_that_the_backend_folds_in_clamps(op, bounds):
    chain = [
        Node(name="n", op="Neg", inputs=("x",), outputs=("n",)),
        Node(name="a", op=op, inputs=("n",), outputs=("y",)),
    ]
    values = np.maximum(-X, 0) if op == "Relu" else -X
    ref = MemoryRecording.single(Graph(chain, inputs=("x",), outputs=("y",)), {"x": X, "n": -X, "y": values})
    fused = Graph([Node(name="n", op="Neg", inputs=("x",), outputs=("y",))], inputs=("x",), outputs=("y",))
    be = MemoryRecording.single(fused, {"x": X, "y": values})
    (entry,) = [entry for entry in plan(ref, be, align(ref, be)) if entry.tensor == "y"]
    assert folded_clamp(ref, be, entry) == bounds


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("inputs", [("n", "low", "high"), ("n", "", "high")])
def test_a_clip_whose_bounds_were_not_recorded_clamps_to_nothing_known(known, inputs):
    chain = [
        Node(name="n", op="Neg", inputs=("x",), outputs=("n",)),
        Node(name="a", op="Clip", inputs=inputs, outputs=("y",)),
    ]
    low = -1 if "low" in inputs else -np.inf
    bounds = {"low": np.float32(-1), "high": np.float32(0.5)} if known else {}
    values = np.clip(-X, low, 0.5)
    ref = MemoryRecording.single(Graph(chain, inputs=("x",), outputs=("y",)), {"x": X, "n": -X, "y": values, **bounds})
    fused = Graph([Node(name="n", op="Neg", inputs=("x",), outputs=("y",))], inputs=("x",), outputs=("y",))
    be = MemoryRecording.single(fused, {"x": X, "y": values})
    (entry,) = [entry for entry in plan(ref, be, align(ref, be)) if entry.tensor == "y"]
    assert folded_clamp(ref, be, entry) == ((low, 0.5) if known else None)


@pytest.mark.parametrize("clamped", [False, True])
def test_a_clamp_that_is_said_to_be_folded_in_holds_unless_the_values_are_plainly_those_without_it(clamped):
    replayed = np.array([-2.0, -0.5, 0.25, 3.0])
    recorded = (np.maximum(replayed, 0) if clamped else replayed) + np.array([0.01, -0.01, 0.01, -0.01])
    found = clamp_unless_recorded_unclamped(replayed, recorded, (0.0, np.inf))
    assert found.tolist() == (np.maximum(replayed, 0) if clamped else replayed).tolist()


@pytest.mark.parametrize(
    ("ops", "outputs", "span"),
    [
        (("Relu",), ("z",), (0.0, np.inf)),
        (("Relu", "Relu"), ("z",), (0.0, np.inf)),
        (("Identity", "Relu"), ("z",), (0.0, np.inf)),
        (("Relu", "Sigmoid"), ("z",), None),
        (("Relu",), ("z", "y"), None),
        (("Sigmoid",), ("z",), None),
    ],
)
def test_what_all_readers_drop_is_no_loss(ops, outputs, span):
    nodes = [Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("y",))]
    read = "y"
    for number, op in enumerate(ops):
        made = "z" if number == len(ops) - 1 else f"z{number}"
        nodes.append(Node(name=made, op=op, inputs=(read,), outputs=(made,)))
        read = made if op == "Identity" else "y"
    values = {"x": np.ones((1, 2), np.float32), "w": np.ones((2, 2), np.float32)}
    graph = Graph(nodes, inputs=("x",), outputs=outputs, opset={"": 17})
    recording = MemoryRecording.single(graph, values | dict.fromkeys(("y", "z"), values["x"]))
    assert span_after(recording, "y") == ((None, None) if span is None else span)


@pytest.mark.parametrize("op", ["Relu", "Tanh"])
def test_codes_too_narrow_for_what_a_relu_drops_are_not_accused(op):
    x = np.random.default_rng(1).normal(0, 4, (4, 32)).astype(np.float32)
    quant = QuantParams(dtype="int8", scale=np.float32(0.08), zero_point=-120)
    after = (lambda v: np.maximum(v, 0)) if op == "Relu" else np.tanh
    runs = []
    for coded in (False, True):
        nodes = [
            Node(name="fc", op="Mul", inputs=("x", "one"), outputs=("y",)),
            Node(name="act", op=op, inputs=("y",), outputs=("z",)),
        ]
        held = [TensorInfo(name="one", role=Role.CONSTANT), TensorInfo(name="y", quant=quant if coded else None)]
        graph = Graph(nodes, tensors=held, inputs=("x",), outputs=("z",), opset={"": 17})
        y = quantize(x, quant) if coded else x
        z = after(dequantize(y, quant) if coded else y).astype(np.float32)
        runs.append(MemoryRecording.single(graph, {"x": x, "one": np.float32([1]), "y": y, "z": z}))
    kinds = {(str(found.kind), str(found.role)) for found in qdebug.diff(*runs)["fc"].findings}
    assert (("saturation", "cost") in kinds) == (op != "Relu")
