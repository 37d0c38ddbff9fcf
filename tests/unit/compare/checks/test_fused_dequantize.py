"""Codes made real numbers with one rounding in place of two are within the limit: a known arithmetic gives the bits."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

RNG = np.random.default_rng(12)


def run(codes, scale, zero_point, real):
    quant = QuantParams(dtype="int8", scale=scale, zero_point=zero_point)
    infos = [TensorInfo(name="q", role=Role.INPUT, dtype="int8", quant=quant)]
    infos += [TensorInfo(name=name, role=Role.CONSTANT) for name in ("s", "z")]
    nodes = [
        Node(name="d", op="DequantizeLinear", inputs=("q", "s", "z"), outputs=("real",)),
        Node(name="r", op="Relu", inputs=("real",), outputs=("y",)),
    ]
    graph = Graph(nodes, tensors=infos, inputs=("q",), outputs=("y",), opset={"": 18})
    values = {"q": codes, "s": scale, "z": np.int8(zero_point), "real": real, "y": np.maximum(real, 0)}
    return MemoryRecording.single(graph, values)


def fused(codes, scale, zero_point):
    """Compute q * s - zp * s: the second product is rounded, and the rest once."""
    folded = np.float32(np.float32(zero_point) * scale)
    return (codes.astype(np.float64) * np.float64(scale) - np.float64(folded)).astype(np.float32)


@pytest.mark.parametrize("zero_point", [7, -100])
def test_a_fused_multiply_add_is_within_the_limit(zero_point):
    codes, scale = RNG.integers(-128, 128, (1, 4, 16, 16)).astype(np.int8), np.float32(0.0173)
    exact = (codes.astype(np.float32) - np.float32(zero_point)) * scale
    other = fused(codes, scale, zero_point)
    assert np.count_nonzero(other != exact)
    result = qdebug.diff(run(codes, scale, zero_point, exact), run(codes, scale, zero_point, other))
    row = next(each for each in result.nodes if each.tensor == "real")
    assert (row.status, row.reproduced) == ("within", True)
    assert result.exit_code == 0


def test_one_element_that_no_known_arithmetic_gives_is_beyond_it():
    codes, scale = RNG.integers(-128, 128, (1, 4, 16, 16)).astype(np.int8), np.float32(0.0173)
    exact = (codes.astype(np.float32) - np.float32(7)) * scale
    other = fused(codes, scale, 7)
    other.reshape(-1)[100] *= np.float32(1.001)
    result = qdebug.diff(run(codes, scale, 7, exact), run(codes, scale, 7, other))
    assert result.first_divergence == "d"
