"""Histograms by binary exponent."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.numerics.histogram import ENTRIES, ExponentCounter, count_rows


def counted(values, left_out=0):
    counter = ExponentCounter()
    counter.add(np.array(values, np.float64), left_out)
    return counter.histogram()


@drawn(100)
@given(
    values=st.lists(
        st.one_of(st.floats(0.0, allow_infinity=False), st.integers(-1074, 1023).map(lambda e: math.ldexp(1.0, e)))
    )
)
def test_every_magnitude_is_between_its_powers_of_two(values):
    found = counted(values)
    exponents = [math.frexp(value)[1] - 1 for value in values if value]
    assert found.zeros == values.count(0.0)
    assert found.total == len(values)
    assert found.counts.sum() == len(exponents)
    if exponents:
        assert found.lowest == min(exponents)
        assert found.lowest + found.counts.size - 1 == max(exponents)
    for place, count in enumerate(found.counts):
        assert count == exponents.count(found.lowest + place)


def test_rows_are_counted_at_once_as_each_alone():
    rows = np.array([[0.0, 1.0, 1.5, 5e-324, 2.0**-1022], [math.inf, math.nan, 4.0, 0.0, 1e300], [3.0] * 5])
    counts = count_rows(rows)
    assert counts.shape == (3, ENTRIES)
    assert (counts[1, -1], counts[2].sum(), counts[2, 1024]) == (2, 5, 5)
    counter = ExponentCounter()
    assert counter.add_few(counts[0], rows[0]) == 1
    found, alone = counter.histogram(), counted(rows[0])
    assert (found.lowest, found.zeros, found.counts.tolist()) == (alone.lowest, alone.zeros, alone.counts.tolist())


def test_a_difference_beyond_float64_is_in_the_last_place():
    found = counted([math.inf, 1.7e308], left_out=2)
    assert (found.lowest, found.counts.tolist(), found.nonfinite, found.total) == (1023, [1, 1], 2, 4)


@pytest.mark.parametrize("values", [[], [0.0, 0.0]])
def test_nothing_but_zeros(values):
    found = counted(values)
    assert (found.counts.size, found.zeros) == (0, len(values))
    assert not found.counts.flags.writeable
