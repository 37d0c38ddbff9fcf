"""Whether values were rounded to a float format of few digits: never said of what fits it by chance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.numerics.short_formats import _STRETCH, SHORT_FORMATS, detect_rounded_format, is_exact_in, to_tf32

NAMES = [short.name for short in SHORT_FORMATS]
seeds = st.integers(0, 2**32 - 1)


def normal(seed, size=500, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(size).astype(dtype)


@given(seed=seeds, power=st.integers(-8, 8), dtype=st.sampled_from([np.float32, np.float64]))
@pytest.mark.parametrize("short", SHORT_FORMATS, ids=NAMES)
def test_values_that_were_rounded_are_told_from_their_digits(short, seed, power, dtype):
    power = min(max(power, 0), 6) if short.name == "float8_e4m3fn" else power  # below 2^-6 it has fewer digits
    rounded = short.rounded(normal(seed) * np.float32(2.0**power)).astype(dtype)
    found = detect_rounded_format(rounded)
    assert found is not None
    assert (found.bits, is_exact_in(rounded, found)) == (short.bits, True)
    assert detect_rounded_format(np.append(rounded, np.array([0, np.nan, 0.0], dtype))) == found
    assert detect_rounded_format(np.append(rounded, np.array([np.pi], dtype))) is None


@pytest.mark.parametrize("short", SHORT_FORMATS, ids=NAMES)
@pytest.mark.parametrize("place", [0, _STRETCH - 1, _STRETCH, _STRETCH + 9])
def test_one_value_in_all_its_digits_fits_no_short_format_wherever_it_is(short, place):
    values = np.ones(_STRETCH + 10, np.float32)
    assert is_exact_in(values, short)
    values[place] = np.pi
    assert not is_exact_in(values, short)


@given(seed=seeds)
def test_of_values_in_all_their_digits_nothing_is_said(seed):
    assert detect_rounded_format(normal(seed)) is None
    assert detect_rounded_format(normal(seed, dtype=np.float64)) is None


@given(seed=seeds, power=st.integers(-20, 20), most=st.integers(1, 255), scale=st.floats(1e-3, 1e3))
def test_whole_numbers_and_codes_fit_any_format_and_nothing_is_said_of_them(seed, power, most, scale):
    codes = np.random.default_rng(seed).integers(-most, most + 1, 400).astype(np.float32)
    assert detect_rounded_format(codes) is None
    assert detect_rounded_format(codes * np.float32(2.0**power)) is None
    assert detect_rounded_format(np.maximum(codes, 0) * np.float32(2.0**power)) is None
    if not np.any(np.frexp(np.float32(scale))[0] * 2**10 % 1 == 0):
        assert detect_rounded_format(codes * np.float32(scale)) is None


@pytest.mark.parametrize("values", [np.zeros(100), np.ones(100), np.full(100, np.nan), np.full(100, np.inf), []])
def test_of_values_that_are_all_the_same_nothing_is_said(values):
    assert detect_rounded_format(np.array(values, np.float32)) is None


def test_of_few_elements_and_of_other_types_nothing_is_said():
    few = normal(3, 3).astype(np.float16)
    assert detect_rounded_format(few.astype(np.float32)) is None
    assert detect_rounded_format(normal(3).astype(np.float16)) is None
    assert detect_rounded_format(np.arange(400)) is None
    assert detect_rounded_format(few.astype(np.float32), known_unit=2.0**-11).name == "float16"


@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**126), max_value=2.0**126))
def test_tf32_is_as_near_as_any_number_of_11_digits(value):
    rounded = float(to_tf32(np.array([value], np.float32))[0])
    significand, exponent = np.frexp(np.float64(value))
    assert rounded == float(np.ldexp(np.rint(significand * 2**11) / 2**11, exponent)) or abs(value) < 2.0**-126


@pytest.mark.parametrize("most", [7, 8, 9, 15, 16, 17, 255, 256, 257])
def test_whole_numbers_up_to_a_power_of_two_are_of_no_format(most):
    assert detect_rounded_format(np.tile(np.arange(-most, most + 1, dtype=np.float32), 40)) is None
