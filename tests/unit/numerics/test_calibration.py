"""Calibrators: the range that each is defined to choose, and what the parameters lose on the values."""

import math

import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.numerics.affine import dequantize, quantize
from qdebug.numerics.calibration import (
    CALIBRATORS,
    CalibratedRange,
    Calibrator,
    LeastSquares,
    MovingAverage,
    Percentile,
    calibrate,
    calibrate_each,
    parse_calibrator,
)
from qdebug.numerics.quant_error import QuantErrorCounter, estimate_error
from qdebug.numerics.range_histogram import RangeCounter, channel_histograms
from qdebug.numerics.scheme import SCHEMES, QuantScheme


def counted(*parts, bins=2000):
    counter = RangeCounter(bins)
    for part in parts:
        counter.add(np.asarray(part, np.float32))
    return counter.histogram()


def lossy(values, quant):
    counter = QuantErrorCounter(quant)
    counter.add(values)
    return counter.error()


@pytest.fixture
def tailed():
    return np.random.default_rng(0).standard_t(2, size=20_000).astype(np.float32)


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("kind", SCHEMES)
def test_each_has_an_answer_inside_the_values_for_every_scheme(name, kind, tailed):
    for values in (tailed, np.abs(tailed), np.maximum(tailed, 0), tailed - 100, np.full(9, 3.5), np.full(9, -2)):
        histogram = counted(values)
        quant, found = calibrate(parse_calibrator(name), histogram, QuantScheme(kind=kind))
        assert parse_calibrator(name).name == (name if name != "percentile" else "percentile:99.99")
        assert min(histogram.low, 0) <= found.low <= found.high <= max(histogram.high, 0)
        assert found.reason
        assert quant.scale[0] > 0


def test_values_that_have_no_scale_are_refused_with_a_reason():
    for name in CALIBRATORS:
        with pytest.raises(UsageError, match="1 NaN and 1 infinite"):
            calibrate(parse_calibrator(name), counted([1, math.nan, math.inf]), QuantScheme())
        with pytest.raises(UsageError, match="no values"):
            calibrate(parse_calibrator(name), counted([]), QuantScheme())
    assert calibrate_each(parse_calibrator("mse"), [counted([]), counted([2])], QuantScheme())[0] == (0.0, 0.0)


def test_the_moving_average_follows_the_samples_in_order():
    found = MovingAverage(0.5).choose(counted([-1, 1], [-3, 5], [-3, 1]), QuantScheme())
    assert (found.low, found.high) == (-2.5, 2.0)


def test_a_percentile_leaves_out_no_more_than_it_says(tailed):
    for percent in (90.0, 99.0, 99.9, 100.0):
        found = Percentile(percent).choose(counted(tailed), QuantScheme())
        outside = np.mean((tailed < found.low) | (tailed > found.high))
        assert outside <= 1 - percent / 100 + 1e-12
        width = counted(tailed).width
        cut = (100 - percent) / 200
        low, next_low = (np.quantile(tailed, cut, method=method) for method in ("lower", "higher"))
        before_high, high = (np.quantile(tailed, 1 - cut, method=method) for method in ("lower", "higher"))
        assert low - width <= found.low <= next_low
        assert before_high <= found.high <= high + width
        one = Percentile(percent).choose(counted(tailed), QuantScheme(kind="symmetric"))
        assert np.mean(np.abs(tailed) > max(-one.low, one.high)) <= 1 - percent / 100 + 1e-12


@pytest.mark.parametrize("kind", ["asymmetric", "symmetric", "power_of_two"])
@pytest.mark.parametrize("bits", [4, 8])
def test_least_squares_is_near_the_best_of_a_search(kind, bits, tailed):
    values = tailed + 1
    scheme = QuantScheme(kind=kind, bits=bits)
    quant, _ = calibrate(LeastSquares(), counted(values), scheme)
    low, high = float(values.min()), float(values.max())
    shares = np.geomspace(0.002, 1, 60)
    tried = [
        lossy(values, scheme.parameters(low * down, high * up)).mse
        for down in shares[:: 1 if kind == "asymmetric" else 60]
        for up in shares
        if kind == "asymmetric" or down
    ]
    if kind != "asymmetric":
        tried = [lossy(values, scheme.parameters(max(low, -high) * share, high * share)).mse for share in shares]
    assert lossy(values, quant).mse <= min(tried) * 1.1


def test_least_squares_counts_no_rounding_of_zeros():
    """With 99 zeros for each value, clipping saves next to nothing: 0 has a code of its own."""
    values = np.zeros(40_000, np.float32)
    values[::100] = np.random.default_rng(0).laplace(size=400)
    for kind in ("asymmetric", "symmetric"):
        found = LeastSquares().choose(counted(values), QuantScheme(kind=kind))
        kept = LeastSquares().choose(counted(values[::100]), QuantScheme(kind=kind))
        assert (found.low, found.high) == (kept.low, kept.high)


def test_the_estimate_is_near_what_is_measured(tailed):
    histogram = counted(tailed)
    for name in ("minmax", "mse", "percentile:99"):
        quant, _ = calibrate(parse_calibrator(name), histogram, QuantScheme())
        exact, near = lossy(tailed, quant), estimate_error(histogram, quant)
        assert near.mse == pytest.approx(exact.mse, rel=0.15)
        assert near.clipped_high == pytest.approx(exact.clipped_high, abs=6)
        assert near.clipped_low == pytest.approx(exact.clipped_low, abs=6)
        assert near.square_sum == pytest.approx(exact.square_sum, rel=0.01)
        assert (near.exact, exact.exact) == (False, True)


def test_the_error_is_that_of_quantize_and_dequantize(tailed):
    scheme = QuantScheme()
    channels = tailed.reshape(4, -1)
    per_channel = scheme.stacked(calibrate_each(LeastSquares(), channel_histograms(channels, 0), scheme), 0)
    for values, quant in ((tailed, scheme.parameters(-3, 5)), (channels, per_channel)):
        found = lossy(values, quant)
        codes = quantize(values, quant)
        back = dequantize(codes, quant).astype(np.float64)
        assert found.square_error == pytest.approx(np.square(back - values).sum(), rel=1e-12)
        assert found.max_abs == np.abs(back - values).max()
        assert 0 < found.clipped_low <= np.count_nonzero(codes == -128)
        assert 0 < found.clipped_high <= np.count_nonzero(codes == 127)
        assert found.total == tailed.size


def test_a_calibrator_of_ones_own_is_used_as_the_others_are():
    class AllButOne(Calibrator):
        name = "all-but-one"

        def choose(self, histogram, scheme):
            filled = histogram.edges[:-1][histogram.counts > 0]
            return CalibratedRange(low=histogram.low, high=float(filled[-1]), reason="without the last bin")

    quant, found = calibrate(AllButOne(), counted([0, 1, 2, 100]), QuantScheme(signed=False))
    assert found.high == 100.0
    assert int(quant.zero_point[0]) == 0


def test_a_calibrator_that_there_is_not_is_refused():
    for text in ("median", "percentile:much", "percentile:0", "entropy:trt", "moving-average:2"):
        with pytest.raises(UsageError):
            parse_calibrator(text)
