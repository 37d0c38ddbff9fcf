"""By how much constants may be off what they were before rounding, and which of them both runs rounded alike."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.attribute.rounding import ConstantRounding, shared_constants
from qdebug.compare.attribute.segments import Segment
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.model.thresholds.attribution import COARSE_SCALE_RATIO, CONSTANT_EVIDENCE_MIN_ELEMENTS, FREE_SCALE_MAX_CODES

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


@pytest.mark.parametrize("rows", [4, 3])
def test_each_element_of_a_block_is_rounded_by_the_step_of_its_block(rows):
    codes, scale = np.ones((rows, 5), np.int8), np.arange(1, 3 * rows + 1, dtype=np.float32).reshape(rows, 3)
    quant = QuantParams(dtype="int8", scale=scale, axis=1, block_size=2)  # the last block is cut off
    half = ConstantRounding(product(codes, quant)).half_steps("w", any_scale=True)
    np.testing.assert_array_equal(half, np.repeat(scale, 2, axis=1)[:, :5] / 2)


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


@pytest.mark.parametrize("count", [CONSTANT_EVIDENCE_MIN_ELEMENTS - 1, CONSTANT_EVIDENCE_MIN_ELEMENTS])
def test_the_format_of_a_network_is_that_of_the_middle_of_its_constants(count):
    """Three of three formats; one of fewer elements tells nothing, and then the finer of the other two counts."""
    middle = RNG.normal(size=count).astype(np.float16)
    held = {"a": W, "b": middle.astype(np.float32), "c": W.astype(ml_dtypes.bfloat16).astype(np.float32)}
    infos = [TensorInfo(name=name, role=Role.CONSTANT, dtype="float32") for name in held]
    graph = Graph([Node(name="n", op="Sum", inputs=tuple(held), outputs=("y",))], tensors=infos, outputs=("y",))
    rounding = ConstantRounding(IndexedRecording.of(MemoryRecording.single(graph, held)))
    enough = count == CONSTANT_EVIDENCE_MIN_ELEMENTS
    assert rounding.coarsest_unit_roundoff(set()) == (2.0**-11 if enough else 2.0**-24)


@pytest.mark.parametrize(("above", "free"), [(0, True), (1, False)])
def test_codes_of_few_values_have_a_scale_that_was_chosen(above, free):
    """A constant of so many codes is stored with a scale that its range needs; of more, with one that is prescribed."""
    quant = QuantParams(dtype="int32", scale=np.float32(2), qmin=0, qmax=int(FREE_SCALE_MAX_CODES) + above)
    half = ConstantRounding(product(np.ones((4, 8), np.int32), quant)).half_steps("w")
    assert (float(half.max()) < 1.0) == free


@pytest.mark.parametrize(("largest", "half"), [(15, 1.0), (14, 14 / 120)])
def test_a_step_of_just_the_ratio_is_not_yet_far_too_coarse(largest, half):
    """Codes of -120 to 120 of which 15 are used on each side: the step is 8 times what the range needs."""
    held = np.ones((4, 8), np.int8)
    held[2, 3] = largest
    quant = QuantParams(dtype="int8", scale=np.float32(2), qmin=-120, qmax=120)
    found = ConstantRounding(product(held, quant)).half_steps("w")
    assert COARSE_SCALE_RATIO == 8
    np.testing.assert_allclose(found, np.full(held.shape, half), rtol=1e-6)


def test_the_step_of_blocks_is_taken_as_it_is_however_coarse():
    codes, scale = np.ones((16, 6), np.int8), np.full((16, 3), 4, np.float32)
    quant = QuantParams(dtype="int8", scale=scale, axis=1, block_size=2)
    half = ConstantRounding(product(codes, quant)).half_steps("w")
    np.testing.assert_array_equal(half, np.full((16, 6), 2, np.float32))
