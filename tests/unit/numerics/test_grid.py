"""Values on a grid of few levels, and values that are not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.numerics.grid import grid_step

RNG = np.random.default_rng(0)


@given(st.floats(1e-6, 1e3), st.integers(0, 255), st.integers(0, 2**32))
def test_dequantized_codes_lie_on_the_grid_of_their_scale(scale, zero, seed):
    codes = np.random.default_rng(seed).integers(0, 256, 500)
    values = (np.float32(scale) * (codes - zero).astype(np.float32)).astype(np.float32)
    assert grid_step(values) == pytest.approx(scale, rel=1e-3)


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(size=500),
        RNG.normal(size=500).astype(np.float16),
        np.arange(1000) * 0.1,
        np.append(np.arange(100.0), np.nan),
        np.append(np.arange(100.0), 0.5 + np.pi),
        np.array([0.0, 1.0, 2.0]),
        np.zeros(0),
        np.ones(100),
    ],
    ids=["floats", "half", "many levels", "nan", "one off", "few", "empty", "constant"],
)
def test_other_values_lie_on_no_grid(values):
    assert grid_step(np.asarray(values)) is None
