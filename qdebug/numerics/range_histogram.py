"""A mergeable histogram for calibration that does not depend on the order of values.

Bin k counts the values from k * w up to but excluding (k + 1) * w. The width w is the least power of two with which the
values and 0 fit in a given number of bins. When the range grows, w is doubled and bin k becomes part of bin floor(k /
2), so that no count is lost or split. The counts depend only on the values, not on the order of samples and recordings.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.kept import Statistics
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import dequantize
from qdebug.numerics.blocks import RealBlocks
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["BINS", "MOST_BINS", "RangeCounter", "RangeHistogram", "channel_histograms", "merge_histograms"]

BINS = 2000
"""Default for the maximum number of bins."""
MOST_BINS = 1 << 20
"""Upper limit for the maximum number of bins, so that float32 holds every bin number exactly."""

_LOWEST = -1000
"""Least exponent of a bin width, so that float64 values divided by the width are still finite."""
_HIGHEST = 1023
_SINGLE = 126
"""Largest power of two by which a float32 is multiplied."""
_BLOCK = 1 << 18
"""Values counted together. With fewer, starting each pass takes longer than counting."""
_ROW = 256
"""Values per row of a range. All rows share the mapping from bins to counters."""
_ALTERNATE = (np.arange(_ROW) % 2).astype(np.int16)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeHistogram:
    """Counts of values in bins anchored at 0, with additional facts for calibrators.

    Args:
        exponent: The width of a bin is 2**exponent, in real units.
        first: Number of the first bin in `counts`, which begins at first * width. Bin 0, which begins at 0, is always
            in `counts`.
        counts: Finite values in each bin, int64, read-only; their sum is the number of finite values.
        low: Smallest finite value; NaN if there is none.
        high: Largest finite value; NaN if there is none.
        zeros: Number of zeros, which are also counted in bin 0.
        nan: Number of NaN values, which are not in any bin.
        infinite: Number of infinite values, which are not in any bin.
        ranges: Smallest and largest finite value of each added array, in order: float64 (arrays, 2), read-only.
        bins: The maximum number of bins.
    """

    exponent: int
    first: int
    counts: np.ndarray
    low: float
    high: float
    zeros: int
    nan: int
    infinite: int
    ranges: np.ndarray
    bins: int = BINS

    @property
    def width(self) -> float:
        """Width of a bin in real units."""
        return math.ldexp(1.0, self.exponent)

    @property
    def coarse(self) -> bool:
        """Whether some values are known only from statistics, so that the range is exact but the bins are not."""
        return self.counts.size > 0 and self.exponent > _least_exponent(self.low, self.high, self.bins)

    @property
    def total(self) -> int:
        """Number of finite values."""
        return int(self.counts.sum())

    @property
    def square_sum(self) -> float:
        """Sum of the squares of the finite values, assuming values evenly spread over their bins and exact zeros."""
        counts = self.counts.astype(np.float64)
        if counts.size:
            counts[-self.first] -= self.zeros
        return float((counts * (self.centers**2 + self.width**2 / 12.0)).sum())

    @property
    def edges(self) -> np.ndarray:
        """Edges of the bins in real units, float64, one more than the number of bins."""
        return np.ldexp(np.arange(self.first, self.first + self.counts.size + 1, dtype=np.float64), self.exponent)

    @property
    def centers(self) -> np.ndarray:
        """Centers of the bins in real units, float64."""
        return (np.arange(self.first, self.first + self.counts.size) + 0.5) * self.width

    def mirrored(self, *, center: bool = False) -> tuple[np.ndarray, float]:
        """Return the counts in bins symmetric around 0, for calibrators with a single threshold.

        Args:
            center: Whether to center a bin at 0, which gives an odd number of bins, twice as wide.

        Returns:
            The counts, int64, and the width of a bin.
        """
        first, counts, width = self.first, self.counts, self.width
        if center:
            # Bin m covers [(2m - 1) w, (2m + 1) w): the fine bins 2m - 1 and 2m.
            coarse_bins = (np.arange(first, first + counts.size) + 1) >> 1
            start = int(coarse_bins[0])
            merged = np.zeros(int(coarse_bins[-1]) - start + 1, np.int64)
            np.add.at(merged, coarse_bins - start, counts)
            half = max(-start, start + merged.size - 1, 0)
            out = np.zeros(2 * half + 1, np.int64)
            out[half + start : half + start + merged.size] = merged
            return out, 2.0 * width
        half = max(-first, first + counts.size)
        out = np.zeros(2 * half, np.int64)
        out[half + first : half + first + counts.size] = counts
        return out, width


def _coarsen(first: int, counts: np.ndarray, times: int) -> tuple[int, np.ndarray]:
    """Return the first bin and the counts after doubling the width `times` times."""
    if not times:
        return first, counts
    times = min(times, 62)  # after 62 shifts every int64 bin is 0 or -1
    coarse_bins = np.arange(first, first + counts.size) >> times
    start = int(coarse_bins[0])
    out = np.zeros(int(coarse_bins[-1]) - start + 1, np.int64)
    np.add.at(out, coarse_bins - start, counts)
    return start, out


def _bin_number(value: float, exponent: int) -> int:
    return math.floor(math.ldexp(value, -exponent))


def _least_exponent(low: float, high: float, bins: int) -> int:
    """Return the least exponent with which low, 0 and high fit in a number of bins."""
    low, high = min(low, 0.0), max(high, 0.0)
    largest = max(-low, high)
    if not largest:
        return _LOWEST
    exponent = max(math.frexp(largest)[1] - math.frexp(float(bins))[1] - 1, _LOWEST)
    while _bin_number(high, exponent) - _bin_number(low, exponent) >= bins and exponent < _HIGHEST:
        exponent += 1
    return exponent


def _side_exponent(low: float, high: float) -> int:
    """Return the least exponent that puts all negative values in one bin and all others in the next."""
    largest = max(-low, high)
    return max(math.frexp(largest)[1], _LOWEST) if largest else _LOWEST


def merge_histograms(histograms: Sequence[RangeHistogram]) -> RangeHistogram:
    """Return the merged histogram.

    Args:
        histograms: At least one; all with the same maximum number of bins.

    Raises:
        UsageError: There is no histogram, or their maximum numbers of bins differ.
    """
    sizes = sorted({histogram.bins for histogram in histograms})
    if len(sizes) != 1:
        raise UsageError(
            f"Histograms of at most {', '.join(map(str, sizes)) or 'no'} bins cannot be merged.",
            hint="Profile all recordings with the same --bins.",
        )
    with np.errstate(all="ignore"):
        low = float(np.fmin.reduce([histogram.low for histogram in histograms]))
        high = float(np.fmax.reduce([histogram.high for histogram in histograms]))
    filled = [histogram for histogram in histograms if histogram.counts.size]
    exponent, first, counts = _LOWEST, 0, np.zeros(0, np.int64)
    if filled:
        # Bins are powers of two wide and start at 0, so a finer histogram becomes a coarser one by adding neighbouring
        # bins: counts stay exact, and the order of merging does not matter.
        exponent = max(_least_exponent(low, high, sizes[0]), *(histogram.exponent for histogram in filled))
        coarse = [_coarsen(histogram.first, histogram.counts, exponent - histogram.exponent) for histogram in filled]
        first = min(start for start, _ in coarse)
        counts = np.zeros(max(start + part.size for start, part in coarse) - first, np.int64)
        for start, part in coarse:
            counts[start - first : start - first + part.size] += part
    counts.flags.writeable = False
    ranges = np.concatenate([histogram.ranges for histogram in histograms])
    ranges.flags.writeable = False
    return RangeHistogram(
        exponent=exponent,
        first=first,
        counts=counts,
        low=low,
        high=high,
        zeros=sum(histogram.zeros for histogram in histograms),
        nan=sum(histogram.nan for histogram in histograms),
        infinite=sum(histogram.infinite for histogram in histograms),
        ranges=ranges,
        bins=sizes[0],
    )


class _Buffers(threading.local):
    """Per-thread buffers for a range of values, since allocating memory would cost as much as counting."""

    def __init__(self) -> None:
        self.single, self.real, self.scaled = (np.empty(_BLOCK, kind) for kind in ("f4", "f8", "f8"))
        self.bin_numbers = np.empty(_BLOCK, np.int32)


_buffers = _Buffers()


def _choose_lanes(first: int, size: int) -> tuple[int, np.ndarray]:
    """Return the number of counters per bin, and the offsets that map bin numbers of a row to counters.

    Each bin has two counters if no value is negative and bin numbers fit in 16 bits. Such tensors contain many zeros,
    and a processor stalls on a counter that it has just changed, so neighbours use different counters.
    """
    max_count = np.iinfo(np.int16).max
    if not first and 2 * size <= max_count:
        return 2, _ALTERNATE * np.int16(size)
    return 1, np.array(-first, np.int16 if size <= max_count else np.int32)


class RangeCounter:
    """Counts the values of a tensor, sample by sample.

    Args:
        bins: Maximum number of bins, from 2 to `MOST_BINS`.

    Raises:
        UsageError: The number is out of range.
    """

    def __init__(self, bins: int = BINS) -> None:
        if not 2 <= bins <= MOST_BINS:
            raise UsageError(f"A histogram has from 2 to {MOST_BINS} bins, not {bins}.")
        self._bins = bins
        self._exponent = _LOWEST
        self._first, self._counts = 0, np.zeros(0, np.int64)
        self._low, self._high = math.nan, math.nan
        self._zeros = self._nan = self._infinite = 0
        self._lanes, self._offsets = _choose_lanes(0, 0)
        self._ranges: list[tuple[float, float]] = []
        self._sample_range = math.nan, math.nan

    def add(self, values: np.ndarray | Statistics, quant: QuantParams | None = None) -> None:
        """Count the values of one sample.

        Args:
            values: Stored elements of any shape, or their statistics, without infinities. Statistics determine only the
                range, the zeros and the signs, so that there is one bin on each side of 0.
            quant: Quantization of the elements; None for real numbers. Statistics need a single scale.

        Raises:
            UsageError: The elements are not real numbers, or the quantization does not match their shape.
        """
        if isinstance(values, Statistics):
            self._add_statistics(values, quant)
            return
        blocks = RealBlocks(values, quant)
        self._sample_range = math.nan, math.nan
        with np.errstate(all="ignore"):
            for start in range(0, blocks.size, _BLOCK):
                checkpoint()
                stop = min(start + _BLOCK, blocks.size)
                if blocks.single:
                    self._add(blocks.read_single(start, stop, _buffers.single))
                else:
                    self._add(blocks.read_double(start, stop, _buffers.real, _buffers.single))
        self._ranges.append((self._sample_range[0] + 0.0, self._sample_range[1] + 0.0))

    def _add_statistics(self, statistics: Statistics, quant: QuantParams | None) -> None:
        self._nan += statistics.nan
        count = statistics.count - statistics.nan
        if not count:
            self._ranges.append((math.nan, math.nan))
            return
        ends = np.array([statistics.low, statistics.high])
        low, high = map(float, ends if quant is None else dequantize(ends.astype(np.int64), quant))
        self._ranges.append((low + 0.0, high + 0.0))
        self._exponent = max(self._exponent, _side_exponent(low, high))
        self._low, self._high = float(np.fmin(low, self._low)) + 0.0, float(np.fmax(high, self._high)) + 0.0
        self._grow()
        negative, positive = int(statistics.negative.sum()), int(statistics.positive.sum())
        self._zeros += count - negative - positive
        self._counts[-self._first] += count - negative
        if negative:
            self._counts[-self._first - 1] += negative

    def _add(self, x: np.ndarray) -> None:
        """Count a range of values, 1-D float32 or float64, not empty."""
        low, high = float(x.min()), float(x.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            x = self._drop_nonfinite(x)
            if not x.size:
                return
            low, high = float(x.min()), float(x.max())
        self._sample_range = min(low, self._sample_range[0]), max(high, self._sample_range[1])
        if not (self._low <= low and high <= self._high):  # also true at first, when the range is NaN
            # Adding 0.0 turns -0.0 into 0.0, so that the range does not depend on the order of values.
            self._low, self._high = min(low, self._low) + 0.0, max(high, self._high) + 0.0
            self._grow()
        zero = _buffers.bin_numbers.view(np.bool_)[: x.size]
        self._zeros += int(np.count_nonzero(np.equal(x, 0.0, out=zero)))
        # Multiplying by a power of two is exact, unless a float32 underflows or the factor exceeds float32.
        if x.dtype == np.float32 and not 0 <= -self._exponent <= _SINGLE:
            x = x.astype(np.float64)
        scaled = _buffers.scaled.view(x.dtype)[: x.size]
        np.multiply(x, x.dtype.type(math.ldexp(1.0, -self._exponent)), out=scaled)
        if self._first < 0:
            np.floor(scaled, out=scaled)
        # The cast truncates, which rounds down if no value is negative.
        bin_indices = _buffers.bin_numbers.view(self._offsets.dtype)
        np.copyto(bin_indices[: x.size], scaled, casting="unsafe")
        rows = bin_indices[: -(-x.size // _ROW) * _ROW].reshape(-1, _ROW)
        rows += self._offsets
        counts = np.bincount(bin_indices[: x.size], minlength=self._counts.size * self._lanes)
        for lane in range(self._lanes):
            self._counts += counts[lane * self._counts.size :][: self._counts.size]

    def _drop_nonfinite(self, x: np.ndarray) -> np.ndarray:
        """Return the finite values, and count the others."""
        finite = np.isfinite(x)
        nan_count = int(np.count_nonzero(np.isnan(x)))
        self._nan += nan_count
        self._infinite += x.size - int(np.count_nonzero(finite)) - nan_count
        return np.asarray(x[finite])

    def _grow(self) -> None:
        exponent = max(_least_exponent(self._low, self._high, self._bins), self._exponent)
        first, last = _bin_number(min(self._low, 0.0), exponent), _bin_number(max(self._high, 0.0), exponent)
        counts = np.zeros(last - first + 1, np.int64)
        if self._counts.size:
            start, before = _coarsen(self._first, self._counts, exponent - self._exponent)
            counts[start - first : start - first + before.size] = before
        self._exponent, self._first, self._counts = exponent, first, counts
        self._lanes, self._offsets = _choose_lanes(first, counts.size)

    def histogram(self) -> RangeHistogram:
        """Return the counts so far."""
        counts = self._counts.copy()
        ranges = np.array(self._ranges, np.float64).reshape(-1, 2)
        counts.flags.writeable = ranges.flags.writeable = False
        return RangeHistogram(
            exponent=self._exponent,
            first=self._first,
            counts=counts,
            low=self._low,
            high=self._high,
            zeros=self._zeros,
            nan=self._nan,
            infinite=self._infinite,
            ranges=ranges,
            bins=self._bins,
        )


def channel_histograms(
    values: np.ndarray, axis: int, *, quant: QuantParams | None = None, block_size: int | None = None, bins: int = BINS
) -> list[RangeHistogram]:
    """Count the values of each channel of a tensor, or of each block along an axis.

    Args:
        values: Stored elements of any shape with at least one dimension.
        axis: The channel axis, or the axis of blocks.
        quant: Quantization of the elements; None for real numbers.
        block_size: Elements along the axis that share a scale, with separate scales at other indices; None for
            channels.
        bins: Maximum number of bins of each histogram.

    Returns:
        For channels, one histogram per channel in order. For blocks, one histogram per entry of the scale tensor in C
        order. The scale tensor has the shape of `values` with the extent of the axis divided by the block size, rounded
        up.

    Raises:
        UsageError: The tensor does not have that axis.
    """
    values = np.asarray(values)
    if not -values.ndim <= axis < values.ndim:
        raise UsageError(f"A tensor of shape {values.shape} has no axis {axis}.")
    values = dequantize(values, quant)
    channels_first = np.moveaxis(values, axis, 0)
    if block_size is None:
        parts: list[np.ndarray] = list(channels_first)
    else:
        axis %= values.ndim
        other_extents = values.shape[:axis] + values.shape[axis + 1 :]
        count = -(-values.shape[axis] // block_size)
        parts = []
        for block_index in np.ndindex(*values.shape[:axis], count, *values.shape[axis + 1 :]):
            other_index = block_index[:axis] + block_index[axis + 1 :]
            start = block_index[axis] * block_size
            parts.append(
                channels_first[(slice(start, start + block_size), *other_index)]
                if other_extents
                else channels_first[start:][:block_size]
            )
    histograms = []
    for part in parts:
        counter = RangeCounter(bins)
        counter.add(np.ascontiguousarray(part))
        histograms.append(counter.histogram())
    return histograms
