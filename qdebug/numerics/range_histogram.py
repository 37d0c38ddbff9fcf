"""A histogram of values that anything can be calibrated from: mergeable, and exact whatever came first.

Bin k counts the values from k * w up to below (k + 1) * w. The width w is a power of two, the least with which the
values and 0 take at most so many bins. When the range grows, w is doubled and bin k becomes bin floor(k / 2), which
holds all of it: no count is lost or split. The counts depend on the values alone, not on the order in which samples
and recordings came.
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
"""Bins that a histogram may take, if nobody says otherwise."""
MOST_BINS = 1 << 20
"""Bins that a histogram may take at all: float32 holds the number of each exactly."""

_LOWEST = -1000
"""Least exponent of a bin: values of float64 divided by its width are still finite."""
_HIGHEST = 1023
_SINGLE = 126
"""Largest power of two that a float32 is multiplied by."""
_BLOCK = 1 << 18
"""Values that are counted together: fewer, and starting each pass takes longer than the values do."""
_ROW = 256
"""Values in a row of a stretch: what makes numbers of counts of their bins is the same for each row."""
_ALTERNATE = (np.arange(_ROW) % 2).astype(np.int16)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeHistogram:
    """Counts of values in bins anchored at 0, and what else calibrators ask for.

    Args:
        exponent: The width of a bin is 2**exponent, in real units.
        first: Number of the first bin in `counts`; it begins at first * width. 0 is in bin 0, which `counts` holds.
        counts: Finite values in each bin, int64, read-only; their sum is the number of finite values.
        low: Smallest finite value; NaN if there is none.
        high: Largest one; NaN if there is none.
        zeros: Values that are 0; they are counted in bin 0 too.
        nan: Values that are NaN; in no bin.
        infinite: Values that are infinite; in no bin.
        ranges: Smallest and largest finite value of each array that was added, in order: float64 (arrays, 2),
            read-only.
        bins: The number of bins that the histogram may take.
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
        """Whether some of the values were known by statistics alone: then their range is exact, and little else."""
        return self.counts.size > 0 and self.exponent > _least_exponent(self.low, self.high, self.bins)

    @property
    def total(self) -> int:
        """Number of finite values."""
        return int(self.counts.sum())

    @property
    def square_sum(self) -> float:
        """Sum of the squares of the finite values, taken as spread evenly over their bins, but zeros as 0."""
        counts = self.counts.astype(np.float64)
        if counts.size:
            counts[-self.first] -= self.zeros
        return float((counts * (self.centers**2 + self.width**2 / 12.0)).sum())

    @property
    def edges(self) -> np.ndarray:
        """Ends of the bins in real units, float64, one more than there are bins."""
        return np.ldexp(np.arange(self.first, self.first + self.counts.size + 1, dtype=np.float64), self.exponent)

    @property
    def centers(self) -> np.ndarray:
        """Middles of the bins in real units, float64."""
        return (np.arange(self.first, self.first + self.counts.size) + 0.5) * self.width

    def mirrored(self, *, center: bool = False) -> tuple[np.ndarray, float]:
        """Return the counts in bins that lie symmetrically around 0, as calibrators with one threshold take them.

        Args:
            center: Have one bin with 0 in its middle, so that their number is odd; the bins are twice as wide then.

        Returns:
            The counts, int64, and the width of a bin.
        """
        first, counts, width = self.first, self.counts, self.width
        if center:
            # Bin m covers [(2m - 1) w, (2m + 1) w): the fine bins 2m - 1 and 2m.
            places = (np.arange(first, first + counts.size) + 1) >> 1
            start = int(places[0])
            merged = np.zeros(int(places[-1]) - start + 1, np.int64)
            np.add.at(merged, places - start, counts)
            half = max(-start, start + merged.size - 1, 0)
            out = np.zeros(2 * half + 1, np.int64)
            out[half + start : half + start + merged.size] = merged
            return out, 2.0 * width
        half = max(-first, first + counts.size)
        out = np.zeros(2 * half, np.int64)
        out[half + first : half + first + counts.size] = counts
        return out, width


def _coarser(first: int, counts: np.ndarray, times: int) -> tuple[int, np.ndarray]:
    """Return the first bin and the counts after the width was doubled so many times."""
    if not times:
        return first, counts
    times = min(times, 62)  # every bin is 0 or -1 long before
    places = np.arange(first, first + counts.size) >> times
    start = int(places[0])
    out = np.zeros(int(places[-1]) - start + 1, np.int64)
    np.add.at(out, places - start, counts)
    return start, out


def _bin(value: float, exponent: int) -> int:
    return math.floor(math.ldexp(value, -exponent))


def _least_exponent(low: float, high: float, bins: int) -> int:
    """Return the least exponent with which low, 0 and high lie in at most so many bins."""
    low, high = min(low, 0.0), max(high, 0.0)
    largest = max(-low, high)
    if not largest:
        return _LOWEST
    exponent = max(math.frexp(largest)[1] - math.frexp(float(bins))[1] - 1, _LOWEST)
    while _bin(high, exponent) - _bin(low, exponent) >= bins and exponent < _HIGHEST:
        exponent += 1
    return exponent


