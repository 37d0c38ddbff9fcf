import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.replay.qsum import as_int32, exact_dtype, saturate, subtract_zero_point, sum_bound


def test_the_fastest_exact_dtype():
    assert exact_dtype(2.0**24 - 1) == np.float32
    assert exact_dtype(2.0**24) == np.float64
    assert exact_dtype(2.0**53) == np.int64


@drawn(80)
@given(st.integers(0, 2**16), st.integers(1, 40), st.integers(1, 3000))
def test_products_in_the_chosen_dtype_are_exact(seed, rows, depth):
    rng = np.random.default_rng(seed)
    top = int(rng.integers(1, 256))
    a = rng.integers(-top, top + 1, (rows, depth))
    b = rng.integers(-127, 128, (depth, 3))
    bias = rng.integers(-(2**20), 2**20, 3)
    bound = sum_bound(a, b, (0,), bias)
    exact = a @ b + bias
    assert np.abs(exact).max() <= bound
    dtype = exact_dtype(bound)
    np.testing.assert_array_equal(a.astype(dtype) @ b.astype(dtype) + bias.astype(dtype), exact)


def test_bound_of_nothing_is_zero():
    assert sum_bound(np.zeros((0, 4), np.int32), np.zeros((4, 0), np.int32), (0,)) == 0


def test_centring_never_wraps():
    codes = np.array([-128, 127], np.int8)
    assert subtract_zero_point(codes, np.array(127, np.int8)).tolist() == [-255, 0]
    assert subtract_zero_point(codes, np.array(-128, np.int8)).tolist() == [0, 255]
    assert subtract_zero_point(codes, None).tolist() == [-128, 127]


def test_int32_wraps_around():
    sums = np.array([2.0**31, -(2.0**31) - 1, 5.0])
    assert as_int32(sums).tolist() == [-(2**31), 2**31 - 1, 5]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_saturation(dtype):
    info = np.iinfo(dtype)
    values = np.array([-np.inf, -1e30, -0.0, 3.0, 1e30, np.inf, np.nan], np.float32)
    for zero in (info.min, 0, info.max):
        codes = saturate(values.copy(), np.array(zero, dtype))
        assert codes.dtype == dtype
        expected = [info.min, info.min, zero, min(zero + 3, info.max), info.max, info.max, info.min]
        assert codes.tolist() == expected
