"""Calibrators: each chooses which range of a histogram the codes represent.

A calibrator takes a histogram and a scheme and returns a range. The scheme then computes scale and zero point from the
range. Any object with a `name` and a method `choose` is a calibrator; see `Calibrator`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.quant import QuantParams
from qdebug.numerics.entropy import EntropyChoice, entropy_range, mxnet_threshold, ort_threshold
from qdebug.numerics.range_histogram import RangeHistogram
from qdebug.numerics.scheme import QuantScheme

__all__ = [
    "CALIBRATORS",
    "RANGE_ALONE",
    "CalibratedRange",
    "Calibrator",
    "Entropy",
    "LeastSquares",
    "MinMax",
    "MovingAverage",
    "Percentile",
    "calibrate",
    "calibrate_each",
    "parse_calibrator",
]


RANGE_ALONE = "only their ranges are known, so minmax and moving-average can choose, but no error is known"
"""The message for values of which only statistics were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedRange:
    """The range that a calibrator chose.

    Args:
        low: Lower end in real units.
        high: Upper end.
        score: The quantity that was minimized; None if the calibrator does not minimize.
        unit: Unit of the score, such as "nats" or "mean squared error".
        reason: One clause about the choice.
    """

    low: float
    high: float
    score: float | None = None
    unit: str = ""
    reason: str = ""


class Calibrator(Protocol):
    """Chooses the range that the codes represent. Subclass it, or write any class with these two members.

    Example of a calibrator that always leaves out the bin of a tensor's largest value:

        class AllButOne(Calibrator):
            name = "all-but-one"

            def choose(self, histogram, scheme):
                filled = histogram.edges[:-1][histogram.counts > 0]
                return CalibratedRange(low=histogram.low, high=float(filled[-1]), reason="without the last bin")
    """

    name: str
    """Its name in reports and on the command line."""

    def choose(self, histogram: RangeHistogram, scheme: QuantScheme) -> CalibratedRange:
        """Return the range for the values of a histogram.

        Args:
            histogram: A histogram with at least one value, all finite; `calibrate` rejects others.
            scheme: Computes scale and zero point from the range; `scheme.levels` is the number of codes.

        Returns:
            The range, a pure function of both arguments.

        Raises:
            UsageError: No range can be chosen; the message explains why.
        """


def calibrate(
    calibrator: Calibrator, histogram: RangeHistogram, scheme: QuantScheme
) -> tuple[QuantParams, CalibratedRange]:
    """Return the range that a calibrator chooses, and the parameters that a scheme computes from it.

    Args:
        calibrator: Chooses the range.
        histogram: The values.
        scheme: Computes scale and zero point from the range.

    Raises:
        UsageError: There are no values, some are NaN or infinite, or the calibrator cannot choose.
    """
    if histogram.nan or histogram.infinite:
        raise UsageError(
            f"{histogram.nan} NaN and {histogram.infinite} infinite values cannot be represented with any scale.",
            hint="Find where they first appear: qdebug diff REF BACKEND.",
        )
    if not histogram.total:
        raise UsageError("There are no values to calibrate with.", hint="Record the tensor with --keep full.")
    chosen = calibrator.choose(histogram, scheme)
    return scheme.parameters(chosen.low, chosen.high), chosen


class MinMax(Calibrator):
    """The whole range of the values."""

    name = "minmax"

    def choose(self, histogram: RangeHistogram, scheme: QuantScheme) -> CalibratedRange:
        """Return the smallest and the largest value."""
        del scheme
        return CalibratedRange(low=histogram.low, high=histogram.high, reason="all values")


class MovingAverage(Calibrator):
    """The exponential moving average of the samples' ranges, in order: low += rate * (sample_low - low).

    The formula is PyTorch's `MovingAverageMinMaxObserver`, with a rate of 0.01.

    Args:
        rate: Weight of each sample's range, above 0 up to 1.
    """

    def __init__(self, rate: float = 0.01) -> None:
        self.rate = _check_number(rate, 0.0, 1.0, "The rate of a moving average")
        self.name = "moving-average" if rate == 0.01 else f"moving-average:{rate:g}"

    def choose(self, histogram: RangeHistogram, scheme: QuantScheme) -> CalibratedRange:
        """Return the averages."""
        del scheme
        ranges = histogram.ranges[~np.isnan(histogram.ranges).any(axis=1)]
        low, high = (float(end) for end in ranges[0])
        for sample_range in ranges[1:]:
            low, high = low + self.rate * (sample_range[0] - low), high + self.rate * (sample_range[1] - high)
        return CalibratedRange(low=low, high=high, reason=f"the average of {len(ranges)} samples")


