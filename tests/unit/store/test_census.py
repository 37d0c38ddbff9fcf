"""Counts and extremes are right wherever they claim to be valid."""

import math

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qdebug.store.census import take_census
from qdebug.store.layout import Flag

FLOATS = st.floats(width=32, allow_subnormal=True)


@settings(max_examples=100)
@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=5), elements=FLOATS))
def test_floats(array):
    found = take_census(array)
    known = array[~np.isnan(array)]
    assert bool(found.flags & Flag.EXTREMES) == (known.size > 0)
    if known.size:
        assert (found.low, found.high) == (float(known.min()), float(known.max()))
    assert bool(found.flags & Flag.HAS_NAN) == bool(np.isnan(array).any())
    assert bool(found.flags & Flag.HAS_INF) == bool(np.isinf(array).any())
    assert bool(found.flags & Flag.COUNTS) == (not np.isfinite(array).all())
    if found.flags & Flag.COUNTS:
        assert found.nan == np.isnan(array).sum()
        assert found.inf == np.isinf(array).sum()
        assert found.zero == (array == 0).sum()


@pytest.mark.parametrize("at", [0, 32767, 32768, 99_999])
def test_no_block_is_left_out(at):
    array = np.ones(100_000, np.float32)
    array[at] = -5
    assert take_census(array).low == -5
    array[at] = 7
    assert take_census(array).high == 7
    array[at] = np.nan
    assert take_census(array).nan == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_integers_reach_their_ends(dtype):
    ends = np.iinfo(dtype)
    found = take_census(np.array([0, ends.min, ends.max], dtype))
    assert (found.low, found.high) == (float(ends.min), float(ends.max))
    assert found.flags == Flag.EXTREMES


def test_signalling_nan_warns_nobody():
    found = take_census(np.array([0x7F800001, 0], np.uint32).view(np.float32))
    assert (found.nan, found.low) == (1, 0)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.zeros(2, bool),
        np.zeros(2, complex),
        np.zeros(2, ml_dtypes.bfloat16),
        np.zeros(2, ml_dtypes.int4),
        np.zeros(2, ">f4"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_what_is_not_counted_claims_nothing(array):
    found = take_census(array)
    assert found.flags == Flag(0)
    assert math.isnan(found.low)