def _side_exponent(low: float, high: float) -> int:
    """Return the least exponent with which all values below 0 lie in one bin, and all others in another."""
    largest = max(-low, high)
    return max(math.frexp(largest)[1], _LOWEST) if largest else _LOWEST


def merge_histograms(histograms: Sequence[RangeHistogram]) -> RangeHistogram:
    """Return the histogram of the values of several ones.

    Args:
        histograms: At least one; all may take the same number of bins.

    Raises:
        UsageError: There is none, or they may take different numbers of bins.
    """
    sizes = sorted({each.bins for each in histograms})
    if len(sizes) != 1:
        raise UsageError(
            f"Histograms of at most {', '.join(map(str, sizes)) or 'no'} bins cannot be merged.",
            hint="Profile all recordings with the same --bins.",
        )
    with np.errstate(all="ignore"):
        low = float(np.fmin.reduce([each.low for each in histograms]))
        high = float(np.fmax.reduce([each.high for each in histograms]))
    filled = [each for each in histograms if each.counts.size]
    exponent, first, counts = _LOWEST, 0, np.zeros(0, np.int64)
    if filled:
        exponent = max(_least_exponent(low, high, sizes[0]), *(each.exponent for each in filled))
        coarse = [_coarser(each.first, each.counts, exponent - each.exponent) for each in filled]
        first = min(start for start, _ in coarse)
        counts = np.zeros(max(start + part.size for start, part in coarse) - first, np.int64)
        for start, part in coarse:
            counts[start - first : start - first + part.size] += part
    counts.flags.writeable = False
    ranges = np.concatenate([each.ranges for each in histograms])
    ranges.flags.writeable = False
    return RangeHistogram(
        exponent=exponent,
        first=first,
        counts=counts,
        low=low,
        high=high,
        zeros=sum(each.zeros for each in histograms),
        nan=sum(each.nan for each in histograms),
        infinite=sum(each.infinite for each in histograms),
        ranges=ranges,
        bins=sizes[0],
    )


class _Buffers(threading.local):
    """What a stretch of values is made into, once for each thread: fresh memory would cost as much as counting."""

    def __init__(self) -> None:
        self.single, self.real, self.scaled = (np.empty(_BLOCK, kind) for kind in ("f4", "f8", "f8"))
        self.places = np.empty(_BLOCK, np.int32)


_buffers = _Buffers()


def _lanes(first: int, size: int) -> tuple[int, np.ndarray]:
    """Return how many counts each bin has, and what makes numbers of counts of a row of numbers of bins.

    Two where nothing is negative and 16 bits hold them: many values are 0 there, and a processor waits for a count that
    it has just changed. So neighbours are counted apart.
    """
    most = np.iinfo(np.int16).max
    if not first and 2 * size <= most:
        return 2, _ALTERNATE * np.int16(size)
    return 1, np.array(-first, np.int16 if size <= most else np.int32)


