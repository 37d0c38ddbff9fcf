"""Reading stretches of a stored tensor as real values."""

import threading

import ml_dtypes
import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import RealBlocks, Scratch, incomparable_reason, make_comparable, scratch

F32 = np.float32
ARRAY_OF = {
    "single": [
        F32,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        np.int8,
        np.uint16,
        ml_dtypes.int4,
        np.bool_,
    ],
    "double": [np.float64, np.int32, np.uint32],
    "wide": [np.int64, np.uint64],
}


@pytest.mark.parametrize(("kind", "dtype"), [(kind, dtype) for kind, dtypes in ARRAY_OF.items() for dtype in dtypes])
def test_each_dtype_is_read_in_the_width_that_holds_it(kind, dtype):
    values = np.array([0, 1, 1, 0]).astype(dtype)
    blocks = RealBlocks(values)
    assert (blocks.single, blocks.wide) == (kind == "single", kind == "wide")
    out, low = np.empty(4), np.empty(4)
    if blocks.wide:
        high, rest = blocks.read_wide(1, 4, out, low)
        assert (high + rest).tolist() == [1.0, 1.0, 0.0]
    else:
        assert blocks.read_double(1, 4, out, np.empty(4, F32)).tolist() == [1.0, 1.0, 0.0]
    if blocks.single:
        assert blocks.read_single(1, 4, np.empty(4, F32)).tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "float32"])
def test_quantized_codes_of_up_to_16_bits_or_of_floats_are_single(dtype):
    blocks = RealBlocks(np.array([3, 5], dtype), QuantParams(dtype=dtype, scale=F32(0.5)))
    assert (blocks.single, blocks.wide, blocks.quantized) == (True, False, True)
    assert blocks.read_single(0, 2, np.empty(2, F32)).tolist() == [1.5, 2.5]


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_quantized_codes_that_float32_does_not_tell_apart_are_wide(dtype):
    codes = np.array([2**24, 2**24 + 1], dtype)
    blocks = RealBlocks(codes, QuantParams(dtype=dtype, scale=F32(0.5)))
    assert (blocks.single, blocks.wide, blocks.wide_codes) == (False, True, True)
    high, low = blocks.read_wide(0, 2, np.empty(2), np.empty(2))
    assert (high + low).tolist() == blocks.read_double(0, 2, np.empty(2), np.empty(2, F32)).tolist()
    assert (high + low).tolist() == [2**23, 2**23 + 0.5]


def widths(first, second):
    return [(side.single, side.wide) for side in make_comparable(first, second)]


def test_what_is_compared_is_read_in_one_width():
    def of(dtype, scale=None):
        return RealBlocks(
            np.array([1, 2], dtype), None if scale is None else QuantParams(dtype=dtype, scale=F32(scale))
        )

    single, double, wide = (True, False), (False, False), (False, True)
    assert widths(of("int8", 0.5), of("int8", 0.5)) == [single, single]
    assert widths(of("int32", 0.5), of("int32", 0.5)) == [wide, wide]
    assert widths(of("int8", 0.5), of("int32", 0.5)) == [wide, wide]
    assert widths(of("int64", 0.5), of("float32", 0.5)) == [wide, wide]
    assert widths(of("float32"), of("int32", 0.5)) == [single, single]
    assert widths(of("int64", 0.5), of("float16")) == [single, single]
    assert widths(of("float64"), of("int64", 0.5)) == [double, double]
    assert widths(of("int8"), of("int32", 0.5)) == [double, wide]
    assert widths(of("int64"), of("int8", 0.5)) == [wide, single]  # no codes that need it


def test_reading_beside_something_else_leaves_a_tensor_as_it_is():
    blocks = RealBlocks(np.int32([1]), QuantParams(dtype="int32", scale=F32(0.5)))
    make_comparable(blocks, RealBlocks(F32([1.0])))
    assert (blocks.single, blocks.wide) == (False, True)


def test_plain_float_tensors_are_not_copied():
    values = np.arange(6, dtype=F32)
    assert np.shares_memory(RealBlocks(values).read_single(2, 5, np.empty(5, F32)), values)
    doubles = values.astype(np.float64)
    assert np.shares_memory(RealBlocks(doubles).read_double(2, 5, np.empty(5), np.empty(5, F32)), doubles)
    assert not np.shares_memory(RealBlocks(values, clamp=(1.0, None)).read_single(2, 5, np.empty(5, F32)), values)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**53 + 1, -1, 0, 2**32, -(2**32) - 7])
def test_wide_halves_hold_an_integer_exactly(value):
    high, low = RealBlocks(np.int64([value])).read_wide(0, 1, np.empty(1), np.empty(1))
    assert int(high[0]) + int(low[0]) == value


def test_a_clamp_of_wide_integers_is_exact_at_its_bound():
    values = np.int64([2**53 + 1, 2**53, -4])
    high, low = RealBlocks(values, clamp=(0.0, 2.0**53)).read_wide(0, 3, np.empty(3), np.empty(3))
    assert [int(h) + int(x) for h, x in zip(high, low, strict=True)] == [2**53, 2**53, 0]


def test_both_widths_give_the_same_values():
    codes = np.arange(-100, 100, dtype=np.int8)
    blocks = RealBlocks(codes, QuantParams(dtype="int8", scale=0.1, zero_point=7), (0.0, 6.0))
    single = blocks.read_single(0, 200, np.empty(200, F32)).copy()
    double = blocks.read_double(0, 200, np.empty(200), np.empty(200, F32))
    assert np.array_equal(single.astype(np.float64), double)
    assert single.min() == 0.0
    assert single.max() == 6.0


def test_a_strided_tensor_is_read_stretch_by_stretch_in_c_order():
    values = np.arange(24, dtype=F32).reshape(4, 6).T
    blocks = RealBlocks(values)
    assert blocks.stored(5, 9).tolist() == values.reshape(-1)[5:9].tolist()


def test_what_cannot_be_compared_is_explained():
    assert incomparable_reason(np.dtype(np.float32)) is None
    assert "complex" in (incomparable_reason(np.dtype(np.complex128)) or "")
    assert "object" in (incomparable_reason(np.dtype(object)) or "")
    with pytest.raises(UsageError, match="complex64"):
        RealBlocks(np.zeros(1, np.complex64))


def test_each_thread_has_buffers_of_its_own():
    found: list[Scratch] = []
    thread = threading.Thread(target=lambda: found.append(scratch()))
    thread.start()
    thread.join()
    assert scratch() is scratch()
    assert found[0] is not scratch()
    assert scratch().singles[0].size == BLOCK
