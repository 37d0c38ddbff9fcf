"""Constants that the backend's format cannot hold."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.compare.graph_checks.constants import unrepresentable_constant
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo


def recorded(constant, *, op="Mul", quant=None):
    node = Node(name="n", op=op, inputs=("x", "c"), outputs=("y",))
    tensors = [TensorInfo(name="c", role=Role.CONSTANT, quant=quant)]
    graph = Graph([node], tensors=tensors, inputs=["x"], outputs=["y"])
    return MemoryRecording.single(graph, {} if constant is None else {"c": np.asarray(constant)}), node


def said(real, dtype, *, keep=None, made=None, **options):
    """Say what a constant has lost; `made` brings it to its format, and it is kept in another one."""
    with np.errstate(over="ignore", under="ignore"):
        mine = np.asarray(np.asarray(real, np.float32) if made is None else made(np.asarray(real, np.float32)))
        mine = mine.astype(dtype).astype(keep or dtype)
    reference, theirs = recorded(np.asarray(real, np.float32), op=options.get("op", "Mul"))
    backend, ours = recorded(mine, **options)
    found = unrepresentable_constant(ReferenceReplay(*map(IndexedRecording.of, (reference, backend)), []), theirs, ours)
    return None if found is None else found.sentence


@pytest.mark.parametrize(
    ("real", "dtype", "expected"),
    [
        (1e5, np.float16, "its constant 'c' of 100000 overflows to infinity in float16"),
        (1e-9, np.float16, "its constant 'c' of 1e-09 underflows to zero in float16"),
        (
            [1.0, 1e-9, 2e-9],
            np.float16,
            "2 of 3 elements of its constant 'c' underflow to zero in float16: the first is 1e-09",
        ),
        ([1.0, -1e6], np.float16, "1 of 2 elements of its constant 'c' overflows to infinity in float16: -1e+06"),
        (1e-45, ml_dtypes.bfloat16, "its constant 'c' of 1.4013e-45 underflows to zero in bfloat16"),
        ([65504.0, 6e-8, 0.0, np.inf, np.nan], np.float16, None),
        (1e5, np.float32, None),
        (np.zeros(0), np.float16, None),
    ],
)
def test_what_is_lost_is_named_with_its_format(real, dtype, expected):
    assert said(real, dtype) == expected


def test_an_element_of_a_weight_counts_only_beyond_the_rounding_of_the_sum():
    assert said([[1.0, 1e-9]], np.float16, op="Gemm") is None
    assert said([[1e-9, 1e-9]], np.float16, op="Gemm") is not None
    assert said([[1.0, 1e6]], np.float16, op="Gemm") is not None


def test_codes_and_constants_that_were_not_recorded_or_have_another_shape_are_left_out():
    assert said(1e-9, np.float16, quant=QuantParams(dtype="uint8", scale=1)) is None
    reference, theirs = recorded(np.float32(1e9))
    for other in (None, np.zeros((2, 2), np.float16), np.int8(0)):
        backend, ours = recorded(other)
        replays = ReferenceReplay(*map(IndexedRecording.of, (reference, backend)), [])
        assert unrepresentable_constant(replays, theirs, ours) is None


W = np.random.default_rng(3).standard_normal((16, 16)).astype(np.float32)


@pytest.mark.parametrize("keep", [np.float16, np.float32])
def test_elements_clamped_flushed_or_infinite_are_told_apart_whatever_the_constant_is_kept_in(keep):
    large = np.where(W > 2, W * 1e5, W)
    count = np.count_nonzero(np.abs(large) >= 65520)
    first = f"{large[np.abs(large) >= 65520][0]:g}"
    among = f"{count} of 256 elements of its weight 'c'"
    assert (
        said(large, np.float16, keep=keep, op="Gemm")
        == f"{among} overflow to infinity in float16: the first is {first}"
    )
    clamp = {"made": lambda w: np.clip(w, -65504, 65504), "keep": keep, "op": "Gemm"}
    assert (
        said(large, np.float16, **clamp) == f"{among} are clamped to 65504, the largest float16: the first is {first}"
    )
    small = W * np.float32(8e-5)
    with_zeros = {"made": lambda w: np.where(np.abs(w) < 2.0**-14, 0, w), "keep": keep, "op": "Mul"}
    gone = np.abs(small) < 2.0**-14
    assert said(small, np.float16, **with_zeros) == (
        f"{gone.sum()} of 256 elements of its constant 'c' are subnormal in float16, below 6.10352e-05, "
        f"and flushed to zero: the first is {small[gone][0]:g}"
    )


@pytest.mark.parametrize("keep", [np.float16, np.float32])
def test_an_element_that_was_taken_out_is_not_lost_to_the_format(keep):
    assert said(W, np.float16, made=lambda w: np.where(np.abs(w) < 0.1, 0, w), keep=keep) is None
