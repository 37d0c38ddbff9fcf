"""Results that the range of a short float format has made infinite, its largest number, or zero."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.numerics.format_range import out_of_range
from qdebug.numerics.short_formats import SHORT_FORMATS, SINGLE

BY_NAME = {short.name: short for short in (*SHORT_FORMATS, SINGLE)}
HALF = BY_NAME["float16"]


def said(exact, recorded, short=HALF, **options):
    found, masked = out_of_range(short, np.float64(exact), np.float32(recorded), **options)
    return found.sentence, masked.tolist()


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "float32"])
def test_the_ends_of_each_format_are_those_of_its_type(name):
    short, ends = BY_NAME[name], ml_dtypes.finfo(name)
    assert short.largest == float(ends.max)
    assert short.normal == float(ends.smallest_normal)
    assert short.subnormal == float(ends.smallest_subnormal)


@pytest.mark.parametrize(("became", "shown"), [(np.inf, "inf"), (65504, "65504")])
def test_what_is_too_large_is_named_with_its_value(became, shown):
    expected = f"2 of 4 results are beyond 65504, the largest float16 value; the first, 70000, became {shown}"
    assert said([1, 70000, 8e4, 65504.9], [1, became, became, 65504]) == (expected, [False, True, True, True])


def test_what_is_too_small_is_named_with_its_value():
    assert said([1, 1e-9, 1e-7], [1, 0, 2.0**-23]) == (
        "1 of 3 results is below 5.96046e-08, the smallest float16 value; 1e-09 became 0",
        [False, False, False],
    )


def test_subnormal_numbers_flushed_to_zero_are_named_unless_one_is_kept():
    expected = (
        "2 of 3 results are subnormal in float16, below 6.10352e-05, and flushed to zero; the first, 3e-05, became 0"
    )
    assert said([1, 3e-5, -1e-5], [1, 0, 0]) == (expected, [False, True, True])
    assert said([1, 3e-5, -1e-5], [1, 0, -1e-5]) == (None, [False] * 3)


def test_what_a_sum_may_be_off_by_is_not_flushed():
    assert said([1, 3e-6], [1, 0], noise=1e-5) == (None, [False, False])


def test_what_samples_have_lost_adds_up():
    one, _ = out_of_range(HALF, np.float64([7e4, 1e-9]), np.float32([np.inf, 0]))
    two, _ = out_of_range(HALF, np.float64([9e4, 1]), np.float32([np.inf, 1]))
    assert one.merge(two).sentence == (
        "2 of 4 results are beyond 65504, the largest float16 value; the first, 70000, became inf; "
        "1 of 4 results is below 5.96046e-08, the smallest float16 value; 1e-09 became 0"
    )
