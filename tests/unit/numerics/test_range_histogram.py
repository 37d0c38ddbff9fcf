"""Histograms anchored at 0: exact counts whatever the order, in bins that are powers of two."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.range_histogram import RangeCounter, channel_histograms, merge_histograms

PARTS = st.lists(st.lists(st.floats(width=32), max_size=12), min_size=1, max_size=5)


def counted(*parts, bins=50, dtype=np.float32):
    counter = RangeCounter(bins)
    for part in parts:
        counter.add(np.array(part, dtype))
    return counter.histogram()


def facts(found):
    return (
        found.exponent,
        found.first,
        found.counts.tolist(),
        found.zeros,
        found.nan,
        found.infinite,
        repr((found.low, found.high)),
    )


@settings(deadline=None)
@given(PARTS)
def test_counts_are_those_of_the_values_in_any_order_merged_or_not(parts):
    found = counted(*parts)
    values = np.concatenate([np.array(part, np.float32) for part in parts])
    finite = values[np.isfinite(values)].astype(np.float64)
    if finite.size:
        expected = np.floor(np.ldexp(finite, -found.exponent))
        assert found.counts.tolist() == [
            int(np.count_nonzero(expected == place)) for place in range(found.first, found.first + found.counts.size)
        ]
        assert found.first <= 0 < found.first + found.counts.size <= found.first + 50
    assert found.total == finite.size
    assert found.nan + found.infinite == values.size - finite.size
    assert facts(counted(*reversed(parts))) == facts(found)
    assert facts(merge_histograms([counted(part) for part in parts])) == facts(found)
    assert facts(merge_histograms([counted(part) for part in reversed(parts)])) == facts(found)


def test_bins_are_as_narrow_as_the_range_allows():
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=5000), np.abs(rng.normal(size=5000)), rng.normal(size=2 * BLOCK + 7) - 9):
        found = counted(values, bins=2000)
        assert 1000 <= found.counts.size <= 2000
        assert np.array_equal(found.counts, np.histogram(values.astype(np.float32).astype(np.float64), found.edges)[0])
        assert found.square_sum == pytest.approx(np.square(values).sum(), rel=1e-3)


def test_an_end_of_the_range_on_an_end_of_a_bin_is_counted():
    found = counted([0.0, 4.0, 8.0, -8.0], bins=4)
    assert (found.width, found.first, found.counts.tolist()) == (8.0, -1, [1, 2, 1])


def test_tiny_and_huge_values_are_in_the_right_bin():
    tiny = np.float32(-1e-45)
    found = counted([tiny, 1e38, 0.0], bins=2000)
    assert (found.counts[0], found.first, found.counts.sum()) == (1, -1, 3)
    assert counted([1e300, -1e-300], dtype=np.float64).counts.sum() == 2
    assert counted([tiny]).low == tiny


def test_codes_are_counted_as_their_real_values():
    codes = np.arange(-128, 128).astype(np.int8)
    counter = RangeCounter()
    counter.add(codes, QuantParams(dtype="int8", scale=0.5, zero_point=-128))
    found = counter.histogram()
    assert (found.low, found.high, found.first, found.zeros, found.total) == (0.0, 127.5, 0, 1, 256)


def test_the_range_of_each_sample_is_kept_in_order():
    found = merge_histograms([counted([1, 2], [-3, 0]), counted([math.nan]), counted([5])])
    assert np.array_equal(found.ranges, [[1, 2], [-3, 0], [math.nan] * 2, [5, 5]], equal_nan=True)


def test_nothing_is_nothing():
    found = counted([], [math.nan, math.inf])
    assert (found.total, found.nan, found.infinite, found.counts.size) == (0, 1, 1, 0)
    assert math.isnan(found.low)
    assert merge_histograms([found, counted([2.0])]).total == 1
    zeros = counted([0.0, -0.0])
    assert (zeros.zeros, zeros.counts.tolist(), zeros.first) == (2, [2], 0)


def test_bins_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="at most 40, 50 bins"):
        merge_histograms([counted([1]), counted([1], bins=40)])
    with pytest.raises(UsageError, match="from 2"):
        RangeCounter(1)


def test_mirrored_bins_hold_all_counts_with_0_between_or_in_the_middle():
    values = np.random.default_rng(1).normal(size=3000) + 1
    found = counted(values, bins=200)
    for center in (False, True):
        counts, width = found.mirrored(center=center)
        edges = (np.arange(counts.size + 1) - counts.size / 2) * width
        assert counts.size % 2 == center
        assert np.array_equal(counts, np.histogram(values.astype(np.float32).astype(np.float64), edges)[0])


def test_channels_and_blocks_each_have_their_own():
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert [(each.low, each.high) for each in channel_histograms(values, 1)] == [(0, 15), (4, 19), (8, 23)]
    blocks = channel_histograms(values, -1, block_size=3)
    assert len(blocks) == 2 * 3 * 2
    assert [(each.low, each.high) for each in blocks[:4]] == [(0, 2), (3, 3), (4, 6), (7, 7)]
    with pytest.raises(UsageError, match="no axis 3"):
        channel_histograms(values, 3)
