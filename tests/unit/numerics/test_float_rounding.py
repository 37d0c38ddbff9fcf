"""Rounding to short formats agrees with ml_dtypes to nearest, and with exact fractions in every other direction."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.numerics.float_rounding import FLOAT_ROUNDINGS, round_float, unit_in_last_place
from qdebug.numerics.short_formats import SHORT_FORMATS

DTYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
}
FORMATS = {short.name: short for short in SHORT_FORMATS if short.name in DTYPES}


@pytest.mark.parametrize("name", FORMATS)
def test_to_nearest_is_what_ml_dtypes_does(name):
    short, rng = FORMATS[name], np.random.default_rng(0)
    values = rng.standard_normal(20000) * 2.0 ** rng.integers(-160, 128, 20000)
    every = np.arange(1 << 8 * np.dtype(DTYPES[name]).itemsize).astype(f"u{np.dtype(DTYPES[name]).itemsize}")
    with np.errstate(all="ignore"):
        held = every.view(DTYPES[name]).astype(np.float64)
        ties = (held[:-1] + held[1:]) / 2
        for each in (values.astype(np.float32).astype(np.float64), held, ties[np.isfinite(ties)]):
            overflow = "nan" if name == "float8_e4m3fn" else "inf"
            made = round_float(each, short, "even", overflow=overflow)
            np.testing.assert_array_equal(made, each.astype(np.float32).astype(DTYPES[name]).astype(np.float64))


@given(
    value=st.floats(-60000, 60000, width=32),
    name=st.sampled_from(sorted(FORMATS)),
    rounding=st.sampled_from(sorted(FLOAT_ROUNDINGS)),
)
def test_every_direction_takes_the_right_neighbor(value, name, rounding):
    short = FORMATS[name]
    if abs(value) > short.largest:
        return
    (made,) = round_float(np.float64([value]), short, rounding)
    exact = Fraction(value)
    if not np.isfinite(made):
        assert abs(value) + unit_in_last_place(np.float64([value]), short)[0] > short.largest
        return
    near = Fraction(float(made))
    unit = Fraction(float(unit_in_last_place(np.float64([value]), short)[0]))
    assert near % unit == 0
    signed = {"up": near - exact, "down": exact - near}
    outward = (near - exact) * (1 if exact >= 0 else -1)
    if rounding in signed:
        assert 0 <= signed[rounding] < unit
    elif rounding in ("zero", "out"):
        assert 0 <= (outward if rounding == "out" else -outward) < unit
    else:
        assert abs(near - exact) <= unit / 2
        if abs(near - exact) * 2 == unit:
            assert outward > 0 if rounding == "away" else (near / unit) % 2 == 0


def test_results_beyond_the_range():
    short = FORMATS["float16"]
    values = np.float64([7e4, -7e4, np.inf, np.nan])
    np.testing.assert_array_equal(round_float(values, short, "even"), [np.inf, -np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(round_float(values, short, "zero"), [65504, -65504, np.inf, np.nan])
    np.testing.assert_array_equal(round_float(values, short, "up"), [np.inf, -65504, np.inf, np.nan])
    saturated = round_float(values, short, "even", overflow="sat")
    np.testing.assert_array_equal(saturated, [65504, -65504, np.inf, np.nan])


def test_subnormal_results_are_flushed_with_their_sign():
    short = FORMATS["float16"]
    made = round_float(np.float64([3e-6, -3e-6, 2.0**-14]), short, "even", flush=True)
    np.testing.assert_array_equal(made, [0, 0, 2.0**-14])
    np.testing.assert_array_equal(np.signbit(made), [False, True, False])
