"""Codes whose value float32 has no number for are named with their scale: a NaN far below does not tell."""

import numpy as np
import pytest

from qdebug.compare.evidence.number_formats import float32_overflow
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.session import DiffSession

LARGEST = np.finfo(np.float32).max
MASK = np.where(np.eye(8, dtype=bool), -LARGEST, 0).astype(np.float32)


def of_codes(codes, quant, *, read=False):
    """Record codes, and what a DequantizeLinear makes of them."""
    with np.errstate(over="ignore"):
        real = ((codes.astype(np.float64) - quant.zero_point) * quant.scale).astype(np.float32)
    nodes = [
        Node(name="q", op="QuantizeLinear", inputs=("x",), outputs=("c",), attrs={}),
        Node(name="dq", op="DequantizeLinear", inputs=("c",), outputs=("y",), attrs={}),
    ]
    tensors = [
        TensorInfo(name="x", role=Role.INPUT, dtype="float32"),
        TensorInfo(name="c", role=Role.ACTIVATION, dtype=str(codes.dtype), quant=quant, stands_for="x"),
        TensorInfo(name="y", role=Role.OUTPUT, dtype="float32"),
    ]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 21})
    return MemoryRecording.single(graph, {"x": MASK, "c": codes, "y": real})


def reference():
    node = Node(name="id", op="Identity", inputs=("x",), outputs=("y",), attrs={})
    tensors = [TensorInfo(name=name, role=role) for name, role in (("x", Role.INPUT), ("y", Role.OUTPUT))]
    graph = Graph([node], tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 21})
    return MemoryRecording.single(graph, {"x": MASK, "y": MASK})


def rounded_up(code, dtype):
    """Return a scale that takes a code just beyond float32."""
    scale = np.nextafter(np.float32(LARGEST / abs(code)), np.float32(np.inf))
    return QuantParams(dtype=dtype, scale=scale)


CODES = np.where(MASK < 0, -32768, 0).astype(np.int16)


def test_the_scale_that_makes_infinity_of_a_mask_is_named():
    quant = rounded_up(-32768, "int16")
    result = DiffSession(reference(), of_codes(CODES, quant)).result()
    nonfinite = {node.tensor: node.reason for node in result.nodes if node.status is Status.NONFINITE}
    assert set(nonfinite) == {"c", "y"}
    assert "code -32768 at scale 1.0384" in nonfinite["c"]
    assert "beyond the float32 limit of -3.402" in nonfinite["c"]
    assert nonfinite["y"].endswith("in 'c'")
    assert "code -32768 at scale" in result.verdict.sentence
    real, end = (text for text in nonfinite["c"].replace(",", "").split() if text.startswith("-3.40"))
    assert float(real) < float(end)


def test_nothing_is_named_where_float32_holds_every_code():
    recording = of_codes(CODES, QuantParams(dtype="int16", scale=np.float32(LARGEST / 32768)))
    assert float32_overflow(recording, recording.graph.nodes[0], "c", 0) is None


def test_codes_of_an_overflowing_scale_that_stay_below_are_not_named():
    recording = of_codes(CODES // 2, rounded_up(-32768, "int16"))
    assert float32_overflow(recording, recording.graph.nodes[0], "c", 0) is None


@pytest.mark.parametrize("zero", [0, 5])
def test_the_scale_of_the_channel_is_named_with_its_zero_point(zero):
    scale = np.array([1, 1e37, 1, 1, 1, 1, 1, 1], np.float32)
    quant = QuantParams(dtype="int8", scale=scale, zero_point=np.full(8, zero, np.int8), axis=0)
    codes = np.full((8, 8), 100, np.int8)
    node = Node(name="q", op="QuantizeLinear", inputs=("x",), outputs=("c",), attrs={})
    graph = Graph([node], tensors=[TensorInfo(name="c", quant=quant, dtype="int8")], inputs=("x",), outputs=("c",))
    said = float32_overflow(MemoryRecording.single(graph, {"c": codes}), node, "c", 0)
    assert said.startswith(f"code 100 at scale 1e+37{' (zero point 5)' if zero else ''} dequantizes to ")