class Percentile(Calibrator):
    """The range that contains a given share of the values. It begins and ends at the edges of bins.

    Asymmetric schemes cut half of the remainder on each side. Schemes with a single threshold cut the largest
    magnitudes.

    Args:
        percent: The share to keep, above 0 up to 100.
    """

    def __init__(self, percent: float = 99.99) -> None:
        self.percent = _check_number(percent, 0.0, 100.0, "A percentile")
        self.name = f"percentile:{percent:g}"

    def choose(self, histogram: RangeHistogram, scheme: QuantScheme) -> CalibratedRange:
        """Return the smallest range of whole bins that cuts no more than the remainder."""
        _refuse_coarse(histogram, self.name)
        max_cut_share = 1.0 - self.percent / 100.0
        reason = f"{self.percent:g} % of the values"
        if scheme.has_one_threshold(histogram.low):
            counts, width = histogram.mirrored()
            half = counts.size // 2
            folded = counts[half:] + counts[:half][::-1]
            end = (_last_bin_to_keep(folded, max_cut_share) + 1) * width
            return _clip_to_values(histogram, -end, end, reason=reason)
        edges = histogram.edges
        share = max_cut_share / 2.0 if histogram.low < 0.0 else max_cut_share
        high = edges[_last_bin_to_keep(histogram.counts, share) + 1]
        low = (
            edges[histogram.counts.size - 1 - _last_bin_to_keep(histogram.counts[::-1], share)]
            if histogram.low < 0.0
            else 0.0
        )
        return _clip_to_values(histogram, float(low), float(high), reason=reason)


def _last_bin_to_keep(counts: np.ndarray, max_cut_share: float) -> int:
    """Return the first bin above which at most a given share of all counts lies."""
    above = counts.sum() - np.cumsum(counts)
    return int(np.argmax(above <= max_cut_share * counts.sum()))


