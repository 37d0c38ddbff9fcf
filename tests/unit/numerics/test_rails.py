"""Codes at the ends of their range, and values beyond it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.model.dtypes import logical_dtype
from qdebug.numerics.affine import BLOCK, quantize
from qdebug.numerics.rails import RailsCounter, count_rails, merge_rails
from qdebug.numerics.stats import Rails

F32 = np.float32


def test_codes_at_the_ends_are_counted():
    quant = QuantParams(dtype="int8", scale=F32(0.1))
    codes = np.int8([-128, -128, 0, 126, 127])
    rails = count_rails(codes, quant, F32([-12.8, -20.0, 0.0, 12.6, 12.8]))
    assert rails == Rails(at_qmin=2, at_qmax=1, clipped_low=1, clipped_high=1, floor=0, total=5)


def test_a_narrow_range_has_its_own_ends_and_codes_beyond_them_count():
    quant = QuantParams(dtype="int8", scale=F32(1.0), qmin=-127)
    rails = count_rails(np.int8([-128, -127, -126]), quant, F32([-127.5, -127.0, -126.0]))
    assert (rails.at_qmin, rails.clipped_low) == (2, 1)


@pytest.mark.parametrize(("relu", "zero_point", "floor"), [(True, 0, 2), (False, 0, 0), (True, 3, 0)])
def test_the_floor_is_a_relus_zero(relu, zero_point, floor):
    quant = QuantParams(dtype="uint8", scale=F32(0.1), zero_point=zero_point)
    rails = count_rails(np.uint8([0, 0, 7]), quant, F32([0.0, 0.0, 0.7]), relu_floor=relu)
    assert (rails.at_qmin, rails.floor) == (2, floor)


def test_each_channel_has_its_own_ends_and_floor():
    quant = QuantParams(dtype="uint8", scale=F32([0.1, 1.0]), zero_point=np.array([0, 10]), axis=1)
    codes = np.uint8([[0, 0], [255, 255]])
    rails = count_rails(codes, quant, F32([[-0.1, -9.0], [26.0, 250.0]]), relu_floor=True)
    assert rails == Rails(at_qmin=2, at_qmax=2, clipped_low=1, clipped_high=2, floor=1, total=4)


def test_infinities_are_beyond_any_range_and_nan_is_not():
    quant = QuantParams(dtype="int8", scale=F32(1.0))
    rails = count_rails(np.int8([127, -128, 0]), quant, F32([math.inf, -math.inf, math.nan]))
    assert (rails.clipped_low, rails.clipped_high) == (1, 1)


def test_without_a_reference_clipping_is_known_only_where_no_code_is_at_an_end():
    quant = QuantParams(dtype="int8", scale=F32(1.0))
    assert count_rails(np.int8([1, 2]), quant) == Rails(
        at_qmin=0, at_qmax=0, clipped_low=0, clipped_high=0, floor=0, total=2
    )
    with pytest.raises(UsageError, match="1 codes are at qmin or qmax"):
        count_rails(np.int8([127]), quant)


def test_a_quantized_and_clamped_reference_is_taken_by_its_real_values():
    quant = QuantParams(dtype="int8", scale=F32(0.01))
    other = QuantParams(dtype="int8", scale=F32(0.1))
    assert count_rails(np.int8([127, -128]), quant, np.int8([50, -50]), reference_quant=other).clipped_high == 1
    clamped = count_rails(
        np.int8([127, -128]), quant, np.int8([50, -50]), reference_quant=other, reference_clamp=(0.0, 1.0)
    )
    assert (clamped.clipped_low, clamped.clipped_high) == (0, 0)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int16", "int32", "uint64"])
def test_ends_of_every_width(dtype):
    quant = QuantParams(dtype=dtype, scale=F32(1.0))
    codes = np.concatenate([np.array([code]).astype(logical_dtype(dtype)) for code in (quant.qmin, quant.qmax, 1)])
    rails = count_rails(codes, quant, np.zeros(3, F32))
    assert (rails.at_qmin, rails.at_qmax, rails.total) == (1, 1, 3)


def test_codes_without_ends_and_shapes_that_differ_are_refused():
    with pytest.raises(UsageError, match="no known qmin"):
        count_rails(np.zeros(1, F32), QuantParams(dtype="float8_e4m3fn", scale=F32(1.0)))
    quant = QuantParams(dtype="int8", scale=F32(1.0))
    with pytest.raises(UsageError, match="shape"):
        count_rails(np.int8([1]), quant, np.zeros(2))
    with pytest.raises(UsageError, match="unknown"):
        RailsCounter(quant).add(np.int8([1]), None, 0)


def test_large_tensors_are_counted_block_by_block():
    quant = QuantParams(dtype="int8", scale=F32([1.0, 2.0]), axis=0)
    codes = np.full((2, BLOCK + 5), 127, np.int8)
    rails = count_rails(codes, quant, np.full(codes.shape, 200.0, F32))
    assert (rails.at_qmax, rails.clipped_high) == (codes.size, BLOCK + 5)


@drawn(50)
@given(values=st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=50), relu=st.booleans())
def test_whatever_is_clipped_is_at_an_end(values, relu):
    quant = QuantParams(dtype="int4", scale=F32(2.0), zero_point=-8 if relu else 0)
    real = F32(values)
    rails = count_rails(quantize(real, quant), quant, real, relu_floor=relu)
    assert rails.clipped_low <= rails.at_qmin
    assert rails.clipped_high <= rails.at_qmax
    assert rails.floor == (rails.at_qmin if relu else 0)


def test_merging_adds():
    part = Rails(at_qmin=1, at_qmax=2, clipped_low=3, clipped_high=4, floor=5, total=6)
    assert merge_rails(part, part) == Rails(at_qmin=2, at_qmax=4, clipped_low=6, clipped_high=8, floor=10, total=12)
