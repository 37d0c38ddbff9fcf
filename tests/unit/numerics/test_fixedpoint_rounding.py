"""Rounding by name, against exact arithmetic."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qdebug.errors import UsageError
from qdebug.numerics.fixedpoint import ROUNDINGS, round_values

HALF = Fraction(1, 2)
EXACT = {
    "even": round,
    "up": lambda x: math.floor(x + HALF),
    "down": lambda x: math.ceil(x - HALF),
    "away": lambda x: math.floor(abs(x) + HALF) * (1 if x >= 0 else -1),
    "floor": math.floor,
    "trunc": math.trunc,
}
HARD = [
    0.49999999999999994,
    -0.49999999999999994,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    2.0**52 + 1,
    -(2.0**52) - 1,
    -0.5 + 2.0**-54,
    5e-324,
    -1e-20,
]


def test_every_rounding_has_an_oracle():
    assert set(EXACT) == set(ROUNDINGS)


@pytest.mark.parametrize("name", list(EXACT))
@pytest.mark.parametrize("value", HARD)
def test_hard_cases_are_exact(name, value):
    assert round_values(np.array([value]), name)[0] == EXACT[name](Fraction(value))


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(list(EXACT)),
    value=st.one_of(st.floats(-1e17, 1e17), st.integers(-200, 200).map(lambda n: n / 2)),
    single=st.booleans(),
)
def test_roundings_are_exact(name, value, single):
    array = np.array(value, np.float32 if single else np.float64)
    rounded = round_values(array, name)
    assert rounded.dtype == array.dtype
    assert rounded.shape == ()
    assert float(rounded) == float(array.dtype.type(EXACT[name](Fraction(float(array)))))


@pytest.mark.parametrize("name", list(EXACT))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_nonfinite_values_and_dtypes_are_kept(name, dtype):
    values = np.array([np.nan, np.inf, -np.inf, 2.0]).astype(dtype)
    rounded = round_values(values, name)
    assert rounded.dtype == values.dtype
    assert np.array_equal(rounded, values, equal_nan=True)


def test_integers_come_back_as_a_copy():
    values = np.int8([1, 2])
    rounded = round_values(values, "floor")
    assert rounded.tolist() == [1, 2]
    assert not np.shares_memory(rounded, values)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match=r"banker.*even.*trunc"):
        round_values(np.zeros(1), "banker")
