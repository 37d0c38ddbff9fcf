"""By how much constants may be off what they were before rounding, and which of them both runs rounded alike."""

import numpy as np
import pytest

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.attribute.rounding import ConstantRounding, shared_constants
from qdebug.compare.attribute.segments import Segment
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

RNG = np.random.default_rng(4)
W = RNG.normal(size=(4, 8)).astype(np.float32)


def product(weight, quant=None):
    """Index a recorded product with one constant."""
    node = Node(name="n", op="Gemm", inputs=("x", "w"), outputs=("y",))
    infos = [TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="w", role=Role.CONSTANT, quant=quant)]
    graph = Graph([node], tensors=infos, inputs=("x",), outputs=("y",))
    return IndexedRecording.of(MemoryRecording.single(graph, {"w": weight}))


@pytest.mark.parametrize(("coarser", "counted"), [(1, 1), (7, 7), (9, 1)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_a_step_far_coarser_than_the_range_needs_counts_as_the_one_needed(axis, coarser, counted):
    """With one scale, or one for each channel, whose codes reach 127 where each is used."""
    codes = RNG.integers(-127, 128, (6, 10))
    codes[0], codes[:, 0] = 127, 127
    needed = np.float32(0.5) if axis is None else np.linspace(0.5, 2, codes.shape[axis]).astype(np.float32)
    held = np.rint(codes / coarser).astype(np.int8)
    quant = QuantParams(dtype="int8", scale=needed * np.float32(coarser), axis=axis)
    half = ConstantRounding(product(held, quant)).half_steps("w")
    across = needed.reshape(-1, 1) if axis == 0 else needed
    np.testing.assert_allclose(half, np.broadcast_to(across * counted / 2, codes.shape), rtol=0.02)
    whole = ConstantRounding(product(held, quant)).half_steps("w", any_scale=True)
    np.testing.assert_allclose(whole, np.broadcast_to(across * coarser / 2, codes.shape), rtol=1e-6)


@pytest.mark.parametrize(
    ("ours", "shared"),
    [
        (W, True),
        (np.ascontiguousarray(W.T), True),
        (np.nextafter(W, np.float32(9)), False),
        (np.ascontiguousarray(W.T[::-1]), False),
        (W.reshape(8, 4), False),
    ],
    ids=["alike", "turned", "beside", "turned and reversed", "regrouped"],
)
def test_a_constant_is_shared_bit_for_bit_turned_or_not(ours, shared):
    sides = product(W), product(ours)
    segment = Segment(nodes=sides[0].graph.nodes, feeds={"x": "x"}, own=sides[1].graph.nodes)
    assert shared_constants(sides, segment) == ({"w"} if shared else set())
