"""Blocks in float64: wide integers, extreme magnitudes, non-finite values."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from qdebug.numerics.block_error import add_double, exact_difference, read_block, real_differences, real_values
from qdebug.numerics.blocks import RealBlocks, scratch
from qdebug.numerics.lsb import LsbSizes
from qdebug.numerics.tally import Block, Tally

NO_LSB = LsbSizes(None, ())
EDGES = [0, 1, -1, 2**31, -(2**31), 2**32 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]


def block_of(a, b):
    return read_block((RealBlocks(np.asarray(a)), RealBlocks(np.asarray(b))), (0, len(a)), NO_LSB, scratch())


@pytest.mark.parametrize("value", EDGES)
def test_differences_of_integers_are_rounded_once(value):
    a, b = np.full(len(EDGES), value, np.int64), np.int64(EDGES)
    assert exact_difference(block_of(a, b)).tolist() == [float(Fraction(int(y) - value)) for y in b]
    narrow = np.int32([5] * len(EDGES))
    assert exact_difference(block_of(b, narrow)).tolist() == [float(Fraction(5 - int(y))) for y in b]


def test_an_integer_and_a_float_differ_if_and_only_if_they_do():
    a = np.int64([2**53 + 1, 2**53, 2**62 + 1])
    b = np.array([2.0**53, 2.0**53, 2.0**62])
    assert exact_difference(block_of(a, b)).tolist() == [-1.0, 0.0, -1.0]
    assert exact_difference(block_of(b, a)).tolist() == [1.0, 0.0, 1.0]


def test_an_infinite_float_against_an_integer_is_infinite_not_nan():
    with np.errstate(all="ignore"):
        assert exact_difference(block_of(np.int64([1]), np.array([math.inf]))).tolist() == [math.inf]


def test_real_values_of_wide_integers_are_the_nearest_floats():
    block = block_of(np.int64(EDGES), np.int64(EDGES))
    assert real_values(block.reference, block.reference_rest).tolist() == [float(x) for x in EDGES]
    assert real_values(np.array([1.5]), None).tolist() == [1.5]


def tally_of(a, b, lsb=NO_LSB):
    tally = Tally(shape=(10 + len(a),))
    with np.errstate(all="ignore"):
        add_double(tally, Block(reference=np.array(a), backend=np.array(b), start=10, lsb=lsb))
    return tally


def test_extremes_are_of_each_sides_own_finite_values():
    tally = tally_of([1.0, math.nan, 5.0], [math.inf, -7.0, 5.0])
    assert (tally.reference.low, tally.reference.high) == (1.0, 5.0)
    assert (tally.backend.low, tally.backend.high) == (-7.0, 5.0)
    assert (tally.nonfinite, tally.finite, tally.worst.flat) == (2, 1, 10)


def test_positions_after_left_out_elements_are_right():
    tally = tally_of([math.nan, 0.0, 1.0], [math.nan, 0.0, 3.0])
    assert (tally.worst.flat, tally.matched_nonfinite, tally.zero_refs) == (12, 1, 1)


def test_steps_follow_left_out_elements():
    lsb = LsbSizes(None, (3,), 0.5)
    assert tally_of([math.nan, 0.0], [math.nan, 1.0], lsb).max_lsb == 2.0


@pytest.mark.parametrize("scale", [1e-310, 1e-170, 1e170, 1e307])
def test_sums_keep_their_ratio_at_any_magnitude(scale):
    stats = tally_of([3 * scale, 0.0], [3 * scale, 4 * scale]).stats()
    assert stats.rel_l2 == pytest.approx(4 / 3)
    assert stats.cosine == pytest.approx(0.6)


INTEGERS = [2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 0, 7]


@pytest.mark.parametrize(
    ("first", "second"),
    [("int64", "int64"), ("int64", "uint64"), ("uint64", "uint64"), ("int64", "int32"), ("float64", "int64")],
)
def test_differences_of_whole_arrays_are_rounded_once(first, second):
    def of(dtype):
        return [x for x in INTEGERS if dtype == "float64" or np.iinfo(dtype).min <= x <= np.iinfo(dtype).max]

    a, b = (np.array([[x, y] for x in of(first) for y in of(second)], object)[:, side] for side in range(2))
    found = real_differences(a.astype(first), b.astype(second))
    ours = [int(x) for x in a.astype(first)]
    assert found.tolist() == pytest.approx([float(y - x) for x, y in zip(ours, b, strict=True)], rel=2.0**-52, abs=0)


def test_differences_of_other_numbers_are_those_of_float64():
    a, b = np.float32([0.1, np.inf, np.nan]), np.float64([0.3, np.inf, 1.0])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(real_differences(a, b), b - a.astype(np.float64), equal_nan=True)
    assert real_differences(np.array([True]), np.array([False])).tolist() == [-1.0]
    small = [np.array(values).astype(ml_dtypes.int4) for values in ([3, -8], [-8, 7])]
    assert real_differences(*small).tolist() == [-11.0, 15.0]
    assert np.isnan(real_differences(np.float64(np.nan), np.int64(2**53 + 1)))
    assert real_differences(np.int64(2**53), np.int64(2**53 + 1)).shape == ()
