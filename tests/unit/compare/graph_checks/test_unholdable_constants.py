"""Constants that the backend's format cannot hold."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.compare.graph_checks.constants import unrepresentable_constant
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo


def recorded(constant, *, op="Mul", quant=None):
    node = Node(name="n", op=op, inputs=("x", "c"), outputs=("y",))
    tensors = [TensorInfo(name="c", role=Role.CONSTANT, quant=quant)]
    graph = Graph([node], tensors=tensors, inputs=["x"], outputs=["y"])
    return MemoryRecording.single(graph, {} if constant is None else {"c": np.asarray(constant)}), node


def said(real, dtype, **options):
    with np.errstate(over="ignore", under="ignore"):
        mine = np.asarray(real, np.float32).astype(dtype)
    reference, theirs = recorded(np.asarray(real, np.float32), op=options.get("op", "Mul"))
    backend, ours = recorded(mine, **options)
    found = unrepresentable_constant(reference, backend, theirs, ours)
    return None if found is None else found.sentence


@pytest.mark.parametrize(
    ("real", "dtype", "expected"),
    [
        (1e5, np.float16, "its constant 'c' of 100000 overflows to infinity in float16"),
        (1e-9, np.float16, "its constant 'c' of 1e-09 underflows to zero in float16"),
        ([1.0, 1e-9, 2e-9], np.float16, "2 of 3 elements of its constant 'c' underflow to zero in float16"),
        ([1.0, -1e6], np.float16, "1 of 2 elements of its constant 'c' overflows to infinity in float16"),
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
        assert unrepresentable_constant(reference, backend, theirs, ours) is None