class RangeCounter:
    """Counts the values of a tensor, sample by sample.

    Args:
        bins: Number of bins that the histogram may take, from 2 to `MOST_BINS`.

    Raises:
        UsageError: They are fewer or more.
    """

    def __init__(self, bins: int = BINS) -> None:
        if not 2 <= bins <= MOST_BINS:
            raise UsageError(f"A histogram has from 2 to {MOST_BINS} bins, not {bins}.")
        self._bins = bins
        self._exponent = _LOWEST
        self._first, self._counts = 0, np.zeros(0, np.int64)
        self._low, self._high = math.nan, math.nan
        self._zeros = self._nan = self._infinite = 0
        self._lanes, self._offsets = _lanes(0, 0)
        self._ranges: list[tuple[float, float]] = []
        self._own = math.nan, math.nan

    def add(self, values: np.ndarray | Statistics, quant: QuantParams | None = None) -> None:
        """Count the values of one sample.

        Args:
            values: Stored elements of any shape; or statistics of them, none infinite. These tell the range, the zeros
                and the signs: there is one bin on each side of 0 then.
            quant: How the elements stand for real numbers; None if they are the numbers. One scale for statistics.

        Raises:
            UsageError: The elements are no real numbers, or the quantization does not fit their shape.
        """
        if isinstance(values, Statistics):
            self._add_statistics(values, quant)
            return
        blocks = RealBlocks(values, quant)
        self._own = math.nan, math.nan
        with np.errstate(all="ignore"):
            for start in range(0, blocks.size, _BLOCK):
                checkpoint()
                stop = min(start + _BLOCK, blocks.size)
                if blocks.single:
                    self._add(blocks.read_single(start, stop, _buffers.single))
                else:
                    self._add(blocks.read_double(start, stop, _buffers.real, _buffers.single))
        self._ranges.append((self._own[0] + 0.0, self._own[1] + 0.0))

    def _add_statistics(self, known: Statistics, quant: QuantParams | None) -> None:
        self._nan += known.nan
        count = known.count - known.nan
        if not count:
            self._ranges.append((math.nan, math.nan))
            return
        ends = np.array([known.low, known.high])
        low, high = map(float, ends if quant is None else dequantize(ends.astype(np.int64), quant))
        self._ranges.append((low + 0.0, high + 0.0))
        self._exponent = max(self._exponent, _side_exponent(low, high))
        self._low, self._high = float(np.fmin(low, self._low)) + 0.0, float(np.fmax(high, self._high)) + 0.0
        self._grow()
        negative, positive = int(known.negative.sum()), int(known.positive.sum())
        self._zeros += count - negative - positive
        self._counts[-self._first] += count - negative
        if negative:
            self._counts[-self._first - 1] += negative

    def _add(self, x: np.ndarray) -> None:
        """Count a stretch, 1-D float32 or float64, not empty."""
        low, high = float(x.min()), float(x.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            x = self._finite(x)
            if not x.size:
                return
            low, high = float(x.min()), float(x.max())
        self._own = min(low, self._own[0]), max(high, self._own[1])
        if not (self._low <= low and high <= self._high):  # true for NaN too: the first values
            # 0.0 is added so that -0.0 does not hang on the order.
            self._low, self._high = min(low, self._low) + 0.0, max(high, self._high) + 0.0
            self._grow()
        zero = _buffers.places.view(np.bool_)[: x.size]
        self._zeros += int(np.count_nonzero(np.equal(x, 0.0, out=zero)))
        # Multiplied by a power of two, exactly: only a float32 that becomes smaller than float32 holds would round.
        if x.dtype == np.float32 and not 0 <= -self._exponent <= _SINGLE:
            x = x.astype(np.float64)
        scaled = _buffers.scaled.view(x.dtype)[: x.size]
        np.multiply(x, x.dtype.type(math.ldexp(1.0, -self._exponent)), out=scaled)
        if self._first < 0:
            np.floor(scaled, out=scaled)
        # The cast rounds towards 0, which is down where nothing is negative.
        places = _buffers.places.view(self._offsets.dtype)
        np.copyto(places[: x.size], scaled, casting="unsafe")
        rows = places[: -(-x.size // _ROW) * _ROW].reshape(-1, _ROW)
        rows += self._offsets
        found = np.bincount(places[: x.size], minlength=self._counts.size * self._lanes)
        for lane in range(self._lanes):
            self._counts += found[lane * self._counts.size :][: self._counts.size]

    def _finite(self, x: np.ndarray) -> np.ndarray:
        """Return the finite ones of some values, and count the others."""
        finite = np.isfinite(x)
        lost = int(np.count_nonzero(np.isnan(x)))
        self._nan += lost
        self._infinite += x.size - int(np.count_nonzero(finite)) - lost
        return np.asarray(x[finite])

    def _grow(self) -> None:
        exponent = max(_least_exponent(self._low, self._high, self._bins), self._exponent)
        first, last = _bin(min(self._low, 0.0), exponent), _bin(max(self._high, 0.0), exponent)
        counts = np.zeros(last - first + 1, np.int64)
        if self._counts.size:
            start, before = _coarser(self._first, self._counts, exponent - self._exponent)
            counts[start - first : start - first + before.size] = before
        self._exponent, self._first, self._counts = exponent, first, counts
        self._lanes, self._offsets = _lanes(first, counts.size)

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
    """Count the values of each channel of a tensor, or of each block of so many places along an axis.

    Args:
        values: Stored elements of any shape with at least one dimension.
        axis: The channel axis, or the axis that is cut into blocks.
        quant: How the elements stand for real numbers; None if they are the numbers.
        block_size: Places along the axis that share a scale, where the other places each have their own; None for
            channels.
        bins: Number of bins that each histogram may take.

    Returns:
        One histogram for each channel in order; for blocks, one for each place of the tensor of scales in C order: its
        shape is that of `values` with the extent of the axis divided by the block size, rounded up.

    Raises:
        UsageError: The tensor has no such axis.
    """
    values = np.asarray(values)
    if not -values.ndim <= axis < values.ndim:
        raise UsageError(f"A tensor of shape {values.shape} has no axis {axis}.")
    values = dequantize(values, quant)
    turned = np.moveaxis(values, axis, 0)
    if block_size is None:
        parts: list[np.ndarray] = list(turned)
    else:
        axis %= values.ndim
        others = values.shape[:axis] + values.shape[axis + 1 :]
        count = -(-values.shape[axis] // block_size)
        parts = []
        for place in np.ndindex(*values.shape[:axis], count, *values.shape[axis + 1 :]):
            other = place[:axis] + place[axis + 1 :]
            start = place[axis] * block_size
            parts.append(turned[(slice(start, start + block_size), *other)] if others else turned[start:][:block_size])
    found = []
    for part in parts:
        counter = RangeCounter(bins)
        counter.add(np.ascontiguousarray(part))
        found.append(counter.histogram())
    return found
