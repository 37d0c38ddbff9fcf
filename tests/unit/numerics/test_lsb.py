"""Differences in steps of a scale."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.model import QuantParams
from qdebug.numerics.affine import dequantize
from qdebug.numerics.lsb import LsbSizes, difference_in_lsb, lsb_between, sum_in_lsb


@pytest.mark.parametrize("scale", [np.float32(0.1), np.float32(1 / 3), 0.1, 1e-7, 1234.567])
def test_codes_of_one_scale_differ_by_whole_steps(scale):
    quant = QuantParams(dtype="int8", scale=scale, zero_point=5)
    codes = np.arange(-128, 128).astype(np.int8)
    real = dequantize(codes, quant).astype(np.float64)
    for other in (-128, 0, 127):
        against = np.full_like(real, dequantize(np.int8([other]), quant)[0])
        steps = difference_in_lsb(against, real, float(quant.real_scale[0]))
        assert np.array_equal(steps, codes.astype(np.int64) - other)


def test_values_off_the_lattice_keep_their_fraction():
    assert difference_in_lsb(np.array([0.05]), np.array([1.0]), 0.5)[0] == pytest.approx(1.9)


def test_a_step_too_small_for_positions_still_measures_their_difference():
    with np.errstate(over="ignore", invalid="ignore"):
        steps = difference_in_lsb(np.array([1.0, 1.0]), np.array([1.0 + 2.0**-52, 3.0]), 5e-324)
    assert steps.tolist() == [2.0**1022, math.inf]


def test_signed_steps_of_any_magnitude_are_summed():
    differences, steps = np.array([1.0, 5e-324, -3e300, 7.0]), np.array([0.5, 5e-324, 1e300, math.nan])
    total, exponent, count = sum_in_lsb(*np.frexp(differences), steps)
    assert (math.ldexp(total, exponent), count) == (0.0, 3)
    assert sum_in_lsb(*np.frexp(np.array([0.0, -0.0])), 0.5) == (0.0, 0, 0)
    total, exponent, count = sum_in_lsb(*np.frexp(np.array([1e300, 0.0])), 1e-300)
    assert exponent > 1990
    assert count == 1


@drawn(200)
@given(
    codes=st.tuples(*[st.integers(-(2**16), 2**16)] * 2),
    step=st.one_of(st.floats(2.0**-60, 2.0**60), st.floats(2.0**-20, 2.0, width=32), st.sampled_from([5e-324, 1e300])),
    beside=st.booleans(),
)
def test_two_numbers_are_as_far_apart_as_two_arrays(codes, step, beside):
    reference, backend = (float(np.float32(code) * np.float32(min(step, 2.0**60))) for code in codes)
    backend = math.nextafter(backend, math.inf) if beside else backend
    with np.errstate(all="ignore"):
        expected = difference_in_lsb(np.array([reference]), np.array([backend]), step)[0]
        assert lsb_between(reference, backend, step) == expected


def test_float64_lattices_count_too():
    real = np.arange(-50, 50) * 0.02
    assert np.array_equal(difference_in_lsb(np.zeros(100), real, 0.02), np.arange(-50, 50))


def test_the_step_is_the_scale_unless_one_is_given():
    quant = QuantParams(dtype="int8", scale=np.float32(0.25))
    assert LsbSizes(quant, (3,)).uniform == 0.25
    assert LsbSizes(quant, (3,), 2.0).uniform == 2.0
    assert LsbSizes(None, (3,), 2.0).of(0, 3) == 2.0
    assert not LsbSizes(None, (3,)).is_known
    assert math.isnan(LsbSizes(None, (3,)).of(0, 3))


@pytest.mark.parametrize("scale", [0.0, math.nan, math.inf, -1.0])
def test_a_scale_that_is_not_positive_and_finite_measures_nothing(scale):
    assert not LsbSizes(QuantParams(dtype="int8", scale=scale), (3,)).is_known
    mixed = LsbSizes(QuantParams(dtype="int8", scale=[scale, 0.5], axis=0), (2, 2))
    assert mixed.is_known
    assert np.array_equal(mixed.of(0, 4), [math.nan, math.nan, 0.5, 0.5], equal_nan=True)
