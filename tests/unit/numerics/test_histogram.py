"""Histograms against numpy's, their edges, and merging."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import scratch
from qdebug.numerics.histogram import PairBinCounter, value_histogram

F32 = np.float32


@pytest.mark.parametrize("dtype", [F32, np.float64, np.float16, np.int16])
@pytest.mark.parametrize(("bins", "limits"), [(1, (0.0, 1.0)), (64, (-3.0, 3.0)), (2048, (-0.7, 1.1))])
def test_counts_equal_numpys(dtype, bins, limits):
    values = (np.random.default_rng(0).standard_normal(2 * BLOCK + 9) * 2).astype(dtype)
    found = value_histogram(values, bins, limits)
    expected, edges = np.histogram(values.astype(np.float64), bins, limits)
    assert np.array_equal(found.counts, expected)
    assert np.array_equal(found.edges, edges)
    assert found.below == np.count_nonzero(values.astype(np.float64) < limits[0])
    assert found.total == values.size


@drawn(60)
@given(
    bins=st.integers(1, 40),
    low=st.floats(-100, 100),
    width=st.floats(1e-3, 100),
    steps=st.lists(st.integers(-3, 43), max_size=40),
)
def test_values_on_an_edge_are_in_the_upper_bin_but_for_the_last(bins, low, width, steps):
    high = low + width
    edges = np.linspace(low, high, bins + 1)
    values = np.array([edges[min(max(s, 0), bins)] for s in steps], np.float64)
    found = value_histogram(values, bins, (low, high))
    assert found.below == found.above == 0
    for place, count in enumerate(found.counts):
        last = values == edges[bins] if place == bins - 1 else np.zeros(values.size, bool)
        assert count == np.count_nonzero((values >= edges[place]) & (values < edges[place + 1]) | last)


def test_every_element_has_a_place():
    found = value_histogram(F32([math.nan, math.inf, -math.inf, -5.0, 5.0, 0.0, -1.0, 1.0]), 2, (-1.0, 1.0))
    assert (found.below, found.above, found.nan, found.counts.tolist()) == (2, 2, 1, [1, 2])
    assert found.total == 8


def test_codes_are_counted_as_real_values():
    quant = QuantParams(dtype="int8", scale=F32(0.5), zero_point=1)
    assert value_histogram(np.int8([1, 2, 3]), 2, (0.0, 1.0), quant=quant).counts.tolist() == [1, 2]


def test_merging_adds_counts_of_the_same_bins_only():
    first, second = (value_histogram(F32([x, math.nan]), 4, (0.0, 4.0)) for x in (0.5, 9.0))
    merged = first.merge(second)
    assert (merged.counts.tolist(), merged.above, merged.nan, merged.total) == ([1, 0, 0, 0], 1, 2, 4)
    assert not merged.counts.flags.writeable
    with pytest.raises(UsageError, match="cannot be added"):
        first.merge(value_histogram(F32([0.5]), 5, (0.0, 4.0)))


@pytest.mark.parametrize(
    ("bins", "limits"),
    [(0, (0.0, 1.0)), (4, (1.0, 1.0)), (4, (0.0, math.inf)), (4, (math.nan, 1.0)), (4, (-1.5e308, 1.5e308))],
)
def test_bins_that_hold_nothing_are_refused(bins, limits):
    with pytest.raises(UsageError, match="Invalid bins"):
        value_histogram(F32([0.5]), bins, limits)


def counted_both(a, b, bins, limits, *, single):
    if single:
        a, b = a.astype(np.float32), b.astype(np.float32)
    counter = PairBinCounter(bins, limits)
    with np.errstate(all="ignore"):
        counter.add(a, b, scratch())
    return counter.histograms()


@given(
    values=st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=50),
    bins=st.integers(1, 300),
    exponent=st.integers(-120, 120),
    data=st.data(),
)
def test_two_tensors_at_once_are_counted_as_each_alone(values, bins, exponent, data):
    scale = 2.0**exponent
    with np.errstate(all="ignore"):
        a, b = (np.array(side, np.float32).astype(np.float64) for side in zip(*values, strict=True))
        if data.draw(st.booleans()):  # values that lie on the ends of bins, and next to them
            a = np.clip(np.nan_to_num(np.rint(a)), -64, 64) * np.float32(scale)
            b = np.nextafter(a.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    every = np.concatenate((a, b))
    every = every[np.isfinite(every)]
    low, high = (every.min(), every.max()) if every.size and every.min() < every.max() else (-1.0, 1.0)
    for limits in ((low, high), (low, (low + high) / 2)):
        if not limits[0] < limits[1]:
            continue
        found = counted_both(a, b, bins, limits, single=True)
        for side, histogram in zip((a, b), found, strict=True):
            alone = value_histogram(side, bins, limits)
            assert histogram.counts.tolist() == alone.counts.tolist()
            assert (histogram.below, histogram.above, histogram.nan) == (alone.below, alone.above, alone.nan)
            inside = side[(side >= limits[0]) & (side <= limits[1])]
            assert histogram.counts.tolist() == np.histogram(inside, bins, limits)[0].tolist()


@pytest.mark.parametrize("offset", [0.0, 1e6, 3e8, 1e30])
def test_a_narrow_range_far_from_zero_is_placed_in_float64(offset):
    generator = np.random.default_rng(0)
    a = (offset + generator.standard_normal(5000)).astype(np.float32).astype(np.float64)
    b = (offset + generator.standard_normal(5000)).astype(np.float32).astype(np.float64)
    limits = float(min(a.min(), b.min())), float(max(a.max(), b.max()) + (offset == 1e30))
    if limits[0] < limits[1]:
        found = counted_both(a, b, 64, limits, single=True)
        assert [h.counts.tolist() for h in found] == [np.histogram(x, 64, limits)[0].tolist() for x in (a, b)]


def test_codes_on_the_ends_of_bins_are_counted_right():
    a = np.arange(-128, 128) * float(np.float32(0.1))
    limits = float(a[0]), float(a[-1])
    for bins in (51, 85, 255, 15):
        found = counted_both(a, a, bins, limits, single=False)[0].counts.tolist()
        assert found == np.histogram(a, bins, limits)[0].tolist()


@pytest.mark.parametrize("limits", [(-3.0, 3.0), (0.0, 1.0), (1e9, 1e9 + 1e-6)])
@pytest.mark.parametrize("bins", [1, 7, 64, 500])
def test_few_elements_of_both_are_counted_as_each_alone(bins, limits):
    rows = np.random.default_rng(0).uniform(*limits, (2, 300))
    rows[0, :4] = *limits, np.nextafter(limits[0], np.inf), np.nextafter(limits[1], -np.inf)
    rows[1, :bins] = np.linspace(*limits, bins + 1)[:300][: rows[1, :bins].size]
    for values in (rows, rows + np.array([[0.0], [(limits[1] - limits[0]) / 2]])):  # and some that are in no bin
        counter = PairBinCounter(bins, limits)
        counter.add_few(values)
        for side, found in zip(values, counter.histograms(), strict=True):
            alone = value_histogram(side, bins, limits)
            assert found.counts.tolist() == alone.counts.tolist()
            assert (found.below, found.above, found.total) == (alone.below, alone.above, side.size)


def test_asking_twice_counts_once():
    counter = PairBinCounter(4, (0.0, 1.0))
    counter.add(np.float32([0.5]), np.float32([0.25]), scratch())
    assert counter.histograms()[0].counts.tolist() == counter.histograms()[0].counts.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("seed", range(8))
def test_values_beside_the_ends_of_bins_are_on_the_right_side(seed):
    generator = np.random.default_rng(seed)
    limits = float(np.float32(-generator.random() * 3)), float(np.float32(generator.random() * 5))
    edges = np.linspace(*limits, 65).astype(np.float32)
    beside = [edges]
    for towards in (-np.inf, np.inf):
        for _ in range(3):
            beside.append(np.nextafter(beside[-1], np.float32(towards)))
    values = np.clip(np.concatenate(beside).astype(np.float64), *limits)
    found = counted_both(values, values[::-1], 64, limits, single=True)
    expected = np.histogram(values, 64, limits)[0].tolist()
    assert [side.counts.tolist() for side in found] == [expected] * 2
