"""Weights are compared whatever order, padding and format each side keeps them in."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.weights import (
    has_same_scalar,
    in_plain_order,
    weight_distance,
    weight_of,
    without_padding,
)
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

RNG = np.random.default_rng(5)


def run_of(op, weights, *, layouts=(None, None), quants=None, skip=()):
    """Index a run of one node that reads x and some constants; return it with the node."""
    names = [f"k{at}" for at in range(len(weights))]
    node = Node(name="n", op=op, inputs=("x", *names), outputs=("y",))
    infos = [TensorInfo(name="x", layout=layouts[0]), TensorInfo(name="y", layout=layouts[1])]
    infos += [TensorInfo(name=name, role=Role.CONSTANT, quant=(quants or {}).get(name)) for name in names]
    graph = Graph([node], tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    held = {name: np.asarray(array) for name, array in zip(names, weights, strict=True) if name not in skip}
    return IndexedRecording.of(MemoryRecording.single(graph, held)), node


def apart(theirs, ours, op="Conv"):
    """Return how far a backend's weight is from a reference's."""
    return weight_distance(*run_of(op, [theirs]), *run_of(op, [ours]))


def test_the_weight_of_a_node_is_its_largest_constant():
    small, large = RNG.normal(size=4), RNG.normal(size=(4, 3))
    for order in ([small, large], [large, small]):
        run, node = run_of("Gemm", order)
        np.testing.assert_array_equal(weight_of(run, node), large)
    for given in ([np.float32(3)], [np.float32([3])], []):
        run, node = run_of("Gemm", given)
        assert weight_of(run, node) is None
    run, node = run_of("Gemm", [np.float32([3, 4])])
    assert weight_of(run, node).tolist() == [3, 4]
    run, node = run_of("Gemm", [large, small], skip=("k0",))
    np.testing.assert_array_equal(weight_of(run, node), small)
    quant = QuantParams(dtype="int8", scale=np.float32(0.5), zero_point=1)
    run, node = run_of("Gemm", [np.int8([3, 5])], quants={"k0": quant})
    assert weight_of(run, node).tolist() == [1, 2]


def test_a_bias_is_not_the_weight_of_a_product_whose_weight_is_unknown():
    node = Node(name="n", op="Gemm", inputs=("x", "w", "b"), outputs=("y",))
    infos = [TensorInfo(name="x"), TensorInfo(name="b", role=Role.CONSTANT)]
    graph = Graph([node], tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    run = IndexedRecording.of(MemoryRecording.single(graph, {"b": RNG.normal(size=4)}))
    assert weight_of(run, node) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(3.0, 3.0, True), (100.0, 100.9, True), (100.0, 101.5, False), (-3.0, 3.0, False), ([1.0, 2.0], 1.0, False)],
)
def test_scalars_are_the_same_but_for_a_hundredth(one, other, same):
    runs = [run_of("Mul", [np.float32(value)]) for value in (one, other)]
    (ref, theirs), (be, ours) = runs
    assert has_same_scalar(ref, theirs, be, ours) == same
    assert has_same_scalar(be, ours, ref, theirs) == same
    bare, none = run_of("Mul", [])
    assert not has_same_scalar(ref, theirs, bare, none)
    assert not has_same_scalar(bare, none, ref, theirs)


def test_the_distance_of_weights_is_relative_to_the_reference():
    weight = RNG.normal(size=(6, 4, 3, 3))
    assert apart(weight, weight) == 0
    assert apart(weight, weight * 1.25) == pytest.approx(0.25)
    assert apart(weight * 2, weight) == pytest.approx(0.5)
    assert apart(weight, -weight) == pytest.approx(2)
    assert apart(weight, weight[:5]) == math.inf
    assert apart(np.zeros((2, 2)), np.ones((2, 2))) == math.inf
    assert apart(np.float32(3), weight) is None
    assert apart(weight, np.float32(3)) is None


def test_a_matrix_may_be_transposed_and_a_vector_reshaped():
    matrix = RNG.normal(size=(5, 3))
    assert apart(matrix, matrix.T, "MatMul") == 0
    assert apart(matrix, matrix.T, "Add") == 0
    assert apart(matrix, matrix.reshape(1, 5, 3), "MatMul") == 0
    assert apart(matrix, matrix[::-1], "MatMul") > 0.1


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_a_product_finds_its_weight_in_the_orders_that_frameworks_keep(rank):
    """Outputs first or last, inputs beside them or last, and the window in its own order."""
    weight = RNG.normal(size=(7, 5, 2, 3, 4)[:rank])
    window = tuple(range(2, rank))
    known = {(0, 1, *window), (0, *window, 1), (1, *window, 0), (*window, 1, 0), (*window, 0, 1)}
    for order in permutations(range(rank)):
        turned = weight.transpose(order)
        distance = apart(weight, turned)
        if turned.shape == weight.T.shape or order in known:
            assert distance == pytest.approx(0, abs=1e-9), order
        else:
            assert distance > 0.1, order
        added = apart(weight, turned, "Add")
        assert (added == 0) == (order in (tuple(range(rank)), tuple(reversed(range(rank))))), order


@pytest.mark.parametrize(
    ("shape", "filled", "kept"),
    [
        ((8, 8, 3, 3), (6, 5), (6, 5)),
        ((8, 5, 3, 3), (6, 5), (6, 5)),
        ((6, 8, 3, 3), (6, 5), (6, 5)),
        ((6, 5, 3, 3), (6, 5), (6, 5)),
        ((8, 8, 3, 2), (6, 5), (8, 8)),  # another window
        ((5, 8, 3, 3), (5, 5), (5, 8)),  # fewer than there are
        ((8, 4, 3, 3), (6, 4), (8, 4)),
    ],
)
def test_channels_of_zeros_that_fill_up_a_block_are_left_out(shape, filled, kept):
    weight = np.zeros(shape)
    inner = RNG.normal(size=(*filled, *shape[2:]))
    weight[: filled[0], : filled[1]] = inner
    wanted = (6, 5, 3, 3)
    found = without_padding(weight, wanted)
    assert found.shape == (*kept, *shape[2:])
    np.testing.assert_array_equal(found, weight[: kept[0], : kept[1]])
    if found.shape == wanted and shape != wanted:
        assert apart(inner, weight) == 0
        weight[-1, -1, 0, 0] = 1e-9  # something beside them is no padding
        assert without_padding(weight, wanted).shape == shape
    matrix = np.zeros((8, 8))
    assert without_padding(matrix, (6, 5)) is matrix


@pytest.mark.parametrize("inner", [1, 8])
@pytest.mark.parametrize("inputs", [8, 16])
def test_a_filter_in_blocks_of_channels_is_put_in_plain_order(inner, inputs):
    """Outputs in blocks of eight; inputs too where the node reads blocks."""
    plain = RNG.normal(size=(16, inputs, 3, 2))
    parts = plain.reshape(2, 8, inputs // inner, inner, 3, 2)
    blocked = parts.transpose(0, 2, 4, 5, 3, 1).reshape(plain.shape)
    layouts = ("NCHW8c" if inner == 8 else "NCHW", "NCHW8c")
    run, node = run_of("Conv", [blocked], layouts=layouts)
    np.testing.assert_array_equal(in_plain_order(run, node, blocked), plain)
    np.testing.assert_array_equal(weight_of(run, node), plain)
    assert weight_distance(*run_of("Conv", [plain]), run, node) == 0


@pytest.mark.parametrize(
    ("op", "layouts", "shape"),
    [
        ("Conv", ("NCHW8c", None), (16, 8, 3, 3)),
        ("Conv", (None, None), (16, 8, 3, 3)),
        ("MatMul", ("NCHW8c", "NCHW8c"), (16, 8, 3, 3)),
        ("Conv", ("NCHW8c", "NCHW8c"), (12, 8, 3, 3)),
        ("Conv", ("NCHW8c", "NCHW8c"), (16, 8, 3)),
    ],
)
def test_a_weight_that_is_not_kept_in_blocks_is_left_as_it_is(op, layouts, shape):
    weight = RNG.normal(size=shape)
    run, node = run_of(op, [weight], layouts=layouts)
    assert in_plain_order(run, node, weight) is weight


def test_a_block_that_does_not_divide_the_inputs_is_one_of_outputs_alone():
    plain = RNG.normal(size=(16, 3, 3, 3))
    blocked = plain.reshape(2, 8, 3, 3, 3).transpose(0, 2, 3, 4, 1).reshape(plain.shape)
    run, node = run_of("Conv", [blocked], layouts=("NCHW8c", "NCHW8c"))
    np.testing.assert_array_equal(in_plain_order(run, node, blocked), plain)


def test_a_weight_that_is_packed_in_blocks_is_unpacked_if_all_of_it_was_recorded():
    attrs = {"K": 16, "N": 2, "bits": 4, "block_size": 16}
    inputs = ("x", "k_codes", "k_scales", "k_zeros")
    node = Node(name="n", op="MatMulNBits", domain="com.microsoft", inputs=inputs, outputs=("y",), attrs=attrs)
    held = {
        "k_codes": np.arange(16, dtype=np.uint8).reshape(2, 1, 8),
        "k_scales": np.float32([0.5, 2]),
        "k_zeros": np.uint8([[3], [4]]),
    }

    def weight(values, folded=True):
        role = Role.CONSTANT if folded else Role.ACTIVATION
        infos = [TensorInfo(name=name, role=role) for name in inputs[1:]]
        graph = Graph([node], tensors=infos, inputs=("x",), outputs=("y",))
        return weight_of(IndexedRecording.of(MemoryRecording.single(graph, values)), node)

    found = weight(held)
    low, high = held["k_codes"].reshape(2, 8) & 15, held["k_codes"].reshape(2, 8) >> 4
    plain = np.stack([low, high], axis=-1).reshape(2, 16).astype(float)
    np.testing.assert_array_equal(found, ((plain - [[3], [4]]) * [[0.5], [2]]).T)
    for name in inputs[1:]:
        assert weight({other: array for other, array in held.items() if other != name}) is None
    assert weight(held, folded=False) is None
    assert weight(held | {"k_codes": np.zeros((1, 1, 8), np.uint8)}) is None  # too few for what it says
