"""Codes of 32 and 64 bits: one code more is one step more, however large the codes are."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from qdebug.model import QuantParams
from qdebug.numerics.accumulate import BLOCK, ErrorAccumulator
from qdebug.numerics.affine import dequantize, is_wide_code, quantize, wide_parts
from qdebug.numerics.profile import profile_tensor
from qdebug.numerics.rails import count_rails
from qdebug.numerics.summary import take_statistics
from qdebug.numerics.worst import worst_elements

F32 = np.float32
NEIGHBOURS = {
    "int32": [2**24, -(2**24) - 1, 2**31 - 2, -(2**31)],
    "uint32": [2**24, 2**31, 2**32 - 2],
    "int64": [2**24, 2**53, -(2**53) - 1, 2**63 - 2, -(2**63)],
    "uint64": [2**24, 2**53, 2**63 - 1, 2**63, 2**64 - 2],
}
EVERY = [(dtype, code) for dtype, codes in NEIGHBOURS.items() for code in codes]
SCALES = [F32(1.0), F32(0.37), 0.37, 1e-30, 2.0**-80]


def compared(a, b, first, second):
    accumulator = ErrorAccumulator(reference_quant=first, backend_quant=second)
    accumulator.update(a, b, sample=0)
    return accumulator.stats()


@pytest.mark.parametrize(("dtype", "code"), EVERY)
def test_one_code_is_one_step(dtype, code):
    for number, (scale, zero_point) in enumerate(itertools.product(SCALES, (0, 3, -(2**31), 2**62))):
        if number % 3 == 0:  # each scale, and each zero point
            check_step(dtype, code, zero_point, scale)


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("zero_point", [0, 3, -(2**31), 2**62])
@pytest.mark.parametrize(("dtype", "code"), EVERY)
def test_one_code_is_one_step_whatever_the_scale(dtype, code, zero_point, scale):
    check_step(dtype, code, zero_point, scale)


def check_step(dtype, code, zero_point, scale):
    quant = QuantParams(dtype=dtype, scale=scale, zero_point=zero_point)
    a, b = np.array([5, code, 7], dtype), np.array([5, code + 1, 7], dtype)
    stats = compared(a, b, quant, quant)
    assert (stats.mismatches, stats.max_lsb, stats.worst_index) == (1, 1.0, (1,))
    assert stats.max_abs == pytest.approx(float(scale), rel=0 if isinstance(scale, F32) else 2.0**-24)
    assert stats.lsb_bias == pytest.approx(1.0, rel=2.0**-22)
    (worst,) = worst_elements(a, b, reference_quant=quant, backend_quant=quant)
    assert (worst.index, worst.lsb, worst.reference_code, worst.backend_code) == ((1,), 1.0, code, code + 1)
    profile = profile_tensor(a, b, reference_quant=quant, backend_quant=quant)
    assert [(element.index, element.lsb) for element in profile.worst] == [((1,), 1.0)]
    assert profile.errors.zeros == 2
    same = compared(b, b.copy(), quant, quant)
    assert (same.mismatches, same.max_lsb, same.max_abs) == (0, 0.0, 0.0)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_each_channel_has_steps_of_its_own(dtype):
    quant = QuantParams(dtype=dtype, scale=F32([0.37, 0.11]), zero_point=[1, -5], axis=0)
    a = np.full((2, 3), 2**31 - 4, dtype)
    b = a.copy()
    b[1, 2] += 3
    stats = compared(a, b, quant, quant)
    assert (stats.mismatches, stats.max_lsb, stats.worst_index) == (1, 3.0, (1, 2))
    assert stats.max_abs == 3 * float(F32(0.11))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_the_ends_of_64_bits_are_as_far_apart_as_they_are(dtype):
    info = np.iinfo(dtype)
    quant = QuantParams(dtype=dtype, scale=F32(0.5))
    stats = compared(np.array([info.min], dtype), np.array([info.max], dtype), quant, quant)
    assert (stats.mismatches, stats.max_abs, stats.max_lsb) == (1, 2.0**63, 2.0**64)


@pytest.mark.parametrize("scale", SCALES)
def test_codes_of_another_width_are_the_same_numbers(scale):
    for code in (-128, 0, 5, 127):
        for first in ("int8", "int16", "int32", "int64", "float32", "float64"):
            for second in ("int32", "int64", "uint64" if code >= 0 else "int64"):
                a, b = np.array([code], first), np.array([code], second)
                quants = QuantParams(dtype=first, scale=scale), QuantParams(dtype=second, scale=scale)
                assert compared(a, b, *quants).mismatches == 0, (code, first, second)
                assert compared(b, a, *quants[::-1]).mismatches == 0, (code, second, first)
    quants = QuantParams(dtype="int32", scale=scale, zero_point=7), QuantParams(dtype="int64", scale=scale)
    stats = compared(np.int32([2**31 - 1]), np.int64([2**31]), *quants)
    assert (stats.mismatches, stats.max_lsb) == (1, 8.0)


@pytest.mark.parametrize(("dtype", "code"), EVERY)
@pytest.mark.parametrize("float_type", ["float32", "float64"])
def test_a_dequantized_float_tensor_equals_its_codes(dtype, code, float_type):
    quant = QuantParams(dtype=dtype, scale=F32(0.37), zero_point=2)
    codes = np.array([code, code + 1, 5], dtype)
    exact = [Fraction(float(F32(0.37))) * (int(each) - 2) for each in codes]
    real = np.array([float(each) for each in exact]).astype(float_type)
    assert compared(real, codes, None, quant).mismatches == 0
    assert compared(codes, real, quant, None).mismatches == 0
    assert dequantize(codes, quant, double=True).tolist() == [float(each) for each in exact]


def test_integers_beside_codes_are_compared_as_the_numbers_they_are():
    quant = QuantParams(dtype="int64", scale=F32(1.0))
    for other in (np.int64([2**53, 2**53 + 1]), np.uint64([2**53, 2**53 + 1])):
        codes = np.int64([2**53, 2**53])
        assert compared(other, codes, None, quant).mismatches == 1
        assert compared(codes, other, quant, None).mismatches == 1
    assert compared(np.array([True, False]), np.int32([1, 0]), None, QuantParams(dtype="int32", scale=1.0)).max_abs == 0


def test_values_at_the_ends_of_wide_codes_are_not_clipped():
    for dtype in NEIGHBOURS:
        info = np.iinfo(dtype)
        codes = np.array([info.min, info.max, 1], dtype)
        for scale in SCALES:
            quant = QuantParams(dtype=dtype, scale=scale, zero_point=3)
            rails = count_rails(codes, quant, codes, reference_quant=quant)
            assert (rails.at_qmin, rails.at_qmax, rails.clipped_low, rails.clipped_high) == (1, 1, 0, 0)
    short, wide = QuantParams(dtype="int8", scale=F32(0.37)), QuantParams(dtype="int32", scale=F32(0.37))
    rails = count_rails(np.int8([127, 127]), short, np.int32([127, 128]), reference_quant=wide)
    assert (rails.at_qmax, rails.clipped_high) == (2, 1)


def test_statistics_tell_the_end_of_64_bits_from_the_code_beside_it():
    quant = QuantParams(dtype="int64", scale=F32(1.0))
    found = take_statistics(np.int64([2**63 - 1, 2**63 - 2, 2**24 + 1]), quant)
    assert (found.at_qmax, found.at_qmin) == (1, 0)
    assert take_statistics(np.int32([2**24 + 1]), QuantParams(dtype="int32", scale=F32(1.0))).mean == 2**24 + 1


def test_a_difference_in_any_block_is_found():
    quant = QuantParams(dtype="int32", scale=F32(0.1))
    a = np.arange(2**24, 2**24 + 2 * BLOCK + 9, dtype=np.int32)
    b = a.copy()
    b[BLOCK + 3] += 1
    stats = compared(a, b, quant, quant)
    assert (stats.mismatches, stats.max_lsb, stats.worst_index) == (1, 1.0, (BLOCK + 3,))


def test_a_scale_that_is_no_size_gives_no_steps():
    for scale in (0.0, np.nan, np.inf):
        quant = QuantParams(dtype="int64", scale=scale)
        stats = compared(np.int64([1, 2]), np.int64([1, 3]), quant, quant)
        assert (stats.max_lsb, stats.mismatches, stats.nonfinite) == (None, 0, 0)


def test_parts_add_up_to_the_real_value():
    for code in (2**63 - 1, -(2**63), 2**53 + 1, -1, 0, 2**28, -(2**28) - 1):
        for zero_point in (0, -(2**62), 77):
            high, low = np.empty(1), np.empty(1)
            wide_parts(np.int64([code]), np.int64([zero_point]), np.float64([F32(0.37)]), (high, low))
            exact = Fraction(float(F32(0.37))) * (code - zero_point)
            assert Fraction(float(high[0])) + Fraction(float(low[0])) == exact
    assert [dtype for dtype in ("int16", "int32", "uint64", "float64", "bool") if is_wide_code(np.dtype(dtype))] == [
        "int32",
        "uint64",
    ]


@pytest.mark.parametrize(("dtype", "most"), [("int64", 2**63 - 1), ("uint64", 2**64 - 1), ("int32", 2**31 - 1)])
def test_a_value_of_exactly_the_highest_code_and_all_above_saturate(dtype, most):
    """Float64 does not hold the highest code of 64 bits: what rounds to it is one beyond."""
    quant = QuantParams(dtype=dtype, scale=1.0)
    values = np.array([float(most), np.nextafter(float(most), np.inf), np.inf])
    assert quantize(values, quant).tolist() == [most] * 3


def test_codes_of_32_bits_are_divided_in_float64():
    """Float32 does not hold a quotient of more than 24 bits."""
    values, scale = np.array([0.1, 0.7, -0.3], np.float32), np.float32(3e-9)
    exact = [round(Fraction(float(value)) / Fraction(float(scale))) for value in values]
    assert quantize(values, QuantParams(dtype="int32", scale=scale)).tolist() == exact
