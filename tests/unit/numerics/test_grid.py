"""Values on a grid of few levels, and values that are not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.numerics.grid import grid_of, grid_of_all, grid_step, is_off_grid

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


@given(st.integers(8, 16), st.floats(1e-6, 1e3), st.integers(30, 3000), st.integers(0, 2**32))
def test_the_step_is_found_among_a_part_of_the_levels(bits, scale, count, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(-(2 ** (bits - 1)) // 3, 2 ** (bits - 1), count)
    values = np.float32(scale) * codes.astype(np.float32)
    found = grid_of(values)
    if bits == 8 or found is not None:
        assert found.step == pytest.approx(scale * np.gcd.reduce(codes), rel=1e-3)
        assert found.levels == (codes.max() - codes.min()) / np.gcd.reduce(codes) + 1


def test_samples_that_are_too_few_alone_tell_a_grid_together():
    parts = [np.float32([0.1, 0.4, -0.3]), np.float32([0.2, 0.9]), np.float32([-1.1, 0.5, 0.7, 1.3])]
    assert all(grid_of(part) is None for part in parts)
    assert grid_of_all(lambda: iter(parts)).step == pytest.approx(0.1)
    assert grid_of_all(lambda: iter([*parts, np.float32([0.123])])) is None
    assert is_off_grid(RNG.normal(size=100))
    assert not is_off_grid(parts[0])
