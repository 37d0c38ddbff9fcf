"""Rounded numbers stay true: almost is not exactly, and what is not a number is named."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.byte_size import byte_size
from qdebug.present import numbers

FINITE = st.floats(-1e307, 1e307)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1.00"),
        (9.996, "10.0"),
        (12.3456, "12.3"),
        (-123.456, "-123"),
        (99400.4, "99400"),
        (99999.4, "1.00e5"),
        (99999.6, "1.00e5"),
        (123456.0, "1.23e5"),
        (0.001, "0.00100"),
        (0.000999, "9.99e-4"),
        (1.5e-300, "1.50e-300"),
        (5e-324, "4.94e-324"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "NaN"),
    ],
)
def test_a_number_has_three_significant_digits(value, shown):
    assert numbers.number(value) == shown


@given(FINITE, st.integers(2, 6))
def test_a_rounded_number_is_near_the_number(value, digits):
    shown = float(numbers.number(value, digits=digits))
    assert shown == pytest.approx(value, rel=0.6 * 10 ** (1 - digits), abs=5e-324)
    assert math.copysign(1, shown) == math.copysign(1, value) or value == 0


def test_counts_are_shown_in_full_and_grouped():
    assert numbers.grouped(1234567) == "1\u202f234\u202f567"
    assert numbers.grouped(12) == "12"
    assert numbers.grouped(None) == "-"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1.00"),
        (0.5, "0.500"),
        (0.9999, "0.99990"),
        (0.99999971, "0.99999971"),
        (-0.9999, "-0.99990"),
        (math.nan, "NaN"),
        (None, "-"),
    ],
)
def test_a_cosine_near_one_differs_from_one(value, shown):
    assert numbers.cosine(value) == shown


@given(st.floats(0.99, 1, exclude_max=True))
def test_only_a_cosine_of_one_reads_as_one(value):
    assert float(numbers.cosine(value)) < 1


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 100, "0 %"),
        (100, 100, "100 %"),
        (99_999, 100_000, ">99.9 %"),
        (1, 1_000_000, "<0.01 %"),
        (1, 2, "50.0 %"),
        (1, 30, "3.3 %"),
        (3, 0, "-"),
        (math.nan, 5, "NaN"),
    ],
)
def test_none_and_all_are_said_of_none_and_all_alone(part, whole, shown):
    assert numbers.percent(part, whole) == shown


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_a_share_between_none_and_all_never_reads_as_either(part, rest):
    shown = numbers.percent(part, part + rest + 1)
    assert shown not in {"0 %", "100 %"}


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (999_499, "999 kB"),
        (999_600, "1.00 MB"),
        (4_600_000_000, "4.60 GB"),
        (10**16, "10000 TB"),
    ],
)
def test_sizes_have_the_unit_that_fits(size, shown):
    assert byte_size(size) == shown


@pytest.mark.parametrize(("extents", "shown"), [(None, "-"), ((), "scalar"), ((1, 3, None), "1x3x?"), ((0,), "0")])
def test_shapes(extents, shown):
    assert numbers.shape(extents) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([], "-"),
        ([0.05], "0.05"),
        ([0.05, 0.05], "0.05"),
        ([0, 0, 0], "0"),
        ([-3, 4], "-3, 4"),
        ([0.1, 0.2, 0.3, 0.4, 0.123456], "5 values, 0.1 to 0.4"),
        ([math.nan], "NaN"),
        ([math.nan, 1.0, 2.0, 3.0, 4.0], "5 values, 1 to 4"),
        ([math.nan] * 5, "5 values, all NaN"),
    ],
)
def test_several_values_are_summed_up(given, shown):
    assert numbers.values(given) == shown


def test_a_metric_is_shown_by_its_kind():
    assert numbers.metric("mismatches", 12345) == "12\u202f345"
    assert numbers.metric("cosine", 0.99999) == "0.999990"
    assert numbers.metric("sqnr_db", math.inf) == "inf"
    assert numbers.metric("max_lsb", None) == "-"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (5.0, "5"),
        (-0.0, "0"),
        (123456789.0, "123456789"),
        (2**60 + 1, "1152921504606846977"),
        (2.0**53, "about 9.0071993e15"),
        (True, "1"),
        (1.5, "1.500"),
        (math.inf, "inf"),
        (math.nan, "NaN"),
    ],
)
def test_whole_numbers_are_shown_in_full_or_said_to_be_rounded(value, shown):
    assert numbers.whole(value) == shown