class LeastSquares(Calibrator):
    """The range with the least mean squared error of quantized values: rounding inside, clipping outside.

    Rounding adds scale**2 / 12 on average, except for 0, which has an exact code. A clipped value adds the squared
    distance from its bin's center to the end of the range. Both are computed from prefix sums, so that all ranges of
    whole bins are compared at once. If both ends are free, they are searched on a coarse grid first, then around its
    best point.
    """

    name = "mse"

    def choose(self, histogram: RangeHistogram, scheme: QuantScheme) -> CalibratedRange:
        """Return the range of whole bins with the least error; the widest if several are equal."""
        _refuse_coarse(histogram, self.name)
        if scheme.has_one_threshold(histogram.low):
            counts, width = histogram.mirrored()
            half = counts.size // 2
            folded = counts[half:] + counts[:half][::-1]
            reach = scheme.qmax - scheme.middle
            scale = np.arange(1, half + 1) * (width / reach)
            if scheme.kind == "power_of_two":
                scale = np.exp2(np.ceil(np.log2(scale)))
            ends = scale * reach
            inside = folded.sum() - histogram.zeros
            error = (_clipping_errors(folded, width, ends) + inside * scale**2 / 12.0) / histogram.total
            best = _last_minimum(error)
            return _clip_to_values(
                histogram,
                -float(ends[best]),
                float(ends[best]),
                score=float(error[best]),
                unit="mean squared error",
                reason="least error of one threshold",
            )
        return self._choose_two_ends(histogram, scheme)

    def _choose_two_ends(self, histogram: RangeHistogram, scheme: QuantScheme) -> CalibratedRange:
        width, zero = histogram.width, -histogram.first
        up = histogram.counts[zero:]
        down = histogram.counts[:zero][::-1]
        above = _clipping_errors(up, width, np.arange(up.size + 1) * width)
        below = _clipping_errors(down, width, np.arange(down.size + 1) * width)
        inside = histogram.total - histogram.zeros

        def error(downs: np.ndarray, ups: np.ndarray) -> np.ndarray:
            scale = (downs[:, np.newaxis] + ups) * (width / (scheme.levels - 1))
            return np.asarray(below[downs][:, np.newaxis] + above[ups] + inside * scale**2 / 12.0)

        stride = max(1, (max(up.size, down.size) - 1) // _GRID + 1)
        downs, ups = _candidate_ends(down.size, stride), _candidate_ends(up.size, stride)
        while True:
            errors = error(downs, ups)
            if not downs[-1] + ups[-1]:  # all values are 0
                return CalibratedRange(low=0.0, high=0.0, score=0.0, unit="mean squared error", reason="all are 0")
            errors[(downs[:, np.newaxis] + ups) == 0] = np.inf
            row, column = np.unravel_index(_last_minimum(errors.reshape(-1)), errors.shape)
            first, second = int(downs[row]), int(ups[column])
            if stride == 1:
                break
            downs, ups = _neighbouring_ends(first, stride, down.size), _neighbouring_ends(second, stride, up.size)
            stride = 1
        return _clip_to_values(
            histogram,
            -first * width,
            second * width,
            score=float(errors[row, column]) / histogram.total,
            unit="mean squared error",
            reason="least error of two ends",
        )


_GRID = 256


def _candidate_ends(size: int, stride: int) -> np.ndarray:
    return np.unique(np.append(np.arange(0, size + 1, stride), size))


def _neighbouring_ends(index: int, stride: int, size: int) -> np.ndarray:
    return np.arange(max(index - stride, 0), min(index + stride, size) + 1)


def _clipping_errors(counts: np.ndarray, width: float, ends: np.ndarray) -> np.ndarray:
    """Return the squared error of clipping counts in bins from 0 up, for each of several range ends."""
    middles = (np.arange(counts.size) + 0.5) * width
    sums = np.zeros((3, counts.size + 1))
    for row, values in zip(sums, (counts, counts * middles, counts * middles**2), strict=True):
        row[:-1] = np.cumsum(values[::-1])[::-1]
    first = np.minimum(np.ceil(ends / width - 0.5).astype(np.int64), counts.size)
    number, linear, square = sums[:, np.maximum(first, 0)]
    return np.asarray(np.maximum(square - 2.0 * ends * linear + ends**2 * number, 0.0))


def _last_minimum(values: np.ndarray) -> int:
    return int(np.flatnonzero(values == values.min())[-1])


class Entropy(Calibrator):
    """The threshold that loses the least information, see `qdebug.numerics.entropy`.

    Args:
        variant: "" for this package's definition, "mxnet" or "ort" for the loops of MXNet and ONNX Runtime.
    """

    def __init__(self, variant: str = "") -> None:
        if variant not in ("", "mxnet", "ort"):
            raise UsageError(
                f"Unknown entropy variant {variant!r}.", hint="Choose entropy, entropy:mxnet or entropy:ort."
            )
        self.variant = variant
        self.name = f"entropy:{variant}" if variant else "entropy"

    def choose(self, histogram: RangeHistogram, scheme: QuantScheme) -> CalibratedRange:
        """Return the range of the window with the least divergence."""
        _refuse_coarse(histogram, self.name)
        if histogram.low == histogram.high or not self.variant:
            return self._choose_by_own_definition(histogram, scheme)
        if self.variant == "mxnet":
            counts, width = histogram.mirrored(center=True)
            doubled = histogram.low >= 0.0 and not scheme.signed
            window = mxnet_threshold(
                counts, scheme.levels * 2 - 1 if doubled else scheme.levels - (scheme.levels + 1) % 2
            )
            end = (window.stop - counts.size / 2.0) * width
            return _clip_to_values(
                histogram, -end, end, score=window.divergence, unit="nats", reason=_reason_text(window)
            )
        counts, width = histogram.mirrored()
        window = ort_threshold(counts)
        middle = counts.size // 2
        low, high = (window.start - middle) * width, (window.stop - middle) * width
        return _clip_to_values(histogram, low, high, score=window.divergence, unit="nats", reason=_reason_text(window))

    @staticmethod
    def _choose_by_own_definition(histogram: RangeHistogram, scheme: QuantScheme) -> CalibratedRange:
        if histogram.low == histogram.high:
            return CalibratedRange(
                low=histogram.low, high=histogram.high, score=0.0, unit="nats", reason="all values are the same"
            )
        zero = -histogram.first
        counts = histogram.counts
        if scheme.has_one_threshold(histogram.low):
            counts, _ = histogram.mirrored()
            zero = counts.size // 2
        window = entropy_range(counts, zero, scheme.levels)
        low, high = (window.start - zero) * histogram.width, (window.stop - zero) * histogram.width
        if scheme.has_one_threshold(histogram.low) and window.windows:
            end = max(-low, high)
            return _clip_to_values(
                histogram, -end, end, score=window.divergence, unit="nats", reason=_reason_text(window)
            )
        return _clip_to_values(histogram, low, high, score=window.divergence, unit="nats", reason=_reason_text(window))


def _reason_text(window: EntropyChoice) -> str:
    if not window.windows:
        return "all values, because the histogram has fewer bins than the scheme has codes"
    return f"least divergence of {window.windows} windows"


def _refuse_coarse(histogram: RangeHistogram, name: str) -> None:
    if histogram.coarse:
        raise UsageError(
            f"{name} needs the distribution of the values, which statistics do not provide.",
            hint="Record the values with --keep full, or count them: qdebug scales profile MODEL --backend NAME.",
        )


def _clip_to_values(
    histogram: RangeHistogram, low: float, high: float, *, score: float | None = None, unit: str = "", reason: str
) -> CalibratedRange:
    """Clip a range to that of the values and 0, since the edges of bins extend beyond the values."""
    low, high = max(low, min(histogram.low, 0.0)), min(high, max(histogram.high, 0.0))
    return CalibratedRange(low=low, high=high, score=score, unit=unit, reason=reason)


def _check_number(value: float, minimum: float, maximum: float, title: str) -> float:
    if not (math.isfinite(value) and minimum < value <= maximum):
        raise UsageError(f"{title} must be above {minimum:g} and at most {maximum:g}, but is {value:g}.")
    return value


CALIBRATORS: Mapping[str, tuple[Callable[..., Calibrator], str]] = MappingProxyType(
    {
        "minmax": (MinMax, "the whole range"),
        "moving-average": (MovingAverage, "average of the samples' ranges; moving-average:RATE (0.01)"),
        "percentile": (Percentile, "the range of a share of the values; percentile:PERCENT (99.99)"),
        "mse": (LeastSquares, "least mean squared error (L2)"),
        "entropy": (Entropy, "least divergence (KL), finite for all values, the wider of equal ranges"),
        "entropy:mxnet": (lambda: Entropy("mxnet"), "the threshold of Apache MXNet's loop"),
        "entropy:ort": (lambda: Entropy("ort"), "the threshold of ONNX Runtime's loop, 128 quantized bins"),
    }
)
"""Calibrators by name: constructor and description."""


def parse_calibrator(text: str) -> Calibrator:
    """Return a calibrator from its text, such as "minmax" or "percentile:99.9".

    Raises:
        UsageError: The calibrator does not exist, or its number is invalid.
    """
    if text in CALIBRATORS:
        return CALIBRATORS[text][0]()
    name, _, number = text.partition(":")
    if name not in ("percentile", "moving-average"):
        raise UsageError(f"Unknown calibrator {text!r}.", hint=f"Choose one of {', '.join(CALIBRATORS)}.")
    try:
        value = float(number)
    except ValueError:
        raise UsageError(f"{number!r} in {text!r} is not a number.", hint=f"Write {name}:NUMBER.") from None
    return CALIBRATORS[name][0](value)


def calibrate_each(
    calibrator: Calibrator, histograms: Sequence[RangeHistogram], scheme: QuantScheme
) -> list[tuple[float, float]]:
    """Return the range of each histogram, for `QuantScheme.stacked`; (0, 0) for an empty channel.

    Raises:
        UsageError: A histogram has NaN or infinite values, or the calibrator cannot choose.
    """
    ranges = []
    for histogram in histograms:
        if not histogram.total and not (histogram.nan or histogram.infinite):
            ranges.append((0.0, 0.0))
            continue
        _, chosen = calibrate(calibrator, histogram, scheme)
        ranges.append((chosen.low, chosen.high))
    return ranges
