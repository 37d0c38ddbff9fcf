"""Statistics of one tensor, taken block by block, against those of the whole tensor."""

import math

import ml_dtypes
import numpy as np
import pytest

from qdebug.model import QuantParams
from qdebug.model.kept import EXPONENT_BINS, LOWEST_EXPONENT
from qdebug.numerics import summary
from qdebug.numerics.summary import take_statistics

RNG = np.random.default_rng(5)
INF, NAN = np.inf, np.nan


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(summary, "_BLOCK", 8)


def held(counts):
    """Return how many elements lie in each exponent that has any."""
    return {at + LOWEST_EXPONENT: int(count) for at, count in enumerate(counts) if count}


def test_moments_and_extremes_are_those_of_all_blocks_together():
    """Each block has a mean and a spread of its own."""
    values = (RNG.normal(size=(5, 9)) * np.arange(1, 6)[:, None] + np.arange(5)[:, None] * 10).astype(np.float32)
    found, real = take_statistics(values, None), values.astype(np.float64)
    assert (found.count, found.nan, found.inf, found.zero) == (45, 0, 0, 0)
    assert (found.low, found.high, found.absmax) == (real.min(), real.max(), np.abs(real).max())
    assert (found.mean, found.std) == (pytest.approx(real.mean()), pytest.approx(real.std()))
    assert found.l2 == pytest.approx(np.linalg.norm(real))
    assert int(found.negative.sum() + found.positive.sum()) == 45


def test_what_is_no_finite_number_is_counted_and_left_out_of_the_moments():
    values = np.array([NAN, 1, -2, 0, INF, 3, NAN, NAN, 8, -INF, -0.0, 6, NAN], np.float32)
    found, finite = take_statistics(values, None), values[np.isfinite(values)].astype(np.float64)
    assert (found.count, found.nan, found.inf, found.zero) == (13, 4, 2, 2)
    assert (found.low, found.high, found.absmax) == (-INF, INF, 8)
    assert (found.mean, found.std) == (pytest.approx(finite.mean()), pytest.approx(finite.std()))
    assert (held(found.positive), held(found.negative)) == ({0: 1, 1: 1, 2: 1, 3: 1}, {1: 1})


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.int4])
def test_codes_are_counted_at_both_ends_and_measured_as_real_numbers(dtype):
    low, high = (-8, 7) if dtype is ml_dtypes.int4 else (-128, 127)
    codes = np.array([low, 0, high, 1, high, 2, 3, low, low, 4]).astype(dtype)
    quant = QuantParams(dtype=np.dtype(dtype).name, scale=np.float32(0.5), zero_point=1)
    found, real = take_statistics(codes, quant), 0.5 * (codes.astype(np.float64) - 1)
    assert (found.at_qmin, found.at_qmax, found.zero) == (3, 2, 1)
    assert (found.low, found.high) == (low, high)
    assert (found.mean, found.std, found.absmax) == (
        pytest.approx(real.mean()),
        pytest.approx(real.std()),
        np.abs(real).max(),
    )
    scales = QuantParams(dtype=quant.dtype, scale=np.float32([0.5, 0.25]), zero_point=np.array([1, 1]), axis=0)
    of_channels = take_statistics(codes.reshape(2, 5), scales)
    assert of_channels.mean == pytest.approx((real.reshape(2, 5) * [[1], [0.5]]).mean())


@pytest.mark.parametrize("values", [np.zeros(0, np.float32), np.full(9, NAN), np.ones(3, np.complex64)])
def test_of_no_finite_number_there_are_no_moments(values):
    found = take_statistics(values, None)
    assert found.count == values.size
    assert all(math.isnan(each) for each in (found.mean, found.std, found.l2, found.absmax, found.low))
    assert (int(found.negative.sum()), found.positive.size) == (0, EXPONENT_BINS)


def test_exponents_beyond_the_bins_are_counted_in_the_outermost():
    ends = LOWEST_EXPONENT, LOWEST_EXPONENT + EXPONENT_BINS - 1
    found = take_statistics(np.array([2.0 ** (ends[0] - 3), -(2.0 ** (ends[1] + 3)), 2.0 ** ends[0]]), None)
    assert (held(found.positive), held(found.negative)) == ({ends[0]: 2}, {ends[1]: 1})
