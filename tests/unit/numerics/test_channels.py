"""The error of each channel, against rational arithmetic and the metrics of one channel alone."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import UsageError
from qdebug.numerics import channels
from qdebug.numerics.channels import ChannelCounter, channel_stretches

BLOCK = 12


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(channels, "BLOCK", BLOCK)


def errors_of(a, b, axis):
    counter = ChannelCounter(a.shape, axis)
    x, y = a.reshape(-1), b.reshape(-1)
    with np.errstate(all="ignore"):
        for stretch in channel_stretches(a.shape, axis):
            sides = x[stretch.start : stretch.stop], y[stretch.start : stretch.stop]
            finite = np.isfinite(sides[0]) & np.isfinite(sides[1])
            counter.add(stretch, sides, np.abs(sides[1] - sides[0]), None if finite.all() else finite)
    return counter.errors()


SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


@drawn(100)
@given(shape=SHAPES, data=st.data())
def test_stretches_hold_every_element_once_and_know_its_channel(shape, data):
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    expected = np.zeros(shape, int)
    if axis is not None:
        expected += np.arange(shape[axis]).reshape([-1 if d == axis % len(shape) else 1 for d in range(len(shape))])
    flat, position = expected.reshape(-1), 0
    for stretch in channel_stretches(shape, axis):
        assert stretch.start == position
        assert 0 < stretch.stop - stretch.start <= BLOCK
        block = flat[stretch.start : stretch.stop].reshape(stretch.rows, stretch.channels, stretch.inner)
        assert np.array_equal(block[0, :, 0], np.arange(stretch.first, stretch.first + stretch.channels))
        assert (block == block[:1, :, :1]).all()
        position = stretch.stop
    assert position == flat.size


EVERYDAY = st.integers(-300, 300).map(lambda n: n / 16)
ANY = st.one_of(EVERYDAY, st.floats(), st.sampled_from([1e308, -1e308, 1e-300, 5e-324, 1e200, math.nan, math.inf]))


@drawn(150)
@given(shape=SHAPES.filter(lambda s: math.prod(s) <= 60), data=st.data(), values=st.sampled_from([EVERYDAY, ANY]))
def test_each_channel_matches_exact_arithmetic(shape, data, values):
    size = math.prod(shape)
    axis = data.draw(st.integers(0, len(shape) - 1))
    a, b = (np.array(data.draw(st.lists(values, min_size=size, max_size=size))).reshape(shape) for _ in range(2))
    found = errors_of(a, b, axis)
    assert found.axis == axis
    for channel in range(shape[axis]):
        ours, theirs = (np.take(side, channel, axis).reshape(-1).tolist() for side in (a, b))
        good = [
            (Fraction(x), Fraction(y))
            for x, y in zip(ours, theirs, strict=True)
            if math.isfinite(x) and math.isfinite(y)
        ]
        alone = sum(
            not (math.isfinite(x) and math.isfinite(y)) and not (x == y or (math.isnan(x) and math.isnan(y)))
            for x, y in zip(ours, theirs, strict=True)
        )
        assert found.nonfinite[channel] == alone
        if alone or not good:
            assert np.isnan([found.rmse[channel], found.sqnr_db[channel]]).all()
            assert found.max_abs[channel] == math.inf if alone else np.isnan(found.max_abs[channel])
            continue
        check([y - x for x, y in good], [x for x, _ in good], found, channel)


def check(errors, references, found, channel):
    largest = max(map(abs, errors))
    assert found.max_abs[channel] == (math.inf if largest >= Fraction(2) ** 1024 else float(largest))
    squares, signal = (sum(x * x for x in side) for side in (errors, references))
    rmse = Fraction(0) if math.isinf(found.rmse[channel]) else Fraction(float(found.rmse[channel]))
    if rmse or not squares:
        slack = Fraction(2) ** -1073
        low, high = (max(rmse * (1 + sign * Fraction(2) ** -40) + sign * slack, 0) for sign in (-1, 1))
        assert low**2 <= squares / len(errors) <= high**2
    else:
        assert squares / len(errors) > Fraction(2) ** 2046 or squares / len(errors) < Fraction(2) ** -2140
    if not squares:
        assert found.sqnr_db[channel] == math.inf
    elif not signal:
        assert found.sqnr_db[channel] == -math.inf
    else:
        exact = 10 * (log10(signal) - log10(squares))
        assert found.sqnr_db[channel] == pytest.approx(exact, rel=1e-12, abs=1e-9)


def log10(value):
    return math.log10(value.numerator) - math.log10(value.denominator)


@pytest.mark.parametrize("size", [1e-200, 1e200])
@pytest.mark.parametrize("order", [1, -1])
def test_a_stretch_of_nothing_takes_nothing_from_squares_beyond_the_exponents(size, order):
    errors = np.array([size] * BLOCK + [0.0] * BLOCK)[::order].reshape(1, -1)
    found = errors_of(np.zeros(errors.shape), errors, 0)
    assert found.rmse[0] == pytest.approx(size * math.sqrt(0.5), rel=1e-14)


def test_one_bad_channel_is_seen_that_the_whole_hides():
    a = np.ones((2, 3, 4))
    b = a.copy()
    b[1, 2] = 0.0
    found = errors_of(a, b, -2)
    assert found.axis == 1
    assert found.max_abs.tolist() == [0.0, 0.0, 1.0]
    assert found.sqnr_db.tolist() == pytest.approx([math.inf, math.inf, 10 * math.log10(2)])
    assert not found.rmse.flags.writeable


def test_an_empty_tensor_has_channels_without_values():
    found = errors_of(np.zeros((0, 3)), np.zeros((0, 3)), 1)
    assert np.isnan(found.max_abs).all()
    assert found.nonfinite.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("shape", "axis"), [((2, 3), 2), ((2, 3), -3), ((), 0)])
def test_an_axis_that_is_not_there_is_refused(shape, axis):
    with pytest.raises(UsageError, match="no axis"):
        ChannelCounter(shape, axis)
    with pytest.raises(UsageError, match="no axis"):
        list(channel_stretches(shape, axis))
